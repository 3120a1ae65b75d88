//! A convolution done as others, with the same result: what `wave32 probe` tries and what the drop-in applies (docs/probe.md).

use crate::{ConvProblem, ConvSpec, Direction};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// One rewriting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Rewrite {
    /// Channels filled up with zeros to these numbers.
    PadChannels {
        /// Input channels then.
        c: i64,
        /// Output channels then.
        k: i64,
    },
    /// The image cut into tiles whose input has this size at most, halo included; padding becomes part of them.
    Tiles {
        /// Rows.
        h: i64,
        /// Columns.
        w: i64,
    },
    /// The batch cut into parts of this many images.
    Batch {
        /// Images.
        n: i64,
    },
}

impl std::fmt::Display for Rewrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PadChannels { c, k } => write!(f, "channels padded to {c} and {k}"),
            Self::Tiles { h, w } => write!(f, "tiles of {h}x{w}"),
            Self::Batch { n } => write!(f, "{n} image at a time"),
        }
    }
}

impl ConvProblem {
    /// With so many channels, in each group as many more; none where there would be fewer, or groups of different sizes.
    pub fn with_channels(&self, c: i64, k: i64) -> Option<Self> {
        let spec = self.spec();
        let fits = |new: i64, old: i64| new >= old && new % spec.groups == 0;
        let fits = fits(c, spec.c) && fits(k, spec.k);
        fits.then(|| Self::new(ConvSpec { c, k, ..spec.clone() }).ok()).flatten()
    }
}

/// A problem's image in tiles.
#[derive(Debug, Clone)]
pub struct Tiles {
    /// The problem of each tile; its padding is part of its image.
    pub sub: ConvProblem,
    /// How rows are cut, and columns.
    pub axes: [TiledAxis; 2],
}

impl Tiles {
    /// Tiles whose image has at most so many rows and columns; none where the filter reaches further than that.
    pub fn new(problem: &ConvProblem, [h, w]: [i64; 2]) -> Option<Self> {
        let axes = [TiledAxis::new(problem, 0, h)?, TiledAxis::new(problem, 1, w)?];
        let [rows, columns] = &axes;
        let spec = ConvSpec { h: rows.input, w: columns.input, pad: [0, 0], ..problem.spec().clone() };
        Some(Self { sub: ConvProblem::new(spec).ok()?, axes })
    }
}

/// How one axis is cut.
#[derive(Debug, Clone)]
pub struct TiledAxis {
    input: i64,
    starts: Vec<[i64; 2]>,
    whole: Range<i64>,
}

impl TiledAxis {
    fn new(p: &ConvProblem, axis: usize, limit: i64) -> Option<Self> {
        let s = p.spec();
        let span = ([s.r, s.s][axis] - 1) * s.dilation[axis] + 1;
        let (size, outputs) = ([s.h, s.w][axis], [p.out_h(), p.out_w()][axis]);
        let (stride, pad) = (s.stride[axis], s.pad[axis]);
        if span > limit {
            return None;
        }
        let most = (limit - span) / stride + 1;
        let input = |tile: i64| (tile - 1) * stride + span;
        let both = |y: i64| [y * stride - pad, y];
        if s.direction != Direction::BackwardData {
            let tile = most.min(outputs);
            let starts = (0..outputs).step_by(tile as usize).map(both).collect();
            return Some(Self { input: input(tile), starts, whole: 0..input(tile) });
        }
        // Input i of a tile has terms from the outputs (i - span, i] / stride: all of them are the tile's own
        // from `first` on, up to the stride's worth behind its last output.
        let first = (span - stride).max(0);
        let before = (first + stride - 1) / stride;
        let tile = most.min(before + (size + stride - 1).div_euclid(stride).max(1));
        let step = tile - before;
        if step < 1 {
            return None;
        }
        let start = (pad - first).div_euclid(stride);
        let covers = |&[x, _]: &[i64; 2]| x + first < size;
        let starts = (0..).map(|i| both(start + i * step)).take_while(covers).collect();
        Some(Self { input: input(tile), starts, whole: first..first + step * stride })
    }

    /// Where each tile begins in the problem's x and in its y: rows before the first one are padding.
    pub fn starts(&self) -> &[[i64; 2]] {
        &self.starts
    }

    /// The rows (columns) of a tile's x that count as a result: of a gradient only those with all of their terms.
    pub fn whole(&self) -> &Range<i64> {
        &self.whole
    }
}
