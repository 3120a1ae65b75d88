//! Batch norm, forward and backward, against f64.

use crate::common;

use common::{close, close_beside, get, put_plain, random, room, stream, values};
use rand::Rng;
use wave32_ops::{
    BatchNorm, ElementType, NormActivation, NormChain, NormSum, Queue, View, batch_norm, batch_norm_backward,
    batch_norm_chain, batch_norm_sum_backward,
};

/// Mean and variance of each channel of N x C x L.
fn statistics(x: &[f64], (n, c, l): (usize, usize, usize)) -> (Vec<f64>, Vec<f64>) {
    let channel = |k: usize| (0..n).flat_map(move |i| (0..l).map(move |j| (i * c + k) * l + j));
    let mean: Vec<f64> = (0..c).map(|k| channel(k).map(|i| x[i]).sum::<f64>() / (n * l) as f64).collect();
    let variance =
        (0..c).map(|k| channel(k).map(|i| (x[i] - mean[k]).powi(2)).sum::<f64>() / (n * l) as f64).collect();
    (mean, variance)
}

/// For the gradient of the norm's result: that of x, and those of gamma and beta one after the other. `hat` is x as it was
/// normalised, `scale` a channel's gamma over its deviation.
fn gradients(
    dy: &[f64],
    hat: &dyn Fn(usize) -> f64,
    scale: &dyn Fn(usize) -> f64,
    (n, c, l): (usize, usize, usize),
    training: bool,
) -> (Vec<f64>, Vec<f64>) {
    let channel_of = |i: usize| i / l % c;
    let (mut dgamma, mut dbeta) = (vec![0.0; c], vec![0.0; c]);
    for (i, dy) in dy.iter().enumerate() {
        dgamma[channel_of(i)] += dy * hat(i);
        dbeta[channel_of(i)] += dy;
    }
    let dx = |(i, dy): (usize, &f64)| {
        let k = channel_of(i);
        let centred = if training { (dbeta[k] + hat(i) * dgamma[k]) / (n * l) as f64 } else { 0.0 };
        scale(k) * (dy - centred)
    };
    let dx = dy.iter().enumerate().map(dx).collect();
    (dx, dgamma.into_iter().chain(dbeta).collect())
}

