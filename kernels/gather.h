// The scalar words of a gathering convolution, shared by igemm.kern and direct.kern; solve's gather.rs
// fills them. Strides are in elements. `taps`, `str`, `org`, `dil` hold two halves: y low, x high.
#define PARAMS                                                                                       \
  uint x0; uint flags; /* | splits<<16 */ uint rows; uint cols; uint pixels; uint jw; uint kc; uint taps; /* t | u<<16 */ \
  uint sn; uint sc; uint sh; uint sw; uint h; uint w; uint str; uint org; uint dil; /* y | x<<16 */  \
  uint am; uint ak; uint at; uint au; uint a0; uint ag; /* PACKED: am = M4, ag = floats a group */   \
  uint on; uint oc; uint oh; uint ow; uint o0;                                                       \
  uint src0; uint slices; /* of a split */ uint chunk; uint partial;
#define SPLITS HI16(p.flags)
#define FLAG_BIAS 1u
#define FLAG_RELU 2u
#define FLAG_VEC 4u
#define FLAG_PARTIAL 8u
