// The dialect: what a kernel text may use, in GLSL (Vulkan) and in HIP (amdgcn code objects).
//
// A source defines PARAMS (`uint x0` first), includes this header, declares LDS with SHARED4, and opens its body with
// KERNEL2 to KERNEL8(buffers). Types: uint, int, float, vec4. crates/params makes Rust structs of PARAMS and the buffers:
// both stand once in a source, outside of #if. `#define NAME 1u` becomes a constant there.
//
//   IN(b, T, name) OUT(b, T, name)  storage buffer b of T; IN4/OUT4 also allow LOAD4/STORE4
//   OUT2(b, ELEM, ELEM2, name)      also allows STORE2
//   LOAD(name, i) STORE(name, i, v) one element of storage type (DTYPE) as float
//   LOAD4(name, i) STORE4(name, i, v) elements 4*i .. 4*i+3;  STORE2(name, i, v, w) elements 2*i, 2*i+1
//   SHARED4(name, n)                n vec4 of LDS;  LANE(name, i) is its float i, LANE_OF(name, v, c) part c of vec4 v
//   OPAQUE(v)                       hides from clang where the variable v comes from: what depends on it stays put
//   FENCE                           clang moves nothing over it; RADV leaves things where the text has them
//   UNIFORM(v)                      v, promised equal over the wavefront: lets AMD keep it scalar
//   EXP2(x)                         the device's own 2^x: a few units in the last place; 0 for what is below 2^-126
//   x0 is added to GROUP_X: a device may cut a launch along x.

// Groups of parameters; each is one field in Rust.
#define STRIDES_NCHW(x) uint x##n; uint x##c; uint x##h; uint x##w;
#define SIZES3(x) uint x##1; uint x##2; uint x##3;
#define STRIDES4(x) uint x##0; uint x##1; uint x##2; uint x##3;
#define SIX(x) uint x##0; uint x##1; uint x##2; uint x##3; uint x##4; uint x##5;
#define DIVISORS3(x) uint x##_1; uint x##_2; uint x##_3; uint x##_shifts;
#define LONG2(x) uint x##_low; uint x##_high;
#define PAIR(x) uint x;

#define DTYPE_F32 0
#define DTYPE_F16 1
#define DTYPE_BF16 2

#ifdef TARGET_GLSL

#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_ballot : require
#if DTYPE == DTYPE_F32
#define ELEM float
#define ELEM2 vec2
#define ELEM4 vec4
#else
#extension GL_EXT_shader_16bit_storage : require
#if DTYPE == DTYPE_F16
#define ELEM float16_t
#define ELEM2 f16vec2
#define ELEM4 f16vec4
#else
#define ELEM uint16_t
#define ELEM2 u16vec2
#define ELEM4 u16vec4
#endif
#endif

#define IN(b, T, name) layout(std430, set = 0, binding = b) readonly buffer B##b##name { T name[]; };
#define OUT(b, T, name) layout(std430, set = 0, binding = b) buffer B##b##name { T name[]; };
#define IN4(b, T, T4, name) IN(b, T, name) layout(std430, set = 0, binding = b) readonly buffer V##b##name { T4 name##_v4[]; };
#define OUT4(b, T, T4, name) OUT(b, T, name) layout(std430, set = 0, binding = b) buffer V##b##name { T4 name##_v4[]; };
#define OUT2(b, T, T2, name) OUT(b, T, name) layout(std430, set = 0, binding = b) buffer W##b##name { T2 name##_v2[]; };
#define HEAD layout(local_size_x = THREADS) in; layout(push_constant) uniform Push { PARAMS } p;
#define KERNEL2(a, b) HEAD a b void main()
#define KERNEL3(a, b, c) HEAD a b c void main()
#define KERNEL4(a, b, c, d) HEAD a b c d void main()
#define KERNEL5(a, b, c, d, e) HEAD a b c d e void main()
#define KERNEL6(a, b, c, d, e, f) HEAD a b c d e f void main()
#define KERNEL7(a, b, c, d, e, f, g) HEAD a b c d e f g void main()
#define KERNEL8(a, b, c, d, e, f, g, h) HEAD a b c d e f g h void main()
#define SHARED4(name, n) shared vec4 name[n];
#define LANE(name, i) name[(i) >> 2][(i) & 3]
#define LANE_OF(name, v, c) name[v][c]
#define AT(name, i) name[i]
#define BASE uint
#define BASE_OF(name, u) (u)
#define AT_BASE(name, base, i) name[(base) + (i)]
#define VEC2_AT(name, i) name##_v2[i]
#define VEC4_AT(name, i) name##_v4[i]
#define UNROLL [[unroll]]
#define NOUNROLL [[dont_unroll]]
#define LOCAL_ID gl_LocalInvocationIndex
#define GROUP_X (gl_WorkGroupID.x + p.x0)
#define GROUP_Y gl_WorkGroupID.y
#define GROUP_Z gl_WorkGroupID.z
#define BARRIER() barrier()
#define OPAQUE(v)
#define FENCE {}
#define UNIFORM(v) subgroupBroadcastFirst(v)
#define VEC4(a, b, c, d) vec4(a, b, c, d)
#define AS_UINT(f) floatBitsToUint(f)
#define AS_FLOAT(u) uintBitsToFloat(u)
#define FMA(a, b, c) fma(a, b, c)
#define EXP2(x) exp2(x)
#if DTYPE == DTYPE_BF16
#define TO_FLOAT(e) AS_FLOAT(uint(e) << 16)
#define FROM_FLOAT(v) uint16_t(bf16_bits(v))
#define TO_FLOAT4(e) vec4(TO_FLOAT(e.x), TO_FLOAT(e.y), TO_FLOAT(e.z), TO_FLOAT(e.w))
#define FROM_FLOAT2(v, w) u16vec2(uvec2(bf16_bits(v), bf16_bits(w)))
#define FROM_FLOAT4(v) u16vec4(uvec4(bf16_bits(v.x), bf16_bits(v.y), bf16_bits(v.z), bf16_bits(v.w)))
#else
#define TO_FLOAT(e) float(e)
#define FROM_FLOAT(v) ELEM(v)
#define TO_FLOAT4(e) vec4(e)
#define FROM_FLOAT2(v, w) ELEM2(vec2(v, w))
#define FROM_FLOAT4(v) ELEM4(v)
#endif
#define FN