#[test]
fn forward_and_backward_match_f64() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for ((sizes, dtype, training, affine), of_parameters) in [
        ([3u64, 5, 7, 4], ElementType::F32, true, true),
        ([2, 3, 11, 13], ElementType::F32, true, false),
        ([70, 2, 8, 16], ElementType::F32, true, true),
        ([2, 70, 1, 1], ElementType::F32, true, true),
        ([3, 4, 5, 5], ElementType::F32, false, true),
        ([3, 4, 8, 8], ElementType::F16, true, true),
        ([3, 4, 5, 3], ElementType::BF16, true, true),
        ([3, 4, 5, 3], ElementType::F16, true, true),
        ([3, 4, 8, 8], ElementType::BF16, true, true),
        ([5, 2, 56, 57], ElementType::F32, true, true),
        ([9, 1, 4, 3], ElementType::F32, true, true),
        ([2, 3, 33, 64], ElementType::F16, true, true),
    ]
    .into_iter()
    .flat_map(|case| [(case, ElementType::F32), (case, case.1)])
    {
        // Evaluation's backward pass takes its statistics in f32.
        let of_parameters = if training { of_parameters } else { ElementType::F32 };
        let what = format!(
            "{sizes:?} {dtype:?}, {of_parameters:?} training {training} affine {affine}, seed {seed}"
        );
        let tolerance: f64 = if dtype == ElementType::F32 { 3e-6 } else { 2e-2 };
        let (n, c, l) = (sizes[0] as usize, sizes[1] as usize, (sizes[2] * sizes[3]) as usize);
        let count = (n * l) as f64;
        // Far from zero: squares would cancel. (Of two elements the mean itself has no digits to spare.)
        let offset = if dtype == ElementType::F32 && count > 4.0 { 50.0 } else { 0.0 };
        let x: Vec<f64> = values(&mut random, dtype, (n * c * l) as u64, 1.0)
            .iter()
            .map(|v| common::rounded(dtype, v + offset))
            .collect();
        let dy = values(&mut random, dtype, (n * c * l) as u64, 1.0);
        let mut per_channel = |low: f64, high: f64| -> Vec<f64> {
            (0..c).map(|_| common::rounded(of_parameters, random.random_range(low..high))).collect()
        };
        let (gamma, beta) = (per_channel(0.5, 2.0), per_channel(-1.0, 1.0));
        let (rmean, rvar) = (per_channel(offset - 1.0, offset + 1.0), per_channel(0.5, 2.0));
        let (eps, momentum) = (1e-5, 0.3);
        let (batch_mean, batch_var) = statistics(&x, (n, c, l));
        let (mean, var) = if training { (&batch_mean, &batch_var) } else { (&rmean, &rvar) };
        let invstd: Vec<f64> = var.iter().map(|v| 1.0 / (v + eps).sqrt()).collect();
        let g = |k: usize| if affine { gamma[k] } else { 1.0 };
        let b = |k: usize| if affine { beta[k] } else { 0.0 };
        let channel_of = |i: usize| i / l % c;
        let hat = |i: usize| (x[i] - mean[channel_of(i)]) * invstd[channel_of(i)];
        let y: Vec<f64> = (0..x.len()).map(|i| hat(i) * g(channel_of(i)) + b(channel_of(i))).collect();

        let channels = [c as u64];
        let vx = put_plain(&mut stream, dtype, &sizes, &x);
        let vdy = put_plain(&mut stream, dtype, &sizes, &dy);
        let [vg, vb, vm, vv] =
            [&gamma, &beta, &rmean, &rvar].map(|v| put_plain(&mut stream, of_parameters, &channels, v));
        let (vy, vdx) = (room(&mut stream, dtype, &sizes), room(&mut stream, dtype, &sizes));
        let save = room(&mut stream, ElementType::F32, &[2 * c as u64]);
        let grads = room(&mut stream, of_parameters, &[2 * c as u64]);
        let norm = BatchNorm {
            gamma: affine.then_some(&vg),
            beta: affine.then_some(&vb),
            running: Some((&vm, &vv)),
            training,
            momentum: momentum as f32,
            eps: eps as f32,
        };
        batch_norm(&mut stream, &vx, &norm, &vy, training.then_some(&save)).unwrap();
        close(&get(&mut stream, &vy), &y, tolerance.max(1e-5), &what);
        if training {
            let unbiased = count / (count - 1.0);
            let moved = |old: &[f64], new: &dyn Fn(usize) -> f64| -> Vec<f64> {
                (0..c).map(|k| old[k] + momentum * (new(k) - old[k])).collect()
            };
            let near = if of_parameters == ElementType::F32 { 1e-5 } else { 1e-2 };
            close(&get(&mut stream, &vm), &moved(&rmean, &|k| batch_mean[k]), near, &what);
            close(&get(&mut stream, &vv), &moved(&rvar, &|k| batch_var[k] * unbiased), near, &what);
        }
        let half = |at: u64| View::contiguous(save.address + at * 4, ElementType::F32, &channels).unwrap();
        let (saved_mean, saved_invstd) = (half(0), half(c as u64));
        let stats = if training { (&saved_mean, &saved_invstd) } else { (&vm, &vv) };
        let gamma_view = affine.then_some(&vg);
        batch_norm_backward(
            &mut stream,
            &vx,
            &vdy,
            stats,
            gamma_view,
            (training, eps as f32),
            None,
            Some(&vdx),
            &grads,
        )
        .unwrap();
        let scale = |k: usize| g(k) * invstd[k];
        let (dx, expected) = gradients(&dy, &hat, &scale, (n, c, l), training);
        // dx may be the small difference of large numbers: of two elements a channel it always is, and their mean has no digits to
        // spare where they are near each other.
        let terms = |(i, dy): (usize, &f64)| {
            let k = channel_of(i);
            let centred =
                if training { (expected[c + k].abs() + (hat(i) * expected[k]).abs()) / count } else { 0.0 };
            scale(k).abs() * (dy.abs() + centred)
        };
        let magnitudes: Vec<f64> = dy.iter().enumerate().map(terms).collect();
        let loose = if count < 4.0 { 1e-4 } else { tolerance.max(2e-5) };
        close_beside(&get(&mut stream, &vdx), &dx, &magnitudes, loose, &format!("dx {what}"));
        close(&get(&mut stream, &grads), &expected, tolerance.max(2e-5), &format!("grads {what}"));
    }
}

/// An activation and its derivative.
fn activated(activation: NormActivation, v: f64) -> (f64, f64) {
    let f = 1.0 / (1.0 + (-v).exp());
    match activation {
        NormActivation::None => (v, 1.0),
        NormActivation::Silu => (v * f, f * (1.0 + v * (1.0 - f))),
        NormActivation::Relu(most) => {
            let most = most.map_or(f64::INFINITY, f64::from);
            (v.clamp(0.0, most), if v > 0.0 && v < most { 1.0 } else { 0.0 })
        }
    }
}

