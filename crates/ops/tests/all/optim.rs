//! Optimizer steps against their definitions in f64, over several steps.

use crate::common;

use common::{close, get, put_plain, random, stream, values};
use rand::Rng;
use rand::rngs::StdRng;
use wave32_ops::optim::{Adam, AdamTensors, Settings, Sgd, SgdTensors, adam, sgd, unscale, update_scale};
use wave32_ops::{ElementType, Number, View, fill};

const F: ElementType = ElementType::F32;
const N: usize = 1029;

fn numbers(random: &mut StdRng) -> Vec<f64> {
    values(random, F, N as u64, 1.0)
}

#[test]
fn sgd_steps() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for case in 0..8 {
        let (nesterov, maximize, decay) = (case % 2 == 1, case / 2 % 2 == 1, f64::from(case / 4) * 0.1);
        let momentum = if case == 2 { 0.0 } else { 0.9 };
        let dampening = if nesterov { 0.0 } else { 0.2 };
        let mut x = numbers(&mut random);
        let mut buffer = vec![0.0; N];
        let param = put_plain(&mut stream, F, &[N as u64], &x);
        let momentum_view = put_plain(&mut stream, F, &[N as u64], &[f64::NAN; N]);
        for step in 0..3 {
            let g = numbers(&mut random);
            let grad = put_plain(&mut stream, F, &[N as u64], &g);
            let settings = Settings { lr: 0.1, decay, maximize, found_inf: None, grad_scale: None };
            let this = Sgd { momentum, dampening, nesterov, first: step == 0 };
            let all = [SgdTensors { param: &param, grad: &grad, buffer: Some(&momentum_view) }];
            sgd(&mut stream, &all, &settings, &this).unwrap();
            for i in 0..N {
                let mut d = if maximize { -g[i] } else { g[i] } + decay * x[i];
                if momentum != 0.0 {
                    buffer[i] = if step == 0 { d } else { momentum * buffer[i] + (1.0 - dampening) * d };
                    d = if nesterov { d + momentum * buffer[i] } else { buffer[i] };
                }
                x[i] -= 0.1 * d;
            }
            close(&get(&mut stream, &param), &x, 1e-6, &format!("case {case}, step {step}, seed {seed}"));
        }
    }
}

#[test]
fn adam_steps() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for case in 0..8 {
        let (decoupled, amsgrad, maximize) = (case % 2 == 1, case / 2 % 2 == 1, case / 4 == 1);
        let scale = if case == 3 { 8.0 } else { 1.0 };
        let (lr, decay, eps, beta1, beta2) = (0.01, 0.05, 1e-8, 0.9, 0.999);
        let [mut x, mut m, mut v, mut w] = [numbers(&mut random), vec![0.0; N], vec![0.0; N], vec![0.0; N]];
        let param = put_plain(&mut stream, F, &[N as u64], &x);
        let [average, square, largest] = [&m, &v, &w].map(|s| put_plain(&mut stream, F, &[N as u64], s));
        for t in 1..5 {
            let g = numbers(&mut random);
            let scaled: Vec<f64> = g.iter().map(|g| g * scale).collect();
            let grad = put_plain(&mut stream, F, &[N as u64], &scaled);
            let [step, inf, by] = [f64::from(t), 0.0, scale].map(|n| put_plain(&mut stream, F, &[], &[n]));
            let settings = Settings {
                lr,
                decay,
                maximize,
                found_inf: Some(&inf),
                grad_scale: (case == 3).then_some(&by),
            };
            let all = AdamTensors {
                param: &param,
                grad: &grad,
                average: &average,
                square: &square,
                largest: amsgrad.then_some(&largest),
                step: &step,
            };
            adam(&mut stream, &[all], &settings, &Adam { beta1, beta2, eps, decoupled }).unwrap();
            for i in 0..N {
                let mut d = if maximize { -g[i] } else { g[i] };
                if decoupled {
                    x[i] -= lr * decay * x[i];
                } else {
                    d += decay * x[i];
                }
                m[i] += (1.0 - beta1) * (d - m[i]);
                v[i] = beta2 * v[i] + (1.0 - beta2) * d * d;
                w[i] = v[i].max(w[i]);
                let second = if amsgrad { w[i] } else { v[i] };
                let root = (second / (1.0 - beta2.powi(t))).sqrt();
                x[i] -= lr * m[i] / (1.0 - beta1.powi(t)) / (root + eps);
            }
            // Two roundings a step, of half an ulp (6e-8) each, and the four steps' own.
            close(&get(&mut stream, &param), &x, 6e-7, &format!("case {case}, step {t}, seed {seed}"));
            // The step is small beside the parameter: its denominator's error shows in the state only.
            close(&get(&mut stream, &square), &v, 1e-6, &format!("case {case}, step {t}, seed {seed}"));
        }
        // A gradient that is not finite leaves everything.
        let before = get(&mut stream, &param);
        let [step, inf] = [5.0, 1.0].map(|n| put_plain(&mut stream, F, &[], &[n]));
        let settings = Settings { lr, decay, maximize, found_inf: Some(&inf), grad_scale: None };
        let all = AdamTensors {
            param: &param,
            grad: &average,
            average: &average,
            square: &square,
            largest: None,
            step: &step,
        };
        adam(&mut stream, &[all], &settings, &Adam { beta1, beta2, eps, decoupled }).unwrap();
        assert_eq!(get(&mut stream, &param), before);
    }
}

