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

// The rest of them: v times a factor, without branches, since a kernel has this many times. GELU's erfc is Abramowitz and
// Stegun's 7.1.26 (off by at most 1.5e-7).
FN float other_activation(uint act, float v) {
  const bool gelu = act == ACTIVATION_GELU;
  const float a = FABS(v), e = m_exp_down(gelu ? -0.5f * v * v : -a);
  const float t = 1.0f / (1.0f + (gelu ? 0.231641888f * a : e));
  const float tail = FMA(FMA(FMA(FMA(1.06140543f, t, -1.45315203f), t, 1.42141374f), t, -0.284496737f), t, 0.254829592f);
  const float low = e * t * (gelu ? 0.5f * tail : 1.0f), part = FMA(v, 0.166666667f, 0.5f);
  const float share = v < 0.0f ? low : 1.0f - low;
  const float hard = part < 0.0f ? 0.0f : part > 1.0f ? 1.0f : part;
  const float line = v < 0.0f ? float(act & (ACTIVATION_LEAKY - 1u)) / 100.0f : 1.0f;
  return v * (act >= ACTIVATION_LEAKY ? line : act == ACTIVATION_HARDSWISH ? hard : share);
}

FN float activated(uint act, float v) {
  if (act == 0u) return v;
  if (act > ACTIVATION_RELU6) return other_activation(act, v);
  v = RELU(v);
  return act == ACTIVATION_RELU6 ? relu6(v) : v;
}

// All of v[rows][columns]. Long code stands there once for a row: the rows go round. (An `else` between the two
// parts costs clang some 50 registers.)
#define ACTIVATE_ROWS(v, rows, columns)                                                                               \
  {                                                                                                                   \
    const uint act = ACTIVATION;                                                                                      \
    if (act > ACTIVATION_RELU6) {                                                                                     \
      NOUNROLL for (uint r = 0; r < uint(rows); r++) {                                                                \
        float first[columns];                                                                                         \
        UNROLL for (int j = 0; j < (columns); j++) {                                                                  \
          first[j] = other_activation(act, v[0][j]);                                                                  \
          OPAQUE(first[j]);                                                                                           \
        }                                                                                                             \
        UNROLL for (int i = 0; i + 1 < (rows); i++) UNROLL for (int j = 0; j < (columns); j++) v[i][j] = v[i + 1][j]; \
        UNROLL for (int j = 0; j < (columns); j++) v[(rows) - 1][j] = first[j];                                       \
      }                                                                                                               \
    }                                                                                                                 \
    if (act == ACTIVATION_RELU || act == ACTIVATION_RELU6) {                                                          \
      UNROLL for (int i = 0; i < (rows); i++) UNROLL for (int j = 0; j < (columns); j++) v[i][j] = RELU(v[i][j]);     \
      if (act == ACTIVATION_RELU6) {                                                                                  \
        UNROLL for (int i = 0; i < (rows); i++) UNROLL for (int j = 0; j < (columns); j++) v[i][j] = relu6(v[i][j]);  \
      }                                                                                                               \
    }                                                                                                                 \
  }
