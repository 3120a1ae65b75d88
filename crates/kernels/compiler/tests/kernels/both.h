// The least dialect in which the fixtures are one text for two compilers.
#define PARAMS uint x0; uint count;
#ifdef TARGET_GLSL
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#define IN(i, T, name) layout(std430, set = 0, binding = i) readonly restrict buffer In##i { T name[]; };
#define OUT(i, T, name) layout(std430, set = 0, binding = i) writeonly restrict buffer Out##i { T name[]; };
#define PUSH layout(push_constant) uniform Params { PARAMS } p;
#define KERNEL(b0, b1, b2, ps) layout(local_size_x = THREADS) in; b0 b1 b2 ps void main()
#define GROUP (gl_WorkGroupID.x + p.x0)
#define LANE gl_LocalInvocationID.x
#define NO_BUFFER
#else
typedef unsigned int uint;
typedef unsigned short uint16_t;
typedef _Float16 float16_t;
#define IN(i, T, name) const T *__restrict__ name,
#define OUT(i, T, name) T *__restrict__ name,
struct Params { PARAMS };
#define PUSH Params p
#define KERNEL(b0, b1, b2, ps) extern "C" __attribute__((global, amdgpu_flat_work_group_size(THREADS, THREADS))) void KERNEL_NAME(b0 b1 b2 ps)
#define GROUP (__builtin_amdgcn_workgroup_id_x() + p.x0)
#define LANE __builtin_amdgcn_workitem_id_x()
#define NO_BUFFER
static inline __attribute__((device)) float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#endif
#if DTYPE == 0
#define ELEMENT float
#define LOAD(v) (v)
#define STORE(v) (v)
#elif DTYPE == 1
#define ELEMENT float16_t
#define LOAD(v) float(v)
#define STORE(v) float16_t(v)
#else
// Not bfloat16's rounding: enough to have a third storage type that compiles.
#define ELEMENT uint16_t
#define LOAD(v) float(v)
#define STORE(v) uint16_t(v)
#endif
