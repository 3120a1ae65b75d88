// The tile of tile.h by dot products of two (DOT): an instruction multiplies two pairs of f16 and adds both products to an f32 sum. It is
// v_dot2_f32_f16 ("RDNA 2 ISA", section 12.8), which GFX10 has but for gfx1010, and everything later; in SPIR-V OpFDot2MixAcc32VALVE
// (SPV_VALVE_mixed_float_dot_product). EMULATED, for tests on devices without it: by multiply-adds in f32.
//
// Operands lie in LDS in pairs of neighbours along the sum: a slice of BK has BK / 2 rows of pairs, as f32 tiles have rows of numbers.
//
//   SHARED_PAIRS4(name, n)  n vectors of four pairs of LDS. PAIR_CELL(name, v, l): as CELL
//   PAIRS4, PAIRS4_OF(a, b) four pairs as a uvec4: of HALF4 a and b, of which a comes first along the sum
//   DOT2(a, b, c)           c + a.x * b.x + a.y * b.y, of pairs a and b
#ifdef TARGET_GLSL
#define PAIRS4 uvec4
#define SHARED_PAIRS4(name, n) shared uvec4 name[n];
#define PAIR_CELL(name, v, l) name[v][l]
#define PAIRS4_OF(a, b) \
  uvec4(BITS2(HALF2_OF(a.x, b.x)), BITS2(HALF2_OF(a.y, b.y)), BITS2(HALF2_OF(a.z, b.z)), BITS2(HALF2_OF(a.w, b.w)))
#ifdef EMULATED
float DOT2(uint a, uint b, float c) {
  const vec2 v = vec2(HALF2_OF_BITS(a)), w = vec2(HALF2_OF_BITS(b));
  return fma(v.x, w.x, fma(v.y, w.y, c));
}
#else
#extension GL_EXT_spirv_intrinsics : require
spirv_instruction(extensions = ["SPV_VALVE_mixed_float_dot_product"], capabilities = [6912], id = 6916)
float dot2_f32(f16vec2 a, f16vec2 b, float c);
#define DOT2(a, b, c) dot2_f32(HALF2_OF_BITS(a), HALF2_OF_BITS(b), c)
#endif
#else
typedef uint PAIRS4 __attribute__((ext_vector_type(4)));
FN const PAIRS4& vec4_ref(const uint* base, uint i) { return element_at((const PAIRS4*)base, i); }
#define SHARED_PAIRS4(name, n) static __attribute__((shared)) PAIRS4 name[n];
#define PAIR_CELL(name, v, l) ((__attribute__((address_space(3))) uint*)name)[(v) * 4 + (l)]
#define PAIRS4_OF(a, b) \
  PAIRS4{BITS2(HALF2_OF(a.x, b.x)), BITS2(HALF2_OF(a.y, b.y)), BITS2(HALF2_OF(a.z, b.z)), BITS2(HALF2_OF(a.w, b.w))}
// As numbers: of an element of a vector, __builtin_bit_cast of clang 19 takes the vector's first.
#define DOT2(a, b, c) __builtin_amdgcn_fdot2(HALF2_OF_BITS((uint)(a)), HALF2_OF_BITS((uint)(b)), c, false)
#endif
