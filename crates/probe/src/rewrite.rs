//! Ways to have a convolution done as others of harmless shape, with the same result.
//!
//! These are the work-arounds that owners of RDNA1 cards found by hand: channels padded to numbers that are no
//! powers of two, the image cut into tiles, the batch cut into images. Here each is exact: what is added is zeros,
//! what is cut overlaps by the filter's reach, and sums that were cut are added up again in f64.

use std::ops::Range;
use wave32_problem::{ConvProblem, ConvSpec, Direction, Layout, ProblemError, Rewrite, Tiles};
use wave32_verify::data::{Data, NoMemory};
use wave32_verify::inputs::Inputs;

/// Largest tile of the input, halo included, in rows and columns: the size up to which the cards' owners saw no hang.
pub const TILE: i64 = 32;

/// A rewriting applied to a problem: one other problem, and how it is used.
#[derive(Debug, Clone)]
pub struct Split {
    /// The problem that is run instead, once a piece.
    pub sub: ConvProblem,
    pieces: Vec<Piece>,
    /// Results of pieces are parts of one sum.
    adds: bool,
}

/// Where a piece's tensors lie in the problem's: first operand, second, result.
#[derive(Debug, Clone)]
struct Piece([Window; 3]);

/// One tensor of a piece as a window into the problem's.
#[derive(Debug, Clone)]
struct Window {
    /// For each axis, in logical order, the index in the problem's tensor of each index; none is a zero.
    axes: [Vec<Option<usize>>; 4],
    whole: [i64; 4],
    layout: Layout,
}

impl Window {
    /// All of a tensor, moved by `offset` on each axis.
    fn moved(whole: [i64; 4], part: [i64; 4], offset: [i64; 4], layout: Layout) -> Self {
        let axis = |i: usize| (0..part[i]).map(|v| inside(v + offset[i], whole[i])).collect();
        Self { axes: [axis(0), axis(1), axis(2), axis(3)], whole, layout }
    }

    /// Channels of each of `groups` padded, on `axis`.
    fn grouped(mut self, axis: usize, groups: i64, part: i64) -> Self {
        let (small, large) = (self.whole[axis] / groups, part / groups);
        let at = |v: i64| {
            let (group, channel) = (v / large, v % large);
            if channel < small { inside(group * small + channel, i64::MAX) } else { None }
        };
        self.axes[axis] = (0..part).map(at).collect();
        self
    }

    /// Only these rows (axis 2) or columns (axis 3).
    fn only(mut self, axis: usize, range: &Range<i64>) -> Self {
        for (index, at) in self.axes[axis].iter_mut().enumerate() {
            if !range.contains(&(index as i64)) {
                *at = None;
            }
        }
        self
    }

    /// Calls with (index in the piece, index in the whole) of each element of the piece.
    fn each(&self, mut visit: impl FnMut(usize, Option<usize>)) {
        // Axes in memory order: NCHW, or N H W C.
        let order: [usize; 4] = match self.layout {
            Layout::Nchw => [0, 1, 2, 3],
            Layout::Nhwc => [0, 2, 3, 1],
        };
        let [w0, w1, w2, w3] = order.map(|a| self.whole[a] as usize);
        let [a0, a1, a2, a3] = order.map(|a| &self.axes[a]);
        debug_assert!(w0 > 0);
        let mut at = 0;
        for i0 in a0 {
            for i1 in a1 {
                for i2 in a2 {
                    for i3 in a3 {
                        let place = match (i0, i1, i2, i3) {
                            (Some(i0), Some(i1), Some(i2), Some(i3)) => {
                                Some(((i0 * w1 + i1) * w2 + i2) * w3 + i3)
                            }
                            _ => None,
                        };
                        visit(at, place);
                        at += 1;
                    }
                }
            }
        }
    }

    /// The piece's elements out of the whole's.
    fn cut(&self, whole: &Data) -> Result<Data, NoMemory> {
        let count = self.axes.iter().map(|a| a.len() as u64).product();
        let mut part = Data::filled(whole.dtype(), count, 0)?;
        let size = whole.dtype().size() as usize;
        let (from, to) = (whole.bytes(), part.bytes_mut());
        self.each(|at, place| {
            if let Some(place) = place {
                to[at * size..][..size].copy_from_slice(&from[place * size..][..size]);
            }
        });
        Ok(part)
    }
}

fn inside(index: i64, size: i64) -> Option<usize> {
    if (0..size).contains(&index) { usize::try_from(index).ok() } else { None }
}

/// The next number of channels that is no power of two.
fn odd_one(channels: i64) -> i64 {
    if channels > 1 && channels & (channels - 1) == 0 { channels + 1 } else { channels }
}

/// The rewritings worth a try for a plain problem: each alone, then all of them together.
pub fn candidates(p: &ConvProblem) -> Vec<Vec<Rewrite>> {
    let s = p.spec();
    let [c, k] = [s.c, s.k].map(|v| odd_one(v / s.groups) * s.groups);
    let all = [
        ((c, k) != (s.c, s.k)).then_some(Rewrite::PadChannels { c, k }),
        (s.h > TILE || s.w > TILE).then_some(Rewrite::Tiles { h: TILE, w: TILE }),
        (s.n > 1).then_some(Rewrite::Batch { n: 1 }),
    ];
    let single: Vec<Rewrite> = all.into_iter().flatten().filter(|r| Split::new(*r, p).is_ok()).collect();
    let mut found: Vec<Vec<Rewrite>> = single.iter().map(|r| vec![*r]).collect();
    if single.len() > 1 {
        found.push(single);
    }
    found
}

