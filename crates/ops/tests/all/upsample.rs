//! Resampling against a direct transcription of PyTorch's documented rules in f64, and gradients by
//! scattering what each output took.

use crate::common;

use common::{close, get, put, random, stream, values};
use rand::Rng;
use rand::rngs::StdRng;
use wave32_ops::ElementType;
use wave32_ops::upsample::{Resample, upsample1d, upsample2d, upsample2d_backward};

const FLOATS: [(ElementType, f64); 4] = [
    (ElementType::F32, 3e-6),
    (ElementType::F16, 2e-3),
    (ElementType::BF16, 1e-2),
    (ElementType::F64, 1e-14),
];
const HOWS: [Resample; 4] = [
    Resample::Nearest,
    Resample::NearestExact,
    Resample::Bilinear { align_corners: false },
    Resample::Bilinear { align_corners: true },
];

/// The pixels that output `o` takes of, with shares.
fn taken(how: Resample, o: u64, size: u64, outs: u64, factor: Option<f64>) -> Vec<(u64, f64)> {
    let scale = factor.map_or(size as f64 / outs as f64, |factor| 1.0 / factor);
    let (o_f, last) = (o as f64, size - 1);
    let between = |at: f64| {
        let at = at.max(0.0);
        let first = (at as u64).min(last);
        let share = (at - first as f64).min(1.0);
        vec![(first, 1.0 - share), ((first + 1).min(last), share)]
    };
    match how {
        // f32 as in PyTorch: the product's rounding decides between pixels.
        Resample::Nearest => vec![(((o as f32 * scale as f32) as u64).min(last), 1.0)],
        Resample::NearestExact => vec![((((o as f32 + 0.5) * scale as f32) as u64).min(last), 1.0)],
        Resample::Bilinear { .. } if outs == size => vec![(o, 1.0)],
        Resample::Bilinear { align_corners: true } if outs == 1 => between(0.0),
        Resample::Bilinear { align_corners: true } => between(o_f * (size - 1) as f64 / (outs - 1) as f64),
        Resample::Bilinear { align_corners: false } => between(scale * (o_f + 0.5) - 0.5),
    }
}

fn layout(random: &mut StdRng, [_, c, h, w]: [u64; 4]) -> [u64; 4] {
    match random.random_range(0..3) {
        0 => [c * h * w, h * w, w, 1],
        1 => [c * h * w, 1, c * w, c],
        _ => [h * w * c * 2 + 3, h * w * 2, 2, h * 2],
    }
}

#[test]
fn every_way_forward_and_back() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for turn in 0..48 {
        let (how, (dtype, tolerance)) = (HOWS[turn % 4], FLOATS[turn / 4 % 4]);
        let size = [0; 2].map(|_| random.random_range(1..9));
        let mut outs = [0; 2].map(|_| random.random_range(1..20));
        let mut factors = [None; 2];
        match turn / 16 {
            0 => outs = size.map(|size| size * 2),
            1 => {
                factors = [0; 2].map(|_| Some(random.random_range(0.6..3.4)));
                outs = [0, 1].map(|at| ((size[at] as f64 * factors[at].unwrap()) as u64).max(1));
            }
            _ => {}
        }
        // PyTorch takes these two cases by the sizes alone.
        for at in 0..2 {
            let plain = outs[at] == size[at] || outs[at] == 2 * size[at];
            if plain && how == Resample::Nearest {
                factors[at] = None;
            }
        }
        let (inputs, outputs) = ([2, 3, size[0], size[1]], [2, 3, outs[0], outs[1]]);
        let what = format!("{how:?} {inputs:?} to {outputs:?} by {factors:?} {dtype:?}, seed {seed}");
        let data = values(&mut random, dtype, inputs.iter().product(), 4.0);
        let strides = layout(&mut random, inputs);
        let input = put(&mut stream, dtype, &inputs, &strides, &data);
        let strides = layout(&mut random, outputs);
        let output = put(&mut stream, dtype, &outputs, &strides, &[]);
        upsample2d(&mut stream, how, factors, &input, &output).unwrap();

        let grads = values(&mut random, dtype, outputs.iter().product(), 2.0);
        let strides = layout(&mut random, outputs);
        let grad_output = put(&mut stream, dtype, &outputs, &strides, &grads);
        let strides = layout(&mut random, inputs);
        let grad_input = put(&mut stream, dtype, &inputs, &strides, &[]);
        upsample2d_backward(&mut stream, how, factors, &grad_output, &grad_input).unwrap();

        let (mut expected, mut back) = (Vec::new(), vec![0.0; data.len()]);
        for plane in 0..6 {
            for y in 0..outs[0] {
                for x in 0..outs[1] {
                    let mut sum = 0.0;
                    for &(row, high) in &taken(how, y, size[0], outs[0], factors[0]) {
                        for &(column, wide) in &taken(how, x, size[1], outs[1], factors[1]) {
                            let at = ((plane * size[0] + row) * size[1] + column) as usize;
                            sum += high * wide * data[at];
                            back[at] += high * wide * grads[expected.len()];
                        }
                    }
                    expected.push(sum);
                }
            }
        }
        close(&get(&mut stream, &output), &expected, tolerance, &what);
        close(&get(&mut stream, &grad_input), &back, tolerance, &format!("gradient: {what}"));
    }
}

