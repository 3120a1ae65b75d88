// The activation behind a batch or group norm, in its pass. `most` is ReLU's upper bound, or NaN for none. NaN stays NaN.
#define ACT_NONE 0u
#define ACT_RELU 1u
#define ACT_SILU 2u

FN float activated(uint act, float most, float v) {
  if (act == ACT_RELU) {
    v = RELU(v);
    return v > most ? most : v;
  }
  return act == ACT_SILU ? v * m_sigmoid(v) : v;
}

// The gradient of `v`, the activation's operand, for that of its result.
FN float activated_back(uint act, float most, float dy, float v) {
  if (act == ACT_RELU) return v <= 0.0f || v >= most ? 0.0f : dy;
  if (act != ACT_SILU) return dy;
  const float f = m_sigmoid(v);
  return dy * f * FMA(v, 1.0f - f, 1.0f);
}

#if VEC == 4
#define ACTIVATED(v) VEC4(activated(p.act, p.most, (v).x), activated(p.act, p.most, (v).y), activated(p.act, p.most, (v).z), \
  activated(p.act, p.most, (v).w))
#define ACTIVATED_BACK(dy, v) VEC4(activated_back(p.act, p.most, (dy).x, (v).x), activated_back(p.act, p.most, (dy).y, (v).y), \
  activated_back(p.act, p.most, (dy).z, (v).z), activated_back(p.act, p.most, (dy).w, (v).w))
#define MUL_ADD(v, a, b) VEC4(FMA((v).x, a, b), FMA((v).y, a, b), FMA((v).z, a, b), FMA((v).w, a, b))
#else
#define ACTIVATED(v) activated(p.act, p.most, v)
#define ACTIVATED_BACK(dy, v) activated_back(p.act, p.most, dy, v)
#define MUL_ADD(v, a, b) FMA(v, a, b)
#endif
// What the activation got, of x less the mean: the same in all kernels, or they would disagree about a sign.
#define NORMED(v, k) MUL_ADD(v, (k).y, (k).w)
