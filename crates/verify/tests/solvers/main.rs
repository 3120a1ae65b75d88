//! Every solver in every configuration on a GPU, against the f64 oracle: small problems that reach every branch of the
//! kernels (tails, splits, chunks of phases, groups, strides, layouts, epilogues).
//!
//! The device is the best Vulkan one, or that of `WAVE32_TEST_DEVICE` (`hip`).

#[path = "../common/mod.rs"]
mod common;
mod kernels;
mod range;
mod shapes;

use common::{error_of, error_of_statistics, error_of_sum, open, random};
use rand::Rng;
use shapes::{WITH_STATISTICS, problems, shapes};
use std::sync::LazyLock;
use wave32_device::{PlanDevice, Runner};
use wave32_params::variants::{self, Variant};
use wave32_problem::{Activation, ConvProblem, ConvSpec, DType, Direction, Epilogue, Layout};
use wave32_solve::{Fp16Accumulation, Plan, Policy};
use wave32_testing::Part;
use wave32_verify::fuzz;
use wave32_verify::tolerance::normwise;

/// One kernel, or configuration, of so many runs where a part is enough.
const PART: usize = 24;

/// Forced configurations.
const CONFIGS: [&str; 43] = [
    "p64x64/3",
    "p64x64k8/2",
    "w64x64/2",
    "g64x64/3",
    "c64x64/4",
    "p128x128/1",
    "p128x64/1",
    "p64x64k8/1",
    "w64x64k8/1",
    "w64x128/1",
    "nn32x32/1",
    "nn64x64d/2",
    "tn64x64d/2",
    "tn32x32/1",
    "c128x128/2",
    "g64x32/16",
    "mp128x128/1",
    "mp64x64/3",
    "mw128x128/1",
    "mw64x64/2",
    "mc128x128/1",
    "mc64x64/4",
    "mr128x128/1",
    "mr64x64/4",
    "mi64x64/2",
    "hp128x128/1",
    "hp64x64/3",
    "hp64x64k16/1",
    "hp64x64k8/2",
    "hw64x128/1",
    "hw64x64/1",
    "hw64x64k8/3",
    "hc64x64/4",
    "hc128x64/2",
    "hg64x32/4",
    "hi128x64/2",
    "f4/w64x64/2",
    "f4/w64x64k8/3",
    "f4/w128x128/1",
    "f4/hm64x64/1",
    "f4/hv64x64/1",
    "f4/hvt64x64/2",
    "f2/k32",
];

/// The type besides f32 that is run where a part is enough.
static OTHER: LazyLock<DType> =
    LazyLock::new(|| [DType::F16, DType::BF16][usize::from(rand::random::<bool>())]);

