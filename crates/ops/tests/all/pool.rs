//! Pooling against loops over windows in f64.

use crate::common;

use common::{TestQueue, close, get, put, random, room, stream, values};
use rand::Rng;
use rand::rngs::StdRng;
use wave32_ops::pool::{Divisor, Windows, avg_pool2d, avg_pool2d_backward, max_pool2d, max_pool2d_backward};
use wave32_ops::{ElementType, View};

const FLOATS: [(ElementType, f64); 4] = [
    (ElementType::F32, 3e-7),
    (ElementType::F16, 2e-3),
    (ElementType::BF16, 1e-2),
    (ElementType::F64, 1e-14),
];

struct Case {
    windows: Windows,
    size: [u64; 2],
    outs: [u64; 2],
}

/// Windows as PyTorch allows them, at floor or ceil mode's number of outputs.
fn sliding(random: &mut StdRng, dilated: bool) -> Case {
    let mut two = |range: std::ops::RangeInclusive<u64>| [0; 2].map(|_| random.random_range(range.clone()));
    let (kernel, stride) = (two(1..=4), two(1..=3));
    let dilation = if dilated { two(1..=2) } else { [1, 1] };
    let (any, extra) = (two(0..=4), two(0..=9));
    let ceil = two(0..=1);
    let mut case = Case { windows: Windows::Adaptive, size: [0; 2], outs: [0; 2] };
    let mut padding = [0; 2];
    for at in 0..2 {
        padding[at] = any[at].min(kernel[at] / 2);
        let reach = (kernel[at] - 1) * dilation[at] + 1;
        case.size[at] = reach + extra[at];
        let room = case.size[at] + 2 * padding[at] - reach;
        case.outs[at] = (room + ceil[at] * (stride[at] - 1)) / stride[at] + 1;
        if (case.outs[at] - 1) * stride[at] >= case.size[at] + padding[at] {
            case.outs[at] -= 1;
        }
    }
    case.windows = Windows::Sliding { kernel, stride, padding, dilation };
    case
}

/// Rows of whole vectors, on both sides.
fn whole(random: &mut StdRng) -> Case {
    let [rows, fours] = [0; 2].map(|_| random.random_range(1..6));
    let windows = Windows::Sliding { kernel: [3; 2], stride: [2; 2], padding: [1; 2], dilation: [1; 2] };
    Case { windows, size: [2 * rows, 8 * fours], outs: [rows, 4 * fours] }
}

fn adaptive(random: &mut StdRng) -> Case {
    let size = [0; 2].map(|_| random.random_range(1..12));
    Case { windows: Windows::Adaptive, size, outs: [0; 2].map(|_| random.random_range(1..9)) }
}

impl Case {
    /// The pixels of window `o` of a dimension, padding included.
    fn window(&self, at: usize, o: u64) -> Vec<i64> {
        let (size, outs, o) = (self.size[at] as i64, self.outs[at] as i64, o as i64);
        match self.windows {
            Windows::Adaptive => (o * size / outs..((o + 1) * size + outs - 1) / outs).collect(),
            Windows::Sliding { kernel, stride, padding, dilation } => (0..kernel[at])
                .map(|k| o * stride[at] as i64 - padding[at] as i64 + (k * dilation[at]) as i64)
                .collect(),
        }
    }

    /// For each window: its output's index, its pixels in the input, and how many there are with padding.
    fn windows(&self) -> Vec<(Vec<usize>, usize)> {
        let mut all = Vec::new();
        for y in 0..self.outs[0] {
            for x in 0..self.outs[1] {
                let (rows, columns) = (self.window(0, y), self.window(1, x));
                let limit = |at: usize| match self.windows {
                    Windows::Sliding { padding, .. } => (self.size[at] + padding[at]) as i64,
                    Windows::Adaptive => i64::MAX,
                };
                let padded = rows.iter().filter(|&&v| v < limit(0)).count()
                    * columns.iter().filter(|&&v| v < limit(1)).count();
                let inside = |v: &i64, at: usize| (0..self.size[at] as i64).contains(v);
                let mut pixels = Vec::new();
                for &row in rows.iter().filter(|row| inside(row, 0)) {
                    for &column in columns.iter().filter(|column| inside(column, 1)) {
                        pixels.push((row * self.size[1] as i64 + column) as usize);
                    }
                }
                all.push((pixels, padded));
            }
        }
        all
    }
}

