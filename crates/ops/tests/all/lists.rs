//! Lists of tensors: each is stepped as if one after the other, whatever lies in whose memory.

use crate::common;

use common::{close, get, put_plain, random, rounded, stream, values};
use rand::Rng;
use rand::rngs::StdRng;
use wave32_ops::optim::{
    Adam, AdamTensors, Foreach, ForeachTensors, Settings, Sgd, SgdTensors, adam, foreach, sgd, unscale,
};
use wave32_ops::{ElementType, OpError, View};

const F: ElementType = ElementType::F32;
const TYPES: [ElementType; 3] = [F, ElementType::F16, ElementType::BF16];
const OPS: [Foreach; 13] = [
    Foreach::Add,
    Foreach::Mul,
    Foreach::Div,
    Foreach::AddScaled,
    Foreach::MulList,
    Foreach::DivList,
    Foreach::Maximum,
    Foreach::Lerp,
    Foreach::Addcmul,
    Foreach::Addcdiv,
    Foreach::Sqrt,
    Foreach::Neg,
    Foreach::Sum,
];

fn apply(op: Foreach, [a, b, c]: [f64; 3], s: f64) -> f64 {
    match op {
        Foreach::Add => a + s,
        Foreach::Mul => a * s,
        Foreach::Div => a / s,
        Foreach::AddScaled => a + s * b,
        Foreach::MulList => a * b,
        Foreach::DivList => a / b,
        Foreach::Maximum => a.max(b),
        Foreach::Lerp => a + s * (b - a),
        Foreach::Addcmul => a + s * b * c,
        Foreach::Addcdiv => a + s * b / c,
        Foreach::Sqrt => b.abs().sqrt(),
        Foreach::Neg => -b,
        Foreach::Sum => b + s * c,
    }
}

/// Numbers away from 0, so that quotients are tame.
fn tame(random: &mut StdRng, dtype: ElementType, count: u64) -> Vec<f64> {
    let numbers = values(random, dtype, count, 1.0);
    numbers.into_iter().map(|x| rounded(dtype, if x < 0.0 { x - 0.5 } else { x + 0.5 })).collect()
}

fn lengths(random: &mut StdRng, count: usize) -> Vec<u64> {
    (0..count).map(|at| if at % 7 == 3 { 0 } else { random.random_range(1..3000) }).collect()
}

/// Tensors of one list may be those of another, at another place too.
#[test]
fn operations_run_as_one_after_the_other() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    // Quotients of what was computed here may be of anything.
    let tame_when_shared = OPS.into_iter().filter(|op| !matches!(op, Foreach::DivList | Foreach::Addcdiv));
    for (case, op) in OPS.into_iter().chain(tame_when_shared).enumerate() {
        let what = format!("{op:?}, case {case}, seed {seed}");
        let types: Vec<_> = (0..13).map(|_| TYPES[random.random_range(0..3)]).collect();
        let length = random.random_range(1..3000);
        // In the second round all are of one size and type, and shared.
        let shares = case >= OPS.len();
        let sizes = if shares { vec![length; 13] } else { lengths(&mut random, 13) };
        let mut host: Vec<Vec<f64>> = Vec::new();
        let mut device: Vec<View> = Vec::new();
        for _ in 0..3 {
            for (&size, &dtype) in sizes.iter().zip(&types) {
                let dtype = if shares { F } else { dtype };
                let mut numbers = tame(&mut random, dtype, size);
                if op == Foreach::Sqrt {
                    numbers.iter_mut().for_each(|x| *x = x.abs());
                }
                device.push(put_plain(&mut stream, dtype, &[size], &numbers));
                host.push(numbers);
            }
        }
        let mut names =
            |first: usize| -> Vec<usize> {
                (0..13)
                    .map(|at| {
                        if shares && random.random_bool(0.3) {
                            random.random_range(0..39)
                        } else {
                            first + at
                        }
                    })
                    .collect()
            };
        let lists = [names(0), names(13), names(26)];
        let numbers: Vec<f64> = (0..13).map(|at| f64::from(at) * 0.125 + 0.25).collect();
        let needs = |role: usize| match op {
            Foreach::Add | Foreach::Mul | Foreach::Div => false,
            Foreach::Addcmul | Foreach::Addcdiv | Foreach::Sum => true,
            _ => role == 1,
        };
        let all: Vec<_> = (0..13)
            .map(|at| ForeachTensors {
                a: &device[lists[0][at]],
                b: needs(1).then(|| &device[lists[1][at]]),
                c: needs(2).then(|| &device[lists[2][at]]),
                s: numbers[at],
            })
            .collect();
        foreach(&mut stream, op, &all).unwrap();
        for at in 0..13 {
            let [a, b, c] = [0, 1, 2].map(|list: usize| lists[list][at]);
            for i in 0..host[a].len() {
                let of = [host[a][i], host[b][i], host[c][i]];
                host[a][i] = rounded(device[a].dtype, apply(op, of, numbers[at]));
            }
        }
        for (at, view) in device.iter().enumerate() {
            let bound = if view.dtype == F { 1e-5 } else { view.dtype.size() as f64 * 4e-3 };
            close(&get(&mut stream, view), &host[at], bound, &format!("tensor {at}, {what}"));
        }
    }
}

