// What elementwise kernels compute: NUM ew(op, a, b, c, s, t), operands a, b, c and parameters s, t. Codes are those of
// wave32_ops::Op (its test reads this file), in sixteens so that finding the code takes few branches; op is uniform.
// In backward ops a is the gradient; in b, the forward's input or (tanh, sigmoid, "of result") output.

// Arithmetic
#define OP_ADD 0u
#define OP_SUB 1u
#define OP_MUL 2u
#define OP_DIV 3u
#define OP_ADD_SCALED 4u
#define OP_MAXIMUM 5u
#define OP_MINIMUM 6u
#define OP_RELU 7u
#define OP_THRESHOLD 8u
#define OP_THRESHOLD_BACKWARD 9u
#define OP_NEG 10u
#define OP_ABS 11u
#define OP_IDENTITY 12u
#define OP_ADDCMUL 13u
#define OP_ADDCDIV 14u
#define OP_LERP 15u
// Comparison, logic, choice
#define OP_EQ 16u
#define OP_NE 17u
#define OP_LT 18u
#define OP_LE 19u
#define OP_GT 20u
#define OP_GE 21u
#define OP_LOGICAL_AND 22u
#define OP_LOGICAL_OR 23u
#define OP_LOGICAL_XOR 24u
#define OP_LOGICAL_NOT 25u
#define OP_WHERE 26u
#define OP_CLAMP 27u
#define OP_SIGN 28u
#define OP_ARANGE 29u
#define OP_LINSPACE 30u
#define OP_SQRT 31u
// Whole numbers
#define OP_BITWISE_AND 32u
#define OP_BITWISE_OR 33u
#define OP_BITWISE_XOR 34u
#define OP_BITWISE_NOT 35u
#define OP_SHIFT_LEFT 36u
#define OP_SHIFT_RIGHT 37u
#define OP_DIV_FLOOR 38u
#define OP_DIV_TRUNC 39u
#define OP_REMAINDER 40u
#define OP_FMOD 41u
#define OP_POW 42u
#define OP_FLOOR 43u
#define OP_CEIL 44u
#define OP_ROUND 45u
#define OP_TRUNC 46u
#define OP_FRAC 47u
// Functions
#define OP_EXP 48u
#define OP_EXPM1 49u
#define OP_EXP2 50u
#define OP_LOG 51u
#define OP_LOG2 52u
#define OP_LOG10 53u
#define OP_LOG1P 54u
#define OP_RSQRT 55u
#define OP_RECIPROCAL 56u
#define OP_SIN 57u
#define OP_COS 58u
#define OP_TAN 59u
#define OP_ERF 60u
#define OP_ERFC 61u
#define OP_ERFINV 62u
#define OP_ATAN2 63u
#define OP_ASIN 64u
#define OP_ACOS 65u
#define OP_ATAN 66u
#define OP_SINH 67u
#define OP_COSH 68u
#define OP_TANH 69u
#define OP_ASINH 70u
#define OP_ACOSH 71u
#define OP_ATANH 72u
#define OP_SIGMOID 73u
#define OP_LOG_SIGMOID 74u
#define OP_SOFTPLUS 75u
#define OP_SILU 76u
#define OP_MISH 77u
#define OP_GELU 78u
#define OP_GELU_TANH 79u
// Activations and their backward
#define OP_LEAKY_RELU 80u
#define OP_ELU 81u
#define OP_HARDSWISH 82u
#define OP_HARDSIGMOID 83u
#define OP_HARDSHRINK 84u
#define OP_SOFTSHRINK 85u
#define OP_SHRINK_BACKWARD 86u
#define OP_LEAKY_RELU_BACKWARD 87u
#define OP_ELU_BACKWARD 88u
#define OP_ELU_BACKWARD_OF_RESULT 89u
#define OP_HARDSWISH_BACKWARD 90u
#define OP_HARDSIGMOID_BACKWARD 91u
#define OP_HARDTANH_BACKWARD 92u
#define OP_PRELU_BACKWARD_WEIGHT 93u
#define OP_SIGMOID_BACKWARD 94u
#define OP_TANH_BACKWARD 95u
#define OP_SILU_BACKWARD 96u
#define OP_MISH_BACKWARD 97u
#define OP_GELU_BACKWARD 98u
#define OP_GELU_TANH_BACKWARD 99u
#define OP_SOFTPLUS_BACKWARD 100u
#define OP_LOG_SIGMOID_BACKWARD 101u
// Losses of a = input, b = target; backward: a = gradient, b = input, c = target
#define OP_MSE 102u
#define OP_MSE_BACKWARD 103u
#define OP_SMOOTH_L1 104u
#define OP_SMOOTH_L1_BACKWARD 105u
#define OP_HUBER 106u
#define OP_HUBER_BACKWARD 107u
#define OP_BCE 108u
#define OP_BCE_BACKWARD 109u
// PReLU: b is the weight; backward: b the input, c the weight
#define OP_PRELU 110u
#define OP_PRELU_BACKWARD 111u
// Pairs, and what mends or bends values; of glu backward a is the gradient, b and c the halves
#define OP_FMAX 112u
#define OP_FMIN 113u
#define OP_HYPOT 114u
#define OP_COPYSIGN 115u
#define OP_XLOGY 116u
#define OP_XLOG1PY 117u
#define OP_NAN_TO_NUM 118u
#define OP_LOGIT 119u
#define OP_LOGIT_BACKWARD 120u
#define OP_GLU 121u
#define OP_GLU_BACKWARD 122u
#define OP_LOGADDEXP 123u
#define OP_LOGADDEXP2 124u
#define OP_SIGNBIT 125u
#define OP_HEAVISIDE 126u
#define OP_SINC 127u

