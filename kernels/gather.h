// The parameters of a gathering convolution, shared by igemm.kern and direct.kern; solve's gather.rs
// fills them. Strides are in elements. `taps`, `str`, `org`, `dil` hold two halves: y low, x high.
#define PARAMS                                                                                       \
  uint x0; uint flags; /* | activation<<8 | splits<<16 */ uint rows, cols, pixels, jw, kc; PAIR(taps)               \
  STRIDES_NCHW(src_) uint h, w; PAIR(str) PAIR(org) PAIR(dil)                                       \
  uint am, ak, at, au, a0, ag; /* PACKED: am = M4, ag = floats a group */                           \
  STRIDES_NCHW(dst_) uint o0, src0, slices /* of a split */, chunk, partial;
#define SPLITS HI16(p.flags)
#define FLAG_BIAS 1u
#define FLAG_VEC 4u
#define FLAG_PARTIAL 8u
#define FLAG_STATISTICS 16u /* igemm: of each row, see there */
#define FLAG_SUM 128u /* adds what lies in dst */