/// What lies in the same memory is one launch; what does not, or may not be, is several.
#[test]
fn optimizers_step_lists() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let sizes = lengths(&mut random, 40);
    let mut put = |scale: f64| -> (Vec<View>, Vec<Vec<f64>>) {
        let numbers =
            |&n: &u64| if scale == 0.0 { vec![0.0; n as usize] } else { values(&mut random, F, n, scale) };
        let numbers: Vec<Vec<f64>> = sizes.iter().map(numbers).collect();
        let views = sizes.iter().zip(&numbers).map(|(&n, numbers)| put_plain(&mut stream, F, &[n], numbers));
        (views.collect(), numbers)
    };
    let [(params, mut x), (grads, g), (averages, mut m)] = [put(1.0), put(1.0), put(0.1)];
    let (squares, mut v) = put(0.0);
    let steps: Vec<View> =
        (0..40).map(|at| put_plain(&mut stream, F, &[], &[f64::from(at % 5 + 1)])).collect();
    let settings = Settings { lr: 0.01, decay: 0.05, maximize: false, found_inf: None, grad_scale: None };
    let tensors = |at: usize| AdamTensors {
        param: &params[at],
        grad: &grads[at],
        average: &averages[at],
        square: &squares[at],
        largest: None,
        step: &steps[at],
    };
    let all: Vec<_> = (0..40).map(tensors).collect();
    let (beta1, beta2, eps) = (0.9, 0.999, 1e-8);
    adam(&mut stream, &all, &settings, &Adam { beta1, beta2, eps, decoupled: true }).unwrap();
    let tensors = |at: usize| SgdTensors { param: &params[at], grad: &grads[at], buffer: None };
    let all: Vec<_> = (0..40).map(tensors).collect();
    sgd(&mut stream, &all, &settings, &Sgd { momentum: 0.0, dampening: 0.0, nesterov: false, first: false })
        .unwrap();
    for at in 0..40 {
        let t = (at % 5 + 1) as i32;
        for i in 0..x[at].len() {
            let d = g[at][i];
            x[at][i] -= 0.01 * 0.05 * x[at][i];
            m[at][i] += (1.0 - beta1) * (d - m[at][i]);
            v[at][i] = beta2 * v[at][i] + (1.0 - beta2) * d * d;
            let root = (v[at][i] / (1.0 - beta2.powi(t))).sqrt();
            x[at][i] -= 0.01 * m[at][i] / (1.0 - beta1.powi(t)) / (root + eps);
            x[at][i] -= 0.01 * (d + 0.05 * x[at][i]);
        }
        close(&get(&mut stream, &params[at]), &x[at], 1e-5, &format!("tensor {at}, seed {seed}"));
        close(&get(&mut stream, &averages[at]), &m[at], 1e-6, &format!("average {at}, seed {seed}"));
    }
    let [found, inverse] = [0.0, 0.5].map(|n| put_plain(&mut stream, F, &[1], &[n]));
    unscale(&mut stream, &grads, &found, &inverse).unwrap();
    for (grad, g) in grads.iter().zip(&g) {
        let half: Vec<f64> = g.iter().map(|g| g * 0.5).collect();
        close(&get(&mut stream, grad), &half, 0.0, "unscaled");
    }
    assert_eq!(get(&mut stream, &found), [0.0]);
}

#[test]
fn lists_that_do_not_fit_are_refused_as_a_whole() {
    let Some(mut stream) = stream() else { return };
    let [a, b] = [[5], [6]].map(|sizes| put_plain(&mut stream, F, &sizes, &[1.0; 6][..sizes[0] as usize]));
    let good = ForeachTensors { a: &a, b: Some(&a), c: None, s: 1.0 };
    let bad = ForeachTensors { a: &a, b: Some(&b), c: None, s: 1.0 };
    for all in [&[good, bad][..], &[ForeachTensors { b: None, ..good }]] {
        let refused = foreach(&mut stream, Foreach::AddScaled, all);
        assert!(matches!(refused, Err(OpError::Refused { .. })), "{refused:?}");
    }
    assert_eq!(get(&mut stream, &a), [1.0; 5], "nothing was stepped");
    foreach(&mut stream, Foreach::Add, &[]).unwrap();
}
