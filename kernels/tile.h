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
// DOT: dot.h. MATRIX: matrix.h.

#include "half.h"
#ifdef DOT
#include "dot.h"
// Rows of a slice, the one of which k is part, and a vector of one.
#define SLICE_ROWS (BK / 2)
#define SLICE_ROW(k) ((k) / 2u)
#define ROW4 PAIRS4
#else
#define SLICE_ROWS BK
#define SLICE_ROW(k) k
#define ROW4 vec4
#endif

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

#include "matrix.h"
#ifndef MATRIX
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

#ifndef MATRIX
// Vectors of a slice of an operand in LDS.
#define A_SLICE (SLICE_ROWS * A4)
#define B_SLICE (SLICE_ROWS * B4)
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
#ifdef DOT
#define ADD_PRODUCT DOT2
#else
#define ADD_PRODUCT FMA
#endif
// acc += A^T B over the slice that starts at vector `a0` of sa and `b0` of sb.
#define TILE_FMA(a0, b0)                                                               \
  {                                                                                    \
  ROW4 na[TM / 4];                                                                     \
  ROW4 nb[TN / 4];                                                                     \
  LOAD_ROW(a0, b0, 0)                                                                  \
  UNROLL for (int at = 0; at < SLICE_ROWS; at++) {                                     \
    ROW4 fa[TM / 4];                                                                   \
    ROW4 fb[TN / 4];                                                                   \
    TAKE_ROW                                                                           \
    if (at + 1 < SLICE_ROWS) LOAD_ROW(a0, b0, at + 1)                                  \
    UNROLL for (int i = 0; i < TM; i++) UNROLL for (int j = 0; j < TN; j++)            \
        acc[i][j] = ADD_PRODUCT(fa[i >> 2][i & 3], fb[j >> 2][j & 3], acc[i][j]);      \
  }                                                                                    \
  }
#endif
#endif

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