#[test]
fn what_follows_is_in_the_same_pass() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let relu = NormActivation::Relu;
    for (sizes, dtype, activation, adds) in [
        ([3u64, 5, 7, 4], ElementType::F32, relu(None), false),
        ([2, 3, 11, 13], ElementType::F32, relu(None), true),
        ([3, 5, 7, 4], ElementType::F32, relu(Some(0.75)), true),
        ([2, 3, 11, 13], ElementType::F32, relu(Some(1.5)), false),
        ([2, 9, 40, 30], ElementType::F32, NormActivation::Silu, false),
        ([3, 4, 5, 3], ElementType::F32, NormActivation::Silu, true),
        ([3, 4, 5, 4], ElementType::F32, NormActivation::None, true),
        ([3, 4, 8, 8], ElementType::F16, relu(None), true),
        ([3, 4, 5, 3], ElementType::F16, NormActivation::Silu, false),
        ([3, 4, 5, 3], ElementType::BF16, relu(None), false),
        ([3, 4, 8, 8], ElementType::BF16, relu(Some(6.0)), false),
        ([3, 4, 5, 3], ElementType::F16, relu(None), true),
        ([3, 4, 5, 3], ElementType::BF16, relu(None), true),
        ([3, 4, 8, 8], ElementType::BF16, relu(None), true),
    ] {
        let what = format!("{sizes:?} {dtype:?} {activation:?} adds {adds}, seed {seed}");
        let tolerance: f64 = if dtype == ElementType::F32 { 1e-5 } else { 2e-2 };
        let (n, c, l) = (sizes[0] as usize, sizes[1] as usize, (sizes[2] * sizes[3]) as usize);
        let all = (n * c * l) as u64;
        let [x, z, mut dy] = [1.0, 1.0, 2.0].map(|range| values(&mut random, dtype, all, range));
        let [gamma, beta] = [2.0, 1.0].map(|range| values(&mut random, ElementType::F32, c as u64, range));
        let eps = 1e-5;
        let (mean, var) = statistics(&x, (n, c, l));
        let channel_of = |i: usize| i / l % c;
        let invstd = |k: usize| 1.0 / (var[k] + eps).sqrt();
        let hat = |i: usize| (x[i] - mean[channel_of(i)]) * invstd(channel_of(i));
        let before: Vec<f64> = (0..x.len())
            .map(|i| hat(i) * gamma[channel_of(i)] + beta[channel_of(i)] + if adds { z[i] } else { 0.0 })
            .collect();
        let y: Vec<f64> = before.iter().map(|&v| activated(activation, v).0).collect();
        let channels = [c as u64];
        let [vx, vz] = [&x, &z].map(|data| put_plain(&mut stream, dtype, &sizes, data));
        let [vg, vb] = [&gamma, &beta].map(|v| put_plain(&mut stream, ElementType::F32, &channels, v));
        let (vy, vdx) = (room(&mut stream, dtype, &sizes), room(&mut stream, dtype, &sizes));
        let save = room(&mut stream, ElementType::F32, &[2 * c as u64]);
        let coefficients = room(&mut stream, ElementType::F32, &[4 * c as u64]);
        let grads = room(&mut stream, ElementType::F32, &[2 * c as u64]);
        let norm = BatchNorm {
            gamma: Some(&vg),
            beta: Some(&vb),
            running: None,
            training: true,
            momentum: 0.1,
            eps: eps as f32,
        };
        let chain = NormChain {
            added: adds.then_some(&vz),
            activation,
            coefficients: Some(&coefficients),
            ..NormChain::default()
        };
        batch_norm_chain(&mut stream, &vx, &norm, &chain, &vy, Some(&save)).unwrap();
        close(&get(&mut stream, &vy), &y, tolerance, &what);
        let is_relu = matches!(activation, NormActivation::Relu(_));
        if adds && !is_relu {
            continue;
        }
        // Rounding decides about the gradient next to a kink.
        let kinks = match activation {
            NormActivation::Relu(most) => vec![0.0, most.map_or(0.0, f64::from)],
            _ => vec![],
        };
        let mut also = values(&mut random, dtype, all, 2.0);
        for ((d, a), v) in dy.iter_mut().zip(&mut also).zip(&before) {
            if kinks.iter().any(|kink| (v - kink).abs() < 1e-3) {
                (*d, *a) = (0.0, 0.0);
            }
        }
        let [vdy, valso] = [&dy, &also].map(|data| put_plain(&mut stream, dtype, &sizes, data));
        let half = |at: u64| View::contiguous(save.address + at * 4, ElementType::F32, &channels).unwrap();
        let stats = (&half(0), &half(c as u64));
        let scale = |k: usize| gamma[k] * invstd(k);
        let inner_of = |dy: &[f64]| -> Vec<f64> {
            dy.iter().zip(&before).map(|(d, &v)| d * activated(activation, v).1).collect()
        };
        if adds {
            let joined = room(&mut stream, dtype, &sizes);
            for second in [false, true] {
                let both: Vec<f64> =
                    dy.iter().zip(&also).map(|(d, a)| if second { d + a } else { *d }).collect();
                let inner = inner_of(&both);
                let (dx, expected) = gradients(&inner, &hat, &scale, (n, c, l), true);
                let also = second.then_some(&valso);
                let sum = NormSum { also, y: &vy, activation, gradient: &joined };
                let eps = eps as f32;
                batch_norm_sum_backward(&mut stream, &vx, &vdy, stats, Some(&vg), eps, sum, &vdx, &grads)
                    .unwrap();
                for (got, wanted, name) in
                    [(&joined, &inner, "sum"), (&vdx, &dx, "dx"), (&grads, &expected, "grads")]
                {
                    close(
                        &get(&mut stream, got),
                        wanted,
                        2.0 * tolerance,
                        &format!("{name} {second} {what}"),
                    );
                }
            }
            continue;
        }
        let kept = Some((activation, &coefficients));
        let mode = (true, eps as f32);
        batch_norm_backward(&mut stream, &vx, &vdy, stats, Some(&vg), mode, kept, Some(&vdx), &grads)
            .unwrap();
        let inner = inner_of(&dy);
        let (dx, expected) = gradients(&inner, &hat, &scale, (n, c, l), true);
        close(&get(&mut stream, &vdx), &dx, 2.0 * tolerance, &format!("dx {what}"));
        close(&get(&mut stream, &grads), &expected, 2.0 * tolerance, &format!("grads {what}"));
    }
}

