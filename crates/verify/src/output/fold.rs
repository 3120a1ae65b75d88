//! Whole results of large problems checked exactly at a fraction of their cost: Freivalds' check for convolutions.
//!
//! A convolution is linear in each operand. So a weighted sum of outputs is a weighted sum of inputs, with weights that
//! are a convolution themselves, of one image with one filter. Operands and results are integers that are exact in their
//! storage types, the weights are random numbers of the field of integers modulo the prime 2^61 - 1, and all sums are
//! exact. One sum is made for each slice of the result: an image, or a filter.
//!
//! The weight of an output is `v[channel] * t[pixel]`, neither ever 0. So a slice with one wrong output has a wrong sum,
//! always. A slice with several has a right one by chance, where a polynomial of degree 2 in the weights is 0: with a
//! probability of at most 2 / (2^61 - 2) (Schwartz, Zippel), whatever is wrong.
//!
//! Two more sums of each slice, weighted by channel and by pixel besides, tell where a single wrong output is and what it
//! should be, as the syndromes of an error-correcting code do.
//!
//! Nothing here is shared with the CPU backend or the f64 oracle.

use crate::proof::compare::OutputShape;
use crate::proof::data::Data;
use crate::proof::inputs::{Inputs, rng};
use half::{bf16, f16};
use rand::Rng;
use rayon::prelude::*;
use wave32_problem::{Activation, ConvProblem, Direction, Layout};

/// The prime 2^61 - 1.
const P: u64 = (1 << 61) - 1;

/// Most probability that a wrong result has right sums.
pub const MISS: f64 = 2.0 / (P - 1) as f64;

/// Largest magnitude of an output that can be right: what f32 holds exactly.
const LARGEST: i64 = 1 << 24;

/// Sums of each slice: plain, weighted by channel, weighted by pixel.
const SUMS: usize = 3;

fn reduce(x: u128) -> u64 {
    // Twice, since x may have 122 bits and more; then at most P is left over.
    let x = (x & u128::from(P)) + (x >> 61);
    let x = (x as u64 & P) + (x >> 61) as u64;
    if x >= P { x - P } else { x }
}

fn mul(a: u64, b: u64) -> u64 {
    reduce(u128::from(a) * u128::from(b))
}

fn add(a: u64, b: u64) -> u64 {
    reduce(u128::from(a) + u128::from(b))
}

fn signed(x: i128) -> u64 {
    x.rem_euclid(i128::from(P)) as u64
}

/// The number whose product with `x` is 1 (Fermat).
fn inverse(x: u64) -> u64 {
    let (mut power, mut left, mut result) = (x, P - 2, 1);
    while left > 0 {
        if left & 1 == 1 {
            result = mul(result, power);
        }
        power = mul(power, power);
        left >>= 1;
    }
    result
}

/// A storage type whose integers are read exactly.
trait Whole: Copy + Sync {
    /// The integer, unless it is a fraction, NaN, or larger than any right result.
    fn whole(self) -> Option<i64>;
}

impl Whole for f32 {
    fn whole(self) -> Option<i64> {
        // The conversion saturates; NaN becomes 0, which differs from it.
        let integer = self as i64;
        (integer as f32 == self && integer.abs() <= LARGEST).then_some(integer)
    }
}

impl Whole for f16 {
    fn whole(self) -> Option<i64> {
        self.to_f32().whole()
    }
}

impl Whole for bf16 {
    fn whole(self) -> Option<i64> {
        self.to_f32().whole()
    }
}

/// Runs an expression on the typed elements of a tensor.
macro_rules! typed {
    ($data:expr, $name:ident => $body:expr) => {
        match $data {
            Data::F32($name) => $body,
            Data::F16($name) => $body,
            Data::BF16($name) => $body,
        }
    };
}

/// The sums of a slice, weighted by each table; or the first element that is no right integer.
fn sums<T: Whole>(slice: &[T], tables: &[Vec<u64>; SUMS]) -> Result<[u64; SUMS], usize> {
    let mut sums = [0i128; SUMS];
    let [a, b, c] = tables;
    for (index, (((&x, &a), &b), &c)) in slice.iter().zip(a).zip(b).zip(c).enumerate() {
        let x = x.whole().ok_or(index)?;
        // Below 2^24 * 2^61 each, and there are fewer than 2^42 of them.
        for (sum, weight) in sums.iter_mut().zip([a, b, c]) {
            *sum += i128::from(x) * i128::from(weight);
        }
    }
    Ok(sums.map(signed))
}