#ifdef TARGET_GLSL
#define SQRT_N(v) sqrt(v)
#elif KIND == 2
#define SQRT_N(v) __builtin_sqrt(v)
#else
#define SQRT_N(v) __builtin_sqrtf(v)
#endif
// Of floats the sign's bit: a driver may make -a of 0 - a, and -0 of 0.
#if KIND == 0
#define ABS_N(v) AS_FLOAT(AS_UINT(v) & 0x7fffffffu)
#elif KIND == 1
#define ABS_N(v) ((v) < LONG(0) ? -(v) : (v))
#else
#define ABS_N(v) FABS(v)
#endif
#if KIND == 0
#define RELU_N(v) RELU(v)
#elif KIND == 1
#define RELU_N(v) ((v) < ZERO ? ZERO : (v))
#else
#define RELU_N(v) ((v) < ZERO && !ISNAN(v) ? ZERO : (v))
#endif
#define ONE NUM(1)
#define ZERO NUM(0)
#define TRUTH(v) ((v) ? ONE : ZERO)
#if KIND == 0
#define NAN_OF(v) ISNAN(v)
#define MULADD(a, b, c) FMA(a, b, c)
#elif KIND == 1
#define NAN_OF(v) false
#define MULADD(a, b, c) ((a) * (b) + (c))
#else
#define NAN_OF(v) ISNAN(v)
#define MULADD(a, b, c) ((a) * (b) + (c))
#endif

FN NUM ew_max(NUM a, NUM b) { return NAN_OF(a) ? a : (NAN_OF(b) || b > a ? b : a); }
FN NUM ew_min(NUM a, NUM b) { return NAN_OF(a) ? a : (NAN_OF(b) || b < a ? b : a); }
#if KIND == 1
// The cases that trap on some processors are asked for first; a quotient by zero is zero.
FN NUM ew_div(NUM a, NUM b) { return b == ZERO ? ZERO : (b == -ONE ? -a : a / b); }
FN NUM ew_div_floor(NUM a, NUM b) {
  NUM q = ew_div(a, b);
  return q * b != a && (a < ZERO) != (b < ZERO) ? q - ONE : q;
}
FN NUM ew_pow(NUM a, NUM n) {
  if (n < ZERO) return a == ONE ? ONE : (a == -ONE ? ((n & ONE) != ZERO ? -ONE : ONE) : ZERO);
  NUM r = ONE;
  NOUNROLL for (int k = 0; k < 64 && n != ZERO; ++k) {
    if ((n & ONE) != ZERO) r = r * a;
    a = a * a;
    n = n >> 1;
  }
  return r;
}
#elif KIND == 0
#define ew_div m_div
#else
FN NUM ew_div(NUM a, NUM b) { return a / b; }
#endif

