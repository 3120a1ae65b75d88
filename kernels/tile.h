// The tile machine shared by the GEMM-like kernels: a BM x BN tile of the result, TM x TN a thread, fed
// from LDS a BK-deep slice at a time.
//
// Threads: a wavefront covers 8 columns x 4 rows of threads (LX x 4). A thread's TM rows are TM/4 runs
// of four, BM/(TM/4) apart, and so its columns: every LDS read is a vec4 and neighbouring lanes read
// neighbouring vec4s or the same one.

#define TX (BN / TN)
#define TY (BM / TM)
#if TX < 8
#define LX TX
#else
#define LX 8
#endif
#define LY (32 / LX)
#define A4 (BM / 4 + APAD / 4)
#define B4 (BN / 4 + BPAD / 4)
#define ROW_OF(i) (((i) >> 2) * (BM / (TM / 4)) + ty * 4 + ((i) & 3))
#define COL_OF(j) (((j) >> 2) * (BN / (TN / 4)) + tx * 4 + ((j) & 3))

#define TILE_THREAD                                                     \
  const uint tid = LOCAL_ID;                                            \
  const uint lane = tid & 31u, wave = tid >> 5;                         \
  const uint tx = (wave % (TX / LX)) * LX + lane % LX;                  \
  const uint ty = (wave / (TX / LX)) * LY + lane / LX;                  \
  float acc[TM][TN];

#define TILE_ZERO                                                       \
  UNROLL for (int i = 0; i < TM; i++) UNROLL for (int j = 0; j < TN; j++) acc[i][j] = 0.0f;

// acc += A^T B over the slice that starts at vec4 `a0` of sa and `b0` of sb.
#define TILE_FMA(a0, b0)                                                               \
  UNROLL for (int kk = 0; kk < BK; kk++) {                                             \
    vec4 fa[TM / 4];                                                                   \
    vec4 fb[TN / 4];                                                                   \
    UNROLL for (int i = 0; i < TM / 4; i++) fa[i] = sa[(a0) + kk * A4 + i * (BM / TM) + ty]; \
    UNROLL for (int j = 0; j < TN / 4; j++) fb[j] = sb[(b0) + kk * B4 + j * (BN / TN) + tx]; \
    UNROLL for (int i = 0; i < TM; i++) UNROLL for (int j = 0; j < TN; j++)            \
        acc[i][j] = FMA(fa[i >> 2][i & 3], fb[j >> 2][j & 3], acc[i][j]);              \
  }