/// One of the images, or the filters: channels of pixels for each outer index.
#[derive(Debug, Clone, Copy)]
struct Slices {
    channels: usize,
    size: [usize; 2],
    layout: Layout,
}

impl Slices {
    fn pixels(&self) -> usize {
        self.size[0] * self.size[1]
    }

    fn len(&self) -> usize {
        self.channels * self.pixels()
    }

    fn index(&self, channel: usize, pixel: usize) -> usize {
        match self.layout {
            Layout::Nchw => channel * self.pixels() + pixel,
            Layout::Nhwc => pixel * self.channels + channel,
        }
    }

    /// Calls with each index in memory's order, its channel and its pixel.
    fn each(&self, mut call: impl FnMut(usize, usize, usize)) {
        let (channels, pixels) = (self.channels, self.pixels());
        match self.layout {
            Layout::Nchw => (0..channels).for_each(|c| (0..pixels).for_each(|p| call(c * pixels + p, c, p))),
            Layout::Nhwc => {
                (0..pixels).for_each(|p| (0..channels).for_each(|c| call(p * channels + c, c, p)))
            }
        }
    }

    /// A table of what `value` gives for channel and pixel.
    fn table(&self, value: impl Fn(usize, usize) -> u64) -> Vec<u64> {
        let mut table = vec![0; self.len()];
        self.each(|index, channel, pixel| table[index] = value(channel, pixel));
        table
    }
}

/// The problem as filters between a small and a large image: small is y of a plain convolution and x of a transposed one.
struct Link {
    images: usize,
    small: Slices,
    large: Slices,
    /// The outer index is a small channel, the channels are the large ones of its group.
    filters: Slices,
    groups: usize,
    /// For each row of the filter, the rows of the small and the large image that it joins; then for columns.
    joined: [Vec<Vec<[usize; 2]>>; 2],
}

impl Link {
    fn new(p: &ConvProblem) -> Self {
        let s = p.spec();
        let u = |value: i64| value as usize;
        let x = Slices { channels: u(s.c), size: [u(s.h), u(s.w)], layout: s.layout };
        let y = Slices { channels: u(s.k), size: [u(p.out_h()), u(p.out_w())], layout: s.layout };
        let (small, large) = if s.transposed { (x, y) } else { (y, x) };
        let groups = u(s.groups);
        let filters = Slices { channels: large.channels / groups, size: [u(s.r), u(s.s)], layout: s.layout };
        let axis = |axis: usize, small: usize, filter: usize| {
            let at = small as i64 * s.stride[axis] - s.pad[axis] + filter as i64 * s.dilation[axis];
            usize::try_from(at).ok().filter(|&at| at < large.size[axis])
        };
        let joined = [0, 1].map(|at| {
            let of = |filter| (0..small.size[at]).filter_map(|u| Some([u, axis(at, u, filter)?])).collect();
            (0..filters.size[at]).map(of).collect()
        });
        Self { images: u(s.n), small, large, filters, groups, joined }
    }

    /// How many pixels of the small image, of the large one and of the filter come together.
    fn taps(&self) -> f64 {
        let of = |axis: &Vec<Vec<[usize; 2]>>| axis.iter().map(Vec::len).sum::<usize>() as f64;
        of(&self.joined[0]) * of(&self.joined[1])
    }

    /// Calls with the small pixel, the large one and the filter's of each product.
    fn each_tap(&self, mut call: impl FnMut(usize, usize, usize)) {
        let [rows, columns] = &self.joined;
        for (r, rows) in rows.iter().enumerate() {
            for (s, columns) in columns.iter().enumerate() {
                let tap = r * self.filters.size[1] + s;
                for &[u, h] in rows {
                    let (small, large) = (u * self.small.size[1], h * self.large.size[1]);
                    columns.iter().for_each(|&[v, w]| call(small + v, large + w, tap));
                }
            }
        }
    }
}

