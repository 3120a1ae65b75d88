//! Sums in f16: their range, and who allows them.

use crate::common::{error_on, open, random};
use rand::Rng;
use wave32_params::variants::{self, Variant};
use wave32_problem::{ConvProblem, ConvSpec, DType, Direction};
use wave32_solve::{Fp16Accumulation, Plan, Policy, Role};
use wave32_testing::Part;

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
    // How many of a row's configurations take its pass: both kinds of sums, or Winograd's in f16.
    let all = [
        (Direction::Forward, &forward[..], &spec, of_spec, 2),
        (Direction::BackwardData, &backward, &spec, of_spec, 2),
        (Direction::BackwardWeights, &weights, &spec, of_spec, 2),
        // Of a first layer, only the gradients have kernels that sum in f16.
        (Direction::BackwardData, &backward, &first_layer, of_first, 2),
        (Direction::BackwardWeights, &weights, &first_layer, of_first, 2),
        (Direction::Forward, &forward, &spec, of_planes, 1),
        (Direction::BackwardData, &backward, &spec, of_planes, 1),
        (Direction::BackwardWeights, &weights, &larger, of_planes, 1),
    ];
    let all = Part::of(device.info().kind).pick(all, 4, &mut rng);
    let (mut failures, mut runs) = (Vec::new(), 0);
    let expected: usize = all.iter().map(|(_, cases, _, _, kinds)| cases.len() * kinds).sum();
    for (direction, cases, spec, configs, _) in all {
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
    assert_eq!(runs, expected, "each case on each kind of sums");
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
            (Fp16Accumulation::Matmul, false),
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
