// Activations, their gradients and what else is frequent, as contiguous tensors have them (ew_fast.kern): FN float f(a, b, s),
// operands and parameter as in ew_ops.h. Of 16-bit types they compute no more digits than those hold.
#include "short_exp.h"

#if DTYPE == DTYPE_F32
// e^(-a^2 / 2) of 0 <= a <= MAX_NORMAL. The leading half of the digits has an exact square.
FN float gauss(float a) {
  const float high = AS_FLOAT(AS_UINT(a) & 0xfffff000u);
  PRECISE float low = a - high;
  const float x = -0.5f * high * high;
  const float n = RINT(x * 1.44269504f);
  PRECISE float r = (x - n * 0.693359375f) + (n * 2.12194440e-4f - 0.5f * low * (a + high));
  return x < -87.0f ? 0.0f : (FMA(exp_tail(r), r * r, r) + 1.0f) * POWER_OF_2(int(n));
}
FN float sigmoid_of(float v) { return m_sigmoid(v); }
FN float silu_of(float v) { return m_quotient(v, 1.0f + m_exp(-v)); }
FN float exp_of(float v) { return m_exp(v); }
#else
FN float gauss(float a) { return EXP2(-0.72134752f * a * a); }
FN float sigmoid_of(float v) {
  const float e = EXP2(FABS(v) * -1.44269504f), by = 1.0f / (1.0f + e);
  return v < 0.0f ? e * by : by;
}
FN float exp_of(float v) { return short_exp(v); }
// With the exponential's root: bfloat16 has results that are larger than the least exponential is.
FN float silu_of(float v) {
  const float root = EXP2(FABS(v) * -0.72134752f), by = 1.0f / FMA(root, root, 1.0f);
  return v < 0.0f ? (v * root) * (root * by) : v * by;
}
#endif

// Above it the normal distribution's tail is 0.
#define MAX_NORMAL 13.25f
#define NORMAL_0 0.084594585f
#define NORMAL_1 0.0853491649f
#define NORMAL_2 0.0742215812f
#define NORMAL_3 0.107285239f
#define NORMAL_4 -0.046955239f
#define NORMAL_5 0.273378938f
#define NORMAL_6 -0.255757183f
#define NORMAL_7 0.242612123f
#define NORMAL_8 -0.0647291988f
FN float bounded(float x) { return FABS(x) < MAX_NORMAL ? FABS(x) : MAX_NORMAL; }
// The normal distribution up to x; `density` is gauss(bounded(x)). Below 0 it is density t P(t), t = 1 / (1 + 0.3 |x| / sqrt(2)); P was
// fitted to erfcx(|x| / sqrt(2)) / 2 t, and is off by at most 2e-8 of it.
FN float normal(float x, float density) {
  const float t = 1.0f / FMA(0.212132034f, bounded(x), 1.0f);
  float y = FMA(NORMAL_8, t, NORMAL_7);
  y = FMA(y, t, NORMAL_6);
  y = FMA(y, t, NORMAL_5);
  y = FMA(y, t, NORMAL_4);
  y = FMA(y, t, NORMAL_3);
  y = FMA(y, t, NORMAL_2);
  y = FMA(y, t, NORMAL_1);
  const float below = FMA(y, t, NORMAL_0) * t * density;
  return x < 0.0f ? below : 1.0f - below;
}

FN float act_gelu(float a, float b, float s) { return a * normal(a, gauss(bounded(a))); }
FN float act_gelu_backward(float a, float b, float s) {
  const float density = gauss(bounded(b));
  return a * FMA(b, density * 0.398942280f, normal(b, density));
}
FN float act_gelu_tanh(float a, float b, float s) { return a * sigmoid_of(2.0f * gelu_inner(a)); }
FN float act_gelu_tanh_backward(float a, float b, float s) {
  const float inner = 2.0f * gelu_inner(b), f = sigmoid_of(inner);
  return a * FMA(b * f * sigmoid_of(-inner), 2.0f * GELU_K * FMA(3.0f * GELU_C * b, b, 1.0f), f);
}
FN float act_silu(float a, float b, float s) { return silu_of(a); }
FN float act_silu_backward(float a, float b, float s) {
  const float f = sigmoid_of(b);
  return a * f * FMA(b, 1.0f - f, 1.0f);
}
FN float act_sigmoid(float a, float b, float s) { return sigmoid_of(a); }
FN float act_tanh(float a, float b, float s) { return m_tanh(a); }
FN float act_exp(float a, float b, float s) { return exp_of(a); }
FN float act_div(float a, float b, float s) { return m_div(a, b); }
#define ACT_SIMPLE(name, code) FN float name(float a, float b, float s) { return ew_activation(code, a, b, 0.0f, s, 0.0f); }
ACT_SIMPLE(act_leaky_relu, OP_LEAKY_RELU)
ACT_SIMPLE(act_leaky_relu_backward, OP_LEAKY_RELU_BACKWARD)
ACT_SIMPLE(act_hardswish, OP_HARDSWISH)
ACT_SIMPLE(act_hardswish_backward, OP_HARDSWISH_BACKWARD)
ACT_SIMPLE(act_hardsigmoid, OP_HARDSIGMOID)
ACT_SIMPLE(act_hardsigmoid_backward, OP_HARDSIGMOID_BACKWARD)
ACT_SIMPLE(act_sigmoid_backward, OP_SIGMOID_BACKWARD)
ACT_SIMPLE(act_tanh_backward, OP_TANH_BACKWARD)