/// What is written by the pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Small,
    Large,
    Filters,
}

fn output(p: &ConvProblem) -> Output {
    let s = p.spec();
    match (s.direction, s.transposed) {
        (Direction::BackwardWeights, _) => Output::Filters,
        (Direction::Forward, false) | (Direction::BackwardData, true) => Output::Small,
        (Direction::Forward, true) | (Direction::BackwardData, false) => Output::Large,
    }
}

/// The sums that a right result has.
#[derive(Debug)]
pub struct Fold {
    slices: Slices,
    /// Weights in the order of a slice's memory.
    tables: [Vec<u64>; SUMS],
    expected: Vec<[u64; SUMS]>,
}

/// Largest slices whose weights are kept in memory: 24 bytes for each element.
const LARGEST_SLICE: usize = 1 << 24;

/// True where the sums take fewer products than the problem, by that factor: not for depthwise filters, whose products are as few as their
/// results, nor for a few large images, whose weights take as many products. An activation is not linear.
pub fn applies(p: &ConvProblem, cheaper: f64) -> bool {
    let s = p.spec();
    if s.epilogue.activation != Activation::None {
        return false;
    }
    let link = Link::new(p);
    let planes = link.groups * (link.small.pixels() + link.large.pixels());
    let kept = match output(p) {
        Output::Small | Output::Large => link.small.len() + link.large.len(),
        Output::Filters => link.filters.len().max(planes),
    };
    let ([small, large], taps) = ([link.small.len(), link.large.len()].map(|len| len as f64), link.taps());
    let (n, groups) = (link.images as f64, link.groups as f64);
    let products = n * taps * (link.small.channels * link.filters.channels) as f64;
    // A product in the field takes four times what one of a small integer takes.
    let own = SUMS as f64
        * match output(p) {
            Output::Small => n * (small + large) + 4.0 * taps * link.large.channels as f64,
            Output::Large => n * (small + large) + 4.0 * taps * link.small.channels as f64,
            Output::Filters => n * (small + large + 4.0 * taps * groups),
        };
    kept <= LARGEST_SLICE && products >= cheaper * own
}

/// Weights that are never 0.
fn weights(count: usize, rng: &mut impl Rng) -> Vec<u64> {
    (0..count).map(|_| rng.random_range(1..P)).collect()
}

/// The same, each times its place from 1 on.
fn by_place(weights: &[u64]) -> Vec<u64> {
    weights.iter().zip(1u64..).map(|(&weight, place)| mul(weight, place)).collect()
}

impl Fold {
    /// The sums for these integers, with weights of the seed.
    pub fn new(p: &ConvProblem, inputs: &Inputs, seed: u64) -> Self {
        let link = Link::new(p);
        let output = output(p);
        let slices = match output {
            Output::Small => link.small,
            Output::Large => link.large,
            Output::Filters => link.filters,
        };
        let mut rng = rng(seed, 21);
        let (v, t) = (weights(slices.channels, &mut rng), weights(slices.pixels(), &mut rng));
        let (v2, t2) = (by_place(&v), by_place(&t));
        let pairs = [(&v, &t), (&v2, &t), (&v, &t2)];
        let tables = pairs.map(|(v, t)| slices.table(|channel, pixel| mul(v[channel], t[pixel])));
        let mut expected = match output {
            Output::Filters if p.spec().transposed => {
                of_filters(&link, [&v, &v2], [&t, &t2], &inputs.b, &inputs.a)
            }
            Output::Filters => of_filters(&link, [&v, &v2], [&t, &t2], &inputs.a, &inputs.b),
            _ => of_images(&link, output == Output::Small, [&v, &v2], [&t, &t2], inputs),
        };
        if let Some(bias) = &inputs.bias {
            // Each output of a channel has its bias once.
            let add_of = |(v, t): (&Vec<u64>, &Vec<u64>)| {
                let pixels = t.iter().fold(0, |sum, &t| add(sum, t));
                let all = v.iter().enumerate().map(|(k, &v)| i128::from(bias.get(k) as i64) * i128::from(v));
                mul(pixels, signed(all.sum()))
            };
            let more = pairs.map(add_of);
            for sums in &mut expected {
                sums.iter_mut().zip(more).for_each(|(sum, more)| *sum = add(*sum, more));
            }
        }
        Self { slices, tables, expected }
    }

