//! The backend against the oracle: every type, direction, layout; caps; determinism; long reductions.

mod common;

use common::{Operands, backend, fresh_seed, normwise, random_problem, rng};
use rand::Rng;
use wave32_cpu::{CpuError, Options, TensorMut, TensorRef, oracle, run};
use wave32_problem::{Activation, ConvProblem, ConvSpec, DType, Direction, Epilogue, Layout};

/// Caps from none that bites to none at all.
const CAPS: [u64; 6] = [256 << 20, 1 << 20, 64 << 10, 8 << 10, 1 << 10, 0];

/// Storage rounds the result once: half a unit in the last place each, and f32 sums on top.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1.5e-6,
        DType::F16 => 6e-4,
        DType::BF16 => 4.5e-3,
    }
}

#[test]
fn random_problems_match_the_oracle() {
    let seed = fresh_seed();
    let mut rng = rng(seed);
    let mut ways = std::collections::BTreeMap::new();
    for round in 0..400 {
        let p = random_problem(&mut rng, 2_000_000);
        let o = Operands::new(&p, || rng.random_range(-1.0..1.0f32));
        let threads = rng.random_range(1..=3);
        let options = Options { threads, workspace_cap: CAPS[rng.random_range(0..CAPS.len())] };
        let (got, report) = backend(&p, &o, &options).unwrap();
        let error = o.error(&p, &got);
        let limit = tolerance(p.spec().dtype);
        assert!(
            error <= limit,
            "error {error} > {limit}: seed {seed}, round {round}, {report:?}, {options:?}, {p}"
        );
        let cap = options.workspace_cap;
        assert!(report.workspace_peak <= cap, "seed {seed}, round {round}: {report:?} with cap {cap}: {p}");
        *ways.entry((report.way, p.spec().direction.name())).or_insert(0) += 1;
    }
    assert_eq!(ways.len(), 9, "every way in every direction is drawn: {ways:?} (seed {seed})");
}

#[test]
fn small_integers_are_exact() {
    let seed = fresh_seed();
    let mut rng = rng(seed);
    for round in 0..150 {
        let p = random_problem(&mut rng, 500_000);
        // The others make no integers.
        if !p.spec().epilogue.activation.keeps_integers() {
            continue;
        }
        // f16 holds integers to 2048, bf16 to 256: thin out the operands until every sum fits.
        let most = match p.spec().dtype {
            DType::F32 => 1e6,
            DType::F16 => 2048.0,
            DType::BF16 => 256.0,
        };
        let density = (most / 16.0 / p.reduction_len() as f64).min(1.0).sqrt();
        let o =
            Operands::new(
                &p,
                || {
                    if rng.random_bool(density) { rng.random_range(-3..=3) as f32 } else { 0.0 }
                },
            );
        let want = o.oracle(&p);
        if want.iter().any(|v| v.abs() > most) {
            continue;
        }
        let options = Options { threads: 2, workspace_cap: CAPS[round % CAPS.len()] };
        let (got, report) = backend(&p, &o, &options).unwrap();
        assert_eq!(got, want, "seed {seed}, round {round}, {report:?}, {p}");
    }
}

#[test]
fn same_bits_for_every_thread_count() {
    let seed = fresh_seed();
    let mut rng = rng(seed);
    for round in 0..60 {
        let p = random_problem(&mut rng, 3_000_000);
        let o = Operands::new(&p, || rng.random_range(-1.0..1.0f32));
        let workspace_cap = CAPS[round % CAPS.len()];
        let one = backend(&p, &o, &Options { threads: 1, workspace_cap }).unwrap().0;
        for threads in [1, 2, 3, 7, 0] {
            let other = backend(&p, &o, &Options { threads, workspace_cap }).unwrap().0;
            let same = one.iter().zip(&other).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{threads} threads differ from one: seed {seed}, round {round}, {p}");
        }
    }
}

/// Normwise error of one f32 problem; operands in `range`. `sample` output elements are looked at.
fn sampled_error(spec: ConvSpec, range: std::ops::Range<f32>, sample: u64, seed: u64) -> f64 {
    let p = ConvProblem::new(spec).unwrap();
    let mut rng = rng(seed);
    let o = Operands::new(&p, || rng.random_range(range.clone()));
    let got = backend(&p, &o, &Options::default()).unwrap().0;
    let at: Vec<u64> = (0..sample).map(|_| rng.random_range(0..p.output_elements())).collect();
    let oracle = |o: &Operands| at.iter().map(|&i| oracle::conv_at(&p, &o.inputs(), i)).collect::<Vec<_>>();
    let spread: Vec<f64> = oracle(&o.squared()).into_iter().map(f64::sqrt).collect();
    normwise(&at.iter().map(|&i| got[i as usize]).collect::<Vec<_>>(), &oracle(&o), &spread)
}

