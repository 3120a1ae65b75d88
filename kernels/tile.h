// The tile machine shared by the GEMM-like kernels: a BM x BN tile of the result, TM x TN a thread, fed
// from LDS a BK-deep slice at a time.
//
// Threads: a wavefront covers 8 columns x 4 rows of threads (LX x 4). A thread's TM rows are runs of RUN,
// BM/(TM/RUN) apart, and so its columns: every LDS read is 16 bytes and neighbouring lanes read neighbouring
// 16 bytes or the same ones.
//
// HALF: operands lie in LDS as f16 and are multiplied two columns at a time. CHAIN products of an output, a slice's BK if nothing is
// said, are summed in f16; then the sum is scaled (ROW_SCALE) and added to the f32 sum.
//
// MATRIX (Vulkan alone, f16): operands lie in LDS as f16, and a wavefront multiplies 16x16 parts of them by the device's matrix
// instructions (VK_KHR_cooperative_matrix), with sums in f32. Its part of the tile is 16 * TM rows and 16 * PARTS columns. TAKE_PART
// brings 16 columns of that to the threads, TM rows of TN elements each, by way of LDS: a driver may keep a matrix in any order.

#include "half.h"

#define TX (BN / TN)
#define TY (BM / TM)
#if TX < 8
#define LX TX
#else
#define LX 8
#endif
#define LY (32 / LX)
// Vectors of four in a row of A and B.
#define A4 (BM / 4 + APAD / 4)
#define B4 (BN / 4 + BPAD / 4)
#ifdef HALF
#define RUN 8
#else
#define RUN 4
#endif
#define ROW_OF(i) ((i) / RUN * (BM / (TM / RUN)) + ty * RUN + (i) % RUN)
#define COL_OF(j) ((j) / RUN * (BN / (TN / RUN)) + tx * RUN + (j) % RUN)

#ifdef MATRIX
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#define PARTS ((BM / TM) * (BN / TN) / THREADS)
// Wavefronts beside each other.
#define WAVES_X (BN / (16 * PARTS))
#undef ROW_OF
#undef COL_OF
#define ROW_OF(i) (wave / WAVES_X * (16 * TM) + (i) * 16 + lane / 2)
#define COL_OF(j) (wave % WAVES_X * (16 * PARTS) + strip * 16 + lane % 2 * 8 + (j))
#define MATRICES coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums[TM][PARTS];
SHARED4(stage, THREADS / 32 * 64)
// The kernel's STORE_TILE for each 16 columns. Not a loop, as with EACH_ROW: `sums` must be in registers.
#define STORE_STRIP(at) { const int strip = at; STORE_TILE }
#define STORE_PARTS STORE_STRIP(0) STORE_STRIP(1)
#define TAKE_PART                                                                      \
  UNROLL for (int i = 0; i < TM; i++) {                                                \
    coopMatStore(sums[i][strip], stage, wave * 64, 4, gl_CooperativeMatrixLayoutRowMajor); \
    BARRIER();                                                                         \
    const vec4 v = stage[tid * 2], w = stage[tid * 2 + 1];                             \
    acc[i][0] = v.x; acc[i][1] = v.y; acc[i][2] = v.z; acc[i][3] = v.w;                \
    acc[i][4] = w.x; acc[i][5] = w.y; acc[i][6] = w.z; acc[i][7] = w.w;                \
    BARRIER();                                                                         \
  }
#else
#define MATRICES
#define STORE_PARTS STORE_TILE
#define TAKE_PART
#endif

#define TILE_THREAD                                                     \
  const uint tid = LOCAL_ID;                                            \
  const uint lane = tid & 31u, wave = tid >> 5;                         \
  const uint tx = (wave % (TX / LX)) * LX + lane % LX;                  \
  const uint ty = (wave / (TX / LX)) * LY + lane / LX;                  \
  float acc[TM][TN];                                                    \
  MATRICES

#ifdef MATRIX
#define TILE_ZERO                                                                      \
  UNROLL for (int i = 0; i < TM; i++) UNROLL for (int j = 0; j < PARTS; j++)           \
    sums[i][j] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
