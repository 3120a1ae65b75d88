// Elementary functions in double, within a few units in the last place, under the names that math.h has in float: what
// KIND 2 computes with. Vulkan has none of them but the root. Polynomials were fitted at Chebyshev nodes of the intervals
// named; as in math.h, PRECISE keeps the order of sums and nothing relies on products being fused.

#ifdef TARGET_GLSL
#define ULONG uint64_t
#define PRECISE precise
#define OUT_DOUBLE out double
#define SQRT(v) sqrt(v)
#define FLOOR(v) floor(v)
#define CEIL(v) ceil(v)
#define TRUNC(v) trunc(v)
#define RINT(v) m_rint(v)
#define OF_WORDS(low, high) packDouble2x32(uvec2(low, high))
// glslang pastes no suffix onto a number, but keeps the digits of one without: the tests would tell.
#define K(v) double(v)
#else
typedef unsigned long ULONG;
#define PRECISE
#define OUT_DOUBLE double&
// For the whole file: fused by itself, a product that was rounded on purpose is not.
#pragma clang fp contract(off)
#define SQRT(v) __builtin_sqrt(v)
#define FLOOR(v) __builtin_floor(v)
#define CEIL(v) __builtin_ceil(v)
#define TRUNC(v) __builtin_trunc(v)
#define RINT(v) __builtin_rint(v)
#define OF_WORDS(low, high) __builtin_bit_cast(double, (ULONG)(low) | ((ULONG)(high) << 32))
#define K(v) v
#endif
#undef FMA
#define FMA(a, b, c) ((a) * (b) + (c))
#define INF OF_WORDS(0u, 0x7ff00000u)
#define NAN_ OF_WORDS(0u, 0x7ff80000u)
#define ISINF(v) is_infinite(v)
#define ISNAN(v) is_nan(v)
#define SIGN_BIT(v) (HIGH_WORD(v) >> 31)
#define POWER_OF_2(n) OF_WORDS(0u, uint((n) + 1023) << 20)

FN DOUBLE FABS(DOUBLE v) { return OF_WORDS(LOW_WORD(v), HIGH_WORD(v) & 0x7fffffffu); }
FN DOUBLE COPYSIGN(DOUBLE v, DOUBLE s) {
  return OF_WORDS(LOW_WORD(v), (HIGH_WORD(v) & 0x7fffffffu) | (HIGH_WORD(s) & 0x80000000u));
}
#ifdef TARGET_GLSL
// roundEven without its defect: Mesa's software rasterizer cuts a double's fraction off on processors without AVX-512.
FN DOUBLE m_rint(DOUBLE v) {
  PRECISE DOUBLE shifted = FABS(v) + K(4503599627370496.0);
  PRECISE DOUBLE whole = shifted - K(4503599627370496.0);
  return FABS(v) < K(4503599627370496.0) ? COPYSIGN(whole, v) : v;
}
#endif
FN DOUBLE m_scale(DOUBLE x, int n) {
  int half_n = n / 2;
  return x * POWER_OF_2(half_n) * POWER_OF_2(n - half_n);
}
// The leading half of the bits.
FN DOUBLE leading(DOUBLE v) { return OF_WORDS(LOW_WORD(v) & 0xf8000000u, HIGH_WORD(v)); }
// What a * b is more than p, which is a * b rounded.
FN DOUBLE product_low(DOUBLE a, DOUBLE b, DOUBLE p) {
  DOUBLE a_high = leading(a), b_high = leading(b);
  PRECISE DOUBLE a_low = a - a_high;
  PRECISE DOUBLE b_low = b - b_high;
  PRECISE DOUBLE low = ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low;
  return low;
}
FN DOUBLE m_div(DOUBLE a, DOUBLE b) { return a / b; }
FN DOUBLE m_quotient(DOUBLE a, DOUBLE b) { return a / b; }

