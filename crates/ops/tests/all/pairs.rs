//! Elementwise functions of pairs, and those that mend values, against references in f64.

use crate::common;

use common::{close, get, put, random, room, rounded, stream, values};
use rand::Rng;
use wave32_ops::{ElementType, Elementwise, Op, Operand};

type Reference = (Op, fn(f64, f64, f64) -> f64);

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn both(a: f64, b: f64, pick: fn(f64, f64) -> f64) -> f64 {
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        pick(a, b)
    }
}

fn log_add(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == b {
        a + 2f64.ln()
    } else {
        a.max(b) + (-(a - b).abs()).exp().ln_1p()
    }
}

const CASES: &[Reference] = &[
    (Op::Fmax, |a, b, _| both(a, b, f64::max)),
    (Op::Fmin, |a, b, _| both(a, b, f64::min)),
    (Op::Hypot, |a, b, _| a.hypot(b)),
    (Op::Copysign, |a, b, _| a.copysign(b)),
    (Op::Xlogy, |a, b, _| if a == 0.0 && !b.is_nan() { 0.0 } else { a * b.ln() }),
    (Op::Xlog1py, |a, b, _| if a == 0.0 && !b.is_nan() { 0.0 } else { a * b.ln_1p() }),
    (Op::Glu, |a, b, _| a * sigmoid(b)),
    (Op::GluBackward, |a, b, c| a * b * sigmoid(c) * (1.0 - sigmoid(c))),
    (Op::Logaddexp, |a, b, _| log_add(a, b)),
    (Op::Logaddexp2, |a, b, _| {
        log_add(a * std::f64::consts::LN_2, b * std::f64::consts::LN_2) / std::f64::consts::LN_2
    }),
    (Op::Signbit, |a, _, _| f64::from(a.is_sign_negative())),
    (Op::Heaviside, |a, b, _| if a == 0.0 { b } else { f64::from(a > 0.0) }),
    (Op::Sinc, |a, _, _| {
        let x = std::f64::consts::PI * a;
        if a == 0.0 { 1.0 } else { x.sin() / x }
    }),
];

#[test]
fn pairs_match_their_definitions() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let edge = [0.0, -0.0, 1.0, -2.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    for dtype in [ElementType::F32, ElementType::F16, ElementType::BF16] {
        let tolerance = match dtype {
            ElementType::F32 => 2e-6,
            ElementType::F16 => 1e-3,
            _ => 8e-3,
        };
        let n = 1003;
        let random_ones: [Vec<f64>; 3] = [0; 3].map(|_| values(&mut random, dtype, n, 5.0));
        let pairs: Vec<(f64, f64)> = edge.iter().flat_map(|&a| edge.map(|b| (a, b))).collect();
        let edges = [
            pairs.iter().map(|pair| pair.0).collect(),
            pairs.iter().map(|pair| pair.1).collect(),
            pairs.iter().map(|pair| pair.0 + pair.1).collect::<Vec<f64>>(),
        ];
        for (lists, stride) in [(&random_ones, 1), (&random_ones, 2), (&edges, 1)] {
            let n = lists[0].len() as u64;
            let views = lists.each_ref().map(|list| put(&mut stream, dtype, &[n], &[stride], list));
            let operands = views.each_ref().map(Operand::from);
            let out = room(&mut stream, dtype, &[n]);
            for &(op, reference) in CASES {
                // A function of infinity times pi is its own business.
                if op == Op::Sinc && n < 1000 {
                    continue;
                }
                Elementwise::new(op, dtype).run(&mut stream, &operands, &out).unwrap();
                let [a, b, c] = lists;
                let expected: Vec<f64> =
                    a.iter().zip(b).zip(c).map(|((&a, &b), &c)| reference(a, b, c)).collect();
                close(
                    &get(&mut stream, &out),
                    &expected,
                    tolerance,
                    &format!("seed {seed}: {op:?} of {dtype:?}"),
                );
            }
        }
    }
}

#[test]
fn logits_and_mended_values() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let f = ElementType::F32;
    let mut p: Vec<f64> = (0..999).map(|_| rounded(f, random.random_range(0.001..0.999))).collect();
    p.extend([0.0, 1.0, -0.5, 1.5, f64::NAN]);
    let n = p.len() as u64;
    let g = values(&mut random, f, n, 3.0);
    let [x, grad] = [&p, &g].map(|list| put(&mut stream, f, &[n], &[1], list));
    let out = room(&mut stream, f, &[n]);
    for eps in [-1.0, 0.125] {
        Elementwise::with(Op::Logit, f, eps, 0.0).run(&mut stream, &[(&x).into()], &out).unwrap();
        let clamped = |p: f64| if eps < 0.0 || p.is_nan() { p } else { p.clamp(eps, 1.0 - eps) };
        let expected: Vec<f64> = p.iter().map(|&p| (clamped(p) / (1.0 - clamped(p))).ln()).collect();
        close(&get(&mut stream, &out), &expected, 2e-6, &format!("seed {seed}: logit, {eps}"));
        let operands = [(&grad).into(), (&x).into()];
        Elementwise::with(Op::LogitBackward, f, eps, 0.0).run(&mut stream, &operands, &out).unwrap();
        let expected: Vec<f64> = g
            .iter()
            .zip(&p)
            .map(|(&g, &p)| {
                let outside = p < eps.max(0.0) || p > 1.0 - eps.max(0.0);
                match (outside, eps < 0.0) {
                    (true, true) => f64::NAN,
                    (true, false) => 0.0,
                    _ => g / (p * (1.0 - p)),
                }
            })
            .collect();
        close(&get(&mut stream, &out), &expected, 2e-6, &format!("seed {seed}: its gradient, {eps}"));
    }
    let values = [1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -3.5];
    let x = put(&mut stream, f, &[5], &[2], &values);
    let out = room(&mut stream, f, &[5]);
    let mend = Elementwise::with(Op::NanToNum, f, 0.5, 7.0);
    mend.run(&mut stream, &[(&x).into(), Operand::from(-9.0)], &out).unwrap();
    assert_eq!(get(&mut stream, &out), [1.0, 0.5, 7.0, -9.0, -3.5]);
}
