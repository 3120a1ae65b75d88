//! The solver table and the choice among its rows.

use crate::tuned::tuned;
use crate::{DeviceCaps, Plan, Policy, Role, cost};
use serde::Serialize;
use std::fmt;
use wave32_problem::{ConvProblem, MatmulProblem, Problem};

/// Why a solver does not take a problem: a stable name and the numbers behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Stable, kebab-case: `not-pointwise`, `tensor-too-large`, ...
    pub name: &'static str,
    /// What was found, for people.
    pub detail: String,
}

impl Refusal {
    /// A refusal with its reason's name and detail.
    pub fn new(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, detail: detail.into() }
    }
}

/// One way a solver can do a problem, with its price.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The plan.
    pub plan: Plan,
    /// Modelled seconds on the device asked for.
    pub cost: f64,
}

/// A way to compute a problem. Stateless and pure: looks at numbers only.
///
/// Convolutions reach a solver in plain form ([`ConvProblem::to_plain`]); plans are in its terms and
/// [`plans`] turns them back.
pub trait Solver<P = ConvProblem>: Sync {
    /// Stable name, by which it is forced and skipped.
    fn name(&self) -> &'static str;

    /// Can it do this at all?
    ///
    /// # Errors
    /// The refusal: its name and the numbers behind it.
    fn applicable(&self, problem: &P, caps: &DeviceCaps) -> Result<(), Refusal>;

