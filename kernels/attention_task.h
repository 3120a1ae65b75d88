// What attention's forward kernels take. sums gets the logarithm of each query's sum of exponentials. A query that sees no key gets
// zeros. Scores are logarithms of base 2: scale is times the logarithm of e. Strides and starts of q, k, v and dst are in vectors
// of four. flags: in the high half, how many of 65536 weights are dropped (attention.kern alone); key: the key of these random numbers.
#define PARAMS uint x0, flags, heads, share, queries, keys, e4, ev4, q_at, k_at, v_at, o_at, m_at, sums_at, key_at; float scale; \
  uint q_n, q_h, q_l, k_n, k_h, k_l, v_n, v_h, v_l, o_n, o_h, o_l, m_n, m_h, m_l, m_s;
#define FLAG_CAUSAL 1u
#define FLAG_MASK 2u
#define FLAG_SUMS 4u
