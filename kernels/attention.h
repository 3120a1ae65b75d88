// What attention's passes share: a block of 64 rows by 64 columns of scores a workgroup, THREADS threads.
//
// Of the scores a thread has ROWS rows by 4 columns: 16 threads across columns. Of a result it has OWN rows by D / COLUMNS
// columns: PARTS vectors, COLUMNS vectors apart, and behind all of these vectors REST numbers.
#define BLOCK 64
#define SLICE 16
#define ACROSS 16
#define ROWS (BLOCK * ACROSS / THREADS)
#define OWN (BLOCK * COLUMNS / THREADS)
#define PARTS (D / 4 / COLUMNS)
#define REST (D / COLUMNS - 4 * PARTS)
#define REST_AT (4 * COLUMNS * PARTS)

// A slice of two transposed operands, or one of values; the block's weights, [column][row].
#define STAGE4 (SLICE * (D > 2 * BLOCK ? D : 2 * BLOCK) / 4)
#define ROWS_AT 0
#define COLUMNS_AT (SLICE * BLOCK / 4)
// Eight lanes that write neighbouring columns' weights must not meet in a bank: a vector's place is XOR a quarter of the column.
#define WEIGHT_AT(tx, j, row4) ((tx) * uint(BLOCK) + uint((j) * BLOCK / 4) + ((row4) ^ (tx)))
#define LOG2_E 1.44269504089f
#define LN_2 0.69314718056f

// Four numbers of a vector into a column of a transposed slice.
#define TURNED(at, v) LANE(stage, (at)) = v.x; LANE(stage, (at) + BLOCK) = v.y; LANE(stage, (at) + 2 * BLOCK) = v.z; \
  LANE(stage, (at) + 3 * BLOCK) = v.w;

// HALVES: how the loop over both halves of a slice is compiled.
// Vectors that a thread brings of each operand's slice: of row `own`, from vector `own4` on.
#define VECTORS (SLICE / 4 * BLOCK / THREADS)
// s += a b^T over `size4` vectors of a thread's row of each, from `a_row` and `b_row` on.
#define ADD_SCORES(s, a, a_row, b, b_row, size4) \
  NOUNROLL for (uint slice = 0u; slice < ((size4) + uint(SLICE / 4) - 1u) / uint(SLICE / 4); slice++) { \
    BARRIER(); \
    UNROLL for (int i = 0; i < VECTORS; i++) { \
      const uint d4 = slice * uint(SLICE / 4) + own4 + uint(i); \
      vec4 va = VEC4(0.0f, 0.0f, 0.0f, 0.0f), vb = va; \
      if (d4 < (size4)) { \
        va = LOAD4(a, (a_row) + d4); \
        vb = LOAD4(b, (b_row) + d4); \
      } \
      TURNED(4 * ROWS_AT + (own4 + uint(i)) * 4u * uint(BLOCK) + own, va) \
      TURNED(4 * COLUMNS_AT + (own4 + uint(i)) * 4u * uint(BLOCK) + own, vb) \
    } \
    BARRIER(); \
    HALVES for (int part = 0; part < 2 && slice * uint(SLICE / 4) + uint(part * SLICE / 8) < (size4); part++) { \
      UNROLL for (int element = 0; element < SLICE / 2; element++) { \
        const int d = part * (SLICE / 2) + element; \
        const vec4 b0 = stage[COLUMNS_AT + d * (BLOCK / 4) + tx]; \
        UNROLL for (int r = 0; r < ROWS / 4; r++) { \
          const vec4 a0 = stage[ROWS_AT + d * (BLOCK / 4) + ty * uint(ROWS / 4) + uint(r)]; \
          UNROLL for (int j = 0; j < 4; j++) UNROLL for (int i = 0; i < 4; i++) s[4 * r + i][j] = FMA(a0[i], b0[j], s[4 * r + i][j]); \
        } \
      } \
    } \
  }

// The scores of this thread into `weights`.
#define KEEP_WEIGHTS(s) \
  UNROLL for (int j = 0; j < 4; j++) UNROLL for (int r = 0; r < ROWS / 4; r++) \
    weights[WEIGHT_AT(tx, j, ty * uint(ROWS / 4) + uint(r))] = VEC4(s[4 * r][j], s[4 * r + 1][j], s[4 * r + 2][j], s[4 * r + 3][j]);

// What a thread has of a result: vectors `name`, and numbers `name_rest` behind them.
#if REST
#define RESULT(name) \
  vec4 name[OWN][PARTS]; \
  float name##_rest[OWN][REST]; \
  UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < PARTS; j++) name[i][j] = VEC4(0.0f, 0.0f, 0.0f, 0.0f); \
  UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < REST; j++) name##_rest[i][j] = 0.0f;
#define ADD_REST(name, d) \
  UNROLL for (int j = 0; j < REST; j++) { \
    const float vv = LANE_OF(stage, uint(((d) * D + REST_AT + j * COLUMNS) / 4) + column / 4u, column % 4u); \
    UNROLL for (int i = 0; i < OWN; i++) name##_rest[i][j] = FMA(w[i / 4][i % 4], vv, name##_rest[i][j]); \
  }
#else
#define RESULT(name) \
  vec4 name[OWN][PARTS]; \
  UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < PARTS; j++) name[i][j] = VEC4(0.0f, 0.0f, 0.0f, 0.0f);
#define ADD_REST(name, d)
#endif

// name += weights v: columns `begin` to `end` of the weights, of each value the vectors from `from4` on, below `size4`. Row r of
// v is `v_row` + r * `v_l`, none behind `last`.
#define ADD_VALUES(name, v, v_row, v_l, last, from4, size4, begin, end) \
  NOUNROLL for (uint slice = 0u; slice < uint(BLOCK / SLICE) && (begin) + slice * uint(SLICE) < (end); slice++) { \
    BARRIER(); \
    UNROLL for (int i = 0; i < (SLICE * D / 4 + THREADS - 1) / THREADS; i++) { \
      const uint at = tid + uint(i) * uint(THREADS), c4 = (from4) + at % uint(D / 4); \
      if (SLICE * D / 4 % THREADS != 0 && at >= uint(SLICE * D / 4)) break; \
      const uint row = min((begin) + slice * uint(SLICE) + at / uint(D / 4), last); \
      vec4 vv = VEC4(0.0f, 0.0f, 0.0f, 0.0f); \
      if (c4 < (size4)) vv = LOAD4(v, (v_row) + row * (v_l) + c4); \
      stage[at] = vv; \
    } \
    BARRIER(); \
    UNROLL for (int four = 0; four < SLICE / 4; four++) { \
      const uint turned = slice * uint(SLICE / 4) + uint(four); \
      UNROLL for (int one = 0; one < 4; one++) { \
        const int d = four * 4 + one; \
        vec4 w[OWN / 4]; \
        UNROLL for (int i = 0; i < OWN / 4; i++) w[i] = weights[WEIGHT_AT(turned, one, row4 + uint(i))]; \
        UNROLL for (int j = 0; j < PARTS; j++) { \
          const vec4 vv = stage[d * (D / 4) + j * COLUMNS + column]; \
          UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int c = 0; c < 4; c++) { \
            name[i][j][c] = FMA(w[i / 4][i % 4], vv[c], name[i][j][c]); \
          } \
        } \
        ADD_REST(name, d) \
      } \
    } \
  }