#[test]
fn long_reductions_stay_accurate() {
    let seed = fresh_seed();
    let weights = Direction::BackwardWeights;
    let pixels = ConvSpec { direction: weights, h: 1024, w: 1024, ..ConvSpec::default() };
    let dense = ConvSpec { c: 3, k: 5, r: 2, ..pixels.clone() };
    let grouped = ConvSpec { c: 2, k: 2, groups: 2, ..pixels };
    let deep = ConvSpec { c: 300_000, k: 3, w: 4, ..ConvSpec::default() };
    let deep_data = ConvSpec { c: 3, k: 300_000, direction: Direction::BackwardData, ..deep.clone() };
    for spec in [dense, grouped, deep, deep_data] {
        for range in [-1.0..1.0f32, 0.0..1.0] {
            let error = sampled_error(spec.clone(), range.clone(), 12, seed);
            assert!(error <= 1.5e-6, "{error}: seed {seed}, {range:?}, {spec:?}");
        }
    }
}

#[test]
fn extreme_geometry_works() {
    let base = ConvSpec::default();
    let cases = [
        // Padding and dilation far beyond the image: mostly zeros.
        ConvSpec { h: 1, w: 1, r: 2, s: 2, pad: [500, 700], dilation: [999, 1300], ..base.clone() },
        // Stride beyond the image: one pixel.
        ConvSpec { h: 5, w: 5, stride: [1_000_000_000, 7], ..base.clone() },
        ConvSpec { h: 5, w: 5, stride: [3, 7], direction: Direction::BackwardData, ..base.clone() },
        // Depthwise, far apart taps.
        ConvSpec { c: 4, k: 4, groups: 4, h: 300, w: 3, r: 2, dilation: [299, 1], ..base.clone() },
        // Filter as large as the image.
        ConvSpec { h: 33, w: 29, r: 33, s: 29, c: 2, k: 3, ..base },
    ];
    let seed = fresh_seed();
    let mut rng = rng(seed);
    for spec in cases {
        for workspace_cap in CAPS {
            let p = ConvProblem::new(spec.clone()).unwrap();
            let o = Operands::new(&p, || rng.random_range(-1.0..1.0f32));
            let (got, report) = backend(&p, &o, &Options { threads: 2, workspace_cap }).unwrap();
            let error = o.error(&p, &got);
            assert!(
                error <= 1.5e-6 && report.workspace_peak <= workspace_cap,
                "{error}, {report:?}: seed {seed}, {p}"
            );
        }
    }
}

#[test]
fn nan_passes_through_relu_and_bias() {
    let epilogue = Epilogue { bias: true, activation: Activation::Relu };
    let p =
        ConvProblem::new(ConvSpec { epilogue, layout: Layout::Nhwc, w: 3, ..ConvSpec::default() }).unwrap();
    let (x, w, bias) = ([f32::NAN, -1.0, 2.0], [1.0f32], [0.5f32]);
    let mut out = [7.0f32; 3];
    let bias = Some(TensorRef::F32(&bias));
    let done =
        run(&p, TensorRef::F32(&x), TensorRef::F32(&w), bias, TensorMut::F32(&mut out), &Options::default());
    done.unwrap();
    assert!(out[0].is_nan());
    assert_eq!(out[1..], [0.0, 2.5]);
}

#[test]
fn wrong_tensors_are_named() {
    let p = ConvProblem::new(ConvSpec { c: 2, w: 3, ..ConvSpec::default() }).unwrap();
    let (x, w, mut out) = ([1.0f32; 6], [1.0f32; 2], [9.0f32; 3]);
    let o = Options::default();
    let halves = [half::f16::ONE; 6];
    let short =
        run(&p, TensorRef::F32(&x[..5]), TensorRef::F32(&w), None, TensorMut::F32(&mut out), &o).unwrap_err();
    assert_eq!(short, CpuError::Length { tensor: "a", given: 5, needed: 6 });
    let typed =
        run(&p, TensorRef::F16(&halves), TensorRef::F32(&w), None, TensorMut::F32(&mut out), &o).unwrap_err();
    assert_eq!(typed, CpuError::DType { tensor: "a", needed: DType::F32 });
    let bias = Some(TensorRef::F32(&x[..1]));
    let biased =
        run(&p, TensorRef::F32(&x), TensorRef::F32(&w), bias, TensorMut::F32(&mut out), &o).unwrap_err();
    assert!(matches!(biased, CpuError::Bias(_)));
    assert_eq!(out, [9.0; 3], "nothing was written");
}
