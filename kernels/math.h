// Elementary functions in float, within a few units in the last place on every device: Vulkan promises far less of
// the built-in ones (exp is 3 + 2|x| ulp, sin an absolute error and none for large x, acos 4096 ulp). Polynomials were
// fitted at Chebyshev nodes of the intervals named. PRECISE keeps drivers from rearranging sums whose order matters, and
// nothing relies on FMA being fused.

#ifdef TARGET_GLSL
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#define ULONG uint64_t
#define PRECISE precise
#define SQRT(v) sqrt(v)
#define FLOOR(v) floor(v)
#define CEIL(v) ceil(v)
#define TRUNC(v) trunc(v)
#define RINT(v) roundEven(v)
#define FABS(v) abs(v)
#define K(v) v
#else
typedef unsigned long ULONG;
#define PRECISE
// For the whole file: fused by itself, a product that was rounded on purpose is not.
#pragma clang fp contract(off)
#define SQRT(v) __builtin_sqrtf(v)
#define FLOOR(v) __builtin_floorf(v)
#define CEIL(v) __builtin_ceilf(v)
#define TRUNC(v) __builtin_truncf(v)
#define RINT(v) __builtin_rintf(v)
#define FABS(v) __builtin_fabsf(v)
#define K(v) v##f
#endif
#define INF AS_FLOAT(0x7f800000u)
#define NAN_ AS_FLOAT(0x7fc00000u)
// By bits: compilers may take it that there are no NaNs.
#define ISNAN(v) ((AS_UINT(v) & 0x7fffffffu) > 0x7f800000u)
#define ISINF(v) ((AS_UINT(v) & 0x7fffffffu) == 0x7f800000u)
#define COPYSIGN(v, s) AS_FLOAT((AS_UINT(v) & 0x7fffffffu) | (AS_UINT(s) & 0x80000000u))
#define SIGN_BIT(v) (AS_UINT(v) >> 31)
#define POWER_OF_2(n) AS_FLOAT(uint((n) + 127) << 23)

FN float m_scale(float x, int n) {
  int half_n = n / 2;
  return x * POWER_OF_2(half_n) * POWER_OF_2(n - half_n);
}
// What a * b is more than p, which is a * b rounded: without fma, which need not be fused.
FN float product_low(float a, float b, float p) {
  float a_high = AS_FLOAT(AS_UINT(a) & 0xfffff000u), b_high = AS_FLOAT(AS_UINT(b) & 0xfffff000u);
  PRECISE float a_low = a - a_high;
  PRECISE float b_low = b - b_high;
  PRECISE float low = ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low;
  return low;
}
// Within a few units in the last place. Beyond 2^126 a divisor's reciprocal is subnormal: devices that multiply by it, with 0 for it,
// make 0 of the quotient and NaN of infinity's.
FN float m_quotient(float a, float b) {
  float by = (AS_UINT(b) & 0x7f800000u) >= 0x7e800000u ? 0.25f : 1.0f;
  PRECISE float q = a / (b * by) * by;
  return q;
}
// a - q * b of a quotient a few units wide of a / b: exact.
FN float rest_of(float a, float q, float b) {
  PRECISE float product = q * b;
  PRECISE float rest = (a - product) - product_low(q, b, product);
  return rest;
}
// Rounded as IEEE 754 asks wherever nothing is subnormal or infinite.
FN float m_div(float a, float b) {
  PRECISE float q = m_quotient(a, b);
  uint e = (AS_UINT(b) >> 23) & 255u, f = (AS_UINT(q) >> 23) & 255u, g = (AS_UINT(a) >> 23) & 255u;
  if (e > 30u && e < 224u && f > 30u && f < 224u && g > 30u && g < 250u) {
    q = q + rest_of(a, q, b) * (1.0f / b);
    // What was added is rounded too: of a quotient next to the middle of two numbers, q may be the wrong one. No quotient is
    // the middle itself.
    float rest = rest_of(a, q, b);
    bool outwards = ((AS_UINT(rest) ^ AS_UINT(b) ^ AS_UINT(q)) >> 31) == 0u;
    float other = AS_FLOAT(outwards ? AS_UINT(q) + 1u : AS_UINT(q) - 1u);
    PRECISE float gap = (other - q) * b;
    q = FABS(rest) > 0.5f * FABS(gap) ? other : q;
  }
  return q;
}

