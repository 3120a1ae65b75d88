// The parameters of backward-weights, shared by wrw.kern and direct_wrw.kern. Strides are in elements.
#define PARAMS                                                                             \
  uint x0, flags, rows, kc; PAIR(taps) uint imgs, oh, ow;                                  \
  STRIDES_NCHW(y_) STRIDES_NCHW(x_) uint h, w; PAIR(str) PAIR(org) PAIR(dil)               \
  STRIDES_NCHW(f_) uint splits, slices, chunk, partial, blocks /* of columns, a tap */, y_first, groups;
#define FLAG_PARTIAL 8u
