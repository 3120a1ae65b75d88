//! Layer and group norm against sums in f64.

use crate::common;

use common::{close, get, put_plain, random, room, rounded, stream, values};
use rand::Rng;
use wave32_ops::{ElementType, NormActivation, NormGrads, NormShape, norm, norm_backward};

struct Reference {
    y: Vec<f64>,
    mean: Vec<f64>,
    rstd: Vec<f64>,
    dx: Vec<f64>,
    dweight: Vec<f64>,
    dbias: Vec<f64>,
}

/// Compares row by row: a row that hardly varies beside its mean loses bits when the mean, which f32 rounds, is
/// taken away. That is `rstd` times the rounding of the mean in every normalised value, and `rstd` times as much
/// in the gradient.
fn close_by_rows(found: &[f64], expected: &[f64], lost: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1e-30, |m: f64, v| m.max(v.abs()));
    let row = expected.len() / lost.len();
    for (at, (found, expected)) in found.chunks(row).zip(expected.chunks(row)).enumerate() {
        let most = tolerance * scale + lost[at];
        for (i, (f, e)) in found.iter().zip(expected).enumerate() {
            assert!((f - e).abs() <= most, "{what}: row {at}, element {i} is {f}, expected {e} +- {most:e}");
        }
    }
}

/// By the definition, element by element; `channel` gives an element's weight.
fn reference(
    row: usize,
    eps: f64,
    channel: &dyn Fn(usize) -> usize,
    [x, dy, weight, bias]: [&[f64]; 4],
) -> Reference {
    let n = row as f64;
    let mut all = Reference {
        y: vec![],
        mean: vec![],
        rstd: vec![],
        dx: vec![],
        dweight: vec![0.0; weight.len()],
        dbias: vec![0.0; weight.len()],
    };
    for (at, (x, dy)) in x.chunks(row).zip(dy.chunks(row)).enumerate() {
        let mean = x.iter().sum::<f64>() / n;
        let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        let rstd = 1.0 / (variance + eps).sqrt();
        let hat: Vec<f64> = x.iter().map(|v| (v - mean) * rstd).collect();
        let of = |i: usize| channel(at * row + i);
        let scaled: Vec<f64> = dy.iter().enumerate().map(|(i, g)| g * weight[of(i)]).collect();
        let sum: f64 = scaled.iter().sum();
        let dot: f64 = scaled.iter().zip(&hat).map(|(g, h)| g * h).sum();
        for i in 0..row {
            all.y.push(hat[i] * weight[of(i)] + bias[of(i)]);
            all.dx.push(rstd * (scaled[i] - sum / n - hat[i] * dot / n));
            all.dweight[of(i)] += dy[i] * hat[i];
            all.dbias[of(i)] += dy[i];
        }
        all.mean.push(mean);
        all.rstd.push(rstd);
    }
    all
}

const ACTIVATIONS: [NormActivation; 4] =
    [NormActivation::None, NormActivation::Relu(None), NormActivation::Relu(Some(1.5)), NormActivation::Silu];

fn applied(activation: NormActivation, v: f64) -> f64 {
    match activation {
        NormActivation::None => v,
        NormActivation::Relu(most) => v.max(0.0).min(most.map_or(f64::INFINITY, f64::from)),
        NormActivation::Silu => v / (1.0 + (-v).exp()),
    }
}

