// The window of source pixels from which a thread makes NY x NX neighbouring pixels of dst, all of which it reads first: of one
// channel at a time. FLAG_LINES: rows are read as aligned vec4s; padding is then KT / 2. FLAG_VEC: and written so.
#define FLAG_VEC 4u
#define FLAG_LINES 64u
#define PAD (KT / 2)
// The window starts at pixel FIRST from the tile's own (in the scalar form, forward: at `org`), WY x WX pixels.
#if BACK
// Pixel i of dx meets, through tap r, (i + PAD - r) / 2 of dy.
#define FIRST (-(KT - 1 - PAD) / 2)
#define WX ((NX - 1 + PAD) / 2 - FIRST + 1)
#define WY ((NY - 1 + PAD) / 2 - FIRST + 1)
#define SRC_X (NX / 2)
#define SRC_Y (NY / 2)
#define TAP(pixel, at) ((pixel) + PAD - 2 * (FIRST + (at)))
#else
#define FIRST (-PAD)
#define WX ((NX - 1) * S + KT)
#define WY ((NY - 1) * S + KT)
#define SRC_X (NX * S)
#define SRC_Y (NY * S)
#define TAP(pixel, at) ((at) - (pixel) * S)
#endif
// Of a row in vec4s: the first starts LEFT pixels before the tile, and there are LINE of them.
#define LEFT (FIRST < 0 ? 4 : 0)
#define LINE ((LEFT + FIRST + WX + 3) / 4)

// Where the window of tile tx, ty lies in a plane: rows, and columns or vec4s of them, each moved into the plane, and whether it
// was there. Loads need no branch then.
#define PLACE_WINDOW(tx, ty) \
  const bool lines = (p.flags & FLAG_LINES) != 0u; \
  uint row[WY], col[WX]; \
  bool in_row[WY], in_col[WX]; \
  UNROLL for (int i = 0; i < WY; i++) { \
    const uint y = (ty) * SRC_Y + uint(LO16S(p.org) + i); \
    in_row[i] = y < p.h; \
    row[i] = min(y, p.h - 1u) * p.src_h; \
  } \
  if (lines) { \
    UNROLL for (int j = 0; j < LINE; j++) { \
      const uint x = (tx) * SRC_X + uint(4 * j - LEFT); \
      in_col[j] = x < p.w; \
      col[j] = min(x, p.w - 4u); \
    } \
  } else { \
    UNROLL for (int j = 0; j < WX; j++) { \
      const uint x = (tx) * SRC_X + uint(HI16S(p.org) + j); \
      in_col[j] = x < p.w; \
      col[j] = min(x, p.w - 1u) * p.src_w; \
    } \
  }

// v[WY][WX]: the window in the plane that begins at `from`; 0 outside of it.
#define READ_WINDOW(v, from) \
  if (lines) { \
    vec4 raw[WY][LINE]; \
    UNROLL for (int i = 0; i < WY; i++) UNROLL for (int j = 0; j < LINE; j++) { \
      const uint at = (from) + row[i] + col[j]; \
      raw[i][j] = LOAD4(src, at >> 2); \
    } \
    UNROLL for (int i = 0; i < WY; i++) UNROLL for (int j = 0; j < WX; j++) { \
      const bool of_row = in_row[i], of_col = in_col[(LEFT + FIRST + j) >> 2], ok = of_row && of_col; \
      const float e = raw[i][(LEFT + FIRST + j) >> 2][(LEFT + FIRST + j) & 3]; \
      v[i][j] = ok ? e : 0.0f; \
    } \
  } else { \
    UNROLL for (int i = 0; i < WY; i++) UNROLL for (int j = 0; j < WX; j++) { \
      const uint at = (from) + row[i] + col[j]; \
      const float e = LOAD(src, at); \
      const bool of_row = in_row[i], of_col = in_col[j], ok = of_row && of_col; \
      v[i][j] = ok ? e : 0.0f; \
    } \
  }

// Rows `first` to `first` + NY - 1 of made[][NX] are the pixels of tile tx, ty, whose first is at `to`.
#define STORE_TILE(made, first, to, tx, ty) \
  UNROLL for (int y = 0; y < NY; y++) { \
    if ((ty) * NY + uint(y) < p.oh) { \
      const uint row = (to) + uint(y) * p.dst_h; \
      if ((p.flags & FLAG_VEC) != 0u) { \
        UNROLL for (int x = 0; x < NX; x += 4) if ((tx) * NX + uint(x) < p.ow) { \
          const vec4 four = VEC4(made[(first) + y][x], made[(first) + y][x + 1], made[(first) + y][x + 2], made[(first) + y][x + 3]); \
          STORE4(dst, (row + uint(x)) >> 2, four); \
        } \
      } else { \
        UNROLL for (int x = 0; x < NX; x++) if ((tx) * NX + uint(x) < p.ow) STORE(dst, row + uint(x) * p.dst_w, made[(first) + y][x]); \
      } \
    } \
  }
