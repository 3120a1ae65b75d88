//! Problems, and the plans that solvers can make of them.

use std::collections::HashSet;
use wave32_problem::{DType, Direction, Problem, parse_line};
use wave32_solve::{Candidate, DeviceCaps, Fp16Accumulation, Plan, Policy, candidates};
use wave32_verify::suites;

/// Products of matrices: of transformers and classifiers, all orders, thin ones.
const PRODUCTS: [&str; 12] = [
    "gemm -m 4096 -k 4096 -n 4096",
    "gemm -m 1024 -k 768 -n 3072",
    "gemm -m 512 -k 512 -n 512 -v 1",
    "gemm -m 2048 -k 1024 -n 1024 -v 1",
    "gemm -m 768 -k 2048 -n 768 -u 1",
    "gemm -b 12 -m 197 -k 64 -n 197 -v 1",
    "gemm -b 16 -m 1024 -k 64 -n 1024 -v 1",
    "gemm -b 16 -m 1024 -k 1024 -n 64",
    "gemm -m 8 -k 4096 -n 4096 -v 1",
    "gemm -m 1 -k 2048 -n 1000 -v 1",
    "gemm -m 4096 -k 16 -n 4096",
    "gemm -m 256 -k 512 -n 128 -u 1 -v 1",
];

/// Convolutions of groups of few channels, all passes: the suites have one.
const GROUPED: [&str; 7] = [
    "conv -n 12 -c 128 -H 56 -W 56 -k 128 -y 3 -x 3 -p 1 -q 1 -g 16",
    "conv -n 12 -c 256 -H 28 -W 28 -k 256 -y 3 -x 3 -p 1 -q 1 -g 16",
    "conv -n 12 -c 512 -H 14 -W 14 -k 512 -y 3 -x 3 -p 1 -q 1 -g 16",
    "conv -n 12 -c 256 -H 56 -W 56 -k 256 -y 3 -x 3 -p 1 -q 1 -u 2 -v 2 -g 32",
    "conv -n 12 -c 512 -H 28 -W 28 -k 512 -y 3 -x 3 -p 1 -q 1 -u 2 -v 2 -g 32",
    "conv -n 4 -c 144 -H 60 -W 60 -k 96 -y 3 -x 3 -p 1 -q 1 -u 2 -v 2 -g 12",
    "conv -n 4 -c 96 -H 30 -W 30 -k 144 -y 3 -x 3 -p 1 -q 1 -g 24",
];

/// A problem with its layer's name.
pub struct Named {
    pub name: String,
    pub problem: Problem,
}

/// All passes of the suites `shapes` and `nets`, each problem once.
pub fn suite(dtype: DType) -> Result<Vec<Named>, String> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for word in ["shapes", "nets"] {
        for entry in suites::select(word).map_err(|e| e.to_string())? {
            for direction in Direction::ALL {
                let problem = entry.pass(direction, Some(dtype)).map_err(|e| e.to_string())?;
                if seen.insert(problem.to_string()) {
                    found.push(Named { name: format!("{word}/{}", entry.label), problem });
                }
            }
        }
    }
    Ok(found)
}

/// The products, and the grouped convolutions.
pub fn lines(dtype: DType) -> Result<Vec<Named>, String> {
    let mut found = Vec::new();
    for line in PRODUCTS.iter().chain(&GROUPED) {
        for problem in parse_line(&format!("MIOpenDriver {line}")).map_err(|e| format!("{line}: {e}"))? {
            let problem = problem.with_dtype(dtype).map_err(|e| e.to_string())?;
            found.push(Named { name: (*line).to_string(), problem });
        }
    }
    Ok(found)
}

/// Every way to do a problem that is not `slower` times the best one's price.
pub fn plans(problem: &Problem, caps: &DeviceCaps, slower: f64) -> Vec<Candidate> {
    let policy = Policy { fp16_accumulation: Fp16Accumulation::Always, ..Policy::default() };
    let mut all = candidates(problem, caps, &policy);
    let best = all.iter().map(|candidate| candidate.cost).fold(f64::INFINITY, f64::min);
    let chosen = all.first().map_or(0.0, |candidate| candidate.cost);
    let best = best.max(chosen / slower);
    all.retain(|candidate| candidate.cost <= slower * best);
    all
}

/// What a plan is called.
pub fn name(plan: &Plan) -> String {
    format!("{} {}", plan.solver, plan.config)
}
