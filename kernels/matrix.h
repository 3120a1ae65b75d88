// A tile by matrix instructions, for rows with the define MATRIX (f16, Vulkan alone): operands lie in LDS as f16, and a wavefront
// multiplies 16x16 parts of them, with sums in f32 (VK_KHR_cooperative_matrix). Its part of the tile is 16 * TM rows and 16 * PARTS
// columns. TAKE_PART brings 16 columns of that to the threads, TM rows of TN elements each, by way of LDS: a driver may keep a matrix
// in any order.
//
// EMULATED, for tests on devices without these instructions: a thread sums half a row of each 16x16 part by itself, another one than
// TAKE_PART brings it.
#ifdef MATRIX
#define PARTS ((BM / TM) * (BN / TN) / THREADS)
// Wavefronts beside each other.
#define WAVES_X (BN / (16 * PARTS))
// The wavefront's first row and column of the tile.
#define WAVE_ROW (wave / WAVES_X * (16 * TM))
#define WAVE_COL (wave % WAVES_X * (16 * PARTS))
#undef ROW_OF
#undef COL_OF
#define ROW_OF(i) (WAVE_ROW + (i) * 16 + lane / 2)
#define COL_OF(j) (WAVE_COL + strip * 16 + lane % 2 * 8 + (j))

// How a slice of an operand lies in LDS: in BK lines of all rows (or columns), or, with A_ALONG_K and B_ALONG_K, in a line of K_LINE
// vectors for each row (or column). A_CELL, B_CELL: the number's place in the vector at A_AT, B_AT.
#define K_LINE (BK / 4 + 2)
#ifdef A_ALONG_K
#define A_LAYOUT gl_CooperativeMatrixLayoutRowMajor
#define A_AT(at, row) (row) * K_LINE + (at) / 4
#define A_CELL(at, row) (at) % 4
#define A_LINE K_LINE
#define A_SLICE (BM * K_LINE)
#else
#define A_LAYOUT gl_CooperativeMatrixLayoutColumnMajor
#define A_AT(at, row) (at) * A4 + (row) / 4
#define A_CELL(at, row) (row) % 4
#define A_LINE A4
#define A_SLICE (BK * A4)
#endif
#ifdef B_ALONG_K
#define B_LAYOUT gl_CooperativeMatrixLayoutColumnMajor
#define B_AT(at, col) (col) * K_LINE + (at) / 4
#define B_CELL(at, col) (at) % 4
#define B_LINE K_LINE
#define B_SLICE (BN * K_LINE)
#else
#define B_LAYOUT gl_CooperativeMatrixLayoutRowMajor
#define B_AT(at, col) (at) * B4 + (col) / 4
#define B_CELL(at, col) (col) % 4
#define B_LINE B4
#define B_SLICE (BK * B4)
#endif

// TO_STAGE: a part of the sums to LDS, 16 lines of 16 floats for each wavefront.
SHARED4(stage, THREADS / 32 * 64)
#ifdef EMULATED
#define MATRICES float sums[TM][PARTS][8];
#define ZERO_PART(i, j) UNROLL for (int e = 0; e < 8; e++) sums[i][j][e] = 0.0;
#define OWN_ROW(i) (WAVE_ROW + (i) * 16 + lane % 16)
#define OWN_COL(j) (WAVE_COL + strip * 16 + lane / 16 * 8 + (j))
#define TO_STAGE(i)                                                                    \
    UNROLL for (int j = 0; j < 8; j++) stage[wave * 64 + lane % 16 * 4 + lane / 16 * 2 + j / 4][j % 4] = sums[i][strip][j];
#define TILE_FMA(a0, b0)                                                               \
  for (int at = 0; at < BK; at++) UNROLL for (int strip = 0; strip < PARTS; strip++)   \
    UNROLL for (int i = 0; i < TM; i++) UNROLL for (int j = 0; j < 8; j++) {           \
      const float a = float(sa[(a0) + (A_AT(at, OWN_ROW(i)))][A_CELL(at, OWN_ROW(i))]); \
      const float b = float(sb[(b0) + (B_AT(at, OWN_COL(j)))][B_CELL(at, OWN_COL(j))]); \
      sums[i][strip][j] = FMA(a, b, sums[i][strip][j]);                                \
    }
#else
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#define SUMS coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define MATRICES SUMS sums[TM][PARTS];
#define ZERO_PART(i, j) sums[i][j] = SUMS(0.0);
#define TO_STAGE(i) coopMatStore(sums[i][strip], stage, wave * 64, 4, gl_CooperativeMatrixLayoutRowMajor);
// sums += A^T B over the slice that starts at vector `a0` of sa and `b0` of sb.
#define TILE_FMA(a0, b0)                                                               \
  UNROLL for (int at = 0; at < BK; at += 16) {                                         \
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> fa[TM];                \
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> fb[PARTS];             \
    UNROLL for (int i = 0; i < TM; i++)                                                \
      coopMatLoad(fa[i], sa, (a0) + (A_AT(at, WAVE_ROW + i * 16)), A_LINE, A_LAYOUT);  \
    UNROLL for (int j = 0; j < PARTS; j++)                                             \
      coopMatLoad(fb[j], sb, (b0) + (B_AT(at, WAVE_COL + j * 16)), B_LINE, B_LAYOUT);  \
    UNROLL for (int i = 0; i < TM; i++) UNROLL for (int j = 0; j < PARTS; j++)         \
      sums[i][j] = coopMatMulAdd(fa[i], fb[j], sums[i][j]);                            \
  }
#endif
#define TILE_ZERO UNROLL for (int i = 0; i < TM; i++) UNROLL for (int j = 0; j < PARTS; j++) { ZERO_PART(i, j) }
// The kernel's STORE_TILE for each 16 columns. Not a loop, as with EACH_ROW: `sums` must be in registers.
#define STORE_STRIP(at) { const int strip = at; STORE_TILE }
#define STORE_PARTS STORE_STRIP(0) STORE_STRIP(1)
#define TAKE_PART                                                                      \
  UNROLL for (int i = 0; i < TM; i++) {                                                \
    TO_STAGE(i)                                                                        \
    BARRIER();                                                                         \
    const vec4 v = stage[tid * 2], w = stage[tid * 2 + 1];                             \
    acc[i][0] = v.x; acc[i][1] = v.y; acc[i][2] = v.z; acc[i][3] = v.w;                \
    acc[i][4] = w.x; acc[i][5] = w.y; acc[i][6] = w.z; acc[i][7] = w.w;                \
    BARRIER();                                                                         \
  }
#endif
