//! How a proven solver's problem was rewritten, as the probe's table says it: docs/probe.md.

use std::fmt;
use std::ops::Range;
use wave32_problem::{ConvProblem, ConvSpec, Direction, Rewrite, TiledAxis, Tiles};
use wave32_solve::DeviceCaps;

/// What parts of the workspace, and parts of tensors, begin at multiples of.
pub const ALIGNED: u64 = 256;

/// How the problem that runs differs from the one that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rewriting {
    /// Channels of x and of y, once padded.
    channels: Option<[i64; 2]>,
    /// Largest rows and columns of a tile of x.
    tiles: Option<[i64; 2]>,
    /// Images of a part.
    images: Option<i64>,
}

impl fmt::Display for Rewriting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some([c, k]) = self.channels {
            write!(f, " with channels padded to {c} and {k}")?;
        }
        if let Some([h, w]) = self.tiles {
            write!(f, " in tiles of {h}x{w}")?;
        }
        self.images.map_or(Ok(()), |n| write!(f, " in parts of {n}"))
    }
}

impl Rewriting {
    /// The table's field; none for what is not done here.
    pub(crate) fn read(steps: &[serde_json::Value]) -> Option<Self> {
        let mut read = Self::default();
        for step in steps {
            match serde_json::from_value(step.clone()).ok()? {
                Rewrite::PadChannels { c, k } if read == Self::default() => read.channels = Some([c, k]),
                Rewrite::Tiles { h, w } if read.tiles.is_none() && read.images.is_none() => {
                    read.tiles = Some([h, w]);
                }
                Rewrite::Batch { n } if read.images.is_none() => read.images = Some(n),
                _ => return None,
            }
        }
        Some(read)
    }

    /// Is anything rewritten?
    pub fn is_some(&self) -> bool {
        *self != Self::default()
    }

    /// The problem in pieces; none where it does not fit.
    pub fn pieces(&self, problem: &ConvProblem) -> Option<Pieces> {
        let spec = problem.spec();
        let images = self.images.unwrap_or(spec.n);
        if spec.transposed || images < 1 || spec.n % images != 0 {
            return None;
        }
        let mut sub = match self.channels {
            Some([c, k]) => problem.with_channels(c, k)?,
            None => problem.clone(),
        };
        let mut axes = None;
        if let Some(size) = self.tiles {
            let tiles = Tiles::new(&sub, size)?;
            (sub, axes) = (tiles.sub, Some(tiles.axes));
        }
        let sub = ConvProblem::new(ConvSpec { n: images, ..sub.spec().clone() }).ok()?;
        Some(Pieces { own: problem.clone(), sub, axes, pads: self.channels.is_some() })
    }
}

/// A problem in pieces: tiles of parts of its batch, channels padded.
#[derive(Debug)]
pub struct Pieces {
    own: ConvProblem,
    /// What the vendor computes, once a piece.
    pub sub: ConvProblem,
    axes: Option<[TiledAxis; 2]>,
    /// Channels are padded.
    pub pads: bool,
}

/// Where indices of a piece's axis lie in the problem's: what both have of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// First index in the problem's tensor.
    pub own: u64,
    /// First index in the piece's.
    pub piece: u64,
    /// How many.
    pub len: u64,
}

/// One piece: its images, rows and columns (axes 0, 2 and 3) of x, and of y.
pub type Piece = [[Overlap; 3]; 2];

/// Indices `part` of a piece that begins at index `start` of an axis of so many.
fn overlap(start: i64, part: &Range<i64>, size: i64) -> Overlap {
    let first = part.start.max(-start);
    let len = part.end.min(size - start) - first;
    Overlap { own: (first + start).max(0) as u64, piece: first as u64, len: len.max(0) as u64 }
}

impl Pieces {
    /// Workspace for a solver that wants so much.
    pub fn workspace(&self, solver: u64) -> u64 {
        match self.buffers().iter().sum::<u64>() {
            0 => solver,
            buffers => solver.next_multiple_of(ALIGNED) + buffers,
        }
    }