// (e^r - 1 - r) / r^2 in [-ln2/2, ln2/2].
FN DOUBLE exp_tail(DOUBLE r) {
  DOUBLE y = K(1.6086626642965137e-10);
  y = y * r + K(2.0918135766484712e-09);
  y = y * r + K(2.5052071097844777e-08);
  y = y * r + K(2.755726328441651e-07);
  y = y * r + K(2.755731924721541e-06);
  y = y * r + K(2.480158733643726e-05);
  y = y * r + K(0.000198412698412633);
  y = y * r + K(0.0013888888888879075);
  y = y * r + K(0.008333333333333333);
  y = y * r + K(0.04166666666666668);
  y = y * r + K(0.16666666666666666);
  y = y * r + K(0.5);
  return y;
}
FN DOUBLE m_exp(DOUBLE x) {
  if (ISNAN(x)) return x;
  if (x > K(709.8)) return INF;
  if (x < K(-745.2)) return K(0.0);
  DOUBLE n = RINT(x * K(1.4426950408889634));
  // ln 2 in two parts, the first so short that n times it is exact.
  PRECISE DOUBLE r = (x - n * K(0.6931471803691238)) - n * K(1.9082149292705877e-10);
  return m_scale(K(1.0) + (r + r * r * exp_tail(r)), int(n));
}
FN DOUBLE m_expm1(DOUBLE x) {
  if (FABS(x) < K(0.3465)) return x + x * x * exp_tail(x);
  return m_exp(x) - K(1.0);
}

// (log(1 + f) - f + f^2 / 2) of f in [sqrt(1/2) - 1, sqrt(2) - 1], by the series of s = f / (2 + f).
FN DOUBLE log_tail(DOUBLE f) {
  DOUBLE s = f / (K(2.0) + f), z = s * s;
  DOUBLE y = K(0.1308675766695207);
  y = y * z + K(0.13268760562036724);
  y = y * z + K(0.15386240172447838);
  y = y * z + K(0.18181795631498243);
  y = y * z + K(0.22222222391794727);
  y = y * z + K(0.28571428570803253);
  y = y * z + K(0.4000000000000088);
  y = y * z + K(0.6666666666666666);
  return s * (K(0.5) * f * f + z * y);
}
// x = 2^n (1 + f), f in log_tail's interval; x is positive and finite. Returns f.
FN DOUBLE log_split(DOUBLE x, OUT_DOUBLE n) {
  n = K(0.0);
  if (x < K(2.2250738585072014e-308)) { x = x * K(18014398509481984.0); n = K(-54.0); }
  uint high = HIGH_WORD(x) + (0x3ff00000u - 0x3fe6a09eu);
  n = n + DOUBLE(int(high >> 20) - 1023);
  return OF_WORDS(LOW_WORD(x), (high & 0xfffffu) + 0x3fe6a09eu) - K(1.0);
}
FN bool log_special(DOUBLE x, OUT_DOUBLE y) {
  y = x;
  if (ISNAN(x) || x == INF) return true;
  if (x == K(0.0)) { y = -INF; return true; }
  y = NAN_;
  return x < K(0.0);
}
// log(1 + f) + n ln 2 + more.
FN DOUBLE log_sum(DOUBLE f, DOUBLE n, DOUBLE more) {
  DOUBLE half_square = K(0.5) * f * f;
  PRECISE DOUBLE low = half_square - (log_tail(f) + (n * K(1.9082149292705877e-10) + more));
  PRECISE DOUBLE sum = n * K(0.6931471803691238) - (low - f);
  return sum;
}
FN DOUBLE m_log(DOUBLE x) {
  DOUBLE y, n;
  if (log_special(x, y)) return y;
  DOUBLE f = log_split(x, n);
  return log_sum(f, n, K(0.0));
}
// log(x) * k + n, the whole part n of log2(x) exactly.
FN DOUBLE m_log2(DOUBLE x) {
  DOUBLE y, n;
  if (log_special(x, y)) return y;
  DOUBLE f = log_split(x, n);
  return n + log_sum(f, K(0.0), K(0.0)) * K(1.4426950408889634);
}
FN DOUBLE m_log10(DOUBLE x) {
  DOUBLE y, n;
  if (log_special(x, y)) return y;
  DOUBLE f = log_split(x, n);
  PRECISE DOUBLE low = n * K(1.1451100898021838e-10) + log_sum(f, K(0.0), K(0.0)) * K(0.4342944819032518);
  PRECISE DOUBLE sum = n * K(0.3010299955494702) + low;
  return sum;
}
FN DOUBLE m_log1p(DOUBLE x) {
  if (x > K(-0.2928) && x < K(0.4142)) return log_sum(x, K(0.0), K(0.0));
  PRECISE DOUBLE u = K(1.0) + x;
  DOUBLE y, n;
  if (log_special(u, y)) return y;
  // What the sum lost, of u: its share of the logarithm.
  PRECISE DOUBLE lost = x > K(1.0) ? K(1.0) - (u - x) : x - (u - K(1.0));
  DOUBLE f = log_split(u, n);
  return log_sum(f, n, lost / u);
}

