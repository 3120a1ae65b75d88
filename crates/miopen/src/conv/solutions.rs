//! What Find and Immediate mode answer: every solver that takes a problem, its price and workspace, from the solver table
//! alone.

use crate::abi::entry::{Failure, Outcome};
use crate::abi::ffi::algorithm;
use crate::conv::proven::Proven;
use crate::conv::rewriting::Pieces;
use std::ffi::c_int;
use std::sync::Arc;
use wave32_ops::{Planner, PricedPlan};
use wave32_problem::ConvProblem;
use wave32_solve::{DeviceCaps, Plan};

/// Each solver's number and algorithm. Numbers are for ever: programs keep them.
const SOLVERS: [(&str, u64, c_int); 8] = [
    ("gemm_1x1", 3_200_001, algorithm::GEMM),
    ("igemm_packed", 3_200_002, algorithm::IMPLICIT_GEMM),
    ("igemm", 3_200_003, algorithm::IMPLICIT_GEMM),
    ("im2col_gemm", 3_200_004, algorithm::GEMM),
    ("direct", 3_200_005, algorithm::DIRECT),
    ("winograd", 3_200_006, algorithm::WINOGRAD),
    ("direct_few", 3_200_007, algorithm::DIRECT),
    ("gemm_1x1_unpacked", 3_200_008, algorithm::GEMM),
];

/// The plan's solver where the vendor computes: its `config` is the vendor's solver, and it launches nothing of ours.
const VENDOR: &str = "vendor";

/// The algorithm of the solver with that number.
///
/// # Errors
/// Bad parameter where no solver has that number.
pub fn algorithm_of(solver: u64) -> Outcome<c_int> {
    let row = SOLVERS.iter().find(|row| row.1 == solver);
    row.map(|row| row.2).ok_or_else(|| Failure::bad(format!("no solver has the number {solver}")))
}

/// One way to do a problem.
#[derive(Debug, Clone)]
pub struct Solution {
    /// The solver's number.
    pub id: u64,
    /// `miopenConvAlgorithm_t`.
    pub algorithm: c_int,
    /// Modelled milliseconds.
    pub milliseconds: f32,
    /// What runs.
    pub plan: Arc<Plan>,
    /// The vendor's: the pieces of the problem rewritten for it, and what it wants of the workspace itself.
    pub rewritten: Option<(Arc<Pieces>, u64)>,
}

impl Solution {
    /// Workspace bytes.
    pub fn workspace(&self) -> u64 {
        self.plan.workspace_bytes
    }

    /// A solver of the vendor's, with its measured time.
    fn proven(problem: &ConvProblem, proven: &Proven, pieces: Pieces, milliseconds: f32) -> Self {
        let plan = Plan {
            problem: problem.clone().into(),
            solver: VENDOR,
            config: proven.solver.clone(),
            tuned: false,
            workspace_bytes: pieces.workspace(proven.workspace_bytes),
            launches: Vec::new(),
            prepared: None,
        };
        let Proven { id, algorithm, rewriting, workspace_bytes, .. } = *proven;
        let rewritten = rewriting.is_some().then(|| (Arc::new(pieces), workspace_bytes));
        Self { id, algorithm, milliseconds, plan: Arc::new(plan), rewritten }
    }

    /// True where the vendor computes.
    pub fn is_vendors(&self) -> bool {
        self.plan.solver == VENDOR
    }
}

/// All ways to do one problem, fastest first by the model. Some need no workspace.
#[derive(Debug)]
pub struct Solutions(Vec<Solution>);

impl Solutions {
    /// The planner's for that card, and the vendor's proven solver if it is the fastest.
    ///
    /// # Errors
    /// Not implemented, with every solver's reason.
    pub fn new(
        planner: &mut Planner,
        caps: &DeviceCaps,
        proven: &[Proven],
        problem: &ConvProblem,
    ) -> Outcome<Self> {
        let mut ranked = planner.ranked(caps, problem, false)?.to_vec();
        if ranked.iter().any(|found| found.plan.workspace_bytes > 0) {
            ranked.extend(planner.ranked(caps, problem, true).iter().flat_map(|frugal| frugal.to_vec()));
        }
        let mut solutions: Vec<Solution> = Vec::new();
        for PricedPlan { plan, seconds, .. } in ranked {
            let Some(&(_, id, algorithm)) = SOLVERS.iter().find(|row| row.0 == plan.solver) else { continue };
            let same = |solution: &Solution| solution.id == id && solution.plan.config == plan.config;
            if !solutions
                .iter()
                .any(|solution| same(solution) && solution.workspace() == plan.workspace_bytes)
            {
                solutions.push(Solution {
                    id,
                    algorithm,
                    milliseconds: (seconds * 1e3) as f32,
                    plan,
                    rewritten: None,
                });
            }
        }
        solutions.sort_by(|a, b| a.milliseconds.total_cmp(&b.milliseconds));
        let proven = proven.iter().filter_map(|proven| {
            let pieces = proven.rewriting.pieces(problem)?;
            let whole = proven.milliseconds + pieces.seconds(caps) * 1e3;
            Some((proven, pieces, whole as f32))
        });
        if let (Some((proven, pieces, whole)), Some(best)) =
            (proven.min_by(|a, b| a.2.total_cmp(&b.2)), solutions.first())
            && whole < best.milliseconds
        {
            solutions.insert(0, Solution::proven(problem, proven, pieces, whole));
        }
        Ok(Self(solutions))
    }