// How a slice of an operand lies in LDS: in BK lines of all rows (or columns), or, with A_ALONG_K and B_ALONG_K, in a line of K_LINE
// vectors for each row (or column).
#define K_LINE (BK / 4 + 2)
#ifdef A_ALONG_K
#define A_LAYOUT gl_CooperativeMatrixLayoutRowMajor
#define A_AT(at, row) (row) * K_LINE + (at) / 4
#define A_LINE K_LINE
#define A_SLICE (BM * K_LINE)
#else
#define A_LAYOUT gl_CooperativeMatrixLayoutColumnMajor
#define A_AT(at, row) (at) * A4 + (row) / 4
#define A_LINE A4
#define A_SLICE (BK * A4)
#endif
#ifdef B_ALONG_K
#define B_LAYOUT gl_CooperativeMatrixLayoutColumnMajor
#define B_AT(at, col) (col) * K_LINE + (at) / 4
#define B_LINE K_LINE
#define B_SLICE (BN * K_LINE)
#else
#define B_LAYOUT gl_CooperativeMatrixLayoutRowMajor
#define B_AT(at, col) (at) * B4 + (col) / 4
#define B_LINE B4
#define B_SLICE (BK * B4)
#endif
// sums += A^T B over the slice that starts at vector `a0` of sa and `b0` of sb.
#define TILE_FMA(a0, b0)                                                               \
  UNROLL for (int at = 0; at < BK; at += 16) {                                         \
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> fa[TM];                \
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> fb[PARTS];             \
    UNROLL for (int i = 0; i < TM; i++)                                                \
      coopMatLoad(fa[i], sa, (a0) + (A_AT(at, wave / WAVES_X * (16 * TM) + i * 16)), A_LINE, A_LAYOUT); \
    UNROLL for (int j = 0; j < PARTS; j++)                                             \
      coopMatLoad(fb[j], sb, (b0) + (B_AT(at, wave % WAVES_X * (16 * PARTS) + j * 16)), B_LINE, B_LAYOUT); \
    UNROLL for (int i = 0; i < TM; i++) UNROLL for (int j = 0; j < PARTS; j++)         \
      sums[i][j] = coopMatMulAdd(fa[i], fb[j], sums[i][j]);                            \
  }
#else
// Vectors of a slice of an operand in LDS.
#define A_SLICE (BK * A4)
#define B_SLICE (BK * B4)
#define TILE_ZERO                                                       \
  UNROLL for (int i = 0; i < TM; i++) UNROLL for (int j = 0; j < TN; j++) acc[i][j] = 0.0f;

// A row is loaded before the one above it is used: RADV leaves loads where the text has them. `a0` and `b0` of TILE_FMA may
// depend on the row's number kk.
#define TAKE_ROW                                                                       \
  UNROLL for (int i = 0; i < TM / 4; i++) fa[i] = na[i];                               \
  UNROLL for (int j = 0; j < TN / 4; j++) fb[j] = nb[j];
#ifdef HALF
#define LOAD_ROW(a0, b0, row)                                                          \
  {                                                                                    \
    const int kk = row;                                                                \
    UNROLL for (int i = 0; i < TM / 4; i++) na[i] = sa[(a0) + ty * 2 + ((kk) * A4 + A_RUN(i))]; \
    UNROLL for (int j = 0; j < TN / 4; j++) nb[j] = sb[(b0) + tx * 2 + ((kk) * B4 + B_RUN(j))]; \
  }
#else
#define LOAD_ROW(a0, b0, row)                                                          \
  {                                                                                    \
    const int kk = row;                                                                \
    UNROLL for (int i = 0; i < TM / 4; i++) na[i] = sa[(a0) + ty + ((kk) * A4 + i * (BM / TM))]; \
    UNROLL for (int j = 0; j < TN / 4; j++) nb[j] = sb[(b0) + tx + ((kk) * B4 + j * (BN / TN))]; \
  }