    /// Modelled seconds of what the probe's time leaves out: copies, and gaps between launches.
    pub fn seconds(&self, caps: &DeviceCaps) -> f64 {
        let (count, [x, w, y, sums]) = (self.count(), self.buffers());
        let weights = self.own.spec().direction == Direction::BackwardWeights;
        let [images, filter, _] = self.copied();
        let fetched = if weights { filter } else { images };
        // An operand is filled and copied; a result copied, or read and added to sums that are read and written.
        let operands = if weights { 2 } else { 1 };
        let launches = count * (1 + if images { 2 * operands } else { 0 } + u64::from(fetched)) - 1
            + if filter && !weights { 2 } else { u64::from(sums > 0) };
        let bytes = count * 3 * (x + y) + if weights { count * 3 * w + 2 * sums } else { 3 * w };
        caps.floors(0, bytes).1 + launches as f64 * caps.launch_us * 1e-6
    }

    /// How many.
    pub fn count(&self) -> u64 {
        let tiles: usize = self.axes.iter().flatten().map(|axis| axis.starts().len()).product();
        (self.own.spec().n / self.sub.spec().n) as u64 * tiles as u64
    }

    /// Their results are parts of one sum.
    pub fn adds(&self) -> bool {
        self.own.spec().direction == Direction::BackwardWeights && self.count() > 1
    }

    /// Which of x, w and y a piece has a copy of; of the others it has a part as it lies.
    pub fn copied(&self) -> [bool; 3] {
        let (sub, size) = (self.sub.shapes(), self.sub.spec().dtype.size());
        let unaligned = |at: usize| !(sub[at].iter().product::<i64>() as u64 * size).is_multiple_of(ALIGNED);
        let cut = self.sub.spec().n < self.own.spec().n;
        let images = self.pads || self.axes.is_some() || (cut && (unaligned(0) || unaligned(2)));
        [images, self.pads || self.adds(), images]
    }

    /// Bytes of a piece's x, w and y where they are copied, and of the sums of their results in f32.
    pub fn buffers(&self) -> [u64; 4] {
        let bytes = |shape: [i64; 4], size: u64| {
            (shape.iter().product::<i64>() as u64 * size).next_multiple_of(ALIGNED)
        };
        let (sub, copied, size) = (self.sub.shapes(), self.copied(), self.sub.spec().dtype.size());
        let [x, w, y] = [0, 1, 2].map(|at| if copied[at] { bytes(sub[at], size) } else { 0 });
        [x, w, y, if self.adds() { bytes(self.own.shapes()[1], 4) } else { 0 }]
    }