// (e^r - 1 - r) / r^2 in [-ln2/2, ln2/2].
FN float exp_tail(float r) {
  float y = FMA(0.000198895534f, r, 0.00139336986f);
  y = FMA(y, r, 0.00833331235f);
  y = FMA(y, r, 0.041666463f);
  y = FMA(y, r, 0.166666672f);
  return FMA(y, r, 0.5f);
}
FN float m_exp(float x) {
  if (ISNAN(x)) return x;
  if (x > 88.8f) return INF;
  if (x < -104.0f) return 0.0f;
  float n = RINT(x * 1.44269504f);
  // ln 2 in two parts, the first so short that n times it is exact.
  PRECISE float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  return m_scale(FMA(exp_tail(r), r * r, r) + 1.0f, int(n));
}
// e^x of x <= 0; what is below 2^-126 is 0.
FN float m_exp_down(float x) {
  // Bounded: of what is out of an integer's range nothing can be told. NaN stays in r.
  float n = RINT((x > -88.0f ? x : -88.0f) * 1.44269504f);
  PRECISE float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float y = FMA(exp_tail(r), r * r, r) + 1.0f;
  return x < -87.0f ? 0.0f : y * POWER_OF_2(int(n));
}
FN float m_expm1(float x) {
  if (FABS(x) < 0.3466f) return FMA(exp_tail(x), x * x, x);
  return m_exp(x) - 1.0f;
}

