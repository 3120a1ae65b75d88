// What the kernels of attention by matrix instructions share: blocks of 64 rows of D elements in LDS as f16, and products with them.
// Before it stands STAGE_LINE, the vectors of four of a line of `stage`; behind it LDS: `stage`, and `weights` where it has them.
#define BLOCK 64
// Elements of a head in whole matrices; the vectors of four of a row in LDS, 16 bytes longer, so that rows lie in different banks.
#define D16 ((D + 15) / 16 * 16)
#define PARTS (D16 / 16)
#define LINE (D16 / 4 + 2)
#define WEIGHTS_LINE (BLOCK / 4 + 2)
// Vectors of a block of rows that a thread loads; and those of a result's row that it has: two threads have one.
#define OWN (D / 8)

// A block of rows from memory, behind the last row the last one; and to LDS.
#define FETCH(to, name, head, stride, from, last)                                                                \
  UNROLL for (int i = 0; i < OWN; i++) {                                                                         \
    const uint at = tid + uint(i * THREADS), row = min((from) + at / uint(D / 4), last);                         \
    to[i] = VEC4_AT(name, (head) + row * (stride) + at % uint(D / 4));                                           \
  }
#define KEEP(lds, from)                                                                                          \
  UNROLL for (int i = 0; i < OWN; i++) {                                                                         \
    const uint at = tid + uint(i * THREADS);                                                                     \
    lds[at / uint(D / 4) * uint(LINE) + at % uint(D / 4)] = from[i];                                             \
  }

// TAKE: the wavefront's rows of the block that was fetched from `name` and lies in `lds`. SCORES: `stage` = left lds^T.
#ifdef EMULATED
#define EMULATED_ROW (wave * 16u + lane % 16u)
#define NUMBER(name, line, row, at) float(name[(row) * uint(line) + (at) / 4u][(at) % 4u])
#define TAKE(left, lds, head, stride, last)                                                                      \
  const uint left = ((head) + min(first + EMULATED_ROW, last) * (stride)) * 4u;
#define SCORES(left, name, lds)                                                                                  \
  NOUNROLL for (uint col = lane / 16u * 32u; col < lane / 16u * 32u + 32u; col++) {                              \
    float score = 0.0f;                                                                                          \
    NOUNROLL for (uint e = 0u; e < uint(D); e++) score = FMA(LOAD(name, left + e), NUMBER(lds, LINE, col, e), score); \
    stage[EMULATED_ROW * uint(STAGE_LINE) + col / 4u][col % 4u] = score;                                         \
  }
#else
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define SUMS coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define ROWWISE gl_CooperativeMatrixLayoutRowMajor
#define TAKE(left, lds, head, stride, last)                                                                      \
  LEFT left[PARTS];                                                                                              \
  UNROLL for (int c = 0; c < PARTS; c++) coopMatLoad(left[c], lds, wave * uint(16 * LINE) + uint(c * 4), LINE, ROWWISE);
#define SCORES(left, name, lds)                                                                                  \
  UNROLL for (int n = 0; n < BLOCK / 16; n++) {                                                                  \
    SUMS made = SUMS(0.0);                                                                                       \
    UNROLL for (int c = 0; c < PARTS; c++) {                                                                     \
      RIGHT others;                                                                                              \
      coopMatLoad(others, lds, n * 16 * LINE + c * 4, LINE, gl_CooperativeMatrixLayoutColumnMajor);              \
      made = coopMatMulAdd(left[c], others, made);                                                               \
    }                                                                                                            \
    coopMatStore(made, stage, wave * uint(16 * STAGE_LINE) + uint(n * 4), STAGE_LINE, ROWWISE);                  \
  }
#endif
