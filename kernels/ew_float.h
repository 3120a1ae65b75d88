// The elementwise operations that exist in float only, and ew() for every KIND.
#if KIND == 0
#define SQRT_HALF 0.707106781f
#define GELU_K 0.797884561f
#define GELU_C 0.044715f

FN float ew_function(uint op, float a, float b) {
  switch (op) {
    case OP_EXP: return m_exp(a);
    case OP_EXPM1: return m_expm1(a);
    case OP_EXP2: return m_pow(2.0f, a);
    case OP_LOG: return m_log(a);
    case OP_LOG2: return m_log2(a);
    case OP_LOG10: return m_log10(a);
    case OP_LOG1P: return m_log1p(a);
    case OP_RSQRT: return 1.0f / SQRT(a);
    case OP_RECIPROCAL: return m_div(1.0f, a);
    case OP_SIN: return m_sin(a, 0u);
    case OP_COS: return m_sin(a, 1u);
    case OP_TAN: return m_tan(a);
    case OP_ERF: return m_erf(a);
    case OP_ERFC: return m_erfc(a);
    case OP_ERFINV: return m_erfinv(a);
    case OP_ATAN2: return m_atan2(a, b);
  }
  return a;
}

FN float log_sigmoid(float a) { return (a < 0.0f ? a : 0.0f) - m_log1p(m_exp(-FABS(a))); }
// exp(a) is overwhelming above 20: the sum would be a.
FN float softplus(float a) { return a > 20.0f ? a : m_log1p(m_exp(a)); }
FN float gelu_inner(float x) { return GELU_K * FMA(GELU_C * x * x, x, x); }

FN float ew_smooth(uint op, float a, float s, float t) {
  switch (op) {
    case OP_ASIN: return m_asin(a);
    case OP_ACOS: return m_acos(a);
    case OP_ATAN: return m_atan(a);
    case OP_SINH: return m_sinh(a);
    case OP_COSH: return m_cosh(a);
    case OP_TANH: return m_tanh(a);
    case OP_ASINH: return m_asinh(a);
    case OP_ACOSH: return m_acosh(a);
    case OP_ATANH: return m_atanh(a);
    case OP_SIGMOID: return m_sigmoid(a);
    case OP_LOG_SIGMOID: return log_sigmoid(a);
    case OP_SOFTPLUS: return a * s > t ? a : m_log1p(m_exp(a * s)) / s;
    case OP_SILU: return a / (1.0f + m_exp(-a));
    case OP_MISH: return a * m_tanh(softplus(a));
    case OP_GELU: return 0.5f * a * m_erfc(-SQRT_HALF * a);
    case OP_GELU_TANH: return 0.5f * a * (1.0f + m_tanh(gelu_inner(a)));
  }
  return a;
}

// ELU: s scales the exponential part, t the linear one, c the exponent.
FN float ew_activation(uint op, float a, float b, float c, float s, float t) {
  switch (op) {
    case OP_LEAKY_RELU: return a > 0.0f ? a : a * s;
    case OP_ELU: return a < 0.0f ? m_expm1(a * c) * s : a * t;
    case OP_HARDSWISH: return a * ew_min(ew_max(a + 3.0f, 0.0f), 6.0f) / 6.0f;
    case OP_HARDSIGMOID: return ew_min(ew_max(a + 3.0f, 0.0f), 6.0f) / 6.0f;
    case OP_HARDSHRINK: return a >= -s && a <= s ? 0.0f : a;
    case OP_SOFTSHRINK: return a > s ? a - s : (a < -s ? a + s : (ISNAN(a) ? a : 0.0f));
    case OP_SHRINK_BACKWARD: return b >= -s && b <= s ? 0.0f : a;
    case OP_LEAKY_RELU_BACKWARD: return b > 0.0f ? a : a * s;
    case OP_ELU_BACKWARD: return b <= 0.0f ? a * c * s * m_exp(b * c) : a * t;
    case OP_ELU_BACKWARD_OF_RESULT: return b <= 0.0f ? a * c * (b + s) : a * t;
    case OP_HARDSWISH_BACKWARD: return b <= -3.0f ? 0.0f : (b < 3.0f ? a * (b / 3.0f + 0.5f) : a);
    case OP_HARDSIGMOID_BACKWARD: return b > -3.0f && b < 3.0f ? a / 6.0f : 0.0f;
    case OP_HARDTANH_BACKWARD: return b <= s || b >= t ? 0.0f : a;
    case OP_PRELU_BACKWARD_WEIGHT: return b > 0.0f ? 0.0f : a * b;
    case OP_SIGMOID_BACKWARD: return a * (1.0f - b) * b;
    case OP_TANH_BACKWARD: return a * FMA(-b, b, 1.0f);
  }
  return a;
}