// |x|^y from a logarithm in two doubles: y multiplies its error.
FN DOUBLE pow_positive(DOUBLE x, DOUBLE y) {
  DOUBLE n;
  DOUBLE f = log_split(x, n);
  PRECISE DOUBLE half_square = K(0.5) * f * f;
  DOUBLE square_low = product_low(K(0.5) * f, f, half_square);
  PRECISE DOUBLE s = f - half_square;
  PRECISE DOUBLE s_low = (f - s) - half_square;
  PRECISE DOUBLE whole = n * K(0.6931471803691238);
  // The tail joins before the sum is rounded: it is as large as a twentieth of f.
  DOUBLE tail = log_tail(f);
  PRECISE DOUBLE t = s + tail;
  PRECISE DOUBLE t_low = (s - t) + tail;
  PRECISE DOUBLE high = whole + t;
  PRECISE DOUBLE high_low = n == K(0.0) ? K(0.0) : t - (high - whole);
  DOUBLE low = high_low + (t_low + (s_low - square_low) + n * K(1.9082149292705877e-10));
  PRECISE DOUBLE log_high = high + low;
  PRECISE DOUBLE log_low = (high - log_high) + low;
  PRECISE DOUBLE p = y * log_high;
  if (p > K(1500.0)) return INF;
  if (p < K(-1500.0)) return K(0.0);
  DOUBLE p_low = y * log_low + product_low(y, log_high, p);
  DOUBLE e = m_exp(p);
  return ISINF(e) || e == K(0.0) ? e : e + e * p_low;
}
FN DOUBLE m_pow(DOUBLE x, DOUBLE y) {
  if (y == K(0.0) || x == K(1.0)) return K(1.0);
  if (ISNAN(x) || ISNAN(y)) return NAN_;
  DOUBLE a = FABS(x);
  bool whole = y == TRUNC(y), odd = whole && FABS(y) < K(9007199254740992.0) && K(2.0) * TRUNC(K(0.5) * y) != y;
  DOUBLE sign = odd && SIGN_BIT(x) != 0u ? K(-1.0) : K(1.0);
  if (a == K(0.0) || ISINF(a)) return sign * ((a == K(0.0)) == (y > K(0.0)) ? K(0.0) : INF);
  if (x < K(0.0) && !whole) return NAN_;
  if (ISINF(y)) return a == K(1.0) ? K(1.0) : ((a > K(1.0)) == (y > K(0.0)) ? INF : K(0.0));
  if (whole && FABS(y) <= K(8.0)) {
    DOUBLE r = K(1.0);
    NOUNROLL for (int k = int(FABS(y)); k > 0; --k) r = r * x;
    return y < K(0.0) ? K(1.0) / r : r;
  }
  if (y == K(0.5)) return SQRT(x);
  return sign * pow_positive(a, y);
}

