// What the kernels of attention's gradients take.
//
// stats: [n][h][query], the logarithms of the sums from sums_at on, the dots from dots_at on, and behind these the key of dropout's
// random numbers. flags: in the high half, how many of 65536 weights are dropped. Strides and starts are as in
// attention.kern. dst and other are dense: [n][h][row][size], or [n][row][h][size] with FLAG_ROWS_FIRST. heads_share: heads of
// queries, and as HI16 how many of them have the same keys. sizes: bytes of e / 4 and ev / 4, and of the first vector that
// results get: from there on, D elements at most.
#define PARAMS uint x0, flags, heads_share, rows, cols, sizes, a1_at, a2_at, b1_at, b2_at, m_at, sums_at, dots_at, dst_at, other_at; \
  float scale; uint a1_n, a1_h, a1_l, a2_n, a2_h, a2_l, b1_n, b1_h, b1_l, b2_n, b2_h, b2_l, m_n, m_h, m_l, m_s;
#define FLAG_CAUSAL 1u
#define FLAG_MASK 2u
#define FLAG_KEYS 4u
#define FLAG_ROWS_FIRST 8u
