// Buffers whose element type is known at run time, and strided addressing: for everything but the tuned loops.
//
// ANY(b, name) declares buffer b; LOAD_F/LOAD_I/LOAD_D read element i as float, int64 or double, STORE_* write it.
// Type codes are those of wave32_ops::DType. KIND (0 float, 1 int64, 2 double) is the type that a variant computes in
// (NUM, LOAD_N, STORE_N); only KIND 2 touches doubles, so that devices without them run the rest.

#define T_F32 0u
#define T_F16 1u
#define T_BF16 2u
#define T_F64 3u
#define T_I64 4u
#define T_I32 5u
#define T_I16 6u
#define T_I8 7u
#define T_U8 8u
#define T_BOOL 9u

#ifdef TARGET_GLSL
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#if KIND == 2
#extension GL_EXT_shader_explicit_arithmetic_types_float64 : require
#endif
#define ANY_VIEW(b, T, name) layout(std430, set = 0, binding = b) buffer A##b##name { T name[]; };
#define ANY(b, name) ANY_VIEW(b, uint8_t, name##_8) ANY_VIEW(b, uint16_t, name##_16) ANY_VIEW(b, float16_t, name##_h) \
  ANY_VIEW(b, uint, name##_32) ANY_VIEW(b, uvec2, name##_64)
// The same, and four elements of a float type at once: WIDE_*(name, i) are elements 4 i to 4 i + 3.
#define ANY_WIDE(b, name) ANY(b, name) ANY_VIEW(b, uvec4, name##_128)
#define WIDE_F32(name, i) uintBitsToFloat(name##_128[i])
#define WIDE_F16(name, i) vec4(unpackHalf2x16(name##_64[i].x), unpackHalf2x16(name##_64[i].y))
#define WIDE_BF16(name, i) uintBitsToFloat(uvec4(name##_64[i].x << 16, name##_64[i].x & 0xffff0000u, name##_64[i].y << 16, \
  name##_64[i].y & 0xffff0000u))
#define W128(name, i) name##_128[i]
#define UNIT128 uvec4
#define UNIT128_OF(a, b, c, d) uvec4(a, b, c, d)
#define LONG int64_t
#define W8(name, i) name##_8[i]
#define W16(name, i) name##_16[i]
#define H16(name, i) name##_h[i]
#define W32(name, i) name##_32[i]
#define GET64(name, i) long_of(name##_64[i])
#define SET64(name, i, v) name##_64[i] = words_of(v)
#define TO8(v) uint8_t(v)
#define TO16(v) uint16_t(v)
#define TOHALF(v) float16_t(v)
LONG long_of(uvec2 w) { return LONG(w.x) | (LONG(int(w.y)) << 32); }
uvec2 words_of(LONG v) { return uvec2(uint(v & LONG(0xffffffffu)), uint(v >> 32)); }
#if KIND == 2
#define DOUBLE double
#define HIGH_WORD(v) unpackDouble2x32(v).y
#define LOW_WORD(v) unpackDouble2x32(v).x
#define GETD(name, i) packDouble2x32(name##_64[i])
#define SETD(name, i, v) name##_64[i] = unpackDouble2x32(v)
#endif
#else
#define ANY(b, name) void* name
#define ANY_WIDE(b, name) void* name
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef uint uint2 __attribute__((ext_vector_type(2)));
#define WIDE_F32(name, i) element_at((vec4*)name, i)
#define WIDE_F16(name, i) __builtin_convertvector(element_at((half4*)name, i), vec4)
#define WIDE_BF16(name, i) wide_bf16(element_at((uint2*)name, i))
FN vec4 wide_bf16(uint2 w) {
  return vec4{AS_FLOAT(w.x << 16), AS_FLOAT(w.x & 0xffff0000u), AS_FLOAT(w.y << 16), AS_FLOAT(w.y & 0xffff0000u)};
}
typedef uint uint4 __attribute__((ext_vector_type(4)));
#define W128(name, i) element_at((uint4*)name, i)
#define UNIT128 uint4
#define UNIT128_OF(a, b, c, d) uint4{a, b, c, d}
#define LONG long
#define W8(name, i) element_at((unsigned char*)name, i)
#define W16(name, i) element_at((unsigned short*)name, i)
#define H16(name, i) element_at((_Float16*)name, i)
#define W32(name, i) element_at((uint*)name, i)
#define GET64(name, i) element_at((long*)name, i)
#define SET64(name, i, v) element_at((long*)name, i) = v
#define TO8(v) ((unsigned char)(v))
#define TO16(v) ((unsigned short)(v))
#define TOHALF(v) ((_Float16)(v))
#define DOUBLE double
#define HIGH_WORD(v) ((uint)(__builtin_bit_cast(unsigned long, (double)(v)) >> 32))
#define LOW_WORD(v) ((uint)__builtin_bit_cast(unsigned long, (double)(v)))
#define GETD(name, i) element_at((double*)name, i)
#define SETD(name, i, v) element_at((double*)name, i) = v
#endif

// UNIT: what moves elements of SIZE bytes as they are; of ANY_WIDE buffers.
#ifdef SIZE
#if SIZE == 1
#define UNIT uint
#define GET_UNIT(name, i) uint(W8(name, i))
#define SET_UNIT(name, i, v) W8(name, i) = TO8(v)
#elif SIZE == 2
#define UNIT uint
#define GET_UNIT(name, i) uint(W16(name, i))
#define SET_UNIT(name, i, v) W16(name, i) = TO16(v)
#elif SIZE == 4
#define UNIT uint
#define GET_UNIT(name, i) W32(name, i)
#define SET_UNIT(name, i, v) W32(name, i) = v
#elif SIZE == 8
#define UNIT LONG
#define GET_UNIT(name, i) GET64(name, i)
#define SET_UNIT(name, i, v) SET64(name, i, v)
#else
#define UNIT UNIT128
#define GET_UNIT(name, i) W128(name, i)
#define SET_UNIT(name, i, v) W128(name, i) = v
#endif
#endif

// bf16 bits, rounded to nearest even; NaN stays NaN.
FN uint any_bf16(float v) {
  uint u = AS_UINT(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (u >> 16) | 0x40u;
  return (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}
// Float to integer as x86 does it: what does not fit (and NaN) becomes the least integer.
FN LONG any_long(float v) { return (v >= -9.2233720e18f && v < 9.2233720e18f) ? LONG(v) : (LONG(1) << 63); }

// Small integers sign-extended to 32 bits. A byte viewed as a bool is true wherever it is not zero.
#define INT_OF(v, name, dt, i) \
  if (dt == T_I32) v = int(W32(name, i)); \
  else if (dt == T_I16) v = (int(W16(name, i)) << 16) >> 16; \
  else if (dt == T_I8) v = (int(W8(name, i)) << 24) >> 24; \
  else { v = int(W8(name, i)); if (dt == T_BOOL) v = min(v, 1); }

#define LOAD_F(v, name, dt, i) { \
  if (dt == T_F32) v = AS_FLOAT(W32(name, i)); \
  else if (dt == T_F16) v = float(H16(name, i)); \
  else if (dt == T_BF16) v = AS_FLOAT(uint(W16(name, i)) << 16); \
  else if (dt == T_I64) v = float(GET64(name, i)); \
  else { int whole; INT_OF(whole, name, dt, i) v = float(whole); } }
#define LOAD_I(v, name, dt, i) { \
  if (dt == T_I64) v = GET64(name, i); \
  else if (dt <= T_BF16) { float real; LOAD_F(real, name, dt, i) v = any_long(real); } \
  else { int whole; INT_OF(whole, name, dt, i) v = LONG(whole); } }
#define STORE_I(name, dt, i, v) { \
  if (dt == T_I64) SET64(name, i, v); \
  else if (dt == T_I32) W32(name, i) = uint(v); \
  else if (dt == T_I16) W16(name, i) = TO16(v); \
  else if (dt == T_BOOL) W8(name, i) = TO8((v) != LONG(0) ? 1 : 0); \
  else if (dt >= T_I8) W8(name, i) = TO8(v); \
  else if (dt == T_F32) W32(name, i) = AS_UINT(float(v)); \
  else if (dt == T_F16) H16(name, i) = TOHALF(float(v)); \
  else W16(name, i) = TO16(any_bf16(float(v))); }
