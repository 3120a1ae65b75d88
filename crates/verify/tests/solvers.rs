//! Every solver in every configuration on a GPU, against the f64 oracle: small problems that reach every branch of the
//! kernels (tails, splits, chunks of phases, groups, strides, layouts, epilogues).
//!
//! The device is the best Vulkan one, or that of `WAVE32_TEST_DEVICE` (`hip`).

mod common;

use common::{error_of, error_of_statistics, error_of_sum, error_on, open, random};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::LazyLock;
use wave32_device::{PlanDevice, Runner};
use wave32_params::variants::{self, Variant};
use wave32_problem::{Activation, ConvProblem, ConvSpec, DType, Direction, Epilogue, Layout};
use wave32_solve::{Fp16Accumulation, Plan, Policy, Role};
use wave32_testing::Part;
use wave32_verify::fuzz;
use wave32_verify::tolerance::normwise;

/// Shapes picked so that each reaches a branch: see the comment of each.
fn shapes() -> Vec<ConvSpec> {
    let base = ConvSpec { n: 2, c: 16, h: 9, w: 10, k: 24, r: 3, s: 3, pad: [1, 1], ..ConvSpec::default() };
    vec![
        base.clone(),
        // more rows than a tile, channels no multiple of anything
        ConvSpec { c: 19, k: 67, ..base.clone() },
        // stride and dilation with phases that have no taps
        ConvSpec { stride: [2, 3], dilation: [2, 1], pad: [2, 0], h: 13, w: 11, ..base.clone() },
        ConvSpec { stride: [4, 4], r: 2, s: 2, pad: [0, 0], h: 14, w: 15, ..base.clone() },
        // tiles of Winograd at every border, beyond the image on one side
        ConvSpec { n: 3, h: 11, w: 6, pad: [0, 3], ..base.clone() },
        // 1x1: vector loads (4 | pixels), and without
        ConvSpec { r: 1, s: 1, pad: [0, 0], h: 8, w: 6, k: 70, ..base.clone() },
        ConvSpec { r: 1, s: 1, pad: [0, 0], h: 7, w: 7, c: 40, ..base.clone() },
        ConvSpec { r: 1, s: 1, pad: [0, 0], stride: [2, 2], ..base.clone() },
        // groups, depthwise, depthwise with multiplier
        ConvSpec { groups: 4, c: 32, k: 24, ..base.clone() },
        ConvSpec { groups: 16, k: 16, ..base.clone() },
        ConvSpec { groups: 16, k: 32, r: 5, s: 5, pad: [2, 2], ..base.clone() },
        // 1-D
        ConvSpec { h: 1, w: 57, r: 1, s: 7, pad: [0, 3], ..base.clone() },
        // long reduction: chunks and splits
        ConvSpec { n: 1, c: 600, h: 6, w: 6, k: 9, ..base.clone() },
        ConvSpec { n: 3, c: 3, h: 40, w: 44, k: 5, ..base.clone() },
        // whole slices of 32 in every pass, more than one tile
        ConvSpec { n: 1, c: 64, k: 96, h: 12, w: 12, ..base.clone() },
        ConvSpec { n: 3, c: 64, k: 96, h: 8, w: 6, r: 1, s: 1, pad: [0, 0], ..base.clone() },
        // a single pixel
        ConvSpec { n: 1, c: 1, h: 1, w: 1, k: 1, r: 1, s: 1, pad: [0, 0], ..base.clone() },
        // transposed, with output padding; with outputs that are their bias alone
        ConvSpec { transposed: true, stride: [2, 2], output_pad: [1, 0], c: 24, k: 8, ..base.clone() },
        ConvSpec { transposed: true, stride: [3, 2], r: 1, s: 1, pad: [0, 1], c: 24, k: 8, ..base.clone() },
        ConvSpec { transposed: true, stride: [2, 2], r: 1, s: 1, pad: [0, 0], h: 8, w: 6, ..base },
    ]
}

/// The place in [`shapes`] of one whose solvers write statistics of their own choice.
const WITH_STATISTICS: usize = 5;

/// Where the kernel may run: shapes of its filter and stride, few channels and depthwise, if it is compiled for these.
fn shapes_for(variant: &Variant) -> Vec<ConvSpec> {
    let known = ["KT", "S"].map(|name| variant.defines.contains_key(name));
    if known != [true, true] {
        return shapes();
    }
    let [kt, stride] = ["KT", "S"].map(|name| variant.define(name));
    let few = ConvSpec {
        n: 2,
        c: 3,
        h: 21,
        w: 24,
        k: 24,
        r: kt,
        s: kt,
        stride: [stride; 2],
        pad: [kt / 2; 2],
        ..ConvSpec::default()
    };
    let depthwise = ConvSpec { groups: 8, c: 8, k: 8, ..few.clone() };
    let several = ConvSpec { k: 32, ..depthwise.clone() };
    let narrow = ConvSpec { w: 9, ..depthwise.clone() };
    let grouped = ConvSpec { groups: 3, c: 12, k: 30, ..few.clone() };
    vec![few, depthwise, several, narrow, grouped]
}