fn plain([_, c, h, w]: [u64; 4]) -> [u64; 4] {
    [c * h * w, h * w, w, 1]
}

/// Strides of an (N, C, H, W) tensor: plain, channels last, or with gaps.
fn layout(random: &mut StdRng, sizes @ [n, c, h, w]: [u64; 4]) -> [u64; 4] {
    match random.random_range(0..3) {
        0 => plain(sizes),
        1 => [c * h * w, 1, c * w, c],
        _ => [1, h * w * n * 2 + 3, n * 2, h * n * 2],
    }
}

const PLANES: [u64; 2] = [2, 3];

fn shape(size: [u64; 2]) -> [u64; 4] {
    [PLANES[0], PLANES[1], size[0], size[1]]
}

fn poisoned(stream: &mut TestQueue, dtype: ElementType, sizes: [u64; 4], strides: [u64; 4]) -> View {
    put(stream, dtype, &sizes, &strides, &[])
}

#[test]
fn maxima_and_their_gradients() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for turn in 0..40 {
        let is_whole = turn % 5 == 2;
        let case = match turn % 5 {
            2 => whole(&mut random),
            4 => adaptive(&mut random),
            _ => sliding(&mut random, true),
        };
        let layout = |random: &mut StdRng, sizes| if is_whole { plain(sizes) } else { layout(random, sizes) };
        let (dtype, tolerance) = FLOATS[turn % 4];
        let (inputs, outputs) = (shape(case.size), shape(case.outs));
        let what = format!("{:?} {:?} to {:?} {dtype:?}, seed {seed}", case.windows, inputs, outputs);
        let count = inputs.iter().product();
        let mut data = values(&mut random, dtype, count, 4.0);
        // Equal ones, infinities and, now and then, not a number.
        for _ in 0..count / 4 {
            let (from, to) = (random.random_range(0..count as usize), random.random_range(0..count as usize));
            data[to] = data[from];
        }
        data[random.random_range(0..count as usize)] = f64::NEG_INFINITY;
        if turn % 3 == 0 {
            data[random.random_range(0..count as usize)] = f64::NAN;
        }
        let strides = layout(&mut random, inputs);
        let input = put(&mut stream, dtype, &inputs, &strides, &data);
        let output = poisoned(&mut stream, dtype, outputs, layout(&mut random, outputs));
        let indices = put(&mut stream, ElementType::I64, &outputs, output.strides(), &[]);
        max_pool2d(&mut stream, case.windows, &input, &output, &indices).unwrap();

        let grads = values(&mut random, dtype, outputs.iter().product(), 2.0);
        let strides = layout(&mut random, outputs);
        let grad_output = put(&mut stream, dtype, &outputs, &strides, &grads);
        let grad_input = poisoned(&mut stream, dtype, inputs, layout(&mut random, inputs));
        max_pool2d_backward(&mut stream, case.windows, &grad_output, &indices, &grad_input).unwrap();

        let plane = (case.size[0] * case.size[1]) as usize;
        let (mut best, mut places, mut back) = (Vec::new(), Vec::new(), vec![0.0; data.len()]);
        for p in 0..data.len() / plane {
            for (pixels, _) in case.windows() {
                let mut found = (f64::NEG_INFINITY, pixels[0]);
                for &at in &pixels {
                    let v = data[p * plane + at];
                    if v > found.0 || v.is_nan() {
                        found = (v, at);
                    }
                }
                back[p * plane + found.1] += grads[best.len()];
                best.push(found.0);
                places.push(found.1 as f64);
            }
        }
        close(&get(&mut stream, &output), &best, 0.0, &what);
        close(&get(&mut stream, &indices), &places, 0.0, &format!("indices: {what}"));
        close(&get(&mut stream, &grad_input), &back, tolerance, &format!("gradient: {what}"));
    }
}