// Word i of 2/pi, with 64 zero bits in front.
FN uint two_over_pi(uint i) {
  switch (i) {
    case 2u: return 0xa2f9836eu;
    case 3u: return 0x4e441529u;
    case 4u: return 0xfc2757d1u;
    case 5u: return 0xf534ddc0u;
    case 6u: return 0xdb629599u;
    case 7u: return 0x3c439041u;
    case 8u: return 0xfe5163abu;
    case 9u: return 0xdebbc561u;
    case 10u: return 0xb7246e3au;
    case 11u: return 0x424dd2e0u;
    case 12u: return 0x06492eeau;
    case 13u: return 0x09d1921cu;
    case 14u: return 0xfe1deb1cu;
    case 15u: return 0xb129a73eu;
    case 16u: return 0xe88235f5u;
    case 17u: return 0x2ebb4484u;
    case 18u: return 0xe99c7026u;
    case 19u: return 0xb45f7e41u;
    case 20u: return 0x3991d639u;
    case 21u: return 0x835339f4u;
    case 22u: return 0x9c845f8bu;
    case 23u: return 0xbdf9283bu;
    case 24u: return 0x1ff897ffu;
    case 25u: return 0xde05980fu;
    case 26u: return 0xef2f118bu;
    case 27u: return 0x5a0a6d1fu;
    case 28u: return 0x6d367ecfu;
    case 29u: return 0x27cb09b7u;
    case 30u: return 0x4f463f66u;
    case 31u: return 0x9e5fea2du;
    case 32u: return 0x7527bac7u;
    case 33u: return 0xebe5f17bu;
    case 34u: return 0x3d0739f7u;
    case 35u: return 0x8a5292eau;
    case 36u: return 0x6bfb5fb1u;
    case 37u: return 0x1f8d5d08u;
    case 38u: return 0x56033046u;
    case 39u: return 0xfc7b6babu;
    case 40u: return 0xf0cfbc20u;
    case 41u: return 0x9af4361du;
    case 42u: return 0xa9e39161u;
    case 43u: return 0x5ee61b08u;
  }
  return 0u;
}
// x = (pi/2) n + r with |r| <= pi/4; returns n modulo 4.
FN uint trig_reduce(DOUBLE x, OUT_DOUBLE r) {
  DOUBLE a = FABS(x);
  uint n;
  if (a < K(1048576.0)) {
    DOUBLE m = RINT(a * K(0.6366197723675814));
    // pi/2 in parts so short that m times each is exact.
    PRECISE DOUBLE rest = (((a - m * K(1.5707963267341256)) - m * K(6.077100506303966e-11)) - m * K(2.0222662487111665e-21)) - m * K(8.4784276603689e-32);
    r = rest;
    n = uint(m);
  } else {
    // x 2/pi modulo 4 in fixed point: 192 bits of 2/pi from where they begin to matter (Payne and Hanek), times the
    // significand, a word at a time from the last.
    int e = int((HIGH_WORD(a) >> 20) & 2047u) - 1075;
    uint m0 = LOW_WORD(a), m1 = (HIGH_WORD(a) & 0xfffffu) | 0x100000u;
    uint from = uint(e + 62), word = from >> 5, by = from & 31u;
    uint after = two_over_pi(word + 6u), before = 0u;
    ULONG carry = ULONG(0), top = ULONG(0), low = ULONG(0);
    NOUNROLL for (int k = 5; k >= 0; --k) {
      uint here = two_over_pi(word + uint(k));
      uint w = by == 0u ? here : (here << by) | (after >> (32u - by));
      ULONG p0 = ULONG(w) * ULONG(m0), p1 = ULONG(before) * ULONG(m1);
      ULONG sum = (p0 & ULONG(0xffffffffu)) + (p1 & ULONG(0xffffffffu)) + carry;
      carry = (sum >> 32) + (p0 >> 32) + (p1 >> 32);
      // The first four words of the product, as they come.
      low = (low >> 32) | (top << 32);
      top = (top >> 32) | (sum << 32);
      after = here;
      before = w;
    }
    n = uint(top >> 62);
    ULONG high = (top << 2) | (low >> 62);
    low = low << 2;
    bool up = (high >> 63) != ULONG(0);
    if (up) { high = ~high; low = ~low; n += 1u; }
    r = (DOUBLE(high) * K(5.421010862427522e-20) + DOUBLE(low) * K(2.938735877055719e-39)) * K(1.5707963267948966);
    if (up) r = -r;
  }
  if (x < K(0.0)) { r = -r; n = 4u - (n & 3u); }
  return n & 3u;
}
FN DOUBLE sin_part(DOUBLE r) {
  DOUBLE z = r * r;
  DOUBLE y = K(-7.586692262094344e-13);
  y = y * z + K(1.6058531536611833e-10);
  y = y * z + K(-2.5052106231927857e-08);
  y = y * z + K(2.7557319219337672e-06);
  y = y * z + K(-0.00019841269841265063);
  y = y * z + K(0.008333333333333331);
  y = y * z + K(-0.16666666666666666);
  return r + r * (z * y);
}
FN DOUBLE cos_part(DOUBLE r) {
  DOUBLE z = r * r;
  DOUBLE y = K(4.7458692024108734e-14);
  y = y * z + K(-1.1470460841811526e-11);
  y = y * z + K(2.087675579079147e-09);
  y = y * z + K(-2.7557319221401993e-07);
  y = y * z + K(2.4801587301584645e-05);
  y = y * z + K(-0.0013888888888888887);
  y = y * z + K(0.041666666666666664);
  DOUBLE half_z = K(0.5) * z;
  PRECISE DOUBLE near = K(1.0) - half_z;
  PRECISE DOUBLE rest = ((K(1.0) - near) - half_z) + z * z * y;
  return near + rest;
}
// sin(x + quarter pi/2); the tangent where that is TANGENT.
#define TANGENT 4u
FN DOUBLE m_sin(DOUBLE x, uint quarter) {
  if (ISNAN(x) || ISINF(x)) return NAN_;
  DOUBLE r;
  uint n = trig_reduce(x, r) + (quarter & 3u);
  DOUBLE s = sin_part(r), c = cos_part(r), y = (n & 1u) != 0u ? c : s;
  if (quarter == TANGENT) return (n & 1u) != 0u ? -c / s : s / c;
  return (n & 2u) != 0u ? -y : y;
}
FN DOUBLE m_atan(DOUBLE v) {
  if (ISNAN(v)) return v;
  DOUBLE x = FABS(v), base = K(0.0), base_low = K(0.0);
  if (x > K(2.414213562373095)) {
    x = K(-1.0) / x;
    base = K(1.5707963267948966);
    base_low = K(6.123233995736766e-17);
  } else if (x > K(0.4142135623730951)) {
    x = (x - K(1.0)) / (x + K(1.0));
    base = K(0.7853981633974483);
    base_low = K(3.061616997868383e-17);
  }
  DOUBLE z = x * x;
  DOUBLE y = K(-0.013917695219310572);
  y = y * z + K(0.030635176368556078);
  y = y * z + K(-0.041044134902075015);
  y = y * z + K(0.0471938939438005);
  y = y * z + K(-0.052580406718134826);
  y = y * z + K(0.058819251621305094);
  y = y * z + K(-0.06666642013802823);
  y = y * z + K(0.07692306735718386);
  y = y * z + K(-0.09090909067001965);
  y = y * z + K(0.11111111110754596);
  y = y * z + K(-0.14285714285711518);
  y = y * z + K(0.19999999999999993);
  y = y * z + K(-0.3333333333333333);
  return COPYSIGN(base + (x + (base_low + x * (z * y))), v);
}
FN DOUBLE m_atan2(DOUBLE y, DOUBLE x) {
  if (ISNAN(x) || ISNAN(y)) return NAN_;
  DOUBLE a = FABS(x), b = FABS(y), r;
  if (ISINF(a) && ISINF(b)) r = K(0.7853981633974483);
  else if (b == K(0.0)) r = K(0.0);
  else r = b > a ? K(1.5707963267948966) - m_atan(a / b) : m_atan(b / a);
  if (SIGN_BIT(x) != 0u) r = K(3.141592653589793) - r;
  return COPYSIGN(r, y);
}
// asin(sqrt(z)) / sqrt(z) - 1 in [0, 1/4].
FN DOUBLE asin_tail(DOUBLE z) {
  DOUBLE y = K(0.02961201126495512);
  y = y * z + K(-0.01924167174674304);
  y = y * z + K(0.019554513336123378);
  y = y * z + K(0.0030448799094556773);
  y = y * z + K(0.009319560794767446);
  y = y * z + K(0.009621842970100282);
  y = y * z + K(0.011566459612121669);
  y = y * z + K(0.01396378001220357);
  y = y * z + K(0.017352816540325496);
  y = y * z + K(0.02237215744350722);
  y = y * z + K(0.03038194447553234);
  y = y * z + K(0.044642857142551895);
  y = y * z + K(0.07500000000000118);
  y = y * z + K(0.16666666666666666);
  return z * y;
}
FN DOUBLE m_asin(DOUBLE v) {
  DOUBLE a = FABS(v);
  if (!(a <= K(1.0))) return NAN_;
  if (a <= K(0.5)) return v + v * asin_tail(v * v);
  DOUBLE z = K(0.5) - K(0.5) * a, s = SQRT(z);
  return COPYSIGN(K(1.5707963267948966) - K(2.0) * (s + s * asin_tail(z)), v);
}
FN DOUBLE m_acos(DOUBLE v) {
  DOUBLE a = FABS(v);
  if (!(a <= K(1.0))) return NAN_;
  if (a <= K(0.5)) return K(1.5707963267948966) - (v + v * asin_tail(v * v));
  DOUBLE z = K(0.5) - K(0.5) * a, s = SQRT(z), r = K(2.0) * (s + s * asin_tail(z));
  return v < K(0.0) ? K(3.141592653589793) - r : r;
}
FN DOUBLE m_sinh(DOUBLE x) {
  DOUBLE a = FABS(x);
  if (a < K(20.0)) {
    DOUBLE e = m_expm1(a);
    return COPYSIGN(K(0.5) * (e + e / (e + K(1.0))), x);
  }
  DOUBLE h = m_exp(K(0.5) * a);
  return ISNAN(x) ? x : COPYSIGN(K(0.5) * h * h, x);
}
FN DOUBLE m_cosh(DOUBLE x) {
  DOUBLE h = m_exp(K(0.5) * FABS(x));
  return K(0.5) * h * h + K(0.5) / h / h;
}
FN DOUBLE m_tanh(DOUBLE x) {
  DOUBLE a = FABS(x);
  if (ISNAN(x)) return x;
  if (a > K(22.0)) return COPYSIGN(K(1.0), x);
  DOUBLE e = m_expm1(K(2.0) * a);
  return COPYSIGN(e / (e + K(2.0)), x);
}
FN DOUBLE m_asinh(DOUBLE x) {
  DOUBLE a = FABS(x);
  DOUBLE near = m_log1p(a + a * a / (SQRT(a * a + K(1.0)) + K(1.0)));
  return COPYSIGN(a > K(1e9) ? m_log(a) + K(0.6931471805599453) : near, x);
}
FN DOUBLE m_acosh(DOUBLE x) {
  if (x > K(1e9)) return m_log(x) + K(0.6931471805599453);
  DOUBLE t = x - K(1.0);
  return t < K(0.0) ? NAN_ : m_log1p(t + SQRT(K(2.0) * t + t * t));
}
FN DOUBLE m_atanh(DOUBLE x) {
  DOUBLE a = FABS(x);
  return COPYSIGN(K(0.5) * m_log1p(K(2.0) * a / (K(1.0) - a)), x);
}
FN DOUBLE m_sigmoid(DOUBLE x) { return K(1.0) / (K(1.0) + m_exp(-x)); }