#define STORE_F(name, dt, i, v) { \
  if (dt == T_F32) W32(name, i) = AS_UINT(v); \
  else if (dt == T_F16) H16(name, i) = TOHALF(v); \
  else if (dt == T_BF16) W16(name, i) = TO16(any_bf16(v)); \
  else if (dt == T_BOOL) W8(name, i) = TO8((v) != 0.0f ? 1 : 0); \
  else { LONG whole = any_long(v); STORE_I(name, dt, i, whole) } }
#if KIND == 2
// On bits, as for floats: compilers may take it that v == v.
FN bool is_infinite(DOUBLE v) { return (HIGH_WORD(v) & 0x7fffffffu) == 0x7ff00000u && LOW_WORD(v) == 0u; }
FN bool is_nan(DOUBLE v) {
  uint high = HIGH_WORD(v) & 0x7fffffffu;
  return high > 0x7ff00000u || (high == 0x7ff00000u && LOW_WORD(v) != 0u);
}
FN LONG any_long_d(DOUBLE v) { return (v >= -9223372036854775808.0 && v < 9223372036854775808.0) ? LONG(v) : (LONG(1) << 63); }
#define LOAD_D(v, name, dt, i) { \
  if (dt == T_F64) v = GETD(name, i); \
  else if (dt == T_I64) v = DOUBLE(GET64(name, i)); \
  else if (dt == T_I32) v = DOUBLE(int(W32(name, i))); \
  else { float real; LOAD_F(real, name, dt, i) v = DOUBLE(real); } }
#define STORE_D(name, dt, i, v) { \
  if (dt == T_F64) SETD(name, i, v); \
  else if (dt == T_BOOL) W8(name, i) = TO8((v) != DOUBLE(0) ? 1 : 0); \
  else if (dt <= T_BF16) { float real = float(v); STORE_F(name, dt, i, real) } \
  else { LONG whole = any_long_d(v); STORE_I(name, dt, i, whole) } }
#endif

#if KIND == 0
#define NUM float
#define LOAD_N LOAD_F
#define STORE_N STORE_F
#elif KIND == 1
#define NUM LONG
#define LOAD_N LOAD_I
#define STORE_N STORE_I
#else
#define NUM DOUBLE
#define LOAD_N LOAD_D
#define STORE_N STORE_D
#endif

// Element offset of index i in a tensor of up to 4 dimensions: sizes s1..s3 of all but the outermost, strides t0..t3.
#define OFFSET4(i, s1, s2, s3, t0, t1, t2, t3) offset4(i, s1, s2, s3, t0, t1, t2, t3)
FN uint offset4(uint i, uint s1, uint s2, uint s3, uint t0, uint t1, uint t2, uint t3) {
  uint q = i / s3, at3 = i - q * s3;
  uint r = q / s2, at2 = q - r * s2;
  uint u = r / s1, at1 = r - u * s1;
  return u * t0 + at1 * t1 + at2 * t2 + at3 * t3;
}