#[test]
fn averages_and_their_gradients() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for turn in 0..24 {
        let case = if turn % 3 == 2 { adaptive(&mut random) } else { sliding(&mut random, false) };
        let (dtype, tolerance) = FLOATS[turn % 4];
        let divisor = [Divisor::WithPadding, Divisor::WithoutPadding, Divisor::Fixed(-7)]
            [random.random_range(0..if turn % 3 == 2 { 2 } else { 3 })];
        let (inputs, outputs) = (shape(case.size), shape(case.outs));
        let what =
            format!("{:?} {divisor:?} {:?} to {:?} {dtype:?}, seed {seed}", case.windows, inputs, outputs);
        let data = values(&mut random, dtype, inputs.iter().product(), 4.0);
        let strides = layout(&mut random, inputs);
        let input = put(&mut stream, dtype, &inputs, &strides, &data);
        let output = poisoned(&mut stream, dtype, outputs, layout(&mut random, outputs));
        avg_pool2d(&mut stream, case.windows, divisor, &input, &output).unwrap();

        let grads = values(&mut random, dtype, outputs.iter().product(), 2.0);
        let strides = layout(&mut random, outputs);
        let grad_output = put(&mut stream, dtype, &outputs, &strides, &grads);
        let grad_input = poisoned(&mut stream, dtype, inputs, layout(&mut random, inputs));
        avg_pool2d_backward(&mut stream, case.windows, divisor, &grad_output, &grad_input).unwrap();

        let plane = (case.size[0] * case.size[1]) as usize;
        let (mut means, mut back) = (Vec::new(), vec![0.0; data.len()]);
        for p in 0..data.len() / plane {
            for (pixels, padded) in case.windows() {
                let by = match divisor {
                    Divisor::WithPadding => padded as f64,
                    Divisor::WithoutPadding => pixels.len() as f64,
                    Divisor::Fixed(by) => by.into(),
                };
                pixels.iter().for_each(|at| back[p * plane + at] += grads[means.len()] / by);
                means.push(pixels.iter().map(|at| data[p * plane + at]).sum::<f64>() / by);
            }
        }
        close(&get(&mut stream, &output), &means, tolerance, &what);
        close(&get(&mut stream, &grad_input), &back, tolerance, &format!("gradient: {what}"));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some(mut stream) = stream() else { return };
    let input = put(&mut stream, ElementType::F32, &[1, 1, 4, 4], &[16, 16, 4, 1], &[0.0; 16]);
    let output = room(&mut stream, ElementType::F32, &[1, 1, 2, 2]);
    let indices = room(&mut stream, ElementType::I32, &[1, 1, 2, 2]);
    let dilation = [2, 2];
    let windows = Windows::Sliding { kernel: [2, 2], stride: [2, 2], padding: [0, 0], dilation };
    let refused = |done: Result<(), wave32_ops::OpError>, name: &str| {
        assert!(done.unwrap_err().to_string().starts_with(name));
    };
    refused(max_pool2d(&mut stream, windows, &input, &output, &indices), "bad-type");
    refused(avg_pool2d(&mut stream, windows, Divisor::WithPadding, &input, &output), "bad-shape");
    let huge = Windows::Sliding { kernel: [1 << 17, 1], stride: [1, 1], padding: [0, 0], dilation: [1, 1] };
    refused(avg_pool2d(&mut stream, huge, Divisor::WithPadding, &input, &output), "window-too-large");
    let by_nothing = Divisor::Fixed(0);
    refused(avg_pool2d(&mut stream, Windows::Adaptive, by_nothing, &input, &output), "bad-divisor");
    let whole = put(&mut stream, ElementType::I32, &[1, 1, 4, 4], &[16, 16, 4, 1], &[0.0; 16]);
    let whole_output = room(&mut stream, ElementType::I32, &[1, 1, 2, 2]);
    let done = avg_pool2d(&mut stream, Windows::Adaptive, Divisor::WithPadding, &whole, &whole_output);
    refused(done, "bad-type");
}