/// By running statistics, with rows of any length.
#[test]
fn evaluation() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let float = [ElementType::F32, ElementType::F16, ElementType::BF16];
    let activations = [
        NormActivation::None,
        NormActivation::Relu(None),
        NormActivation::Relu(Some(1.5)),
        NormActivation::Silu,
    ];
    for (case, (n, c, l)) in [
        (300u64, 7u64, 1u64),
        (1, 2000, 1),
        (9, 130, 2),
        (5, 77, 49),
        (3, 300, 4),
        (2, 600, 3),
        (4, 400, 8),
        (2, 100, 16),
        (3, 90, 48),
        (2, 5, 1000),
        (1, 3, 5000),
        (2, 3, 4099),
    ]
    .into_iter()
    .enumerate()
    {
        let (dtype, of_parameters) = (float[case % 3], float[random.random_range(0..3)]);
        let activation = activations[random.random_range(0..4)];
        let [adds, affine] = [random.random_bool(0.5), random.random_bool(0.7)];
        let what = format!(
            "{n}x{c}x{l} {dtype:?} {of_parameters:?} {activation:?} adds {adds} affine {affine}, seed {seed}"
        );
        let [x, z] = [3.0, 1.0].map(|range| values(&mut random, dtype, n * c * l, range));
        let mut parameter = |low: f64, high: f64| -> Vec<f64> {
            (0..c).map(|_| common::rounded(of_parameters, random.random_range(low..high))).collect()
        };
        let all = [parameter(-2.0, 2.0), parameter(0.25, 4.0), parameter(-2.0, 2.0), parameter(-1.0, 1.0)];
        let [mean, variance, gamma, beta] = &all;
        let expected: Vec<f64> = (0..x.len())
            .map(|i| {
                let k = i / l as usize % c as usize;
                let hat = (x[i] - mean[k]) / (variance[k] + 1e-3).sqrt();
                let normed = if affine { hat * gamma[k] + beta[k] } else { hat };
                activated(activation, normed + if adds { z[i] } else { 0.0 }).0
            })
            .collect();
        let [vx, vz] = [&x, &z].map(|data| put_plain(&mut stream, dtype, &[n, c, l], data));
        let y = room(&mut stream, dtype, &[n, c, l]);
        let [vm, vv, vg, vb] = all.each_ref().map(|v| put_plain(&mut stream, of_parameters, &[c], v));
        let norm = BatchNorm {
            gamma: affine.then_some(&vg),
            beta: affine.then_some(&vb),
            running: Some((&vm, &vv)),
            training: false,
            momentum: 0.1,
            eps: 1e-3,
        };
        let chain = NormChain { added: adds.then_some(&vz), activation, ..NormChain::default() };
        batch_norm_chain(&mut stream, &vx, &norm, &chain, &y, None).unwrap();
        let tolerance = match dtype {
            ElementType::F32 => 1e-5,
            ElementType::F16 => 4e-3,
            _ => 2e-2,
        };
        close(&get(&mut stream, &y), &expected, tolerance, &what);
        assert!(
            batch_norm_chain(&mut stream, &vx, &BatchNorm { training: true, ..norm }, &chain, &y, None)
                .is_err()
        );
    }
}

