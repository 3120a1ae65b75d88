//! Results against a reference: every element, or a sample that covers the borders.

use crate::output::fold::Fold;
use crate::proof::data::Data;
use crate::proof::tolerance::Tolerance;
use rand::Rng;
use wave32_problem::{Direction, Layout, Problem};

/// The shape of a result in logical order: images (or filters, or matrices), channels, height, width.
#[derive(Debug, Clone, Copy)]
pub struct OutputShape {
    dims: [u64; 4],
    names: [&'static str; 4],
    layout: Layout,
}

impl OutputShape {
    /// The shape of what the problem writes.
    pub fn of_output(p: &Problem) -> Self {
        let p = match p {
            Problem::Conv(p) => p,
            Problem::Matmul(p) => {
                let [batch, rows, columns] = p.out_sizes();
                let names = ["batch", "", "row", "column"];
                return Self { dims: [batch, 1, rows, columns], names, layout: Layout::Nchw };
            }
        };
        let s = p.spec();
        let (dims, names) = match s.direction {
            Direction::Forward => ([s.n, s.k, p.out_h(), p.out_w()], ["n", "k", "p", "q"]),
            Direction::BackwardData => ([s.n, s.c, s.h, s.w], ["n", "c", "h", "w"]),
            Direction::BackwardWeights if s.transposed => {
                ([s.c, s.k / s.groups, s.r, s.s], ["c", "k", "r", "s"])
            }
            Direction::BackwardWeights => ([s.k, s.c / s.groups, s.r, s.s], ["k", "c", "r", "s"]),
        };
        Self { dims: dims.map(|d| d as u64), names, layout: s.layout }
    }

    /// Images (or filters), channels, height, width.
    pub fn dims(&self) -> [u64; 4] {
        self.dims
    }

    /// Flat index of a coordinate.
    pub fn index(&self, [i, c, h, w]: [u64; 4]) -> u64 {
        let [_, channels, height, width] = self.dims;
        match self.layout {
            Layout::Nchw => ((i * channels + c) * height + h) * width + w,
            Layout::Nhwc => ((i * height + h) * width + w) * channels + c,
        }
    }

    /// A flat index for people: `[n 0, k 3, p 1, q 2]`.
    pub fn name(&self, index: u64) -> String {
        let [_, channels, height, width] = self.dims;
        let [i, c, h, w] = match self.layout {
            Layout::Nchw => [
                index / (channels * height * width),
                index / (height * width) % channels,
                index / width % height,
                index % width,
            ],
            Layout::Nhwc => [
                index / (channels * height * width),
                index % channels,
                index / (channels * width) % height,
                index / channels % width,
            ],
        };
        let named = self.names.iter().zip([i, c, h, w]).filter(|(name, _)| !name.is_empty());
        let named: Vec<String> = named.map(|(name, at)| format!("{name} {at}")).collect();
        format!("[{}]", named.join(", "))
    }

    /// Indices to look at: all sixteen corners, the whole border of the image (each pixel at a random
    /// image and channel, `count` of them at most), `count` elements anywhere and as many at the edges of tiles, where
    /// each coordinate is a first, a last, or a neighbour of a multiple of 8 to 128. Sorted, distinct.
    pub fn sample(&self, count: u64, rng: &mut impl Rng) -> Vec<u64> {
        let last = self.dims.map(|d| d - 1);
        let corner = |bits: u32| {
            let mut at = [0; 4];
            for (axis, slot) in at.iter_mut().enumerate() {
                *slot = if bits >> axis & 1 == 1 { last[axis] } else { 0 };
            }
            at
        };
        let mut picked: Vec<u64> = (0..16).map(|bits| self.index(corner(bits))).collect();
        let [images, channels, height, width] = self.dims;
        let perimeter = 2 * (height + width);
        for step in 0..perimeter.min(count) {
            // Evenly along the border where it is too long to be walked.
            let at = if perimeter <= count { step } else { rng.random_range(0..perimeter) };
            let (h, w) = match at {
                t if t < width => (0, t),
                t if t < 2 * width => (last[2], t - width),
                t if t < 2 * width + height => (t - 2 * width, 0),
                t => (t - 2 * width - height, last[3]),
            };
            picked.push(self.index([rng.random_range(0..images), rng.random_range(0..channels), h, w]));
        }
        let total = self.dims.iter().product::<u64>();
        picked.extend((0..count).map(|_| rng.random_range(0..total)));
        for _ in 0..count {
            let at = self.dims.map(|size| match rng.random_range(0..8) {
                0 => 0,
                1 => size - 1,
                2 => rng.random_range(0..size),
                tile => {
                    let tile = 1u64 << tile;
                    let edge = rng.random_range(0..=size / tile) * tile;
                    (edge.max(1) - u64::from(rng.random_bool(0.5))).min(size - 1)
                }
            });
            picked.push(self.index(at));
        }
        picked.sort_unstable();
        picked.dedup();
        picked
    }
}

/// Expected values and where they belong.
#[derive(Debug)]
pub enum Reference {
    /// Every output element, in f64.
    Full(Vec<f64>),
    /// Every output element, from a path that computes in f32 (exact integers only).
    FullF32(Data),
    /// Some elements: index and value.
    Sampled(Vec<(u64, f64)>),
    /// Exact sums over all elements, and some elements: of integers alone.
    Folded(Box<Fold>, Vec<(u64, f64)>),
}

impl Reference {
    /// How many elements it covers.
    pub fn len(&self) -> usize {
        match self {
            Self::Full(v) => v.len(),
            Self::FullF32(v) => v.len(),
            Self::Sampled(v) | Self::Folded(_, v) => v.len(),
        }
    }