/// Why a rewriting does not fit a problem.
#[derive(Debug, thiserror::Error)]
pub enum RewriteError {
    /// The problem that it leads to cannot exist.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// It has nothing to cut or to fill up here.
    #[error("{0} does not fit this problem")]
    NotFor(Rewrite),
}

impl Piece {
    /// Windows of x, w, y as first operand, second operand, result of the pass.
    fn ordered([x, w, y]: [Window; 3], direction: Direction) -> Self {
        Self(match direction {
            Direction::Forward => [x, w, y],
            Direction::BackwardData => [y, w, x],
            Direction::BackwardWeights => [x, y, w],
        })
    }
}

impl Split {
    /// Applies a rewrite to a plain problem.
    ///
    /// # Errors
    /// [`RewriteError`] where the rewrite does not apply to the problem.
    pub fn new(rewrite: Rewrite, p: &ConvProblem) -> Result<Self, RewriteError> {
        let s = p.spec();
        let not_for = || RewriteError::NotFor(rewrite);
        match rewrite {
            Rewrite::PadChannels { c, k } => {
                let sub = p.with_channels(c, k).ok_or_else(not_for)?;
                let ([x, w, y], [px, pw, py]) = (p.shapes(), sub.shapes());
                let whole = |all, part| Window::moved(all, part, [0; 4], s.layout);
                let windows = [
                    whole(x, px).grouped(1, s.groups, c),
                    whole(w, pw).grouped(0, s.groups, k),
                    whole(y, py).grouped(1, s.groups, k),
                ];
                Ok(Self { sub, pieces: vec![Piece::ordered(windows, s.direction)], adds: false })
            }
            Rewrite::Batch { n } => {
                if n < 1 || n >= s.n {
                    return Err(not_for());
                }
                let sub = ConvProblem::new(ConvSpec { n, ..s.clone() })?;
                let ([x, w, y], [px, pw, py]) = (p.shapes(), sub.shapes());
                let piece = |first: i64| {
                    let images = |all, part| Window::moved(all, part, [first, 0, 0, 0], s.layout);
                    let filters = Window::moved(w, pw, [0; 4], s.layout);
                    Piece::ordered([images(x, px), filters, images(y, py)], s.direction)
                };
                let pieces = (0..s.n).step_by(n as usize).map(piece).collect();
                Ok(Self { sub, pieces, adds: s.direction == Direction::BackwardWeights })
            }
            Rewrite::Tiles { h, w } => {
                let Tiles { sub, axes: [rows, columns] } = Tiles::new(p, [h, w]).ok_or_else(not_for)?;
                let ([x, wd, y], [px, pw, py]) = (p.shapes(), sub.shapes());
                let mut pieces = Vec::new();
                for &[x0, y0] in rows.starts() {
                    for &[x1, y1] in columns.starts() {
                        let image = Window::moved(x, px, [0, 0, x0, x1], s.layout);
                        let filters = Window::moved(wd, pw, [0; 4], s.layout);
                        let result = Window::moved(y, py, [0, 0, y0, y1], s.layout);
                        let image = match s.direction {
                            Direction::BackwardData => image.only(2, rows.whole()).only(3, columns.whole()),
                            Direction::Forward | Direction::BackwardWeights => image,
                        };
                        pieces.push(Piece::ordered([image, filters, result], s.direction));
                    }
                }
                Ok(Self { sub, pieces, adds: s.direction == Direction::BackwardWeights })
            }
        }
    }

    /// Launches that it takes.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Runs every piece with `run` and puts the results together.
    ///
    /// # Errors
    /// What `run` returns; [`NoMemory`] where the host has too little memory.
    pub fn compute<E: From<NoMemory>>(
        &self,
        p: &ConvProblem,
        inputs: &Inputs,
        run: &mut dyn FnMut(&ConvProblem, &Inputs) -> Result<Data, E>,
    ) -> Result<Data, E> {
        let (dtype, count) = (p.spec().dtype, p.output_elements());
        let mut out = Data::filled(dtype, count, 0)?;
        let size = dtype.size() as usize;
        let mut sums = if self.adds { vec![0f64; out.len()] } else { Vec::new() };
        for Piece([a, b, result]) in &self.pieces {
            let part = Inputs { a: a.cut(&inputs.a)?, b: b.cut(&inputs.b)?, bias: None };
            let done = run(&self.sub, &part)?;
            if self.adds {
                result.each(|at, place| {
                    if let Some(place) = place {
                        sums[place] += done.get(at);
                    }
                });
                continue;
            }
            let to = out.bytes_mut();
            result.each(|at, place| {
                if let Some(place) = place {
                    to[place * size..][..size].copy_from_slice(&done.bytes()[at * size..][..size]);
                }
            });
        }
        if self.adds {
            let mut sums = sums.into_iter();
            out = Data::generate(dtype, count, || sums.next().unwrap_or_default() as f32)?;
        }
        Ok(out)
    }
}
