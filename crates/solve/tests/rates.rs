//! The table of `rates.tsv` has what solvers launch.

use std::collections::BTreeSet;
use wave32_problem::{DType, parse_line};
use wave32_solve::rates::find;
use wave32_solve::{Candidate, Compiler, DeviceCaps, Fp16Accumulation, Policy, candidates, usual_boards};

/// Networks' usual layers: a stem, 3x3 of one and two strides, 1x1, grouped, depthwise, dilated; products.
const LINES: [&str; 11] = [
    "conv -n 4 -c 3 -H 224 -W 224 -k 64 -y 7 -x 7 -p 3 -q 3 -u 2 -v 2 -F 7",
    "conv -n 1 -c 3 -H 64 -W 64 -k 64 -y 3 -x 3 -p 1 -q 1 -F 7",
    "conv -n 4 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 7",
    "conv -n 1 -c 256 -H 14 -W 14 -k 256 -y 3 -x 3 -p 1 -q 1 -u 2 -v 2 -F 7",
    "conv -n 4 -c 256 -H 28 -W 28 -k 512 -y 1 -x 1 -F 7",
    "conv -n 4 -c 128 -H 28 -W 28 -k 128 -y 3 -x 3 -p 1 -q 1 -g 32 -F 7",
    "conv -n 4 -c 96 -H 56 -W 56 -k 96 -y 3 -x 3 -p 1 -q 1 -g 96 -F 7",
    "conv -n 1 -c 128 -H 32 -W 32 -k 128 -y 3 -x 3 -p 2 -q 2 -l 2 -j 2 -F 7",
    "gemm -m 512 -k 512 -n 512",
    "gemm -m 512 -k 768 -n 768 -v 1",
    "gemm -m 4 -k 2048 -n 1000 -v 1",
];

/// Large layers: far from what was simulated for the table.
const LARGE: [&str; 5] = [
    "conv -n 12 -c 64 -H 224 -W 224 -k 64 -y 3 -x 3 -p 1 -q 1 -F 7",
    "conv -n 12 -c 64 -H 112 -W 112 -k 128 -y 3 -x 3 -p 1 -q 1 -F 7",
    "conv -n 32 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 7",
    "conv -n 2 -c 64 -H 512 -W 512 -k 64 -y 3 -x 3 -p 1 -q 1 -F 7",
    "conv -n 4 -c 128 -H 256 -W 256 -k 96 -y 5 -x 5 -p 2 -q 2 -F 7",
];

/// Calls `each` with the plans for every pass, type and compiler.
fn for_all<'l>(
    lines: impl IntoIterator<Item = &'l &'static str>,
    mut each: impl FnMut(&str, &DeviceCaps, Vec<Candidate>),
) {
    let policy = Policy { fp16_accumulation: Fp16Accumulation::Always, ..Policy::default() };
    for line in lines {
        for problem in parse_line(&format!("MIOpenDriver {line}")).unwrap() {
            for dtype in DType::ALL {
                let problem = problem.with_dtype(dtype).unwrap();
                for compiler in [Compiler::Aco, Compiler::Llvm] {
                    let caps = DeviceCaps { compiler, ..DeviceCaps::of(usual_boards()[1]) };
                    let what = format!("{line} {dtype:?} {compiler:?}");
                    each(&what, &caps, candidates(&problem, &caps, &policy));
                }
            }
        }
    }
}

#[test]
fn every_variant_that_may_be_chosen_has_rates_for_both_compilers() {
    let mut missing = BTreeSet::new();
    for_all(&LINES, |_, caps, all| {
        // Those near the best: what nobody would take may be left out.
        let least = all.iter().map(|c| c.cost).fold(f64::INFINITY, f64::min);
        let near = all.into_iter().filter(|candidate| candidate.cost < 1.5 * least);
        let kernels = near.flat_map(|candidate| candidate.plan.launches);
        missing.extend(kernels.map(|l| l.kernel).filter(|k| find(k, caps.compiler).is_none()));
    });
    assert!(missing.is_empty(), "rates.tsv lacks {missing:?}: `make rates` (docs/model.md)");
}

#[test]
fn no_launch_is_priced_below_its_arithmetic() {
    for_all(LINES.iter().chain(&LARGE), |what, caps, all| {
        let lanes = f64::from(caps.compute_units) * f64::from(caps.fma_per_clock);
        let peak = lanes * f64::from(caps.clock_mhz) * 1e6;
        for found in all {
            let launches = &found.plan.launches;
            // Two to an instruction in f16 at most.
            let packed = if launches.iter().any(|l| l.kernel.contains("_h")) { 2.0 } else { 1.0 };
            let multiply_adds: u64 = launches.iter().map(|l| l.flops / 2).sum();
            let floor = multiply_adds as f64 / (peak * packed);
            let kernels: Vec<&str> = launches.iter().map(|l| &*l.kernel).collect();
            assert!(
                found.cost >= 0.9 * floor,
                "{what} {kernels:?}: {:.0} us, its arithmetic takes {:.0}",
                found.cost * 1e6,
                floor * 1e6
            );
        }
    });
}
