// The one-dimensional transforms of F(4, 3): four outputs of a filter of three taps by six products instead of twelve.
//
// Toom-Cook on the points 0, +-1/2, +-3/2 and infinity ("Fast Algorithms for Convolutional Neural Networks", Lavin and Gray,
// 2015, section 4; the points after "Error Analysis and Improving the Accuracy of Winograd Convolution", Barabasz et al.,
// 2018: a third of the rounding error that 0, +-1, +-2 have). y = AT [(G g) . (BT d)]; in two dimensions each is applied to
// the columns, then to the rows. The gradient of g is GT [(A dy) . (BT d)]: the transposes.

#define WINO_PLANES 36u
// Planes in f16 are divided by two to these powers: pixels, whose BT d B may be 24 times as large, and forward the products.
#define WINO_PIXEL_SHIFT 4u
#define WINO_PRODUCT_SHIFT 2u

// Six pixels to six points: o = BT d.
#define WINO_DATA(o0, o1, o2, o3, o4, o5, d0, d1, d2, d3, d4, d5)          \
  {                                                                        \
    const float ea = FMA(-2.25f, d2, d4), oa = FMA(-2.25f, d1, d3) * 0.5f; \
    const float eb = FMA(-0.25f, d2, d4), ob = FMA(-0.25f, d1, d3) * 1.5f; \
    const float first = FMA(0.5625f, d0, FMA(-2.5f, d2, d4));              \
    const float last = FMA(0.5625f, d1, FMA(-2.5f, d3, d5));               \
    o0 = first; o1 = ea + oa; o2 = ea - oa; o3 = eb + ob; o4 = eb - ob; o5 = last; \
  }

// Six points to four outputs: y = AT m.
#define WINO_OUTPUT(y0, y1, y2, y3, m0, m1, m2, m3, m4, m5)                       \
  {                                                                               \
    const float sa = m1 + m2, da = m1 - m2, sb = m3 + m4, db = m3 - m4;           \
    const float first = m0 + sa + sb, last = FMA(0.125f, da, FMA(3.375f, db, m5)); \
    y1 = FMA(0.5f, da, 1.5f * db); y2 = FMA(0.25f, sa, 2.25f * sb);               \
    y0 = first; y3 = last;                                                        \
  }

// Four gradients of outputs to six points: o = A y.
#define WINO_GRADIENT(o0, o1, o2, o3, o4, o5, y0, y1, y2, y3)              \
  {                                                                        \
    const float ea = FMA(0.25f, y2, y0), oa = FMA(0.125f, y3, 0.5f * y1);  \
    const float eb = FMA(2.25f, y2, y0), ob = FMA(3.375f, y3, 1.5f * y1);  \
    const float first = y0, last = y3;                                     \
    o0 = first; o1 = ea + oa; o2 = ea - oa; o3 = eb + ob; o4 = eb - ob; o5 = last; \
  }

// Powers of two near the largest sums that WINO_GRADIENT makes: gradients in f16 are divided by them.
#define WINO_GRADIENT_SIZE(i) ((i) == 1 || (i) == 2 ? 2.0f : (i) == 3 || (i) == 4 ? 8.0f : 1.0f)

// Three taps to six points: o = G g.
#define WINO_FILTER(o0, o1, o2, o3, o4, o5, g0, g1, g2)                                   \
  {                                                                                       \
    const float ea = FMA(-0.25f, g2, -g0), oa = -0.5f * g1;                               \
    const float eb = FMA(2.25f, g2, g0) * (1.0f / 9.0f), ob = g1 * (1.5f / 9.0f);         \
    const float first = g0 * (1.0f / 0.5625f), last = g2;                                 \
    o0 = first; o1 = ea + oa; o2 = ea - oa; o3 = eb + ob; o4 = eb - ob; o5 = last;        \
  }

// Six points to the gradients of three taps: g = GT s.
#define WINO_WEIGHTS(g0, g1, g2, s0, s1, s2, s3, s4, s5)                                          \
  {                                                                                               \
    const float sa = s1 + s2, da = s1 - s2, sb = (s3 + s4) * (1.0f / 9.0f), db = (s3 - s4) * (1.5f / 9.0f); \
    const float first = FMA(s0, 1.0f / 0.5625f, sb - sa), last = FMA(2.25f, sb, FMA(-0.25f, sa, s5)); \
    g1 = FMA(-0.5f, da, db); g0 = first; g2 = last;                                               \
  }

// F(2, 3): two outputs by four products instead of six, on the points 0, +-1 and infinity (the same paper, section 4.1).

// Four pixels to four points: o = BT d.
#define WINO2_DATA(o0, o1, o2, o3, d0, d1, d2, d3) \
  { o0 = d0 - d2; o1 = d1 + d2; o2 = d2 - d1; o3 = d1 - d3; }

// Four points to two outputs: y = AT m.
#define WINO2_OUTPUT(y0, y1, m0, m1, m2, m3) \
  { y0 = m0 + m1 + m2; y1 = m1 - m2 - m3; }

// Three taps to four points: o = G g.
#define WINO2_FILTER(o0, o1, o2, o3, g0, g1, g2)           \
  {                                                        \
    const float even = 0.5f * (g0 + g2), odd = 0.5f * g1;  \
    o0 = g0; o1 = even + odd; o2 = even - odd; o3 = g2;    \
  }
