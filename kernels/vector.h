// A variant's vector: VEC is 4 or 1. V, and GET and PUT of buffers of elements (VEC 4: of IN4 and OUT4, counted in vectors).
#if VEC == 4
#define V vec4
#define GET(name, i) LOAD4(name, i)
#define PUT(name, i, v) STORE4(name, i, v)
#define ALL(s) VEC4(s, s, s, s)
#define SUM_OF(v) ((v.x + v.y) + (v.z + v.w))
#else
#define V float
#define GET(name, i) LOAD(name, i)
#define PUT(name, i, v) STORE(name, i, v)
#define ALL(s) (s)
#define SUM_OF(v) (v)
#endif
