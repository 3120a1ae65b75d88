// Arithmetic in f16, two numbers an instruction, for f16 variants with the define HALF (or MATRIX, tile.h; or DOT, dot.h); and CELL,
// for f32 too.
//
//   CELL(name, v, l)      float l of the vec4 v of LDS. Where l is not known at compile time, what is added to v should
//                         stand last and be known: RADV then makes it a part of the instruction
//   HALF2, HALF4          vectors of f16; HALF2_OF(a, b), HALF4_OF(v, w) of two HALF2, SPLAT2(h), FMA2(a, b, c)
//   SHARED_HALF4(name, n) n vectors of LDS. HALF_CELL(name, v, l): as CELL; STORE_HALF2(name, v, l, h): two neighbours, l even
//   BITS2, HALF2_OF_BITS  two numbers as a uint: a mask chooses both at once
//   ADD_SCALED(a, s, h)   a + s * h, with a in f32. Both compilers make one v_fma_mix_f32 of it, unless s is known to be 1
#ifdef MATRIX
#define HALF 1
#endif
#ifdef TARGET_GLSL
#define CELL(name, v, l) name[v][l]
#if defined(HALF) || defined(DOT)
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define HALF2 f16vec2
#define HALF4 f16vec4
#define HALF2_OF(a, b) f16vec2(a, b)
#define HALF4_OF(v, w) f16vec4(v, w)
#define SPLAT2(h) f16vec2(h)
#define FMA2(a, b, c) fma(a, b, c)
#define BITS2(v) packFloat2x16(v)
#define HALF2_OF_BITS(u) unpackFloat2x16(u)
#define SHARED_HALF4(name, n) shared f16vec4 name[n];
#define HALF_CELL(name, v, l) name[v][l]
#define STORE_HALF2(name, v, l, h) name[v][l] = h.x; name[v][(l) + 1] = h.y;
#define ADD_SCALED(a, s, h) fma(float(s), float(h), a)
#endif
#else
#define CELL(name, v, l) LANE(name, (v) * 4 + (l))
#if defined(HALF) || defined(DOT)
typedef _Float16 HALF2 __attribute__((ext_vector_type(2)));
typedef _Float16 HALF4 __attribute__((ext_vector_type(4)));
#define HALF2_OF(a, b) HALF2{a, b}
#define HALF4_OF(v, w) HALF4{(v).x, (v).y, (w).x, (w).y}
#define SPLAT2(h) HALF2{h, h}
#define FMA2(a, b, c) __builtin_elementwise_fma(a, b, c)
#define BITS2(v) __builtin_bit_cast(uint, v)
#define HALF2_OF_BITS(u) __builtin_bit_cast(HALF2, u)
#define SHARED_HALF4(name, n) static __attribute__((shared, aligned(16))) HALF4 name[n];
#define HALF_CELL(name, v, l) ((__attribute__((address_space(3))) _Float16*)name)[(v) * 4 + (l)]
#define STORE_HALF2(name, v, l, h) ((__attribute__((address_space(3))) HALF2*)name)[(v) * 2 + (l) / 2] = h;
#define ADD_SCALED(a, s, h) __builtin_fmaf((float)(s), (float)(h), a)
#endif
#endif