FN float ew_backward(uint op, float a, float b, float c, float s, float t) {
  float d = b - c, f;
  switch (op) {
    case OP_SILU_BACKWARD: f = m_sigmoid(b); return a * f * (1.0f + b * (1.0f - f));
    case OP_MISH_BACKWARD: f = m_tanh(softplus(b)); return a * (f + b * m_sigmoid(b) * (1.0f - f * f));
    case OP_GELU_BACKWARD: return a * (0.5f * m_erfc(-SQRT_HALF * b) + b * m_exp(-0.5f * b * b) * 0.398942280f);
    case OP_GELU_TANH_BACKWARD:
      f = m_tanh(gelu_inner(b));
      return a * 0.5f * (1.0f + f + b * (1.0f - f * f) * GELU_K * (1.0f + 3.0f * GELU_C * b * b));
    case OP_SOFTPLUS_BACKWARD: return b * s > t ? a : a * m_sigmoid(b * s);
    case OP_LOG_SIGMOID_BACKWARD: return a * m_sigmoid(-b);
    case OP_MSE: f = a - b; return f * f;
    case OP_MSE_BACKWARD: return s * d * a;
    case OP_SMOOTH_L1: f = FABS(a - b); return f < s ? 0.5f * f * f / s : f - 0.5f * s;
    case OP_SMOOTH_L1_BACKWARD: return d <= -s ? -t * a : (d >= s ? t * a : t * d * a / s);
    case OP_HUBER: f = FABS(a - b); return f <= s ? 0.5f * f * f : s * (f - 0.5f * s);
    case OP_HUBER_BACKWARD: return d <= -s ? -t * a * s : (d >= s ? t * a * s : t * d * a);
    case OP_BCE: return (b - 1.0f) * ew_max(m_log1p(-a), -100.0f) - b * ew_max(m_log(a), -100.0f);
    case OP_PRELU: return a > 0.0f ? a : a * b;
    case OP_PRELU_BACKWARD: return b > 0.0f ? a : a * c;
    case OP_BCE_BACKWARD: return s * a * d / ew_max((1.0f - b) * b, 1e-12f);
  }
  return a;
}

FN float ew_pair(uint op, float a, float b, float c, float s, float t) {
  float f;
  switch (op) {
    case OP_FMAX: return ISNAN(a) || b > a ? b : a;
    case OP_FMIN: return ISNAN(a) || b < a ? b : a;
    case OP_HYPOT: {
      // By the larger, so that no square overflows; an infinite one wins over NaN.
      float large = FABS(a), small = FABS(b);
      if (small > large) { f = large; large = small; small = f; }
      if (large > 3.4028235e38f || small > 3.4028235e38f) return AS_FLOAT(0x7f800000u);
      f = m_div(small, large);
      return large == 0.0f ? small : large * SQRT(FMA(f, f, 1.0f));
    }
    case OP_COPYSIGN: return AS_FLOAT((AS_UINT(a) & 0x7fffffffu) | (AS_UINT(b) & 0x80000000u));
    case OP_XLOGY: return a == 0.0f && !ISNAN(b) ? 0.0f : a * m_log(b);
    case OP_XLOG1PY: return a == 0.0f && !ISNAN(b) ? 0.0f : a * m_log1p(b);
    case OP_NAN_TO_NUM: return ISNAN(a) ? s : a > 3.4028235e38f ? t : a < -3.4028235e38f ? b : a;
    case OP_LOGIT:
      f = s < 0.0f ? a : a < s ? s : a > 1.0f - s ? 1.0f - s : a;
      return m_log(m_div(f, 1.0f - f));
    case OP_LOGIT_BACKWARD:
      f = m_div(a, b * (1.0f - b));
      if (s < 0.0f) return b < 0.0f || b > 1.0f ? AS_FLOAT(0x7fc00000u) : f;
      return b < s || b > 1.0f - s ? 0.0f : f;
    case OP_GLU: return a * m_sigmoid(b);
    case OP_GLU_BACKWARD: f = m_sigmoid(c); return a * b * f * (1.0f - f);
    case OP_LOGADDEXP: return a == b && FABS(a) > 3.4028235e38f ? a : ew_max(a, b) + m_log1p(m_exp(-FABS(a - b)));
    case OP_LOGADDEXP2:
      return a == b && FABS(a) > 3.4028235e38f ? a : ew_max(a, b) + m_log1p(m_pow(2.0f, -FABS(a - b))) * 1.44269504f;
    case OP_SIGNBIT: return AS_UINT(a) >> 31 != 0u ? 1.0f : 0.0f;
    case OP_HEAVISIDE: return a == 0.0f ? b : a < 0.0f ? 0.0f : 1.0f;
    case OP_SINC: f = 3.14159265f * a; return a == 0.0f ? 1.0f : m_div(m_sin(f, 0u), f);
  }
  return a;
}
#endif

// A variant has one family, op >> 4: software devices execute every branch of a switch.
FN NUM ew(uint op, NUM a, NUM b, NUM c, NUM s, NUM t, uint i, uint count, NUM s_low, NUM t_low) {
#if FAMILY == 0
  return ew_arithmetic(op, a, b, c, s, t);
#elif FAMILY == 1
  return ew_choice(op, a, b, c, s, t, i, count, s_low, t_low);
#elif FAMILY == 2
  return ew_whole(op, a, b, s);
#elif FAMILY == 3
  return ew_function(op, a, b);
#elif FAMILY == 4
  return ew_smooth(op, a, s, t);
#elif FAMILY == 5
  return ew_activation(op, a, b, c, s, t);
#elif FAMILY == 6
  return ew_backward(op, a, b, c, s, t);
#else
  return ew_pair(op, a, b, c, s, t);
#endif
}