FN DOUBLE erf_small(DOUBLE x) {
  DOUBLE z = x * x;
  DOUBLE y = K(2.8067128195611264e-13);
  y = y * z + K(-6.1967364287877e-12);
  y = y * z + K(9.323723518153027e-11);
  y = y * z + K(-1.2277734486795524e-09);
  y = y * z + K(1.4806027146128752e-08);
  y = y * z + K(-1.636576864883207e-07);
  y = y * z + K(1.6462110782018636e-06);
  y = y * z + K(-1.4925650236967501e-05);
  y = y * z + K(0.00012055332978879483);
  y = y * z + K(-0.0008548327023403001);
  y = y * z + K(0.005223977625441674);
  y = y * z + K(-0.026866170645131218);
  y = y * z + K(0.11283791670955126);
  y = y * z + K(-0.37612638903183754);
  y = y * z + K(1.1283791670955126);
  return x * y;
}
// erfc of a >= 1/2: exp(-a^2) / (1 + 2 a) times a polynomial in (a - 5/2) / (a + 5/2), fitted in [1/2, 28].
FN DOUBLE erfc_large(DOUBLE a) {
  if (a > K(27.3)) return K(0.0);
  DOUBLE q = (a - K(2.5)) / (a + K(2.5));
  DOUBLE y = K(2.502645399344864e-08);
  y = y * q + K(-2.3648455213950567e-08);
  y = y * q + K(-1.4275597417061072e-07);
  y = y * q + K(2.3227385303565306e-08);
  y = y * q + K(5.509007700270019e-07);
  y = y * q + K(5.272863545778182e-07);
  y = y * q + K(-1.5944188722572248e-06);
  y = y * q + K(-4.2153174918099525e-06);
  y = y * q + K(2.6116445359848253e-06);
  y = y * q + K(2.2698228509171026e-05);
  y = y * q + K(6.2655751104255175e-06);
  y = y * q + K(-0.00011352198907037378);
  y = y * q + K(-8.847920409218361e-05);
  y = y * q + K(0.0006321242837447939);
  y = y * q + K(0.0004918658131490934);
  y = y * q + K(-0.004382078335182684);
  y = y * q + K(0.0009318928171359253);
  y = y * q + K(0.0327608932684084);
  y = y * q + K(-0.10296705603856185);
  y = y * q + K(0.15762991902322418);
  y = y * q + K(-0.09902453957360195);
  y = y * q + K(-0.12235676308240434);
  y = y * q + K(1.2648381843668615);
  PRECISE DOUBLE square = a * a;
  DOUBLE low = product_low(a, a, square);
  return m_exp(-square) * (K(1.0) - low) * y / (K(1.0) + K(2.0) * a);
}
FN DOUBLE m_erf(DOUBLE x) {
  if (ISNAN(x)) return x;
  return FABS(x) < K(1.0) ? erf_small(x) : COPYSIGN(K(1.0) - erfc_large(FABS(x)), x);
}
FN DOUBLE m_erfc(DOUBLE x) {
  if (ISNAN(x)) return x;
  if (FABS(x) < K(0.5)) return K(1.0) - erf_small(x);
  DOUBLE y = erfc_large(FABS(x));
  return x < K(0.0) ? K(2.0) - y : y;
}
// Polynomials in w = -log(1 - x^2) below 5, in its root above, to seven digits; then Halley's steps.
FN DOUBLE m_erfinv(DOUBLE x) {
  DOUBLE a = FABS(x), y;
  if (!(a <= K(1.0))) return NAN_;
  if (a == K(1.0)) return COPYSIGN(INF, x);
  DOUBLE w = -m_log((K(1.0) - a) * (K(1.0) + a));
  if (w < K(5.0)) {
    DOUBLE t = w - K(2.5);
    y = K(2.26059367e-8) * t + K(3.42224752e-7);
    y = y * t - K(3.45477906e-6);
    y = y * t - K(4.38034704e-6);
    y = y * t + K(0.000218312984);
    y = y * t - K(0.00125375891);
    y = y * t - K(0.00417734636);
    y = y * t + K(0.246640772);
    y = y * t + K(1.50140929);
  } else if (w < K(16.0)) {
    DOUBLE t = SQRT(w) - K(3.0);
    y = K(4.42859855e-5) - K(0.000129336811) * t;
    y = y * t + K(0.00126028038);
    y = y * t - K(0.00361380982);
    y = y * t + K(0.00577652035);
    y = y * t - K(0.00764005212);
    y = y * t + K(0.00943360012);
    y = y * t + K(1.00167537);
    y = y * t + K(2.83297706);
  } else {
    // erfc(y) y sqrt(pi) is exp(-y^2), nearly, and erfc(y) half of exp(-w).
    y = SQRT(w - K(0.5) * m_log(w) + K(0.1208));
  }
  y = a * y;
  NOUNROLL for (int k = 0; k < 3; ++k) {
    // Of what is small: near 1 the complement is exact.
    DOUBLE miss = a < K(0.5) ? erf_small(y) - a : (K(1.0) - a) - m_erfc(y);
    DOUBLE step = miss * K(0.886226925452758) * m_exp(y * y);
    y = y - step / (K(1.0) + y * step);
  }
  return COPYSIGN(y, x);
}