    /// The plan that [`cost`] finds the best of those within the workspace cap.
    ///
    /// # Errors
    /// The refusal, where no configuration fits the policy.
    fn plan(&self, problem: &P, caps: &DeviceCaps, policy: &Policy) -> Result<Plan, Refusal>;
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SolveError {
    /// The policy names what does not exist.
    #[error("{0}")]
    Policy(String),
    /// Every solver refused; the text lists each with its reason.
    #[error("no solver takes `{problem}`: {reasons}")]
    Refused {
        /// The problem's line.
        problem: String,
        /// `name: reason; ...`
        reasons: String,
    },
}

/// What became of one row of the table.
#[derive(Debug, Clone, Serialize)]
pub enum Outcome {
    /// Not asked, by policy.
    Skipped,
    /// It cannot.
    Refused(Refusal),
    /// It can, at this modelled cost in seconds.
    Applicable {
        /// Modelled seconds.
        cost: f64,
        /// The configuration it would use.
        config: String,
        /// Workspace bytes of that.
        workspace_bytes: u64,
    },
}

/// The whole chain of a choice.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// The problem.
    pub problem: Problem,
    /// Each solver in table order with what became of it.
    pub rows: Vec<(&'static str, Outcome)>,
    /// The plan that runs, with its modelled seconds; none if all refused.
    pub chosen: Option<(Plan, f64)>,
    /// The capabilities it was chosen for.
    pub caps: DeviceCaps,
}

/// A row of a table: a solver's name, and what it can do.
pub type Row = (&'static str, Result<Candidate, Outcome>);

/// What there is a solver table for.
pub trait Solvable {
    /// What each solver of the table answers.
    fn rows(&self, caps: &DeviceCaps, policy: &Policy) -> Vec<Row>;
    /// The problem itself.
    fn problem(&self) -> Problem;
}

impl Solvable for ConvProblem {
    fn rows(&self, caps: &DeviceCaps, policy: &Policy) -> Vec<Row> {
        let plain = self.to_plain();
        crate::solvers::with_conv_solvers(&plain, caps, |table| {
            answers(table, &plain, caps, policy, |plan| to_callers_terms(plan, self))
        })
    }

    fn problem(&self) -> Problem {
        self.clone().into()
    }
}

impl Solvable for MatmulProblem {
    fn rows(&self, caps: &DeviceCaps, policy: &Policy) -> Vec<Row> {
        answers(crate::matmul_solvers(), self, caps, policy, |plan| plan)
    }

    fn problem(&self) -> Problem {
        self.clone().into()
    }
}

impl Solvable for Problem {
    fn rows(&self, caps: &DeviceCaps, policy: &Policy) -> Vec<Row> {
        match self {
            Self::Conv(problem) => problem.rows(caps, policy),
            Self::Matmul(problem) => problem.rows(caps, policy),
        }
    }

    fn problem(&self) -> Problem {
        self.clone()
    }
}

/// What each solver answers. A policy that wants one solver alone holds for the tables that have it.
fn answers<P>(
    table: &[&dyn Solver<P>],
    problem: &P,
    caps: &DeviceCaps,
    policy: &Policy,
    finish: impl Fn(Plan) -> Plan,
) -> Vec<Row> {
    let only = policy.only.as_deref().filter(|only| table.iter().any(|solver| solver.name() == *only));
    let is_elsewhere = policy.only.is_some() && only.is_none();
    let policy = &Policy {
        config: policy.config.clone().filter(|_| !is_elsewhere),
        workspace_cap: Some(policy.workspace_cap.unwrap_or_else(|| caps.workspace_cap())),
        ..policy.clone()
    };
    let answer = |solver: &&dyn Solver<P>| {
        let name = solver.name();
        if only.is_some_and(|only| only != name) || policy.skip.iter().any(|skipped| skipped == name) {
            return (name, Err(Outcome::Skipped));
        }
        let result = solver.applicable(problem, caps).and_then(|()| solver.plan(problem, caps, policy));
        let candidate = |plan: Plan| Candidate { cost: cost(&plan, caps), plan: finish(plan) };
        (name, result.map(candidate).map_err(Outcome::Refused))
    };
    table.iter().map(answer).collect()
}

/// Undoes [`ConvProblem::to_plain`]: the plain problem's x is a transposed problem's y.
fn to_callers_terms(mut plan: Plan, problem: &ConvProblem) -> Plan {
    if problem.spec().transposed {
        for binding in plan.launches.iter_mut().flat_map(|l| &mut l.bindings) {
            binding.role = match binding.role {
                Role::X => Role::Y,
                Role::Y => Role::X,
                other => other,
            };
        }
    }
    plan.problem = problem.problem();
    plan
}

/// Every applicable solver's best plan, cheapest first; ties keep the table's order. What was measured comes before.
pub fn plans<P: Solvable>(problem: &P, caps: &DeviceCaps, policy: &Policy) -> Vec<Plan> {
    ranked(problem, caps, policy).into_iter().map(|c| c.plan).collect()
}

/// As [`plans`], each with its price.
pub fn ranked<P: Solvable>(problem: &P, caps: &DeviceCaps, policy: &Policy) -> Vec<Candidate> {
    let mut found: Vec<Candidate> =
        problem.rows(caps, policy).into_iter().filter_map(|(_, result)| result.ok()).collect();
    found.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    if let Some(best) = tuned(problem, caps, policy) {
        let other = |c: &Candidate| (c.plan.solver, &c.plan.config) != (best.plan.solver, &best.plan.config);
        found.retain(other);
        found.insert(0, best);
    }
    found
}

/// The plan to run.
///
/// # Errors
/// [`SolveError::Refused`] with every solver's reason; [`SolveError::Policy`] for unknown names.
pub fn plan<P: Solvable>(problem: &P, caps: &DeviceCaps, policy: &Policy) -> Result<Plan, SolveError> {
    policy.check()?;
    let explanation = explain(problem, caps, policy);
    match explanation.chosen {
        Some((plan, _)) => Ok(plan),
        None => Err(SolveError::Refused {
            problem: problem.problem().to_string(),
            reasons: explanation.reasons(),
        }),
    }
}

/// How the choice comes about.
pub fn explain<P: Solvable>(problem: &P, caps: &DeviceCaps, policy: &Policy) -> Explanation {
    let mut chosen: Option<(Plan, f64)> = None;
    let mut rows = Vec::new();
    for (name, result) in problem.rows(caps, policy) {
        let outcome = match result {
            Ok(Candidate { plan, cost }) => {
                let (config, workspace_bytes) = (plan.config.clone(), plan.workspace_bytes);
                if chosen.as_ref().is_none_or(|(_, best)| cost < *best) {
                    chosen = Some((plan, cost));
                }
                Outcome::Applicable { cost, config, workspace_bytes }
            }
            Err(outcome) => outcome,
        };
        rows.push((name, outcome));
    }
    if let Some(Candidate { plan, cost }) = tuned(problem, caps, policy) {
        chosen = Some((plan, cost));
    }
    Explanation { problem: problem.problem(), rows, chosen, caps: caps.clone() }
}

impl Explanation {
    fn reasons(&self) -> String {
        let reason = |(name, outcome): &(&str, Outcome)| match outcome {
            Outcome::Skipped => format!("{name}: skipped by policy"),
            Outcome::Refused(r) => format!("{name}: {} ({})", r.name, r.detail),
            Outcome::Applicable { .. } => format!("{name}: applicable"),
        };
        self.rows.iter().map(reason).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = &self.problem;
        let (flops, bytes) = (p.flops(), p.bytes());
        writeln!(f, "{p}")?;
        writeln!(f, "  {:.4} GFLOP, {:.3} MB to move at least", flops as f64 / 1e9, bytes as f64 / 1e6)?;
        writeln!(f, "solvers")?;
        for (name, outcome) in &self.rows {
            match outcome {
                Outcome::Skipped => writeln!(f, "  {name:<17} skipped by policy")?,
                Outcome::Refused(r) => writeln!(f, "  {name:<17} refused: {} ({})", r.name, r.detail)?,
                Outcome::Applicable { cost, config, workspace_bytes } => writeln!(
                    f,
                    "  {name:<17} {:>10.1} us modelled, {config}, workspace {workspace_bytes} B",
                    cost * 1e6
                )?,
            }
        }
        let Some((plan, cost)) = &self.chosen else {
            return writeln!(f, "no plan");
        };
        let tuned = if plan.tuned { ", tuned: the fastest that `wave32 tune` measured" } else { "" };
        writeln!(f, "plan: {} {}, workspace {} B{tuned}", plan.solver, plan.config, plan.workspace_bytes)?;
        for (launch, waits) in plan.launches.iter().zip(plan.waits()) {
            let [x, y, z] = launch.grid;
            let after = if waits { ", after the one before" } else { "" };
            writeln!(f, "  {} grid {x}x{y}x{z}{after}", launch.kernel)?;
        }
        if let Some(prepared) = plan.prepared.filter(|prepared| prepared.launches > 0) {
            let (first, bytes) = (prepared.launches, prepared.bytes);
            writeln!(
                f,
                "  the first {first} prepare the filters ({bytes} B): kept where those stay as they are"
            )?;
        }
        let (compute, memory) = self.caps.floors(flops, bytes);
        writeln!(
            f,
            "modelled {:.1} us; floors: {:.1} us arithmetic, {:.1} us memory",
            cost * 1e6,
            compute * 1e6,
            memory * 1e6
        )
    }
}