    /// Each of them.
    pub fn each(&self) -> impl Iterator<Item = Piece> + '_ {
        let (own, sub) = (self.own.shapes(), self.sub.shapes());
        let starts = |axis: usize| self.axes.as_ref().map_or(&[[0, 0]][..], |axes| axes[axis].starts());
        let is_gradient = self.own.spec().direction == Direction::BackwardData;
        // Of a gradient's tile only what has all of its terms.
        let of_x = move |axis: usize| match &self.axes {
            Some(axes) if is_gradient => axes[axis].whole().clone(),
            _ => 0..sub[0][axis + 2],
        };
        let images = (0..own[0][0]).step_by(sub[0][0] as usize);
        images.flat_map(move |image| {
            starts(0).iter().flat_map(move |&rows| {
                starts(1).iter().map(move |&columns| {
                    let of = |tensor: usize, parts: [Range<i64>; 2]| {
                        let [height, width] = [own[tensor][2], own[tensor][3]];
                        let side = tensor / 2;
                        [
                            overlap(image, &(0..sub[0][0]), own[0][0]),
                            overlap(rows[side], &parts[0], height),
                            overlap(columns[side], &parts[1], width),
                        ]
                    };
                    [of(0, [of_x(0), of_x(1)]), of(2, [0..sub[2][2], 0..sub[2][3]])]
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problem(change: ConvSpec) -> ConvProblem {
        ConvProblem::new(ConvSpec { c: 16, h: 8, w: 8, k: 32, r: 3, s: 3, pad: [1, 1], ..change }).unwrap()
    }

    fn read(steps: &[&serde_json::Value]) -> Option<Rewriting> {
        Rewriting::read(&steps.iter().map(|&step| step.clone()).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_done_and_what_is_not() {
        let pad = json!({"kind": "pad-channels", "c": 17, "k": 33});
        let (batch, tiles) = (json!({"kind": "batch", "n": 1}), json!({"kind": "tiles", "h": 32, "w": 32}));
        assert!(!read(&[]).unwrap().is_some());
        for steps in
            [&[&json!({"kind": "new"})][..], &[&tiles, &pad], &[&batch, &tiles], &[&pad, &pad], &[&batch; 2]]
        {
            assert_eq!(read(steps), None, "{steps:?}");
        }
        let all = read(&[&pad, &tiles, &batch]).unwrap();
        assert_eq!(all.to_string(), " with channels padded to 17 and 33 in tiles of 32x32 in parts of 1");
        let (pad, batch) = (read(&[&pad]).unwrap(), read(&[&batch]).unwrap());
        let forward = problem(ConvSpec { n: 4, ..ConvSpec::default() });
        let weights =
            problem(ConvSpec { n: 4, direction: Direction::BackwardWeights, ..ConvSpec::default() });
        let pairs = problem(ConvSpec { n: 4, groups: 2, ..ConvSpec::default() });
        for rewriting in [pad, batch, all] {
            assert!(rewriting.pieces(&forward).is_some() && rewriting.pieces(&weights).is_some());
        }
        assert!(pad.pieces(&pairs).is_none(), "17 channels are no two groups");
        let workspace =
            |rewriting: Rewriting, of: &ConvProblem, solver| rewriting.pieces(of).unwrap().workspace(solver);
        // x: 4*17*64, w: 33*17*9, y: 4*33*64 floats, each at a multiple of 256 bytes.
        assert_eq!(workspace(pad, &forward, 100), 256 + 17408 + 20224 + 33792);
        assert_eq!(workspace(batch, &forward, 100), 100, "parts as they lie");
        // Sums: 32*16*9 floats of a part's result, and of all.
        assert_eq!(workspace(batch, &weights, 100), 256 + 2 * 18432);
        let odd = ConvSpec { n: 2, c: 3, h: 5, ..forward.spec().clone() };
        let odd = ConvProblem::new(odd).unwrap();
        assert_eq!(workspace(batch, &odd, 0), 512 + 5120, "nothing was proven at odd addresses: copies");
    }

    /// Every result once, every operand that counts, lines as lines.
    #[test]
    fn pieces_make_the_whole() {
        for direction in Direction::ALL {
            for [h, w, r, s, stride] in
                [[1, 70, 1, 5, 1], [40, 33, 3, 3, 1], [65, 31, 7, 5, 2], [9, 100, 1, 1, 3]]
            {
                let pad = [r / 2, s / 2];
                let spec = ConvSpec { direction, n: 2, c: 3, k: 2, h, w, r, s, pad, ..ConvSpec::default() };
                let spec = ConvSpec { stride: [if r == 1 && h == 1 { 1 } else { stride }, stride], ..spec };
                let own = ConvProblem::new(spec).unwrap();
                let tiled = Rewriting { tiles: Some([32, 32]), images: Some(1), ..Rewriting::default() };
                let pieces = tiled.pieces(&own).unwrap();
                let sub = pieces.sub.spec();
                assert!(sub.h <= 32 && sub.w <= 32 && sub.n == 1 && sub.pad == [0, 0]);
                assert!(h > 1 || sub.h == 1, "a line's tile is a line");
                assert_eq!(pieces.each().count() as u64, pieces.count());
                // The tensor that is cut without overlap: the result's, or the gradient that weights' sums run over.
                let (at, side) = if direction == Direction::BackwardData { (0, 0) } else { (2, 1) };
                let shape = own.shapes()[at];
                let mut seen = vec![0; (shape[0] * shape[2] * shape[3]) as usize];
                for piece in pieces.each() {
                    let [images, rows, columns] = piece[side];
                    for n in images.own..images.own + images.len {
                        for row in rows.own..rows.own + rows.len {
                            for column in columns.own..columns.own + columns.len {
                                let at = (n * shape[2] as u64 + row) * shape[3] as u64 + column;
                                seen[at as usize] += 1;
                            }
                        }
                    }
                }
                assert!(seen.iter().all(|&times| times == 1), "{own}");
            }
        }
    }
}