    /// True where it covers nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Index and expected value of each element covered.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (usize, f64)> + '_> {
        match self {
            Self::Full(v) => Box::new(v.iter().copied().enumerate()),
            Self::FullF32(v) => Box::new((0..v.len()).map(|i| (i, v.get(i)))),
            Self::Sampled(v) | Self::Folded(_, v) => Box::new(v.iter().map(|&(i, x)| (i as usize, x))),
        }
    }

    /// What an output is typically worth.
    pub fn root_mean_square(&self) -> f64 {
        (self.iter().map(|(_, v)| v * v).sum::<f64>() / self.len().max(1) as f64).sqrt()
    }

    /// The largest expected magnitude.
    pub fn max_abs(&self) -> f64 {
        self.iter().fold(0.0, |m, (_, v)| m.max(v.abs()))
    }
}

/// Every element must be the reference's value.
///
/// # Errors
/// A line for people: how many elements differ, and the first of them.
pub fn exact(out: &Data, reference: &Reference, shape: &OutputShape, poison: &[u8]) -> Result<(), String> {
    let wrong: Vec<(usize, f64)> = reference.iter().filter(|&(i, v)| out.get(i) != v).collect();
    let Some(&(index, expected)) = wrong.first() else {
        return match reference {
            Reference::Folded(fold, _) => {
                fold.check(out, shape).map_err(|text| text + &unwritten(out, poison))
            }
            _ => Ok(()),
        };
    };
    Err(format!(
        "integer check: {} of {} outputs differ{}, first at {}: {} where {expected} is exact",
        wrong.len(),
        reference.len(),
        unwritten(out, poison),
        shape.name(index as u64),
        short(out.get(index))
    ))
}

/// A number of few characters: what a wrong kernel left may be as small as 1e-38.
fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() || (1e-3..1e9).contains(&value.abs()) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

/// Says so where elements still hold the poison they were filled with.
fn unwritten(out: &Data, poison: &[u8]) -> String {
    let size = out.bytes().len() / out.len().max(1);
    let count = out.bytes().chunks(size.max(1)).filter(|e| *e == &poison[..e.len()]).count();
    if count == 0 { String::new() } else { format!(" ({count} were never written)") }
}

/// The normwise error must be within tolerance, and no single element off by much more.
///
/// With fewer than 64 outputs the sums may cancel, and an error relative to what is left says nothing:
/// the norm is then at least what such outputs are typically worth.
///
/// # Errors
/// The normwise error (infinite with a NaN) and what is wrong.
pub fn close(
    out: &Data,
    reference: &Reference,
    tolerance: &Tolerance,
    shape: &OutputShape,
) -> Result<f64, (f64, String)> {
    let (mut error2, mut norm2, mut worst) = (0.0, 0.0, (0usize, 0.0, 0.0));
    for (index, expected) in reference.iter() {
        let got = out.get(index);
        if !got.is_finite() {
            let at = shape.name(index as u64);
            return Err((f64::INFINITY, format!("random check: {got} at {at} where {expected:.6} is right")));
        }
        let off = (got - expected).abs();
        error2 += off * off;
        norm2 += expected * expected;
        if off > worst.1 {
            worst = (index, off, expected);
        }
    }
    let count = reference.len() as f64;
    let least = if count < 64.0 || tolerance.is_of_sums { tolerance.typical * count.sqrt() } else { 0.0 };
    let error = error2.sqrt() / norm2.sqrt().max(least).max(f64::MIN_POSITIVE);
    if error > tolerance.normwise {
        let bound = tolerance.normwise;
        return Err((error, format!("random check: normwise error {error:.2e} is above {bound:.1e}")));
    }
    if worst.1 > tolerance.element {
        let (index, off, expected) = worst;
        let (at, bound) = (shape.name(index as u64), tolerance.element);
        let text = format!(
            "random check: off by {off:.2e} (bound {bound:.1e}) at {at}, where {expected:.6} is right"
        );
        return Err((error, text));
    }
    Ok(error)
}

