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
#include "log2.h"

// Four numbers of a vector into a column of a transposed slice.
#define TURNED(at, v) LANE(stage, (at)) = v.x; LANE(stage, (at) + BLOCK) = v.y; LANE(stage, (at) + 2 * BLOCK) = v.z; \
  LANE(stage, (at) + 3 * BLOCK) = v.w;

// HALVES: how the loop over both halves of a slice is compiled.
// Vectors that a thread brings of each operand's slice: of row `own`, from vector `own4` on.
#define VECTORS (SLICE / 4 * BLOCK / THREADS)
// s += a b^T over `size4` vectors of a thread's row of each, from `a_row` and `b_row` on. A slice's vectors are loaded while the slice
// before is multiplied.
#define BRING_SCORES(a, a_row, b, b_row, size4, slice) \
  UNROLL for (int i = 0; i < VECTORS; i++) { \
    const uint d4 = (slice) * uint(SLICE / 4) + own4 + uint(i); \
    of_a[i] = of_b[i] = VEC4(0.0f, 0.0f, 0.0f, 0.0f); \
    if (d4 < (size4)) { \
      of_a[i] = LOAD4(a, (a_row) + d4); \
      of_b[i] = LOAD4(b, (b_row) + d4); \
    } \
  }
#define ADD_SCORES(s, a, a_row, b, b_row, size4) { \
  vec4 of_a[VECTORS], of_b[VECTORS]; \
  BRING_SCORES(a, a_row, b, b_row, size4, 0u) \
  NOUNROLL for (uint slice = 0u; slice * uint(SLICE / 4) < (size4); slice++) { \
    BARRIER(); \
    UNROLL for (int i = 0; i < VECTORS; i++) { \
      TURNED(4 * ROWS_AT + (own4 + uint(i)) * 4u * uint(BLOCK) + own, of_a[i]) \
      TURNED(4 * COLUMNS_AT + (own4 + uint(i)) * 4u * uint(BLOCK) + own, of_b[i]) \
    } \
    BARRIER(); \
    BRING_SCORES(a, a_row, b, b_row, size4, slice + 1u) \
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
  } }

// The scores OF(i, j) of this thread into `weights`.
#define KEEP_WEIGHTS(OF) \
  UNROLL for (int j = 0; j < 4; j++) UNROLL for (int r = 0; r < ROWS / 4; r++) \
    weights[WEIGHT_AT(tx, j, ty * uint(ROWS / 4) + uint(r))] = VEC4(OF(4 * r, j), OF(4 * r + 1, j), OF(4 * r + 2, j), OF(4 * r + 3, j));

// Which weights dropout keeps: each has 16 bits, and those below `dropped` are dropped. What is kept is divided by the share that is.
#define KEPT_SCALE(dropped) (65536.0f / float(65536u - (dropped)))
#define IS_KEPT(kept, i, j) (((kept) >> uint(4 * (i) + (j)) & 1u) != 0u)
#ifdef TARGET_GLSL
uint high_half(uint a, uint b) { uint high, low; umulExtended(a, b, high, low); return high; }
#else
FN uint high_half(uint a, uint b) { return uint((unsigned long long)a * b >> 32); }
#endif
// Of 4 queries by 4 keys, in bits 4 * query + key, or 4 * key + query where `by_key`. Philox4x32-7 (Salmon et al., 2011): the counter
// is the fourth of keys, that of queries, the head, and which half of the 16.
FN uint kept_of_16(uint key_low, uint key_high, uint dropped, uint head, uint query4, uint key4, bool by_key) {
  uint kept = 0u;
  NOUNROLL for (uint half_of = 0u; half_of < 2u; half_of++) {
    uint c0 = key4, c1 = query4, c2 = head, c3 = half_of, k0 = key_low, k1 = key_high;
    NOUNROLL for (int round = 0; round < 7; round++) {
      const uint n0 = high_half(0xcd9e8d57u, c2) ^ c1 ^ k0, n2 = high_half(0xd2511f53u, c0) ^ c3 ^ k1;
      c1 = 0xcd9e8d57u * c2;
      c3 = 0xd2511f53u * c0;
      c0 = n0;
      c2 = n2;
      k0 += 0x9e3779b9u;
      k1 += 0xbb67ae85u;
    }
    NOUNROLL for (uint pair = 0u; pair < 4u; pair++) {
      const uint query = 2u * half_of + pair / 2u, key = pair % 2u * 2u;
      const uint first = by_key ? 4u * key + query : 4u * query + key;
      kept |= LO16(c0) < dropped ? 0u : 1u << first;
      kept |= HI16(c0) < dropped ? 0u : 1u << (first + (by_key ? 4u : 1u));
      c0 = c1;
      c1 = c2;
      c2 = c3;
    }
  }
  return kept;
}
// All of a thread's: `row_four` and `column_four` are the fourths of its first row and of its columns.
FN uint kept_of_thread(uint key_low, uint key_high, uint dropped, uint head, uint row_four, uint column_four, bool by_key) {
  uint kept = 0u;
  NOUNROLL for (uint r = 0u; r < uint(ROWS / 4); r++) {
    const uint query4 = by_key ? column_four : row_four + r, key4 = by_key ? row_four + r : column_four;
    kept |= kept_of_16(key_low, key_high, dropped, head, query4, key4, by_key) << (16u * r);
  }
  return kept;
}

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
// v is `v_row` + r * `v_l`, none behind `last`. Slices are loaded as those of scores.
#define BROUGHT ((SLICE * D / 4 + THREADS - 1) / THREADS)
#define BRING_VALUES(v, v_row, v_l, last, from4, size4, begin) \
  UNROLL for (int i = 0; i < BROUGHT; i++) { \
    const uint at = tid + uint(i) * uint(THREADS), c4 = (from4) + at % uint(D / 4); \
    of_v[i] = VEC4(0.0f, 0.0f, 0.0f, 0.0f); \
    if (c4 < (size4)) of_v[i] = LOAD4(v, (v_row) + min((begin) + at / uint(D / 4), last) * (v_l) + c4); \
  }
#define ADD_VALUES(name, v, v_row, v_l, last, from4, size4, begin, end) { \
  vec4 of_v[BROUGHT]; \
  BRING_VALUES(v, v_row, v_l, last, from4, size4, begin) \
  NOUNROLL for (uint slice = 0u; slice < uint(BLOCK / SLICE) && (begin) + slice * uint(SLICE) < (end); slice++) { \
    BARRIER(); \
    UNROLL for (int i = 0; i < BROUGHT; i++) { \
      const uint at = tid + uint(i) * uint(THREADS); \
      if (SLICE * D / 4 % THREADS != 0 && at >= uint(SLICE * D / 4)) break; \
      stage[at] = of_v[i]; \
    } \
    BARRIER(); \
    if (slice + 1u < uint(BLOCK / SLICE)) BRING_VALUES(v, v_row, v_l, last, from4, size4, (begin) + (slice + 1u) * uint(SLICE)) \
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
  } }
