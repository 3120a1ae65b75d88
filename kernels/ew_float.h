// The elementwise operations of floats and doubles only, and ew() for every KIND. Functions come from math.h or math_d.h.
#if KIND != 1
#define SQRT_HALF K(0.7071067811865476)
#define GELU_K K(0.7978845608028654)
#if KIND == 2
#define SOFTPLUS_MOST K(40.0)
#else
#define SOFTPLUS_MOST K(20.0)
#endif
#define GELU_C K(0.044715)

FN NUM ew_function(uint op, NUM a, NUM b) {
  switch (op) {
    case OP_EXP: return m_exp(a);
    case OP_EXPM1: return m_expm1(a);
    case OP_EXP2: return m_pow(K(2.0), a);
    case OP_LOG: return m_log(a);
    case OP_LOG2: return m_log2(a);
    case OP_LOG10: return m_log10(a);
    case OP_LOG1P: return m_log1p(a);
    case OP_RSQRT: return K(1.0) / SQRT(a);
    case OP_RECIPROCAL: return m_div(K(1.0), a);
#if KIND == 2
    // Once, not for each: the reduction is long.
    case OP_SIN: case OP_COS: case OP_TAN: return m_sin(a, op == OP_TAN ? TANGENT : op - OP_SIN);
#else
    case OP_SIN: return m_sin(a, 0u);
    case OP_COS: return m_sin(a, 1u);
    case OP_TAN: return m_tan(a);
#endif
    case OP_ERF: return m_erf(a);
    case OP_ERFC: return m_erfc(a);
    case OP_ERFINV: return m_erfinv(a);
    case OP_ATAN2: return m_atan2(a, b);
  }
  return a;
}

FN NUM log_sigmoid(NUM a) { return (a < K(0.0) ? a : K(0.0)) - m_log1p(m_exp(-FABS(a))); }
// Above that exp(a) is overwhelming: the sum would be a.
FN NUM softplus(NUM a) { return a > SOFTPLUS_MOST ? a : m_log1p(m_exp(a)); }
// x / 3 rounded as IEEE 754 has it, which a driver's own division need not be: what it is added to cancels it. Both
// differences are exact, and no quotient by 3 lies near the middle of two numbers.
FN NUM ew_third(NUM x) {
  PRECISE NUM near = x * K(0.3333333333333333);
  PRECISE NUM rest = x - (near + near) - near;
  PRECISE NUM third = near + rest * K(0.3333333333333333);
  return third;
}
FN NUM gelu_inner(NUM x) { return GELU_K * FMA(GELU_C * x * x, x, x); }

FN NUM ew_smooth(uint op, NUM a, NUM s, NUM t) {
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
    case OP_SILU: return m_quotient(a, K(1.0) + m_exp(-a));
    case OP_MISH: return a * m_tanh(softplus(a));
    case OP_GELU: return K(0.5) * a * m_erfc(-SQRT_HALF * a);
    case OP_GELU_TANH: return K(0.5) * a * (K(1.0) + m_tanh(gelu_inner(a)));
  }
  return a;
}

// ELU: s scales the exponential part, t the linear one, c the exponent.
FN NUM ew_activation(uint op, NUM a, NUM b, NUM c, NUM s, NUM t) {
  switch (op) {
    case OP_LEAKY_RELU: return a > K(0.0) ? a : a * s;
    case OP_ELU: return a < K(0.0) ? m_expm1(a * c) * s : a * t;
    case OP_HARDSWISH: return a * ew_min(ew_max(a + K(3.0), K(0.0)), K(6.0)) / K(6.0);
    case OP_HARDSIGMOID: return ew_min(ew_max(a + K(3.0), K(0.0)), K(6.0)) / K(6.0);
    case OP_HARDSHRINK: return a >= -s && a <= s ? K(0.0) : a;
    case OP_SOFTSHRINK: return a > s ? a - s : (a < -s ? a + s : (ISNAN(a) ? a : K(0.0)));
    case OP_SHRINK_BACKWARD: return b >= -s && b <= s ? K(0.0) : a;
    case OP_LEAKY_RELU_BACKWARD: return b > K(0.0) ? a : a * s;
    case OP_ELU_BACKWARD: return b <= K(0.0) ? a * c * s * m_exp(b * c) : a * t;
    case OP_ELU_BACKWARD_OF_RESULT: return b <= K(0.0) ? a * c * (b + s) : a * t;
    case OP_HARDSWISH_BACKWARD: return b <= -K(3.0) ? K(0.0) : (b < K(3.0) ? a * (ew_third(b) + K(0.5)) : a);
    case OP_HARDSIGMOID_BACKWARD: return b > -K(3.0) && b < K(3.0) ? a / K(6.0) : K(0.0);
    case OP_HARDTANH_BACKWARD: return b <= s || b >= t ? K(0.0) : a;
    case OP_PRELU_BACKWARD_WEIGHT: return b > K(0.0) ? K(0.0) : a * b;
    case OP_SIGMOID_BACKWARD: return a * (K(1.0) - b) * b;
    case OP_TANH_BACKWARD: return a * FMA(-b, b, K(1.0));
  }
  return a;
}