    /// The fastest of our own that needs no workspace.
    ///
    /// # Errors
    /// Bad parameter where every solution needs a workspace.
    pub fn own(&self) -> Outcome<&Solution> {
        let own = self.0.iter().find(|solution| !solution.is_vendors() && solution.workspace() == 0);
        own.ok_or_else(|| self.too_small(&self.0, 0))
    }

    /// Without the vendor's.
    pub fn ours(mut self) -> Self {
        self.0.retain(|solution| !solution.is_vendors());
        self
    }

    /// The fastest within so much workspace, one for each value of `key`, fastest first.
    fn each<K: PartialEq>(&self, workspace: u64, key: impl Fn(&Solution) -> K) -> Vec<&Solution> {
        let mut found: Vec<&Solution> = Vec::new();
        for solution in self.0.iter().filter(|solution| solution.workspace() <= workspace) {
            if !found.iter().any(|other| key(other) == key(solution)) {
                found.push(solution);
            }
        }
        found
    }

    /// The fastest of each algorithm within so much workspace: what Find answers.
    pub fn algorithms(&self, workspace: u64) -> Vec<&Solution> {
        self.each(workspace, |solution| solution.algorithm)
    }

    /// Each solver's fastest: the solutions of Immediate mode.
    pub fn each_solver(&self) -> Vec<&Solution> {
        self.each(u64::MAX, |solution| solution.id)
    }

    /// Each solver's fastest within so much workspace.
    pub fn within(&self, workspace: u64) -> Vec<&Solution> {
        self.each(workspace, |solution| solution.id)
    }

    /// Workspace that the fastest wants.
    pub fn workspace(&self) -> u64 {
        self.0.first().map_or(0, Solution::workspace)
    }

    /// What runs where Find's answer names an algorithm: its fastest within the workspace; where there is none, the
    /// fastest of any.
    pub fn by_algorithm(&self, algorithm: c_int, workspace: u64) -> Outcome<&Solution> {
        let fitting = self.algorithms(workspace);
        let named = fitting.iter().find(|solution| solution.algorithm == algorithm).or(fitting.first());
        named.copied().ok_or_else(|| self.too_small(&self.0, workspace))
    }

    /// The solution of that number.
    pub fn solution(&self, id: u64) -> Outcome<&Solution> {
        self.each_solver().into_iter().find(|solution| solution.id == id).ok_or_else(|| {
            let there: Vec<String> =
                self.each_solver().iter().map(|solution| solution.id.to_string()).collect();
            Failure::bad(format!("solution {id} is none of this problem's: {}", there.join(", ")))
        })
    }

    /// What runs of that solution within the workspace.
    pub fn by_solution(&self, id: u64, workspace: u64) -> Outcome<&Solution> {
        self.solution(id)?;
        let own = || self.0.iter().filter(|solution| solution.id == id);
        let fitting = own().find(|solution| solution.workspace() <= workspace);
        fitting.ok_or_else(|| self.too_small(own(), workspace))
    }

    fn too_small<'o>(&self, solutions: impl IntoIterator<Item = &'o Solution>, given: u64) -> Failure {
        let wanted = solutions.into_iter().map(Solution::workspace).min().unwrap_or(0);
        Failure::bad(format!("the workspace has {given} bytes, {wanted} are needed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wave32_problem::ConvSpec;
    use wave32_solve::usual_boards;

    #[test]
    fn every_solver_has_a_number_of_its_own() {
        let names: Vec<&str> = wave32_solve::solvers().iter().map(|solver| solver.name()).collect();
        for name in &names {
            assert!(SOLVERS.iter().any(|row| row.0 == *name), "{name}");
        }
        for (at, row) in SOLVERS.iter().enumerate() {
            assert!(names.contains(&row.0), "{} is gone", row.0);
            assert!(SOLVERS[at + 1..].iter().all(|other| other.1 != row.1));
        }
    }

    #[test]
    fn whatever_the_workspace_something_runs_and_it_is_what_was_named() {
        let caps = DeviceCaps::of(usual_boards()[0]);
        let mut planner = Planner::default();
        let base = ConvSpec { n: 4, c: 64, h: 28, w: 28, k: 64, ..ConvSpec::default() };
        for direction in wave32_problem::Direction::ALL {
            for (r, pad) in [(1, 0), (3, 1), (5, 2)] {
                let spec = ConvSpec { direction, r, s: r, pad: [pad, pad], ..base.clone() };
                let problem = ConvProblem::new(spec).unwrap();
                let solutions = Solutions::new(&mut planner, &caps, &[], &problem).unwrap();
                for given in [0, 1, 4096, 1 << 20, solutions.workspace(), u64::MAX] {
                    let found = solutions.algorithms(given);
                    assert!(!found.is_empty() && found.iter().all(|solution| solution.workspace() <= given));
                    for solution in found {
                        let runs = solutions.by_algorithm(solution.algorithm, solution.workspace()).unwrap();
                        assert!(Arc::ptr_eq(&runs.plan, &solution.plan), "{problem}");
                    }
                }
                assert!(solutions.by_algorithm(99, 0).is_ok(), "an algorithm that is not there");
                for solution in solutions.each_solver() {
                    let runs = solutions.by_solution(solution.id, solution.workspace()).unwrap();
                    assert!(Arc::ptr_eq(&runs.plan, &solution.plan), "{problem}");
                }
                assert!(solutions.solution(1).unwrap_err().message.contains("3200"), "numbers are listed");
            }
        }
    }
}
