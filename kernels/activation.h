// What a convolution does to a result before it stores it: bits 8 to 15 of its flags. Above ACTIVATION_LEAKY lies the slope of a
// leaky ReLU in hundredths. NaN stays NaN.
#define ACTIVATION_SHIFT 8u
#define ACTIVATION_RELU 1u
#define ACTIVATION_RELU6 2u
#define ACTIVATION_SILU 3u
#define ACTIVATION_HARDSWISH 4u
#define ACTIVATION_GELU 5u
#define ACTIVATION_LEAKY 128u
#define ACTIVATION (p.flags >> ACTIVATION_SHIFT & 255u)

FN float relu6(float v) { return v > 6.0f ? 6.0f : v; } // of what ReLU made
FN float leaky_relu(uint act, float v) { return v < 0.0f ? v * (float(act - ACTIVATION_LEAKY) / 100.0f) : v; }
// A driver's own exp2: few instructions count more here than the last bit.
FN float silu(float v) { return v / (1.0f + EXP2(v * -1.44269504f)); }
FN float hardswish(float v) {
  const float part = max(FMA(v, 0.166666667f, 0.5f), 0.0f);
  return v * (part > 1.0f ? 1.0f : part);
}
// erfc is Abramowitz and Stegun's 7.1.26 (off by at most 1.5e-7).
FN float gelu(float v) {
  const float t = 1.0f / FMA(0.231641888f, FABS(v), 1.0f);
  const float tail = FMA(FMA(FMA(FMA(1.06140543f, t, -1.45315203f), t, 1.42141374f), t, -0.284496737f), t, 0.254829592f);
  const float low = m_exp_down(-0.5f * v * v) * t * (0.5f * tail);
  return v * (v < 0.0f ? low : 1.0f - low);
}

FN float activated(uint act, float v) {
  if (act == 0u) return v;
  if (act == ACTIVATION_SILU) return silu(v);
  if (act == ACTIVATION_HARDSWISH) return hardswish(v);
  if (act == ACTIVATION_GELU) return gelu(v);
  if (act >= ACTIVATION_LEAKY) return leaky_relu(act, v);
  v = RELU(v);
  return act == ACTIVATION_RELU6 ? relu6(v) : v;
}

// All of v[rows][columns]. GELU's code is long: it stands there for one row, and the rows go round. (OPAQUE: where clang sees that one
// case excludes the others, it keeps copies of all in registers.)
#define ACTIVATE_EACH(v, rows, columns, is, value)                                                              \
  {                                                                                                             \
    uint act = ACTIVATION;                                                                                      \
    OPAQUE(act);                                                                                                \
    if (is) UNROLL for (int i = 0; i < (rows); i++) UNROLL for (int j = 0; j < (columns); j++) v[i][j] = value; \
  }
#define ACTIVATE_ROWS(v, rows, columns)                                                                               \
  {                                                                                                                   \
    ACTIVATE_EACH(v, rows, columns, act == ACTIVATION_RELU || act == ACTIVATION_RELU6, RELU(v[i][j]))                 \
    ACTIVATE_EACH(v, rows, columns, act == ACTIVATION_RELU6, relu6(v[i][j]))                                          \
    ACTIVATE_EACH(v, rows, columns, act == ACTIVATION_SILU, silu(v[i][j]))                                            \
    ACTIVATE_EACH(v, rows, columns, act == ACTIVATION_HARDSWISH, hardswish(v[i][j]))                                  \
    ACTIVATE_EACH(v, rows, columns, act >= ACTIVATION_LEAKY, leaky_relu(act, v[i][j]))                                \
    if (ACTIVATION == ACTIVATION_GELU) {                                                                              \
      NOUNROLL for (uint r = 0; r < uint(rows); r++) {                                                                \
        float first[columns];                                                                                         \
        UNROLL for (int j = 0; j < (columns); j++) {                                                                  \
          first[j] = gelu(v[0][j]);                                                                                   \
          OPAQUE(first[j]);                                                                                           \
        }                                                                                                             \
        UNROLL for (int i = 0; i + 1 < (rows); i++) UNROLL for (int j = 0; j < (columns); j++) v[i][j] = v[i + 1][j]; \
        UNROLL for (int j = 0; j < (columns); j++) v[(rows) - 1][j] = first[j];                                       \
      }                                                                                                               \
    }                                                                                                                 \
  }