    /// Outputs that the sums cover: all.
    pub fn outputs(&self) -> usize {
        self.slices.len() * self.expected.len()
    }

    /// Every output must be an integer that can be right, and every slice must have its sums.
    ///
    /// # Errors
    /// What is wrong: the output where it is one, else how many slices.
    pub fn check(&self, out: &Data, shape: &OutputShape) -> Result<(), String> {
        let wrong = typed!(out, v => self.wrong(v));
        let Some((slice, first)) = wrong.first() else { return Ok(()) };
        let begin = slice * self.slices.len();
        let what = match first {
            Wrong::NoInteger(index) => {
                let at = begin + index;
                format!("{}: {} is no integer that it could be", shape.name(at as u64), out.get(at))
            }
            Wrong::One(index, off) => {
                let (at, found) = (begin + index, out.get(begin + index));
                format!("{}: {found} where {} is exact", shape.name(at as u64), found - *off as f64)
            }
            Wrong::Several => {
                format!("the slice from {} on: several outputs are wrong", shape.name(begin as u64))
            }
        };
        let (count, all) = (wrong.len(), self.expected.len());
        Err(format!(
            "integer check: {count} of {all} exact sums, one a slice of the result, differ, first at {what}"
        ))
    }

    /// The slices that are wrong, in order.
    fn wrong<T: Whole>(&self, out: &[T]) -> Vec<(usize, Wrong)> {
        let slices = out.par_chunks(self.slices.len()).zip(&self.expected).enumerate();
        let wrong = |(index, (slice, expected)): (usize, (&[T], &[u64; SUMS]))| {
            let wrong = match sums(slice, &self.tables) {
                Err(at) => Wrong::NoInteger(at),
                Ok(found) if found == *expected => return None,
                Ok(found) => self.located(slice, &found, expected),
            };
            Some((index, wrong))
        };
        slices.filter_map(wrong).collect()
    }

    /// Where the one wrong output is, if one explains all the sums.
    fn located<T: Whole>(&self, slice: &[T], found: &[u64; SUMS], expected: &[u64; SUMS]) -> Wrong {
        let [plain, channel, pixel] = [0, 1, 2].map(|i| add(found[i], P - expected[i]));
        if plain == 0 {
            return Wrong::Several;
        }
        let place = |sum: u64| mul(sum, inverse(plain)).wrapping_sub(1) as usize;
        let (channel, pixel) = (place(channel), place(pixel));
        if channel >= self.slices.channels || pixel >= self.slices.pixels() {
            return Wrong::Several;
        }
        let index = self.slices.index(channel, pixel);
        let off = mul(plain, inverse(self.tables[0][index]));
        let off = if off > P / 2 { off as i64 - P as i64 } else { off as i64 };
        let now = slice.get(index).and_then(|value| value.whole()).unwrap_or(0);
        let possible = off.abs() <= 2 * LARGEST && (now - off).abs() <= LARGEST;
        if possible { Wrong::One(index, off) } else { Wrong::Several }
    }
}

/// What is wrong with a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    /// This element is no integer, or one beyond all that are right.
    NoInteger(usize),
    /// This element alone is off by so much.
    One(usize, i64),
    /// More than one is wrong.
    Several,
}

