// What pool.kern and max_pool.kern share: sliding windows along one dimension, sizes, and a thread's place. Needs divide.h.
#define CHANNELS_LAST 16u // neighbouring threads are neighbouring channels

// First pixel and end of window o; `reach` pixels lie between its first and its last.
FN int sliding_begin(int o, int stride, int pad, int dilation) {
  int begin = o * stride - pad;
  return begin < 0 ? begin + small_quotient(dilation - 1 - begin, dilation) * dilation : begin;
}
FN int sliding_end(int o, int size, int stride, int pad, int reach) {
  int end = o * stride - pad + reach;
  return end < size ? end : size;
}
// First and last window that may hold pixel i.
FN int first_sliding(int i, int stride, int pad, int reach) {
  int from = i + pad - reach + 1;
  return from <= 0 ? 0 : small_quotient(from + stride - 1, stride);
}
FN int last_sliding(int i, int outs, int stride, int pad) {
  int last = small_quotient(i + pad, stride);
  return last < outs ? last : outs - 1;
}

// Sizes of both sides, and of windows: h and w, steps, padding, dilation, reach.
#define POOLING                                                                                                        \
  const int ih = int(p.in_h), iw = int(p.in_w), oh = int(p.out_h), ow = int(p.out_w);                                  \
  const int sh = int(LO16(p.stride)), sw = int(HI16(p.stride)), ph = int(LO16(p.pad)), pw = int(HI16(p.pad));          \
  const int dh = int(LO16(p.dilation)), dw = int(HI16(p.dilation));                                                    \
  const int rh = (int(LO16(p.kernel)) - 1) * dh + 1, rw = (int(HI16(p.kernel)) - 1) * dw + 1;
// n, c, row and place of an item, of `rows` rows with `places` items each; and where its planes begin on both sides and in the indices.
// The divisors `by` are channels, places and rows.
#define PLACE(flags, item, rows, places)                                                                               \
  uint n, c, row, place, rest;                                                                                         \
  const uint for_c = p.by_shifts & 255u, for_w = p.by_shifts >> 8 & 255u, for_h = p.by_shifts >> 16;                   \
  if (((flags) & CHANNELS_LAST) != 0u) {                                                                               \
    rest = quotient(item, p.by_1, for_c); c = item - rest * p.channels;                                                \
    n = quotient(rest, p.by_2, for_w); place = rest - n * (places);                                                    \
    rest = quotient(n, p.by_3, for_h); row = n - rest * (rows);                                                        \
    n = rest;                                                                                                          \
  } else {                                                                                                             \
    rest = quotient(item, p.by_2, for_w); place = item - rest * (places);                                              \
    n = quotient(rest, p.by_3, for_h); row = rest - n * (rows);                                                        \
    rest = quotient(n, p.by_1, for_c); c = n - rest * p.channels;                                                      \
    n = rest;                                                                                                          \
  }                                                                                                                    \
  const uint a = p.a_at + n * p.a0 + c * p.a1, b = p.b_at + n * p.b0 + c * p.b1, x = p.x_at + n * p.i0 + c * p.i1;
