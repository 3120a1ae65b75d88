// Workgroups that reduce: THREADS = 2^tx outputs times the lanes that share one, whose accumulators meet in LDS.
#ifdef TARGET_GLSL
#define SHARED_OF(T, name, n) shared T name[n];
#define SHARED_AT(name, i) name[i]
#define KERNEL_OF(buffers) HEAD buffers void main()
#define COMMA
#else
#define SHARED_OF(T, name, n) static __attribute__((shared)) T name[n];
#define SHARED_AT(name, i) name[i]
#define COMMA ,
#define KERNEL_OF(buffers) HEAD(buffers, Params p)
#endif
// lanes: bits 0 to 7 log2 of the outputs a group; bit 8: lanes of one output are neighbours (else: outputs are).
#define LANES_INIT \
  const uint tx = 1u << (p.lanes & 255u), ty = uint(THREADS) / tx; \
  const bool along = (p.lanes & 256u) != 0u; \
  const uint kx = along ? LOCAL_ID / ty : LOCAL_ID % tx, ry = along ? LOCAL_ID % ty : LOCAL_ID / tx; \
  const uint slot = ry * tx + kx;