#[test]
fn layer_and_group_norm() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let shapes = [
        NormShape::layer(37, 101),
        NormShape::layer(3001, 5),
        NormShape::layer(2, 9001),
        NormShape::group(3, 12, 35, 4),
        NormShape::group(2, 6, 1, 1),
        NormShape::group(1, 8, 4001, 8),
        NormShape::layer(19, 64),
        NormShape::layer(5, 768),
        NormShape::layer(3, 4100),
        NormShape::layer(2, 8192),
        NormShape::group(2, 32, 36, 8),
        NormShape::group(2, 8, 1, 2),
        NormShape::group(2, 12, 4096, 4),
        NormShape::group(1, 6, 2811, 2),
        NormShape::group(2, 4, 1 << 15, 1),
    ];
    for (dtype, tolerance) in
        [(ElementType::F32, 5e-6), (ElementType::F16, 2e-3), (ElementType::BF16, 1.5e-2)]
    {
        for shape in shapes {
            for weight_type in [Some(ElementType::F32), Some(dtype), None] {
                let affine = weight_type.is_some();
                let weight_type = weight_type.unwrap_or(dtype);
                let row = shape.channels * shape.inner;
                let (count, weights) = (shape.rows * row, shape.rows_per_item * shape.channels);
                let what = format!("{dtype:?} {shape:?} affine {affine} ({weight_type:?}) seed {seed}");
                let data: Vec<f64> = values(&mut random, dtype, count, 2.0);
                let data: Vec<f64> = data.iter().map(|v| rounded(dtype, v + 3.0)).collect();
                let grads = values(&mut random, dtype, count, 2.0);
                let (mut w, mut b) = (
                    values(&mut random, weight_type, weights, 2.0),
                    values(&mut random, weight_type, weights, 2.0),
                );
                let (x, dy) = (
                    put_plain(&mut stream, dtype, &[count], &data),
                    put_plain(&mut stream, dtype, &[count], &grads),
                );
                let wv = put_plain(&mut stream, weight_type, &[weights], &w);
                let bv = put_plain(&mut stream, weight_type, &[weights], &b);
                let (y, dx) = (room(&mut stream, dtype, &[count]), room(&mut stream, dtype, &[count]));
                let mean = room(&mut stream, ElementType::F32, &[shape.rows]);
                let rstd = room(&mut stream, ElementType::F32, &[shape.rows]);
                let (dw, db) = (
                    room(&mut stream, ElementType::F32, &[weights]),
                    room(&mut stream, ElementType::F32, &[weights]),
                );
                if !affine {
                    (w, b) = (vec![1.0; weights as usize], vec![0.0; weights as usize]);
                }
                let channel = |i: usize| i / shape.inner as usize % weights as usize;
                let eps = f64::from(1e-5f32);
                let expected = reference(row as usize, eps, &channel, [&data, &grads, &w, &b]);
                let (wv, bv) = (affine.then_some(&wv), affine.then_some(&bv));
                let activation = ACTIVATIONS[random.random_range(0..ACTIVATIONS.len())];
                norm(&mut stream, shape, &x, wv, bv, 1e-5, activation, &y, [&mean, &rstd]).unwrap();
                let activated: Vec<f64> = expected.y.iter().map(|&v| applied(activation, v)).collect();
                // Two roundings of a mean of at most 5, the weights at most 2, the gradients at most 2; in the
                // gradient a normalised value stands once by itself and once in the sum.
                let lost: Vec<f64> =
                    expected.rstd.iter().map(|r| 2.0 * r * 5.0 * f64::powi(2.0, -24)).collect();
                let y_lost: Vec<f64> = lost.iter().map(|l| 2.0 * l).collect();
                let dx_lost: Vec<f64> =
                    lost.iter().zip(&expected.rstd).map(|(l, r)| 2.0 * l * r * 4.0).collect();
                let of_y = format!("{activation:?} y, {what}");
                close_by_rows(&get(&mut stream, &y), &activated, &y_lost, tolerance, &of_y);
                close(&get(&mut stream, &mean), &expected.mean, 3e-6, &format!("mean, {what}"));
                close(&get(&mut stream, &rstd), &expected.rstd, 3e-6, &format!("rstd, {what}"));
                let wanted = NormGrads { x: Some(&dx), weight: Some(&dw), bias: Some(&db) };
                norm_backward(&mut stream, shape, &dy, &x, wv, [&mean, &rstd], &wanted).unwrap();
                close_by_rows(
                    &get(&mut stream, &dx),
                    &expected.dx,
                    &dx_lost,
                    tolerance,
                    &format!("dx, {what}"),
                );
                close(&get(&mut stream, &dw), &expected.dweight, 1e-5, &format!("dweight, {what}"));
                close(&get(&mut stream, &db), &expected.dbias, 1e-5, &format!("dbias, {what}"));
            }
        }
    }
    let wrong = room(&mut stream, ElementType::F32, &[7]);
    let (shape, none) = (NormShape::layer(2, 4), NormActivation::None);
    assert!(norm(&mut stream, shape, &wrong, None, None, 1e-5, none, &wrong, [&wrong, &wrong]).is_err());
}