#else // TARGET_HIP

typedef unsigned int uint;
typedef float vec4 __attribute__((ext_vector_type(4)));
#if DTYPE == DTYPE_F32
typedef float ELEM;
typedef float ELEM2 __attribute__((ext_vector_type(2)));
typedef vec4 ELEM4;
#elif DTYPE == DTYPE_F16
typedef _Float16 ELEM;
typedef _Float16 ELEM2 __attribute__((ext_vector_type(2)));
typedef _Float16 ELEM4 __attribute__((ext_vector_type(4)));
#else
typedef unsigned short ELEM;
typedef unsigned short ELEM2 __attribute__((ext_vector_type(2)));
typedef unsigned short ELEM4 __attribute__((ext_vector_type(4)));
#endif
struct Params { PARAMS };
#define IN(b, T, name) const T* name
#define OUT(b, T, name) T* name
#define IN4(b, T, T4, name) const T* name
#define OUT2(b, T, T2, name) T* name
#define OUT4(b, T, T4, name) T* name
#define HEAD extern "C" __attribute__((global, amdgpu_flat_work_group_size(THREADS, THREADS))) void KERNEL_NAME
#define KERNEL2(a, b) HEAD(a, b, Params p)
#define KERNEL3(a, b, c) HEAD(a, b, c, Params p)
#define KERNEL4(a, b, c, d) HEAD(a, b, c, d, Params p)
#define KERNEL5(a, b, c, d, e) HEAD(a, b, c, d, e, Params p)
#define KERNEL6(a, b, c, d, e, f) HEAD(a, b, c, d, e, f, Params p)
#define KERNEL7(a, b, c, d, e, f, g) HEAD(a, b, c, d, e, f, g, Params p)
#define KERNEL8(a, b, c, d, e, f, g, h) HEAD(a, b, c, d, e, f, g, h, Params p)
#define SHARED4(name, n) static __attribute__((shared)) vec4 name[n];
#define LANE(name, i) ((__attribute__((address_space(3))) float*)name)[i]
#define LANE_OF(name, v, c) LANE(name, (v) * 4 + (c))
#define AT(name, i) element_at(name, i)
#define BASE GlobalBase
#define BASE_OF(name, u) base_of(name, u)
#define AT_BASE(name, base, i) (*(GlobalBase)((__attribute__((address_space(1))) const char*)(base) + (i) * (uint)sizeof(ELEM)))
#define VEC2_AT(name, i) element_at((ELEM2*)name, i)
#define VEC4_AT(name, i) vec4_ref(name, i)
#define UNROLL _Pragma("unroll")
#define NOUNROLL _Pragma("nounroll")
#define LOCAL_ID __builtin_amdgcn_workitem_id_x()
#define GROUP_X (__builtin_amdgcn_workgroup_id_x() + p.x0)
#define GROUP_Y __builtin_amdgcn_workgroup_id_y()
#define GROUP_Z __builtin_amdgcn_workgroup_id_z()
#define BARRIER() group_barrier()
#define OPAQUE(v) asm volatile("" : "+v"(v))
#define FENCE __builtin_amdgcn_sched_barrier(0);
#define UNIFORM(v) ((uint)__builtin_amdgcn_readfirstlane(v))
#define VEC4(a, b, c, d) vec4{a, b, c, d}
#define AS_UINT(f) __builtin_bit_cast(uint, (float)(f))
#define AS_FLOAT(u) __builtin_bit_cast(float, (uint)(u))
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#define EXP2(x) __builtin_amdgcn_exp2f(x)
#define FN static inline __attribute__((device, always_inline))
// Addresses are base + 32-bit byte offset, the form that global_load takes with a scalar base
// ("RDNA 1.0 ISA", section 9: SADDR). Every buffer is under 4 GiB, which the planner guarantees.
template <class T> FN T& element_at(T* base, uint i) { return *(T*)((char*)base + i * (uint)sizeof(T)); }
template <class T> FN const T& element_at(const T* base, uint i) { return *(const T*)((const char*)base + i * (uint)sizeof(T)); }
typedef __attribute__((address_space(1))) const ELEM* GlobalBase;
FN GlobalBase base_of(const ELEM* all, uint u) {
  GlobalBase base = (GlobalBase)(all + u);
  asm("" : "+s"(base)); // opaque, or the addition goes back into every load
  return base;
}
FN ELEM4& vec4_ref(ELEM* base, uint i) { return element_at((ELEM4*)base, i); }
FN const ELEM4& vec4_ref(const ELEM* base, uint i) { return element_at((const ELEM4*)base, i); }
#if DTYPE != DTYPE_F32
FN vec4& vec4_ref(float* base, uint i) { return element_at((vec4*)base, i); }
FN const vec4& vec4_ref(const float* base, uint i) { return element_at((const vec4*)base, i); }
#endif
FN void group_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
FN float max(float a, float b) { return a > b ? a : b; }
FN uint min(uint a, uint b) { return a < b ? a : b; }
#if DTYPE == DTYPE_BF16
#define TO_FLOAT(e) AS_FLOAT((uint)(e) << 16)
#define FROM_FLOAT(v) ((ELEM)bf16_bits(v))
#define TO_FLOAT4(e) vec4{TO_FLOAT((e).x), TO_FLOAT((e).y), TO_FLOAT((e).z), TO_FLOAT((e).w)}
#define FROM_FLOAT2(v, w) ELEM2{FROM_FLOAT(v), FROM_FLOAT(w)}
#define FROM_FLOAT4(v) ELEM4{FROM_FLOAT((v).x), FROM_FLOAT((v).y), FROM_FLOAT((v).z), FROM_FLOAT((v).w)}
#else
#define TO_FLOAT(e) ((float)(e))
#define FROM_FLOAT(v) ((ELEM)(v))
#define TO_FLOAT4(e) vec4{(float)(e).x, (float)(e).y, (float)(e).z, (float)(e).w}
#define FROM_FLOAT2(v, w) ELEM2{(ELEM)(v), (ELEM)(w)}
#define FROM_FLOAT4(v) ELEM4{(ELEM)(v).x, (ELEM)(v).y, (ELEM)(v).z, (ELEM)(v).w}
#endif