// log(1 + f) - f + f^2 / 2 in [sqrt(1/2) - 1, sqrt(2) - 1].
FN float log_tail(float f) {
  float y = FMA(0.0697499886f, f, -0.114821255f);
  y = FMA(y, f, 0.116853662f);
  y = FMA(y, f, -0.124253854f);
  y = FMA(y, f, 0.142490312f);
  y = FMA(y, f, -0.166678131f);
  y = FMA(y, f, 0.20000717f);
  y = FMA(y, f, -0.24999997f);
  y = FMA(y, f, 0.333333313f);
  return y * f * f * f;
}
#ifdef TARGET_GLSL
#define OUT_FLOAT out float
#else
#define OUT_FLOAT float&
#endif
// x = 2^n (1 + f), f in log_tail's interval; x is positive and finite. Returns f.
FN float log_split(float x, OUT_FLOAT n) {
  n = 0.0f;
  if (x < 1.17549435e-38f) { x = x * 16777216.0f; n = -24.0f; }
  uint u = AS_UINT(x) + (0x3f800000u - 0x3f3504f3u);
  n = n + float(int(u >> 23) - 127);
  return AS_FLOAT((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
}
FN bool log_special(float x, OUT_FLOAT y) {
  y = x;
  if (ISNAN(x) || x == INF) return true;
  if (x == 0.0f) { y = -INF; return true; }
  y = NAN_;
  return x < 0.0f;
}
FN float m_log(float x) {
  float y, n;
  if (log_special(x, y)) return y;
  float f = log_split(x, n);
  PRECISE float low = log_tail(f) - 0.5f * f * f - 2.12194440e-4f * n;
  PRECISE float sum = n * 0.693359375f + (f + low);
  return sum;
}
// log(x) * k + n, the whole part n of log2(x) exactly.
FN float m_log2(float x) {
  float y, n;
  if (log_special(x, y)) return y;
  float f = log_split(x, n);
  y = FMA(-0.5f * f, f, log_tail(f)) + f;
  return FMA(y, 1.44269504f, n);
}
FN float m_log10(float x) {
  float y, n;
  if (log_special(x, y)) return y;
  float f = log_split(x, n);
  y = FMA(-0.5f * f, f, log_tail(f)) + f;
  PRECISE float low = n * 4.60503907e-6f + y * 0.434294482f;
  PRECISE float sum = n * 0.301025391f + low;
  return sum;
}
FN float m_log1p(float x) {
  if (x > -0.2928f && x < 0.4142f) return x + FMA(-0.5f * x, x, log_tail(x));
  return m_log(1.0f + x);
}

// |x|^y from a logarithm in two floats: y multiplies its error.
FN float pow_positive(float x, float y) {
  float n;
  float f = log_split(x, n);
  PRECISE float half_square = 0.5f * f * f;
  float square_low = product_low(0.5f * f, f, half_square);
  PRECISE float s = f - half_square;
  PRECISE float s_low = (f - s) - half_square;
  PRECISE float whole = n * 0.693359375f;
  PRECISE float high = whole + s;
  PRECISE float high_low = n == 0.0f ? 0.0f : s - (high - whole);
  float low = high_low + (s_low - square_low + log_tail(f) - 2.12194440e-4f * n);
  PRECISE float log_high = high + low;
  PRECISE float log_low = (high - log_high) + low;
  PRECISE float p = y * log_high;
  if (p > 200.0f) return INF;
  if (p < -200.0f) return 0.0f;
  float p_low = y * log_low + product_low(y, log_high, p);
  float e = m_exp(p);
  return ISINF(e) || e == 0.0f ? e : FMA(e, p_low, e);
}
FN float m_pow(float x, float y) {
  if (y == 0.0f || x == 1.0f) return 1.0f;
  if (ISNAN(x) || ISNAN(y)) return NAN_;
  float a = FABS(x);
  bool whole = y == TRUNC(y), odd = whole && FABS(y) < 16777216.0f && (int(y) & 1) != 0;
  float sign = odd && (AS_UINT(x) >> 31) != 0u ? -1.0f : 1.0f;
  // Chosen by bits: a product with infinity, or a comparison with it, is what a compiler without them may fold.
  if (a == 0.0f || ISINF(a)) return COPYSIGN(AS_FLOAT(ISINF(a) == (y > 0.0f) ? 0x7f800000u : 0u), sign);
  if (x < 0.0f && !whole) return NAN_;
  if (ISINF(y)) return a == 1.0f ? 1.0f : ((a > 1.0f) == (y > 0.0f) ? INF : 0.0f);
  if (whole && FABS(y) <= 8.0f) {
    float r = 1.0f;
    NOUNROLL for (int k = int(FABS(y)); k > 0; --k) r = r * x;
    return y < 0.0f ? m_div(1.0f, r) : r;
  }
  if (y == 0.5f) return SQRT(x);
  return sign * pow_positive(a, y);
}

// Word i of 2/pi, with 32 zero bits in front.
FN uint two_over_pi(uint i) {
  if (i == 0u) return 0u;
  if (i == 1u) return 0xa2f9836eu;
  if (i == 2u) return 0x4e441529u;
  if (i == 3u) return 0xfc2757d1u;
  if (i == 4u) return 0xf534ddc0u;
  if (i == 5u) return 0xdb629599u;
  if (i == 6u) return 0x3c439041u;
  return 0xfe5163abu;
}
// x = (pi/2) n + r with |r| <= pi/4; returns n modulo 4.
FN uint trig_reduce(float x, OUT_FLOAT r) {
  float a = FABS(x);
  uint n;
  if (a < 4096.0f) {
    float m = RINT(a * 0.636619772f);
    // pi/2 in parts so short that m times each is exact.
    PRECISE float rest = ((a - m * 1.5703125f) - m * 4.83751297e-4f) - m * 7.54978995e-8f;
    r = rest;
    n = uint(m);
  } else {
    // x 2/pi modulo 4 in fixed point: 96 bits of 2/pi from where they begin to matter (Payne and Hanek).
    int e = int(AS_UINT(a) >> 23) - 150;
    uint m = (AS_UINT(a) & 0x7fffffu) | 0x800000u;
    uint from = uint(e + 30), word = from >> 5, by = from & 31u;
    uint w0 = two_over_pi(word), w1 = two_over_pi(word + 1u), w2 = two_over_pi(word + 2u);
    if (by != 0u) {
      uint w3 = two_over_pi(word + 3u), back = 32u - by;
      w0 = (w0 << by) | (w1 >> back);
      w1 = (w1 << by) | (w2 >> back);
      w2 = (w2 << by) | (w3 >> back);
    }
    ULONG low = ULONG(m) * ULONG(w2), mid = ULONG(m) * ULONG(w1) + (low >> 32);
    ULONG sum = (ULONG(m * w0) << 32) + mid;
    n = uint(sum >> 62);
    ULONG fraction = sum << 2;
    bool up = (fraction >> 63) != ULONG(0);
    if (up) { fraction = ~fraction; n += 1u; }
    // The first 32 bits after leading zeros: float(uint) rounds once.
    float scale = 2.32830644e-10f;
    NOUNROLL for (int k = 0; k < 8 && (fraction >> 56) == ULONG(0); ++k) { fraction = fraction << 8; scale *= 0.00390625f; }
    r = float(uint(fraction >> 32)) * scale * 1.57079633f;
    if (up) r = -r;
  }
  if (x < 0.0f) { r = -r; n = 4u - (n & 3u); }
  return n & 3u;
}
FN float sin_part(float r) {
  float z = r * r;
  float y = FMA(FMA(-0.000195878907f, z, 0.00833274797f), z, -0.166666642f);
  return FMA(y * z, r, r);
}
FN float cos_part(float r) {
  float z = r * r;
  float y = FMA(FMA(2.45479423e-5f, z, -0.00138883025f), z, 0.0416666642f);
  return FMA(y * z, z, FMA(-0.5f, z, 1.0f));
}
// sin(x + quarter pi/2).
FN float m_sin(float x, uint quarter) {
  if (ISNAN(x) || ISINF(x)) return NAN_;
  float r;
  uint n = trig_reduce(x, r) + quarter;
  float y = (n & 1u) != 0u ? cos_part(r) : sin_part(r);
  return (n & 2u) != 0u ? -y : y;
}
FN float m_tan(float x) {
  if (ISNAN(x) || ISINF(x)) return NAN_;
  float r;
  uint n = trig_reduce(x, r);
  float s = sin_part(r), c = cos_part(r);
  return (n & 1u) != 0u ? -c / s : s / c;
}
FN float m_atan(float v) {
  if (ISNAN(v)) return v;
  float x = FABS(v), y = 0.0f;
  if (x > 2.41421356f) { x = -1.0f / x; y = 1.57079633f; }
  else if (x > 0.414213562f) { x = (x - 1.0f) / (x + 1.0f); y = 0.785398163f; }
  float z = x * x;
  float t = FMA(FMA(FMA(FMA(-0.064519152f, z, 0.107437268f), z, -0.142639548f), z, 0.199995399f), z, -0.333333313f);
  return COPYSIGN(y + FMA(t * z, x, x), v);
}
FN float m_atan2(float y, float x) {
  if (ISNAN(x) || ISNAN(y)) return NAN_;
  float a = FABS(x), b = FABS(y), r;
  if (ISINF(a) && ISINF(b)) r = 0.785398163f;
  else if (b == 0.0f) r = 0.0f;
  else r = b > a ? 1.57079633f - m_atan(m_div(a, b)) : m_atan(m_div(b, a));
  if ((AS_UINT(x) >> 31) != 0u) r = 3.14159265f - r;
  return COPYSIGN(r, y);
}
// asin(sqrt(z)) / sqrt(z) - 1 in [0, 1/4].
FN float asin_tail(float z) {
  return z * FMA(FMA(FMA(FMA(0.038085103f, z, 0.026554497f), z, 0.0450013876f), z, 0.0749885514f), z, 0.166666731f);
}
FN float m_asin(float v) {
  float a = FABS(v);
  if (!(a <= 1.0f)) return NAN_;
  if (a <= 0.5f) return FMA(asin_tail(v * v), v, v);
  float z = 0.5f - 0.5f * a, s = SQRT(z);
  return COPYSIGN(1.57079633f - 2.0f * FMA(asin_tail(z), s, s), v);
}
FN float m_acos(float v) {
  float a = FABS(v);
  if (!(a <= 1.0f)) return NAN_;
  if (a <= 0.5f) return 1.57079633f - FMA(asin_tail(v * v), v, v);
  float z = 0.5f - 0.5f * a, s = SQRT(z), r = 2.0f * FMA(asin_tail(z), s, s);
  return v < 0.0f ? 3.14159265f - r : r;
}
FN float m_sinh(float x) {
  float z = x * x;
  if (FABS(x) < 1.0f) return FMA(FMA(FMA(0.000202588853f, z, 0.00833176263f), z, 0.166666761f) * z, x, x);
  float h = m_exp(0.5f * FABS(x));
  return COPYSIGN(0.5f * h * h - 0.5f / h / h, x);
}
FN float m_cosh(float x) {
  float h = m_exp(0.5f * FABS(x));
  return 0.5f * h * h + 0.5f / h / h;
}
FN float m_tanh(float x) {
  float a = FABS(x), z = x * x;
  if (a < 0.625f) {
    float t = FMA(FMA(FMA(FMA(-0.00609463546f, z, 0.0209957492f), z, -0.0538506061f), z, 0.133327678f), z, -0.333333284f);
    return FMA(t * z, x, x);
  }
  return ISNAN(x) ? x : COPYSIGN(1.0f - 2.0f / (m_exp(2.0f * a) + 1.0f), x);
}
FN float m_asinh(float x) {
  float a = FABS(x);
  return COPYSIGN(a > 1e9f ? m_log(a) + 0.693147181f : m_log1p(a + a * a / (SQRT(FMA(a, a, 1.0f)) + 1.0f)), x);
}
FN float m_acosh(float x) {
  if (x > 1e9f) return m_log(x) + 0.693147181f;
  float t = x - 1.0f;
  return t < 0.0f ? NAN_ : m_log1p(t + SQRT(2.0f * t + t * t));
}
FN float m_atanh(float x) {
  float a = FABS(x);
  if (AS_UINT(a) > 0x3f800000u) return NAN_;
  return COPYSIGN(0.5f * m_log1p(2.0f * a / (1.0f - a)), x);
}
FN float m_sigmoid(float x) { return 1.0f / (1.0f + m_exp(-x)); }

FN float erf_small(float x) {
  float z = x * x;
  float y = FMA(7.87587123e-5f, z, -0.000801686314f);
  y = FMA(y, z, 0.00518908724f);
  y = FMA(y, z, -0.0268542115f);
  y = FMA(y, z, 0.112835944f);
  y = FMA(y, z, -0.37612626f);
  return x * FMA(y, z, 1.12837911f);
}
// erfc of a >= 1: exp(-a^2) / a times polynomials in 1 / a^2, fitted in [1, 2] and [2, 10].
FN float erfc_large(float a) {
  if (a > 10.1f) return 0.0f;
  float z = 1.0f / (a * a), y;
  if (a < 2.0f) {
    y = FMA(0.0218169857f, z, -0.131404549f);
    y = FMA(y, z, 0.353086859f);
    y = FMA(y, z, -0.563812315f);
    y = FMA(y, z, 0.607509434f);
    y = FMA(y, z, -0.488406837f);
    y = FMA(y, z, 0.338851988f);
    y = FMA(y, z, -0.273868531f);
    y = FMA(y, z, 0.563810587f);
  } else {
    y = FMA(27.3260555f, z, -37.8532448f);
    y = FMA(y, z, 24.1374111f);
    y = FMA(y, z, -9.8714571f);
    y = FMA(y, z, 3.20271301f);
    y = FMA(y, z, -1.03359032f);
    y = FMA(y, z, 0.422445357f);
    y = FMA(y, z, -0.282084703f);
    y = FMA(y, z, 0.564189553f);
  }
  PRECISE float square = a * a;
  float low = product_low(a, a, square);
  return m_exp(-square) * (1.0f - low) * y / a;
}
FN float m_erf(float x) {
  if (ISNAN(x)) return x;
  return FABS(x) < 1.0f ? erf_small(x) : COPYSIGN(1.0f - erfc_large(FABS(x)), x);
}
FN float m_erfc(float x) {
  if (ISNAN(x)) return x;
  if (FABS(x) < 1.0f) return 1.0f - erf_small(x);
  float y = erfc_large(FABS(x));
  return x < 0.0f ? 2.0f - y : y;
}
// Polynomials in w = -log(1 - x^2) below 5, in its root above.
FN float m_erfinv(float x) {
  float a = FABS(x), y;
  if (!(a <= 1.0f)) return NAN_;
  if (a == 1.0f) return COPYSIGN(INF, x);
  float w = -m_log((1.0f - a) * (1.0f + a));
  if (w < 5.0f) {
    float t = w - 2.5f;
    y = FMA(2.26059367e-8f, t, 3.42224752e-7f);
    y = FMA(y, t, -3.45477906e-6f);
    y = FMA(y, t, -4.38034704e-6f);
    y = FMA(y, t, 0.000218312984f);
    y = FMA(y, t, -0.00125375891f);
    y = FMA(y, t, -0.00417734636f);
    y = FMA(y, t, 0.246640772f);
    y = FMA(y, t, 1.50140929f);
  } else {
    float t = SQRT(w) - 3.0f;
    y = FMA(-0.000129336811f, t, 4.42859855e-5f);
    y = FMA(y, t, 0.00126028038f);
    y = FMA(y, t, -0.00361380982f);
    y = FMA(y, t, 0.00577652035f);
    y = FMA(y, t, -0.00764005212f);
    y = FMA(y, t, 0.00943360012f);
    y = FMA(y, t, 1.00167537f);
    y = FMA(y, t, 2.83297706f);
  }
  return x * y;
}

// C's fmod, exact: a long division of the significands, eight bits a turn.
FN float m_fmod(float a, float b) {
  uint x = AS_UINT(a) & 0x7fffffffu, y = AS_UINT(b) & 0x7fffffffu;
  if (x >= 0x7f800000u || y > 0x7f800000u || y == 0u) return NAN_;
  if (x < y) return a;
  int x_exponent = int(x >> 23), y_exponent = int(y >> 23);
  x = (x & 0x7fffffu) | (x_exponent == 0 ? 0u : 0x800000u);
  y = (y & 0x7fffffu) | (y_exponent == 0 ? 0u : 0x800000u);
  int bits = (x_exponent == 0 ? 1 : x_exponent) - (y_exponent == 0 ? 1 : y_exponent);
  x = x % y;
  NOUNROLL for (int turn = 0; turn < 32 && bits > 0 && x != 0u; ++turn) {
    int now = bits < 8 ? bits : 8;
    x = (x << uint(now)) % y;
    bits -= now;
  }
  return COPYSIGN(m_scale(float(x), (y_exponent == 0 ? 1 : y_exponent) - 150), a);
}
// Python's %, whose sign is the divisor's, of m = m_fmod(a, b).
FN float remainder_of(float m, float b) { return m != 0.0f && (b < 0.0f) != (m < 0.0f) ? m + b : m; }
FN float div_floor_of(float m, float a, float b) {
  if (b == 0.0f) return a / b;
  float q = m_div(a - m, b);
  if (m != 0.0f && (b < 0.0f) != (m < 0.0f)) q -= 1.0f;
  if (q == 0.0f) return COPYSIGN(0.0f, a / b);
  float whole = FLOOR(q);
  return q - whole > 0.5f ? whole + 1.0f : whole;
}
#ifdef TARGET_HIP
#pragma clang fp contract(fast)
#endif