/// Each solver's own choice, unlimited and at workspace 0, and a few forced configurations; where a part is enough, of
/// [`WITH_STATISTICS`], a quarter of the other shapes and one of [`PART`] configurations.
fn check(dtype: DType) {
    let Some(mut device) = open() else { return };
    let mut rng = random();
    let part = Part::of(device.info().kind);
    if !part.is_whole() && ![DType::F32, *OTHER].contains(&dtype) {
        println!("{dtype:?} is left out this time");
        return;
    }
    let caps = device.caps().clone();
    let fp16_accumulation = Fp16Accumulation::Always;
    let mut failures = Vec::new();
    let (mut runs, mut sums, mut statistics) = (0, 0, 0);
    let configs = part.pick_one_of(PART, CONFIGS, &mut rng);
    let mut others = shapes();
    let always = others.remove(WITH_STATISTICS);
    for spec in [vec![always], part.pick_one_of(4, others, &mut rng)].concat() {
        for problem in problems(&ConvSpec { dtype, ..spec }) {
            let mut plans = wave32_solve::plans(&problem, &caps, &Policy::default());
            plans.extend(wave32_solve::plans(
                &problem,
                &caps,
                &Policy { workspace_cap: Some(0), ..Policy::default() },
            ));
            for &config in &configs {
                let policy = Policy { config: Some(config.into()), fp16_accumulation, ..Policy::default() };
                plans.extend(wave32_solve::plans(&problem, &caps, &policy));
            }
            plans.sort_by(|a, b| (a.solver, &a.config).cmp(&(b.solver, &b.config)));
            plans.dedup();
            assert!(!plans.is_empty(), "{problem}: no plan");
            for plan in plans {
                let of_sum = error_of_sum(device.as_mut(), &plan, &mut rng);
                sums += usize::from(of_sum.is_some());
                let of_statistics = error_of_statistics(device.as_mut(), &plan, &mut rng);
                statistics += usize::from(of_statistics.is_some());
                let plain = error_of(device.as_mut(), &plan, &mut rng);
                // A mean and a variance together may be further off than all results in the mean.
                let all =
                    [(Some(plain), "", 1.0), (of_sum, " sum", 1.0), (of_statistics, " statistics", 4.0)];
                for (error, what, times) in all {
                    let Some(error) = error else { continue };
                    runs += 1;
                    if error.is_nan() || error > times * normwise(dtype, plan.solver) {
                        let Plan { solver, config, .. } = &plan;
                        failures.push(format!("{problem}: {solver} {config}{what}: error {error:.3e}"));
                    }
                }
            }
        }
    }
    println!("{runs} runs, {sums} of them sums, {statistics} with statistics");
    let (least_statistics, least_sums) = if part.is_whole() { (50, 100) } else { (1, 20) };
    assert!(statistics > least_statistics, "{statistics} plans that write statistics");
    assert!(sums > least_sums, "{sums} plans that add to a result");
    assert!(failures.is_empty(), "{} of {runs} wrong:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_solver_is_right_in_f32() {
    check(DType::F32);
}

#[test]
fn every_solver_is_right_in_f16() {
    check(DType::F16);
}

#[test]
fn every_solver_is_right_in_bf16() {
    check(DType::BF16);
}

/// Of the kernels that are compiled for a filter and a stride, every variant on problems that it takes: borders, sizes with
/// and without vectors, several groups, more channels than a workgroup takes, few and many parts.
#[test]
fn every_variant_of_known_filters_is_right() {
    let Some(mut device) = open() else { return };
    let mut rng = random();
    let (mut failures, mut runs) = (Vec::new(), 0);
    let part = Part::of(device.info().kind);
    let passes = [
        ("patch", "direct_few", vec![Direction::Forward]),
        ("phases", "direct_few", vec![Direction::BackwardData]),
        ("window", "direct", vec![Direction::Forward, Direction::BackwardData]),
        ("grouped", "direct", vec![Direction::Forward, Direction::BackwardData]),
        ("taps_wrw", "direct", vec![Direction::BackwardWeights]),
        ("patch_wrw", "direct_few", vec![Direction::BackwardWeights]),
    ];
    for (source, solver, directions) in passes {
        let has_half = device.caps().float16_math;
        let is_own = |v: &&Variant| v.source == source && (has_half || !v.is_half());
        let own = variants::all().iter().filter(is_own);
        for variant in part.pick_one_of(PART, own, &mut rng) {
            let fp16_accumulation =
                if variant.is_half() { Fp16Accumulation::Always } else { Fp16Accumulation::Never };
            let [kt, stride] = ["KT", "S"].map(|name| variant.define(name));
            let mut done = 0;
            for _ in 0..200 {
                let mut spec = ConvSpec {
                    direction: directions[rng.random_range(0..directions.len())],
                    dtype: variant.dtype,
                    layout: if rng.random_bool(0.2) { Layout::Nhwc } else { Layout::Nchw },
                    n: rng.random_range(1..4),
                    c: rng.random_range(1..6),
                    h: rng.random_range(1..50),
                    w: rng.random_range(1..80),
                    k: rng.random_range(1..70),
                    r: kt,
                    s: kt,
                    stride: [stride; 2],
                    pad: [kt / 2; 2],
                    ..ConvSpec::default()
                };
                if rng.random_bool(0.5) {
                    spec.w = (spec.w + 7) / 8 * 8;
                }
                if rng.random_bool(0.2) {
                    spec.pad = [rng.random_range(0..kt), rng.random_range(0..kt)];
                }
                if source == "window" || source == "taps_wrw" {
                    let filters = rng.random_range(1..6);
                    spec.groups = rng.random_range(1..5);
                    (spec.c, spec.k) = (spec.groups * rng.random_range(1..3), spec.groups * filters);
                } else if source == "grouped" {
                    let of_group = rng.random_range(2..20);
                    spec.groups = rng.random_range(2..5);
                    (spec.c, spec.k) = (spec.groups * of_group, spec.groups * rng.random_range(2..20));
                } else if rng.random_bool(0.2) {
                    spec.groups = 2;
                    (spec.c, spec.k) = (2 * spec.c, 2 * spec.k);
                }
                if spec.direction == Direction::Forward {
                    let activation = Activation::ALL[rng.random_range(0..Activation::ALL.len())];
                    spec.epilogue = Epilogue { bias: rng.random(), activation };
                }
                // A transposed forward pass is a backward-data with bias and activation.
                if spec.direction == Direction::BackwardData && rng.random() {
                    let activation = Activation::ALL[rng.random_range(0..Activation::ALL.len())];
                    let epilogue = Epilogue { bias: true, activation };
                    (spec.c, spec.k) = (spec.k, spec.c);
                    spec = ConvSpec { direction: Direction::Forward, transposed: true, epilogue, ..spec };
                }
                let Ok(problem) = ConvProblem::new(spec) else { continue };
                let mut caps = device.caps().clone();
                caps.compute_units = rng.random_range(1..9);
                let config = Some(variant.tag.clone());
                let policy =
                    Policy { only: Some(solver.into()), config, fp16_accumulation, ..Policy::default() };
                let plans = wave32_solve::plans(&problem, &caps, &policy);
                let Some(plan) = plans.first().filter(|p| p.launches[0].kernel == variant.name) else {
                    continue;
                };
                let error = error_of(device.as_mut(), plan, &mut rng);
                if error.is_nan() || error > normwise(variant.dtype, solver) {
                    failures.push(format!("{problem}: {solver} {}: error {error:.3e}", plan.config));
                }
                done += 1;
                if done == 2 {
                    break;
                }
            }
            assert!(done > 0, "no problem for {}", variant.name);
            runs += done;
        }
    }
    println!("{runs} runs");
    assert!(failures.is_empty(), "{} of {runs} wrong:\n{}", failures.len(), failures.join("\n"));
}

/// Products of matrices of any strides, by every solver and every configuration of `skinny`, with any workspace and none.
#[test]
fn every_solver_of_products_is_right() {
    let Some(mut device) = open() else { return };
    let mut rng = random();
    let forms = ["rows", "columns", "outer"].into_iter().flat_map(|form| ["a", "b"].map(|side| (form, side)));
    let configs: Vec<String> =
        forms.flat_map(|(form, side)| [1, 2, 4, 8].map(|splits| format!("{form}-{side}/{splits}"))).collect();
    let mut failures = Vec::new();
    let all = fuzz::problems(400, rng.random(), &[Direction::Forward], &DType::ALL);
    let own = all.into_iter().filter(|p| p.conv().is_none()).take(20);
    for problem in Part::of(device.info().kind).pick(own, 7, &mut rng) {
        let caps = device.caps().clone();
        let mut plans = wave32_solve::plans(&problem, &caps, &Policy::default());
        assert!(!plans.is_empty(), "{problem}: no plan");
        let frugal = Policy { workspace_cap: Some(0), ..Policy::default() };
        let frugal = wave32_solve::plans(&problem, &caps, &frugal);
        assert!(!frugal.is_empty(), "{problem}: no plan without a workspace");
        plans.extend(frugal);
        for config in &configs {
            let policy =
                Policy { only: Some("skinny".into()), config: Some(config.clone()), ..Policy::default() };
            plans.extend(wave32_solve::plans(&problem, &caps, &policy));
        }
        for plan in plans {
            let error = error_of(device.as_mut(), &plan, &mut rng);
            if error.is_nan() || error > normwise(problem.dtype(), plan.solver) {
                failures.push(format!("{problem}: {} {}: {error:.3e}", plan.solver, plan.config));
            }
        }
    }
    assert!(failures.is_empty(), "{} wrong:\n{}", failures.len(), failures.join("\n"));
}

/// Under a workspace cap Winograd takes a few images at a time.
#[test]
fn winograd_in_passes_is_right() {
    let Some(mut device) = open() else { return };
    let mut rng = random();
    let caps = device.caps().clone();
    let spec = ConvSpec { n: 5, c: 16, h: 9, w: 14, k: 24, r: 3, s: 3, pad: [1, 1], ..ConvSpec::default() };
    for problem in problems(&spec) {
        let within = |workspace_cap| {
            // Tiles of 4x4 results; those of 2x2 need no passes.
            let is_images = problem.spec().direction != Direction::BackwardWeights;
            let config = Some(if is_images { "f4/w64x64k8/1" } else { "f4/nt64x64/1" }.to_string());
            let policy = Policy { only: Some("winograd".into()), config, workspace_cap, ..Policy::default() };
            wave32_solve::plan(&problem, &caps, &policy).expect("takes it")
        };
        let whole = within(None);
        let capped = within(Some(whole.workspace_bytes - 1));
        assert!(
            capped.workspace_bytes < whole.workspace_bytes && capped.launches.len() > whole.launches.len()
        );
        for plan in [whole, capped] {
            let error = error_of(device.as_mut(), &plan, &mut rng);
            assert!(error <= normwise(DType::F32, plan.solver), "{problem} {}: {error:e}", plan.config);
        }
    }
}

/// Every solver's own choice under Vulkan's validation layer, where it is installed: nothing to complain of.
#[test]
fn solvers_are_clean_under_validation() {
    if !wave32_vulkan::validation_available() {
        return eprintln!("skipped: the validation layer is not installed");
    }
    let options = wave32_vulkan::Options { validation: true, ..wave32_vulkan::Options::default() };
    let mut device = match wave32_vulkan::open(None, options) {
        Ok(queue) => Runner::new(queue),
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let mut rng = random();
    let caps = device.caps().clone();
    let shapes = shapes();
    for (dtype, spec) in [(DType::F32, &shapes[0]), (DType::F16, &shapes[7]), (DType::F16, &shapes[5])] {
        for problem in problems(&ConvSpec { dtype, ..spec.clone() }) {
            for plan in wave32_solve::plans(&problem, &caps, &Policy::default()) {
                let error = error_of(&mut device, &plan, &mut rng);
                assert!(
                    error <= normwise(dtype, plan.solver),
                    "{problem}: {} {}: {error:.3e}",
                    plan.solver,
                    plan.config
                );
            }
        }
    }
    let messages = device.queue().validation_messages();
    assert!(messages.is_empty(), "{} validation messages: {messages:#?}", messages.len());
}