#endif

#if DTYPE == DTYPE_BF16
// Round to nearest, ties to even; NaN stays NaN.
FN uint bf16_bits(float v) {
  uint u = AS_UINT(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (u >> 16) | 0x40u;
  return (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}
#endif

#define LOAD(name, i) TO_FLOAT(AT(name, i))
// BASE b = BASE_OF(name, u), u the same over the wavefront; LOAD_BASE(name, b, i) is element u + i. HIP
// keeps b in scalar registers and spends nothing on adding it.
#define LOAD_BASE(name, base, i) TO_FLOAT(AT_BASE(name, base, i))
#define STORE(name, i, v) AT(name, i) = FROM_FLOAT(v)
#define LOAD4(name, i) TO_FLOAT4(VEC4_AT(name, i))
#define STORE2(name, i, v, w) VEC2_AT(name, i) = FROM_FLOAT2(v, w)
#define STORE4(name, i, v) VEC4_AT(name, i) = FROM_FLOAT4(v)
// Of a buffer of float, whatever DTYPE is.
#define LOADF4(name, i) VEC4_AT(name, i)
// Two signed or unsigned halves of a parameter word.
#define LO16(w) ((w) & 0xffffu)
#define HI16(w) ((w) >> 16)
#define LO16S(w) (int((w) << 16) >> 16)
#define HI16S(w) (int(w) >> 16)
// ReLU that keeps NaN, as PyTorch does. On bits, of which the negative numbers are one range without -0 and NaN: of
// v < 0 ? 0 : v some compilers make max(v, 0), which is 0 of NaN.
#define RELU(v) (AS_UINT(v) - 0x80000001u <= 0x7f7fffffu ? 0.0f : (v))