#endif
#ifdef HALF
// Where a thread's vector of four i lies in a row, but for its own place.
#define A_RUN(i) ((i) / 2 * (BM / (TM / RUN) / 4) + (i) % 2)
#define B_RUN(j) ((j) / 2 * (BN / (TN / RUN) / 4) + (j) % 2)
// Of each run of four pairs, pair i of row kk of a slice lies at i ^ SWAP(kk).
#ifndef SWAP
#define SWAP(kk) 0
#endif
#ifndef CHAIN
#define CHAIN BK
#endif
// acc[i][j] += ROW_SCALE(i) * (A^T B)[i][j] over the slice that starts at vector `a0` of sa and `b0` of sb.
#define TILE_FMA(a0, b0)                                                               \
  {                                                                                    \
    HALF2 sum[TM][TN / 2];                                                             \
    HALF4 na[TM / 4];                                                                  \
    HALF4 nb[TN / 4];                                                                  \
    LOAD_ROW(a0, b0, 0)                                                                \
    UNROLL for (int at = 0; at < BK; at++) {                                           \
      HALF4 fa[TM / 4];                                                                \
      HALF4 fb[TN / 4];                                                                \
      TAKE_ROW                                                                         \
      if (at + 1 < BK) LOAD_ROW(a0, b0, at + 1)                                        \
      UNROLL for (int i = 0; i < TM; i++) UNROLL for (int j = 0; j < TN / 2; j++) {    \
        const int ia = i ^ SWAP(at) * 2, jb = j ^ SWAP(at);                            \
        const HALF2 a = SPLAT2(fa[ia >> 2][ia & 3]);                                   \
        const HALF2 b = HALF2_OF(fb[jb >> 1][jb % 2 * 2], fb[jb >> 1][jb % 2 * 2 + 1]); \
        if (at % CHAIN == 0) sum[i][j] = a * b; else sum[i][j] = FMA2(a, b, sum[i][j]);        \
      }                                                                                \
      if (at % CHAIN == CHAIN - 1) UNROLL for (int i = 0; i < TM; i++) UNROLL for (int j = 0; j < TN; j++) \
        acc[i][j] = ADD_SCALED(acc[i][j], ROW_SCALE(i), sum[i][j >> 1][j & 1]);        \
    }                                                                                  \
  }
#else
// acc += A^T B over the slice that starts at vec4 `a0` of sa and `b0` of sb.
#define TILE_FMA(a0, b0)                                                               \
  {                                                                                    \
  vec4 na[TM / 4];                                                                     \
  vec4 nb[TN / 4];                                                                     \
  LOAD_ROW(a0, b0, 0)                                                                  \
  UNROLL for (int at = 0; at < BK; at++) {                                             \
    vec4 fa[TM / 4];                                                                   \
    vec4 fb[TN / 4];                                                                   \
    TAKE_ROW                                                                           \
    if (at + 1 < BK) LOAD_ROW(a0, b0, at + 1)                                          \
    UNROLL for (int i = 0; i < TM; i++) UNROLL for (int j = 0; j < TN; j++)            \
        acc[i][j] = FMA(fa[i >> 2][i & 3], fb[j >> 2][j & 3], acc[i][j]);              \
  }                                                                                    \
  }
#endif
#endif // MATRIX

// LOADS_FIRST: clang issues the loads of the next slice before the products of this one, and what uses them behind. Else it may do either
// at the wrong end, and wait for memory with nothing to do meanwhile.
#ifdef LOADS_FIRST
#define FENCE_LOADS FENCE
#else
#define FENCE_LOADS
#endif

// `ROW(i)`, a macro, for each row i of this thread, m of p.rows; f0 is the tile's first. OPAQUE keeps clang from working on all rows at
// once, in as many registers.
#define ONE_ROW(ROW)                                             \
  {                                                              \
    uint m = f0 + ROW_OF(i);                                     \
    OPAQUE(m);                                                   \
    if (m < p.rows) ROW(i)                                       \
  }
#ifdef TARGET_HIP
#define EACH_ROW(ROW) { UNROLL for (int i = 0; i < TM; i++) ONE_ROW(ROW) }
#else
// Not a loop: NVIDIA's compiler does not unroll one that has loops and branches in it, keeps acc in memory (ten times slower), and takes
// minutes. clang would take more registers for this.
#define ROW_AT(at, ROW) { const int i = at; ONE_ROW(ROW) }
#define FOUR_ROWS(at, ROW) ROW_AT(at, ROW) ROW_AT(at + 1, ROW) ROW_AT(at + 2, ROW) ROW_AT(at + 3, ROW)
#if TM == 4
#define EACH_ROW(ROW) { FOUR_ROWS(0, ROW) }
#elif TM == 8
#define EACH_ROW(ROW) { FOUR_ROWS(0, ROW) FOUR_ROWS(4, ROW) }
#else
#define EACH_ROW(ROW) { FOUR_ROWS(0, ROW) FOUR_ROWS(4, ROW) FOUR_ROWS(8, ROW) FOUR_ROWS(12, ROW) }
#endif
#endif