/// The first element of `out` that is NaN or infinite.
pub fn first_not_finite(out: &Data) -> Option<usize> {
    out.position(|value| !value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::inputs::rng;
    use rand::Rng;
    use wave32_problem::{Activation, ConvProblem, ConvSpec, DType, Epilogue, Problem};

    fn problem(layout: Layout, dtype: DType) -> Problem {
        let spec = ConvSpec { n: 2, c: 3, k: 5, h: 7, w: 9, layout, dtype, ..ConvSpec::default() };
        ConvProblem::new(spec).unwrap().into()
    }

    fn shape(layout: Layout) -> OutputShape {
        OutputShape::of_output(&problem(layout, DType::F32))
    }

    fn tolerance(dtype: DType) -> Tolerance {
        Tolerance::new(&problem(Layout::Nchw, dtype), "x")
    }

    #[test]
    fn names_undo_indices() {
        for layout in [Layout::Nchw, Layout::Nhwc] {
            let s = shape(layout);
            let i = s.index([1, 4, 6, 8]);
            assert_eq!(s.name(i), "[n 1, k 4, p 6, q 8]");
            assert_eq!(i, 2 * 5 * 7 * 9 - 1);
            assert_eq!(s.name(s.index([0, 2, 3, 1])), "[n 0, k 2, p 3, q 1]");
        }
    }

    #[test]
    fn samples_cover_every_border_pixel() {
        let s = shape(Layout::Nchw);
        let picked = s.sample(4096, &mut rng(7, 0));
        for h in 0..7 {
            for w in 0..9 {
                let border = h == 0 || h == 6 || w == 0 || w == 8;
                let seen = picked.iter().any(|&i| (i / 9 % 7, i % 9) == (h, w));
                assert!(!border || seen, "({h}, {w}) is not looked at");
            }
        }
        assert!(picked.iter().all(|&i| i < 630) && picked.is_sorted());
    }

    #[test]
    fn one_wrong_element_is_seen() {
        let s = shape(Layout::Nchw);
        let n = 630;
        let mut values = vec![1.0f64; n];
        let out = Data::generate(DType::F32, n as u64, || 1.0).unwrap();
        let t = tolerance(DType::F32);
        assert_eq!(close(&out, &Reference::Full(values.clone()), &t, &s), Ok(0.0));
        assert!(exact(&out, &Reference::Full(values.clone()), &s, &[0xff; 4]).is_ok());
        values[17] = 1.5;
        let text = exact(&out, &Reference::Full(values.clone()), &s, &[0xff; 4]).unwrap_err();
        assert!(text.contains("1 of 630") && text.contains("1.5"), "{text}");
        assert!(close(&out, &Reference::Full(values), &t, &s).is_err());
    }

    #[test]
    fn a_single_bad_element_among_millions_breaks_the_element_bound() {
        let s = shape(Layout::Nchw);
        let t = Tolerance { normwise: 1.0, ..tolerance(DType::F32) };
        let mut values = vec![1.0f64; 630];
        values[3] += 1e-3;
        let out = Data::generate(DType::F32, 630, || 1.0).unwrap();
        let t = Tolerance { element: 1e-4, ..t };
        let (_, text) = close(&out, &Reference::Full(values), &t, &s).unwrap_err();
        assert!(text.contains("off by 1.00e-3"), "{text}");
    }

    /// Where ReLU6 cuts the large sums, a rounding of a sum is measured by the sums, not by what ReLU6 leaves of them.
    #[test]
    fn roundings_of_sums_that_relu6_cuts_are_within_the_promise() {
        let layer = |activation| {
            let epilogue = Epilogue { activation, ..Epilogue::default() };
            let spec = ConvSpec { n: 1, c: 10_000, k: 8, h: 8, w: 8, epilogue, ..ConvSpec::default() };
            Problem::from(ConvProblem::new(spec).unwrap())
        };
        let mut rng = rng(3, 0);
        let sums: Vec<f64> = (0..512).map(|_| 33.0 * rng.random_range(-1.7..1.7)).collect();
        let error = |activation: Activation, relative: f64| {
            let values: Vec<f64> = sums.iter().map(|&sum| activation.apply(sum)).collect();
            let mut rounded = sums
                .iter()
                .zip([1.0, -1.0].into_iter().cycle())
                .map(|(&sum, sign)| activation.apply(sum + sign * relative * 33.0) as f32);
            let out = Data::generate(DType::F32, 512, || rounded.next().unwrap()).unwrap();
            let problem = layer(activation);
            close(
                &out,
                &Reference::Full(values),
                &Tolerance::new(&problem, "x"),
                &OutputShape::of_output(&problem),
            )
        };
        for activation in Activation::ALL {
            assert!(error(activation, 1e-6).is_ok(), "{activation}");
            assert!(error(activation, 8e-6).is_err(), "{activation}");
        }
    }

    #[test]
    fn nan_is_never_close() {
        let s = shape(Layout::Nchw);
        let out = Data::filled(DType::F16, 630, 0xff).unwrap();
        assert_eq!(first_not_finite(&out), Some(0));
        let mut long = Data::generate(DType::F32, 200_000, || 1.0).unwrap();
        assert_eq!(first_not_finite(&long), None);
        for at in [199_999, 65_536, 65_535] {
            long.bytes_mut()[4 * at..4 * at + 4].fill(0xff);
            assert_eq!(first_not_finite(&long), Some(at));
        }
        let t = tolerance(DType::F16);
        assert!(close(&out, &Reference::Full(vec![0.0; 630]), &t, &s).is_err());
        let text = exact(&out, &Reference::Full(vec![0.0; 630]), &s, &[0xff; 4]).unwrap_err();
        assert!(text.contains("630 were never written"), "{text}");
    }
}