/// In doubles only what the floor is taken of is rounded to f32, and the factor holds whatever the sizes are.
#[test]
fn signals_of_doubles_and_of_the_same_size() {
    let Some(mut stream) = stream() else { return };
    // 36 * 2.3: the nearest to place 34 is 15 in f64, 14 in f32. 7 * 1.02: as many places as before, by the factor.
    for (how, half) in [(Resample::Nearest, 0.0), (Resample::NearestExact, 0.5)] {
        for (size, factor) in [(16_u64, 2.3_f64), (36, 2.3), (7, 1.02), (40, 0.7), (11, 1.7)] {
            for dtype in [ElementType::F32, ElementType::F64] {
                let outs = (size as f64 * factor) as u64;
                let data: Vec<f64> = (0..size).map(|n| n as f64).collect();
                let input = put(&mut stream, dtype, &[1, 1, 1, size], &[size, size, size, 1], &data);
                let output = put(&mut stream, dtype, &[1, 1, 1, outs], &[outs, outs, outs, 1], &[]);
                upsample1d(&mut stream, how, Some(factor), &input, &output).unwrap();
                let at = |o: u64| {
                    let o = o as f64 + half;
                    let at = match dtype {
                        ElementType::F64 => (o * (1.0 / factor)) as f32,
                        _ => o as f32 * (1.0 / factor) as f32,
                    };
                    f64::from(at.floor()).min(size as f64 - 1.0)
                };
                let expected: Vec<f64> = (0..outs).map(at).collect();
                close(
                    &get(&mut stream, &output),
                    &expected,
                    0.0,
                    &format!("{how:?} {size} by {factor} {dtype:?}"),
                );
            }
        }
    }
}

/// Nothing times infinity is no number: neither a second row nor a pixel that is only a neighbour is read.
#[test]
fn infinities_reach_what_takes_of_them() {
    let Some(mut stream) = stream() else { return };
    let how = Resample::Bilinear { align_corners: false };
    for dtype in [ElementType::F32, ElementType::F64] {
        let input = put(&mut stream, dtype, &[1, 1, 1, 2], &[2, 2, 2, 1], &[0.0, f64::INFINITY]);
        let output = put(&mut stream, dtype, &[1, 1, 1, 1], &[1, 1, 1, 1], &[]);
        upsample1d(&mut stream, how, None, &input, &output).unwrap();
        close(&get(&mut stream, &output), &[f64::INFINITY], 0.0, "half of infinity");
        let output = put(&mut stream, dtype, &[1, 1, 1, 2], &[2, 2, 2, 1], &[]);
        upsample1d(&mut stream, how, None, &input, &output).unwrap();
        assert_eq!(get(&mut stream, &output)[0], 0.0, "beside infinity, {dtype:?}");
    }
}