// C's fmod, exact: a long division of the significands, eleven bits a turn.
FN DOUBLE m_fmod(DOUBLE a, DOUBLE b) {
  DOUBLE u = FABS(a), v = FABS(b);
  if (ISNAN(b) || ISNAN(a) || ISINF(a) || v == K(0.0)) return NAN_;
  if (u < v) return a;
  ULONG x = ULONG(LOW_WORD(u)) | (ULONG(HIGH_WORD(u) & 0xfffffu) << 32);
  ULONG y = ULONG(LOW_WORD(v)) | (ULONG(HIGH_WORD(v) & 0xfffffu) << 32);
  int x_exponent = int(HIGH_WORD(u) >> 20), y_exponent = int(HIGH_WORD(v) >> 20);
  if (x_exponent == 0) x_exponent = 1; else x = x | (ULONG(1) << 52);
  if (y_exponent == 0) y_exponent = 1; else y = y | (ULONG(1) << 52);
  int bits = x_exponent - y_exponent;
  x = x % y;
  NOUNROLL for (int turn = 0; turn < 187 && bits > 0 && x != ULONG(0); ++turn) {
    int now = bits < 11 ? bits : 11;
    x = (x << uint(now)) % y;
    bits -= now;
  }
  return COPYSIGN(m_scale(DOUBLE(x), y_exponent - 1075), a);
}
// Python's %, whose sign is the divisor's, of m = m_fmod(a, b).
FN DOUBLE remainder_of(DOUBLE m, DOUBLE b) { return m != K(0.0) && (b < K(0.0)) != (m < K(0.0)) ? m + b : m; }
FN DOUBLE div_floor_of(DOUBLE m, DOUBLE a, DOUBLE b) {
  if (b == K(0.0)) return a / b;
  DOUBLE q = (a - m) / b;
  if (m != K(0.0) && (b < K(0.0)) != (m < K(0.0))) q -= K(1.0);
  if (q == K(0.0)) return COPYSIGN(K(0.0), a / b);
  DOUBLE whole = FLOOR(q);
  return q - whole > K(0.5) ? whole + K(1.0) : whole;
}
#ifdef TARGET_HIP
#pragma clang fp contract(fast)
#endif