#[test]
fn scales_follow_the_gradients() {
    let Some(mut stream) = stream() else { return };
    let (mut random, _) = random();
    for dtype in [F, ElementType::F16] {
        let mut g = values(&mut random, dtype, N as u64, 100.0);
        let [found, inverse] = [0.0, 0.125].map(|n| put_plain(&mut stream, F, &[1], &[n]));
        let grad = put_plain(&mut stream, dtype, &[N as u64], &g);
        unscale(&mut stream, &[grad], &found, &inverse).unwrap();
        let expected: Vec<f64> = g.iter().map(|g| common::rounded(dtype, g * 0.125)).collect();
        close(&get(&mut stream, &grad), &expected, 0.0, "unscale");
        assert_eq!(get(&mut stream, &found), [0.0]);
        g[random.random_range(0..N)] = if dtype == F { f64::NAN } else { f64::NEG_INFINITY };
        let grad = put_plain(&mut stream, dtype, &[N as u64], &g);
        unscale(&mut stream, &[grad], &found, &inverse).unwrap();
        assert_eq!(get(&mut stream, &found), [1.0]);
    }
    let scale = put_plain(&mut stream, F, &[], &[1024.0]);
    let tracker = put_plain(&mut stream, ElementType::I32, &[], &[0.0]);
    for (inf, wanted) in [(0.0, 1024.0), (0.0, 2048.0), (1.0, 1024.0), (0.0, 1024.0), (0.0, 2048.0)] {
        let found = put_plain(&mut stream, F, &[], &[inf]);
        update_scale(&mut stream, &scale, &tracker, &found, [2.0, 0.5], 2).unwrap();
        assert_eq!(get(&mut stream, &scale), [wanted]);
    }
}

/// Parameters past what the device binds at once; where it binds gigabytes this takes the ordinary way.
#[test]
fn large_parameters_are_cut() {
    let Some(mut stream) = stream() else { return };
    let sizes = [4099, 8750];
    let [param, grad] = [0; 2].map(|_| {
        let address = stream.alloc(4 * 4099 * 8750).unwrap();
        View::contiguous(address, F, &sizes).unwrap()
    });
    fill(&mut stream, &param, Number::Int(2)).unwrap();
    fill(&mut stream, &grad, Number::Int(8)).unwrap();
    let [found, inverse] = [0.0, 0.5].map(|n| put_plain(&mut stream, F, &[1], &[n]));
    unscale(&mut stream, &[grad], &found, &inverse).unwrap();
    let settings =
        Settings { lr: 0.25, decay: 0.0, maximize: false, found_inf: Some(&found), grad_scale: None };
    let plain = Sgd { momentum: 0.0, dampening: 0.0, nesterov: false, first: true };
    let all = [SgdTensors { param: &param, grad: &grad, buffer: None }];
    sgd(&mut stream, &all, &settings, &plain).unwrap();
    for at in [0, 1, 2048, 2049, 2050, 4098] {
        let line = View::contiguous(param.address + 4 * at * 8750, F, &[8750]).unwrap();
        assert_eq!(get(&mut stream, &line), vec![1.0; 8750], "row {at}");
    }
    stream.free(param.address);
    stream.free(grad.address);
}