FN NUM ew_arithmetic(uint op, NUM a, NUM b, NUM c, NUM s, NUM t) {
  switch (op) {
    case OP_ADD: return a + b;
    case OP_SUB: return a - b;
    case OP_MUL: return a * b;
    case OP_DIV: return ew_div(a, b);
    case OP_ADD_SCALED: return MULADD(s, b, a);
    case OP_MAXIMUM: return ew_max(a, b);
    case OP_MINIMUM: return ew_min(a, b);
    case OP_RELU: return RELU_N(a);
    case OP_THRESHOLD: return a <= s ? t : a;
    case OP_THRESHOLD_BACKWARD: return b <= s ? ZERO : a;
    case OP_NEG: return -a;
    case OP_ABS: return ABS_N(a);
    case OP_ADDCMUL: return MULADD(s * b, c, a);
#if KIND != 1
    case OP_ADDCDIV: return MULADD(s, ew_div(b, c), a);
    case OP_LERP: return (c < NUM(0.5) && c > NUM(-0.5)) ? MULADD(c, b - a, a) : b - (b - a) * (ONE - c);
#endif
  }
  return a;
}

// i, count: the element's place in the result and the number of them; s_low, t_low: what s and t lack.
FN NUM ew_choice(uint op, NUM a, NUM b, NUM c, NUM s, NUM t, uint i, uint count, NUM s_low, NUM t_low) {
  switch (op) {
    case OP_EQ: return TRUTH(a == b);
    case OP_NE: return TRUTH(!(a == b));
    case OP_LT: return TRUTH(a < b);
    case OP_LE: return TRUTH(a <= b);
    case OP_GT: return TRUTH(a > b);
    case OP_GE: return TRUTH(a >= b);
    case OP_LOGICAL_AND: return TRUTH(a != ZERO && b != ZERO);
    case OP_LOGICAL_OR: return TRUTH(a != ZERO || b != ZERO);
    case OP_LOGICAL_XOR: return TRUTH((a != ZERO) != (b != ZERO));
    case OP_LOGICAL_NOT: return TRUTH(a == ZERO);
    case OP_WHERE: return a != ZERO ? b : c;
    case OP_CLAMP: return ew_min(ew_max(a, b), c);
    case OP_SIGN: return a > ZERO ? ONE : (a < ZERO ? -ONE : ZERO);
    case OP_ARANGE: return MULADD(NUM(i), t, s) + MULADD(NUM(i), t_low, s_low);
    case OP_LINSPACE: {
      // From s on in the first half, back from c in the second; the step is t.
      bool back = 2u * i >= count;
      NUM n = back ? -NUM(count - 1u - i) : NUM(i);
      return MULADD(n, t, back ? c : s) + n * t_low;
    }
#if KIND != 1
    case OP_SQRT: return SQRT_N(a);
#endif
  }
  return a;
}

FN NUM ew_whole(uint op, NUM a, NUM b, NUM s) {
#if KIND == 1
  switch (op) {
    case OP_BITWISE_AND: return a & b;
    case OP_BITWISE_OR: return a | b;
    case OP_BITWISE_XOR: return a ^ b;
    case OP_BITWISE_NOT: return ~a;
    // s: bits of the type.
    case OP_SHIFT_LEFT: return b < ZERO || b >= s ? ZERO : a << int(b);
    case OP_SHIFT_RIGHT: return a >> int(b < ZERO || b >= s ? s - ONE : b);
    case OP_DIV_FLOOR: return ew_div_floor(a, b);
    case OP_DIV_TRUNC: return ew_div(a, b);
    case OP_REMAINDER: return a - ew_div_floor(a, b) * b;
    case OP_FMOD: return a - ew_div(a, b) * b;
    case OP_POW: return ew_pow(a, b);
  }
#else
  switch (op) {
    case OP_DIV_TRUNC: return TRUNC(m_div(a, b));
    case OP_DIV_FLOOR: case OP_REMAINDER: case OP_FMOD: {
      NUM m = m_fmod(a, b);
      return op == OP_FMOD ? m : (op == OP_REMAINDER ? remainder_of(m, b) : div_floor_of(m, a, b));
    }
    case OP_POW: return m_pow(a, b);
    case OP_FLOOR: return FLOOR(a);
    case OP_CEIL: return CEIL(a);
    case OP_ROUND: return RINT(a);
    case OP_TRUNC: return TRUNC(a);
    case OP_FRAC: return a - TRUNC(a);
  }
#endif
  return a;
}