fn problems(spec: &ConvSpec) -> Vec<ConvProblem> {
    let mut all = Vec::new();
    for layout in [Layout::Nchw, Layout::Nhwc] {
        for direction in Direction::ALL {
            let epilogue = match direction {
                Direction::Forward => Epilogue { bias: true, activation: Activation::Relu },
                _ => Epilogue::default(),
            };
            let spec = ConvSpec { layout, direction, epilogue, ..spec.clone() };
            all.push(ConvProblem::new(spec).expect("valid by hand"));
        }
    }
    all
}

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

/// Does a launch of the plan sum in f16?
fn sums_in_half(plan: &Plan) -> bool {
    let variants = plan.launches.iter().filter_map(|launch| variants::find(&launch.kernel));
    variants.into_iter().any(Variant::is_half)
}

/// Numbers of every size: sums in f16 stay finite and near where docs/performance.md says so, and sums in f32 everywhere.
#[test]
fn f16_sums_are_right_in_their_range() {
    let Some(mut device) = open() else { return };
    if !device.caps().float16_math {
        return eprintln!("skipped: no f16 arithmetic");
    }
    let mut rng = random();
    let spec = ConvSpec {
        n: 2,
        c: 64,
        h: 8,
        w: 8,
        k: 64,
        r: 3,
        s: 3,
        pad: [1, 1],
        dtype: DType::F16,
        ..ConvSpec::default()
    };
    // (what, its images' or gradients' size, its filters' or pixels' size, one sign)
    let forward = [
        ("usual", 1.0, 1.0, false),
        ("the largest filters", 1e-3, 6e4, false),
        ("subnormal filters", 1000.0, 1e-6, false),
        ("the largest pixels, all of one sign", 1023.0, 0.06, true),
        ("small pixels", 1e-3, 0.05, false),
    ];
    let backward = [
        ("usual", 1.0, 1.0, false),
        ("the largest gradients, all of one sign", 63.0, 0.9, true),
        ("subnormal gradients", 2e-5, 0.1, false),
    ];
    let weights = [
        ("usual", 1.0, 1.0, false),
        ("the largest products, all of one sign", 60.0, 2.0, true),
        ("subnormal gradients", 2e-5, 1.0, false),
    ];
    let first_layer = ConvSpec { c: 3, ..spec.clone() };
    // Its tiles fill a chain of sums.
    let larger = ConvSpec { n: 4, ..spec.clone() };
    let of_spec = &["hp64x64/1", "hc64x64/2", "p64x64/1", "c64x64/2"][..];
    let of_first = &["h3s1k8", "hg64x32/2", "t3s1k8", "g64x32/2"][..];
    let of_planes = &["f4/hm64x64/1", "f4/hv64x64/1", "f4/hvt64x64/1"][..];
    let all = [
        (Direction::Forward, &forward[..], &spec, of_spec),
        (Direction::BackwardData, &backward, &spec, of_spec),
        (Direction::BackwardWeights, &weights, &spec, of_spec),
        // Of a first layer, only the gradients have kernels that sum in f16.
        (Direction::BackwardData, &backward, &first_layer, of_first),
        (Direction::BackwardWeights, &weights, &first_layer, of_first),
        (Direction::Forward, &forward, &spec, of_planes),
        (Direction::BackwardData, &backward, &spec, of_planes),
        (Direction::BackwardWeights, &weights, &larger, of_planes),
    ];
    let (mut failures, mut runs) = (Vec::new(), 0);
    for (direction, cases, spec, configs) in all {
        let problem = ConvProblem::new(ConvSpec { direction, ..spec.clone() }).expect("valid by hand");
        for &(what, first, second, one_sign) in cases {
            for &config in configs {
                let is_half = config.contains('h');
                let fp16_accumulation = match is_half {
                    true => Fp16Accumulation::Always,
                    false => Fp16Accumulation::Never,
                };
                let policy = Policy { config: Some(config.into()), fp16_accumulation, ..Policy::default() };
                // Some solvers have no configurations.
                let plans = wave32_solve::plans(&problem, device.caps(), &policy);
                for plan in plans.into_iter().filter(|plan| plan.config == config) {
                    assert_eq!(sums_in_half(&plan), is_half, "{}", plan.config);
                    runs += 1;
                    let error = error_on(device.as_mut(), &plan, &mut |role, _| {
                        let size = match (direction, role) {
                            (Direction::Forward, Role::X) | (_, Role::Y) => first,
                            _ => second,
                        };
                        size * if one_sign { rng.random_range(0.9..1.0) } else { rng.random_range(-1.0..1.0) }
                    });
                    println!("{} {what}: {} {error:.1e}", direction.name(), plan.config);
                    // Sums in f32 are only rounded once; subnormal results have fewer bits.
                    if error.is_nan() || error > 7e-3 {
                        failures.push(format!("{problem} {}: {what}: {error:.1e}", plan.config));
                    }
                }
            }
        }
    }
    let (cases, gradients) = (forward.len() + backward.len() + weights.len(), backward.len() + weights.len());
    assert_eq!(
        runs,
        2 * (cases + gradients) + cases,
        "each case on both kinds of sums, and on Winograd's in f16"
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A switch: by default only forward passes may sum in f16; where it is off, none.
#[test]
fn the_policy_says_which_passes_sum_in_f16() {
    let caps = wave32_solve::DeviceCaps::of(wave32_solve::usual_boards()[1]);
    let lacking = wave32_solve::DeviceCaps { float16_math: false, ..caps.clone() };
    let spec = ConvSpec {
        n: 8,
        c: 128,
        h: 28,
        w: 28,
        k: 128,
        r: 3,
        s: 3,
        pad: [1, 1],
        dtype: DType::F16,
        ..ConvSpec::default()
    };
    let skip = vec!["winograd".to_string()];
    for direction in Direction::ALL {
        let problem = ConvProblem::new(ConvSpec { direction, ..spec.clone() }).expect("valid by hand");
        for (fp16_accumulation, expected) in [
            (Fp16Accumulation::Never, false),
            (Fp16Accumulation::Forward, direction == Direction::Forward),
            (Fp16Accumulation::Always, true),
        ] {
            let policy = Policy { skip: skip.clone(), fp16_accumulation, ..Policy::default() };
            let chosen = |caps| sums_in_half(&wave32_solve::plan(&problem, caps, &policy).expect("a plan"));
            assert_eq!(chosen(&caps), expected, "{} {fp16_accumulation:?}", direction.name());
            assert!(!chosen(&lacking), "{}", direction.name());
        }
    }
}

/// The cheapest plan over the shapes that launches each of the kernels, by kernel.
fn cheapest(kernels: &[&'static Variant], device: &dyn PlanDevice) -> BTreeMap<&'static str, Plan> {
    let mut found: BTreeMap<&'static str, Plan> = BTreeMap::new();
    let flops = |plan: &Plan| plan.launches.iter().map(|launch| launch.flops).sum::<u64>();
    let splits = |tag: &str| [1, 2, 3].map(|splits| format!("{tag}/{splits}"));
    // With the others, many partial results are added, and filters are prepared for sums in f32 and in f16.
    let of_planes = ["f4/hm64x64/1", "f4/hm64x64k16/1", "f4/hvt64x64/1", "f2/k32"];
    let packed = ["g64x64/16", "p64x64/1", "hp64x64/1", "hp64x64k16/1", "hp64x64k8/1"];
    let others = of_planes.into_iter().chain(packed).map(String::from).collect::<Vec<_>>();
    let configs = |tag: &str| {
        let tags = vec![tag.to_string(), format!("f4/{tag}/1")];
        [tags, splits(tag).to_vec(), others.clone()].concat()
    };
    for variant in kernels {
        for spec in shapes_for(variant) {
            for problem in problems(&ConvSpec { dtype: variant.dtype, ..spec.clone() }) {
                let forced = configs(&variant.tag).into_iter().map(Some);
                for config in forced.chain([None]) {
                    let fp16_accumulation = Fp16Accumulation::Always;
                    let policy = Policy { config, fp16_accumulation, ..Policy::default() };
                    for plan in wave32_solve::plans(&problem, device.caps(), &policy) {
                        let launches = plan.launches.iter().any(|launch| launch.kernel == variant.name);
                        let better =
                            found.get(variant.name.as_str()).is_none_or(|old| flops(&plan) < flops(old));
                        if launches && better {
                            found.insert(&variant.name, plan);
                        }
                    }
                }
            }
        }
    }
    found
}

/// Sources, and solvers, of the kernels that only products use.
const OF_PRODUCTS: [&str; 2] = ["gemm", "skinny"];

/// Each kernel that convolutions use has a plan that launches it; [`all_right`] says how many are run. Kernels that gave right
/// results are added to the file `WAVE32_TEST_KERNELS`, if that is set.
#[test]
fn every_kernel_of_convolutions_is_right() {
    let Some(mut device) = open() else { return };
    // What is compiled for RDNA1 only is for operations besides convolution.
    let of_others = |v: &Variant| v.defines.contains_key("RDNA1") || is_of_products(v);
    let has_matrix = device.caps().float16_matrix;
    let runs = |v: &&Variant| !of_others(v) && (has_matrix || !v.is_matrix());
    let kernels: Vec<&Variant> = variants::all().iter().filter(runs).collect();
    let plans = cheapest(&kernels, device.as_ref());
    let missing: Vec<&str> =
        kernels.iter().map(|v| v.name.as_str()).filter(|name| !plans.contains_key(name)).collect();
    assert!(missing.is_empty(), "no plan launches {missing:?}");
    all_right(device.as_mut(), &plans);
}

/// One kernel of so many runs where a part is enough.
const PART: usize = 24;

/// Runs each kernel's plan, or one of [`PART`].
fn all_right(device: &mut dyn PlanDevice, plans: &BTreeMap<&'static str, Plan>) {
    let mut rng = random();
    let plans = Part::of(device.info().kind).pick_one_of(PART, plans, &mut rng);
    let (mut failures, mut right) = (Vec::new(), String::new());
    for &(name, plan) in &plans {
        let errors = [error_of(device, plan, &mut rng), error_of_sum(device, plan, &mut rng).unwrap_or(0.0)];
        match errors.iter().all(|&error| error <= normwise(plan.problem.dtype(), plan.solver)) {
            true => right += &format!("{name}\n"),
            false => failures
                .push(format!("{name}: {}: {} {}: {errors:?}", plan.problem, plan.solver, plan.config)),
        }
    }
    if let Some(file) = std::env::var_os("WAVE32_TEST_KERNELS") {
        let mut file = std::fs::File::options().append(true).create(true).open(file).unwrap();
        file.write_all(right.as_bytes()).unwrap();
    }
    assert!(failures.is_empty(), "{} of {} wrong:\n{}", failures.len(), plans.len(), failures.join("\n"));
}

/// Whether only products use it: tiles whose sum runs through images are for the gradients of filters, those of planes for Winograd.
fn is_of_products(variant: &Variant) -> bool {
    let of_convolutions = variant.defines.contains_key("IMAGES") || variant.is_of_planes();
    OF_PRODUCTS.contains(&variant.source.as_str()) && !of_convolutions
}

/// Each kernel that only products use, as [`every_kernel_of_convolutions_is_right`].
#[test]
fn every_kernel_of_products_is_right() {
    let Some(mut device) = open() else { return };
    let skinny = ["rows", "columns", "outer"].map(|form| ["a", "b"].map(|side| format!("{form}-{side}/1")));
    let tiles = variants::all().iter().filter(|v| v.source == "gemm").map(|v| format!("{}/1", v.tag));
    let configs = skinny.as_flattened().iter().cloned().chain(tiles).collect::<BTreeSet<_>>();
    let mut plans = BTreeMap::new();
    // Few rows or terms and up to 16; rows of a length for vectors, and odd ones.
    for [m, n, k] in [[3, 68, 36], [13, 72, 40], [13, 67, 37], [68, 72, 3], [68, 72, 13], [67, 71, 13]] {
        for (word, u, v) in ["gemm", "gemmfp16", "gemmbfp16"]
            .into_iter()
            .flat_map(|word| [(word, 0, 0), (word, 0, 1), (word, 1, 0)])
        {
            let line = format!("MIOpenDriver {word} -m {m} -n {n} -k {k} -u {u} -v {v}");
            for problem in wave32_problem::parse_line(&line).unwrap() {
                for (only, config) in
                    OF_PRODUCTS.into_iter().flat_map(|only| configs.iter().map(move |c| (only, c)))
                {
                    let fp16_accumulation = Fp16Accumulation::Always;
                    let policy = Policy {
                        only: Some(only.into()),
                        config: Some(config.clone()),
                        fp16_accumulation,
                        ..Policy::default()
                    };
                    for plan in wave32_solve::plans(&problem, device.caps(), &policy) {
                        let kernels = plan.launches.iter().map(|launch| launch.kernel.clone());
                        for kernel in kernels.collect::<Vec<_>>() {
                            let variant =
                                variants::all().iter().find(|v| kernel == v.name).expect("a variant");
                            plans.entry(variant.name.as_str()).or_insert_with(|| plan.clone());
                        }
                    }
                }
            }
        }
    }
    let has_matrix = device.caps().float16_matrix;
    let kernels = variants::all().iter().filter(|v| is_of_products(v) && (has_matrix || !v.is_matrix()));
    let missing: Vec<&str> =
        kernels.map(|v| v.name.as_str()).filter(|name| !plans.contains_key(name)).collect();
    assert!(missing.is_empty(), "no plan launches {missing:?}");
    all_right(device.as_mut(), &plans);
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