FN NUM ew_backward(uint op, NUM a, NUM b, NUM c, NUM s, NUM t) {
  NUM d = b - c, f;
  switch (op) {
    case OP_SILU_BACKWARD: f = m_sigmoid(b); return a * f * (K(1.0) + b * (K(1.0) - f));
    case OP_MISH_BACKWARD: f = m_tanh(softplus(b)); return a * (f + b * m_sigmoid(b) * (K(1.0) - f * f));
    case OP_GELU_BACKWARD: return a * (K(0.5) * m_erfc(-SQRT_HALF * b) + b * m_exp(-K(0.5) * b * b) * K(0.3989422804014327));
    case OP_GELU_TANH_BACKWARD:
      f = m_tanh(gelu_inner(b));
      return a * K(0.5) * (K(1.0) + f + b * (K(1.0) - f * f) * GELU_K * (K(1.0) + K(3.0) * GELU_C * b * b));
    case OP_SOFTPLUS_BACKWARD: return b * s > t ? a : a * m_sigmoid(b * s);
    case OP_LOG_SIGMOID_BACKWARD: return a * m_sigmoid(-b);
    case OP_MSE: f = a - b; return f * f;
    case OP_MSE_BACKWARD: return s * d * a;
    case OP_SMOOTH_L1: f = FABS(a - b); return f < s ? K(0.5) * f * f / s : f - K(0.5) * s;
    case OP_SMOOTH_L1_BACKWARD: return d <= -s ? -t * a : (d >= s ? t * a : t * d * a / s);
    case OP_HUBER: f = FABS(a - b); return f <= s ? K(0.5) * f * f : s * (f - K(0.5) * s);
    case OP_HUBER_BACKWARD: return d <= -s ? -t * a * s : (d >= s ? t * a * s : t * d * a);
    case OP_BCE: return (b - K(1.0)) * ew_max(m_log1p(-a), -K(100.0)) - b * ew_max(m_log(a), -K(100.0));
    case OP_PRELU: return a > K(0.0) ? a : a * b;
    case OP_PRELU_BACKWARD: return b > K(0.0) ? a : a * c;
    case OP_BCE_BACKWARD: return s * a * d / ew_max((K(1.0) - b) * b, K(1e-12));
  }
  return a;
}

FN NUM ew_pair(uint op, NUM a, NUM b, NUM c, NUM s, NUM t) {
  NUM f;
  switch (op) {
    case OP_FMAX: return ISNAN(a) || b > a ? b : a;
    case OP_FMIN: return ISNAN(a) || b < a ? b : a;
    case OP_HYPOT: {
      // By the larger, so that no square overflows; an infinite one wins over NaN.
      NUM large = FABS(a), small = FABS(b);
      if (small > large) { f = large; large = small; small = f; }
      if (ISINF(large) || ISINF(small)) return INF;
      f = m_div(small, large);
      return large == K(0.0) ? small : large * SQRT(FMA(f, f, K(1.0)));
    }
    case OP_COPYSIGN: return COPYSIGN(a, b);
    case OP_XLOGY: return a == K(0.0) && !ISNAN(b) ? K(0.0) : a * m_log(b);
    case OP_XLOG1PY: return a == K(0.0) && !ISNAN(b) ? K(0.0) : a * m_log1p(b);
    case OP_NAN_TO_NUM: return ISNAN(a) ? s : ISINF(a) ? (a > ZERO ? t : b) : a;
    case OP_LOGIT:
      f = s < K(0.0) || ISNAN(a) ? a : a < s ? s : a > K(1.0) - s ? K(1.0) - s : a;
      return m_log(m_div(f, K(1.0) - f));
    case OP_LOGIT_BACKWARD:
      f = m_div(a, b * (K(1.0) - b));
      if (s < K(0.0)) return b < K(0.0) || b > K(1.0) ? NAN_ : f;
      return b < s || b > K(1.0) - s ? K(0.0) : f;
    case OP_GLU: return a * m_sigmoid(b);
    case OP_GLU_BACKWARD: f = m_sigmoid(c); return a * b * f * (K(1.0) - f);
    case OP_LOGADDEXP: return a == b && ISINF(a) ? a : ew_max(a, b) + m_log1p(m_exp(-FABS(a - b)));
    case OP_LOGADDEXP2:
      return a == b && ISINF(a) ? a : ew_max(a, b) + m_log1p(m_pow(K(2.0), -FABS(a - b))) * K(1.4426950408889634);
    case OP_SIGNBIT: return SIGN_BIT(a) != 0u ? K(1.0) : K(0.0);
    case OP_HEAVISIDE: return a == K(0.0) ? b : SIGN_BIT(a) != 0u || ISNAN(a) ? K(0.0) : K(1.0);
    case OP_SINC: f = K(3.141592653589793) * a; return a == K(0.0) ? K(1.0) : m_div(m_sin(f, 0u), f);
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
