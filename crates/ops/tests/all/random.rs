//! Random numbers: the generator against published vectors, distributions against their moments.

use crate::common;

use common::{get, philox, put, put_plain, random as generator, room, stream, values};
use rand::Rng;
use wave32_ops::random::{Draw, PhiloxState, dropout, random};
use wave32_ops::{ElementType, View};

const F: ElementType = ElementType::F32;

#[test]
fn the_reference_gives_the_published_vectors() {
    // Random123's known answers (kat_vectors, philox4x32 of 10 rounds and of 7).
    assert_eq!(philox(10, [0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    assert_eq!(philox(10, [!0; 4], [!0; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    assert_eq!(
        philox(10, [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
        [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
    );
    assert_eq!(philox(7, [0; 4], [0; 2]), [0x5f6f_b709, 0x0d89_3f64, 0x4f12_1f81, 0x4f73_0a48]);
    assert_eq!(philox(7, [!0; 4], [!0; 2]), [0x5207_ddc2, 0x4516_5e59, 0x4d8e_e751, 0x8c52_f662]);
}

#[test]
fn bits_are_the_generators() {
    let Some(mut device) = stream() else { return };
    let (mut random_source, _) = generator();
    let out = room(&mut device, ElementType::I32, &[4099]);
    let near_carry = PhiloxState { seed: random_source.random(), offset: (7 << 32) - 3 };
    for from in [PhiloxState { seed: 0, offset: 0 }, near_carry] {
        random(&mut device, from, Draw::Bits, &out).unwrap();
        for (i, bits) in get(&mut device, &out).into_iter().enumerate() {
            let counter = from.offset + i as u64 / 4;
            let words = philox(
                10,
                [counter as u32, (counter >> 32) as u32, 0, 0],
                [from.seed as u32, (from.seed >> 32) as u32],
            );
            assert_eq!(bits as i64 as u32 as i32, words[i % 4] as i32, "{i} of {from:?}");
        }
    }
}

fn moments(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (mean, values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64)
}

/// The largest distance between the values' distribution and `expected`, over its scale for so many (Kolmogorov).
fn kolmogorov(values: &[f64], expected: impl Fn(f64) -> f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let distance = |(i, &v): (usize, &f64)| {
        (expected(v) - i as f64 / n).abs().max((expected(v) - (i + 1) as f64 / n).abs())
    };
    sorted.iter().enumerate().map(distance).fold(0.0, f64::max) * n.sqrt()
}

#[test]
fn distributions_are_right_and_repeat() {
    let Some(mut device) = stream() else { return };
    let (mut source, _) = generator();
    let from = PhiloxState { seed: source.random(), offset: 17 };
    let n = 60_001;
    let out = room(&mut device, F, &[n]);
    // A distance above 2.5 has a chance of 7 in a million.
    random(&mut device, from, Draw::Uniform { low: -1.0, high: 3.0 }, &out).unwrap();
    let found = get(&mut device, &out);
    assert!(found.iter().all(|v| (-1.0..3.0).contains(v)), "{from:?}");
    assert!(kolmogorov(&found, |v| (v + 1.0) / 4.0) < 2.5, "{from:?}");
    random(&mut device, from, Draw::Uniform { low: -1.0, high: 3.0 }, &out).unwrap();
    assert_eq!(get(&mut device, &out), found);
    let other = PhiloxState { offset: from.offset + 1, ..from };
    random(&mut device, other, Draw::Uniform { low: -1.0, high: 3.0 }, &out).unwrap();
    assert_eq!(get(&mut device, &out)[..100], found[4..104]);

    random(&mut device, from, Draw::Normal { mean: 2.0, deviation: 3.0 }, &out).unwrap();
    let found = get(&mut device, &out);
    let normal = |v: f64| {
        // The normal distribution by Simpson's rule from -8 deviations on.
        let z = ((v - 2.0) / 3.0).clamp(-8.0, 8.0);
        let f = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let h = (z + 8.0) / 200.0;
        let odd = |i: i32| if i % 2 == 1 { 4.0 } else { 2.0 };
        (f(-8.0) + f(z) + (1..200).map(|i| odd(i) * f(-8.0 + h * f64::from(i))).sum::<f64>()) * h / 3.0
    };
    assert!(kolmogorov(&found[..8000], normal) < 2.5, "{from:?}");
    let (mean, variance) = moments(&found);
    assert!((mean - 2.0).abs() < 0.08 && (variance - 9.0).abs() < 0.4, "{mean} {variance} {from:?}");
    // Neighbours of a pair are independent.
    let products = found.chunks_exact(2).map(|p| (p[0] - 2.0) * (p[1] - 2.0) / 9.0).sum::<f64>();
    assert!(products.abs() < 5.0 * (n as f64 / 2.0).sqrt(), "{products} {from:?}");

    random(&mut device, from, Draw::Exponential { rate: 2.0 }, &out).unwrap();
    let found = get(&mut device, &out);
    assert!(kolmogorov(&found, |v| 1.0 - (-2.0 * v).exp()) < 2.5, "{from:?}");

    for dtype in [F, ElementType::F16, ElementType::Bool, ElementType::U8] {
        let out = room(&mut device, dtype, &[n]);
        random(&mut device, from, Draw::Bernoulli(0.3), &out).unwrap();
        let (mean, _) = moments(&get(&mut device, &out));
        assert!((mean - 0.3).abs() < 0.01, "{mean} {from:?}");
    }
    let chances = values(&mut source, F, 7, 1.0).into_iter().map(f64::abs).collect::<Vec<_>>();
    let chance_view = put_plain(&mut device, F, &[7, 1], &chances);
    let out = room(&mut device, F, &[7, 8000]);
    random(&mut device, from, Draw::BernoulliOf(&chance_view), &out).unwrap();
    for (row, chance) in get(&mut device, &out).chunks_exact(8000).zip(&chances) {
        assert!((moments(row).0 - chance).abs() < 0.03, "{chance} {from:?}");
    }
    for (dtype, base, range) in [
        (ElementType::I64, -5i64, 1u64 << 40),
        (ElementType::I32, -3, 17),
        (ElementType::U8, 0, 256),
        (F, 0, 1 << 24),
    ] {
        let out = room(&mut device, dtype, &[n]);
        random(&mut device, from, Draw::Integers { base, range }, &out).unwrap();
        let found = get(&mut device, &out);
        let (low, high) = (base as f64, base as f64 + range as f64);
        assert!(found.iter().all(|v| (low..high).contains(v) && v.fract() == 0.0), "{dtype:?}");
        let (mean, variance) = moments(&found);
        let width = range as f64;
        assert!(((mean - low) / width - 0.5 + 0.5 / width).abs() < 0.01, "{dtype:?} {mean}");
        assert!((variance / width / width * 12.0 - 1.0).abs() < 0.03, "{dtype:?} {variance}");
    }
}

#[test]
fn dropout_scales_what_it_keeps() {
    let Some(mut device) = stream() else { return };
    let (mut source, seed) = generator();
    let sizes = [3, 5, 7, 9];
    let strides = [315, 1, 45, 5];
    let x = values(&mut source, F, 945, 3.0);
    let input = put_plain(&mut device, F, &sizes, &x);
    let out = put(&mut device, F, &sizes, &strides, &[]);
    let mask = put(&mut device, ElementType::Bool, &sizes, &strides, &[]);
    let from = PhiloxState { seed, offset: 0 };
    dropout(&mut device, from, &input, 0.75, &out, &mask).unwrap();
    let (found, kept) = (get(&mut device, &out), get(&mut device, &mask));
    for ((x, f), m) in x.iter().zip(&found).zip(&kept) {
        assert!((f - x * m / 0.75).abs() <= 1e-6 * x.abs() && (*m == 0.0 || *m == 1.0), "{x} {f} {m}");
    }
    assert!((moments(&kept).0 - 0.75).abs() < 0.08, "{seed}");
    let all: Vec<View> = vec![out, mask];
    dropout(&mut device, from, &input, 0.0, &all[0], &all[1]).unwrap();
    assert!(get(&mut device, &out).iter().all(|v| *v == 0.0));
}