/// Moments that come with x are taken for its own, in however many parts they are: here they are those of another tensor.
#[test]
fn given_statistics_are_used() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for (parts, dtype) in
        [1, 2, 63, 64, 65, 300].into_iter().flat_map(|n| [(n, ElementType::F32), (n, ElementType::F16)])
    {
        let (n, c, l) = (3usize, random.random_range(1..11), 20usize);
        let what = format!("{parts} parts, {c} channels, {dtype:?}, seed {seed}");
        let x = values(&mut random, dtype, (n * c * l) as u64, 2.0);
        let mut moments = Vec::new();
        let (mut mean, mut variance) = (Vec::new(), Vec::new());
        for _ in 0..c {
            let mut all: Vec<f64> = Vec::new();
            for part in 0..parts {
                // Some parts are empty.
                let count = if part == 0 { 5 } else { random.random_range(0..4) };
                let center = random.random_range(-30.0..30.0);
                let of_it: Vec<f64> = (0..count).map(|_| center + random.random_range(-1.0..1.0)).collect();
                let mean = of_it.iter().sum::<f64>() / (count as f64).max(1.0);
                moments.extend([count as f64, mean, of_it.iter().map(|v| (v - mean).powi(2)).sum(), 0.0]);
                all.extend(of_it);
            }
            let of_it = all.iter().sum::<f64>() / all.len() as f64;
            mean.push(of_it);
            variance.push(all.iter().map(|v| (v - of_it).powi(2)).sum::<f64>() / (n * l) as f64);
        }
        let sizes = [n as u64, c as u64, l as u64];
        let xv = put_plain(&mut stream, dtype, &sizes, &x);
        let y = room(&mut stream, dtype, &sizes);
        let save = room(&mut stream, ElementType::F32, &[2 * c as u64]);
        let of_parts = [c as u64, parts, 4];
        // A range begins there.
        let given = stream.alloc(16 * c as u64 * parts).unwrap();
        let given = View::contiguous(given, ElementType::F32, &of_parts).unwrap();
        let bytes: Vec<u8> = moments.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect();
        Queue::upload(&mut stream, given.address, &bytes).unwrap();
        let norm =
            BatchNorm { gamma: None, beta: None, running: None, training: true, momentum: 0.1, eps: 1e-5 };
        let chain = NormChain { statistics: Some(&given), ..NormChain::default() };
        batch_norm_chain(&mut stream, &xv, &norm, &chain, &y, Some(&save)).unwrap();
        let scale: Vec<f64> = variance.iter().map(|v| 1.0 / (v + 1e-5).sqrt()).collect();
        let expected: Vec<f64> =
            x.iter().enumerate().map(|(i, v)| (v - mean[i / l % c]) * scale[i / l % c]).collect();
        close(&get(&mut stream, &save), &[mean, scale].concat(), 1e-5, &format!("statistics, {what}"));
        let tolerance = if dtype == ElementType::F32 { 1e-5 } else { 2e-3 };
        close(&get(&mut stream, &y), &expected, tolerance, &what);
        // Of another number of channels they are refused.
        let wrong = View::contiguous(given.address, ElementType::F32, &[c as u64 + 1, parts, 4]).unwrap();
        let chain = NormChain { statistics: Some(&wrong), ..NormChain::default() };
        let refused = batch_norm_chain(&mut stream, &xv, &norm, &chain, &y, Some(&save)).unwrap_err();
        assert!(refused.to_string().contains("not-moments-of-channels"), "{refused}");
    }
}