/// The sums of each image of the result: the other image's elements, weighted by the filters' and the result's weights.
fn of_images(
    link: &Link,
    to_small: bool,
    v: [&Vec<u64>; 2],
    t: [&Vec<u64>; 2],
    inputs: &Inputs,
) -> Vec<[u64; SUMS]> {
    let from = if to_small { link.large } else { link.small };
    let (per_group, taps) = (link.small.channels / link.groups, link.filters.pixels());
    // The filters between a channel of the operand and the weighted sum of the result's channels.
    let folded = v.map(|v| {
        let one = |channel: usize| {
            let mut sums = vec![0i128; taps];
            let (small, large) = if to_small {
                let (group, local) = (channel / link.filters.channels, channel % link.filters.channels);
                (group * per_group..(group + 1) * per_group, local..local + 1)
            } else {
                (channel..channel + 1, 0..link.filters.channels)
            };
            for small in small {
                for local in large.clone() {
                    let of = if to_small { small } else { small / per_group * link.filters.channels + local };
                    for (tap, sum) in sums.iter_mut().enumerate() {
                        let at = small * link.filters.len() + link.filters.index(local, tap);
                        *sum += i128::from(inputs.b.get(at) as i64) * i128::from(v[of]);
                    }
                }
            }
            sums.into_iter().map(signed).collect::<Vec<u64>>()
        };
        (0..from.channels).into_par_iter().map(one).collect::<Vec<_>>()
    });
    let [plain, by_channel] = &folded;
    let tables = [(plain, t[0]), (by_channel, t[0]), (plain, t[1])].map(|(filters, t)| {
        let one = |filter: &Vec<u64>| {
            let mut plane = vec![0u64; from.pixels()];
            link.each_tap(|small, large, tap| {
                let (to, at) = if to_small { (small, large) } else { (large, small) };
                plane[at] = add(plane[at], mul(t[to], filter[tap]));
            });
            plane
        };
        let planes: Vec<Vec<u64>> = filters.par_iter().map(one).collect();
        from.table(|channel, pixel| planes[channel][pixel])
    });
    // Integers by construction, so no sum is refused.
    let of = |sums: Result<[u64; SUMS], usize>| sums.unwrap_or_default();
    typed!(&inputs.a, a => a.par_chunks(from.len()).map(|image| of(sums(image, &tables))).collect())
}

/// The sums of each filter: the small image's elements, weighted by sums over the large one's.
fn of_filters(
    link: &Link,
    v: [&Vec<u64>; 2],
    t: [&Vec<u64>; 2],
    large: &Data,
    small: &Data,
) -> Vec<[u64; SUMS]> {
    let (images, per_group) = (link.images, link.small.channels / link.groups);
    let zero = || vec![[0u64; SUMS]; link.small.channels];
    let merge = |mut all: Vec<[u64; SUMS]>, one: Vec<[u64; SUMS]>| {
        for (all, one) in all.iter_mut().flatten().zip(one.iter().flatten()) {
            *all = add(*all, *one);
        }
        all
    };
    let of_image = |all: Vec<[u64; SUMS]>, n: usize| {
        // The large channels of a group, weighted, become one; by both weightings.
        let pixels = link.large.pixels();
        let mut sums = [vec![0i128; link.groups * pixels], vec![0i128; link.groups * pixels]];
        typed!(large, data => {
            let image = &data[n * link.large.len()..(n + 1) * link.large.len()];
            link.large.each(|index, channel, pixel| {
                let x = i128::from(image[index].whole().unwrap_or(0));
                let (group, local) = (channel / link.filters.channels, channel % link.filters.channels);
                for (sums, v) in sums.iter_mut().zip(v) {
                    sums[group * pixels + pixel] += x * i128::from(v[local]);
                }
            });
        });
        let [plain, by_channel] = sums.map(|sums| sums.into_iter().map(signed).collect::<Vec<u64>>());
        let weighted = [(&plain, t[0]), (&by_channel, t[0]), (&plain, t[1])].map(|(large, t)| {
            let mut planes = vec![0u64; link.groups * link.small.pixels()];
            for group in 0..link.groups {
                let (from, to) = (group * pixels, group * link.small.pixels());
                link.each_tap(|small, at, tap| {
                    let slot = &mut planes[to + small];
                    *slot = add(*slot, mul(t[tap], large[from + at]));
                });
            }
            planes
        });
        let mut found = vec![[0i128; SUMS]; link.small.channels];
        typed!(small, data => {
            let image = &data[n * link.small.len()..(n + 1) * link.small.len()];
            link.small.each(|index, channel, pixel| {
                let x = i128::from(image[index].whole().unwrap_or(0));
                let at = channel / per_group * link.small.pixels() + pixel;
                for (sum, weights) in found[channel].iter_mut().zip(&weighted) {
                    *sum += x * i128::from(weights[at]);
                }
            });
        });
        merge(all, found.into_iter().map(|sums| sums.map(signed)).collect())
    };
    (0..images).into_par_iter().fold(zero, of_image).reduce(zero, merge)
}

#[cfg(test)]
mod tests;
