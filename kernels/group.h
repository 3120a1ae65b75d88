// Workgroups that reduce: THREADS = 2^tx outputs times the lanes that share one, whose accumulators meet in LDS.
#ifdef TARGET_GLSL
#define SHARED_OF(T, name, n) shared T name[n];
#define SHARED_AT(name, i) name[i]
#else
#define SHARED_OF(T, name, n) static __attribute__((shared)) T name[n];
#define SHARED_AT(name, i) name[i]
#endif
// How values are combined. The larger one; NaN if one is (needs math.h).
#define LARGER(a, b) ((a > b || ISNAN(a)) ? a : b)
#define ADDED(a, b) (a + b)

// lanes: bits 0 to 7 log2 of the outputs a group; LANES_ALONG: lanes of one output are neighbours (else: outputs are);
// LANES_DEEP (reduction.kern): more than two reduced dimensions. LANES_WIDE (there): reduced elements are floats, counted and read by four.
#define LANES_ALONG 256u
#define LANES_DEEP 512u
#define LANES_WIDE 1024u
#define LANES_INIT \
  const uint tx = 1u << (p.lanes & 255u), ty = uint(THREADS) / tx; \
  const bool along = (p.lanes & LANES_ALONG) != 0u; \
  const uint kx = along ? LOCAL_ID / ty : LOCAL_ID % tx, ry = along ? LOCAL_ID % ty : LOCAL_ID / tx; \
  const uint slot = ry * tx + kx;

// Long sums are made of sums of 16, whose rounding errors stay small: BLOCKED(sum) declares one, BLOCKED_ADD adds to it, BLOCKED_END
// makes `sum` all of it.
#define BLOCKED(sum) float sum = 0.0f, sum##_block = 0.0f; uint sum##_turn = 0u;
#define BLOCKED_ADD(sum, v) sum##_block += v; sum##_turn += 1u; if ((sum##_turn & 15u) == 0u) { sum += sum##_block; sum##_block = 0.0f; }
#define BLOCKED_END(sum) sum += sum##_block;
