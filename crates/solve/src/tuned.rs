//! What was measured on this very device: for single problems, a solver and its configuration that are taken before the
//! model's choice.

use crate::{Candidate, DeviceCaps, Policy, Solvable};
use std::collections::BTreeMap;
use std::sync::Arc;
use wave32_problem::{ConvProblem, ConvSpec, Epilogue, Problem};

/// A solver and its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The solver's name.
    pub solver: String,
    /// As [`crate::Plan::config`] prints it.
    pub config: String,
}

/// Choices by the problem's [`key`]. Copies share them.
#[derive(Debug, Clone, Default)]
pub struct Tuned(Option<Arc<BTreeMap<String, Choice>>>);

impl Tuned {
    /// These choices.
    pub fn new(choices: BTreeMap<String, Choice>) -> Self {
        Self((!choices.is_empty()).then(|| Arc::new(choices)))
    }

    /// How many problems have one.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |choices| choices.len())
    }

    /// No problem has one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl PartialEq for Tuned {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
            (a, b) => a.is_none() && b.is_none(),
        }
    }
}

/// What a problem's choice is kept by: its line, whatever a convolution's post-ops are.
pub fn key(problem: &Problem) -> String {
    let Problem::Conv(conv) = problem else { return problem.to_string() };
    let plain = ConvSpec { epilogue: Epilogue::default(), ..conv.spec().clone() };
    ConvProblem::new(plain).map_or_else(|_| problem.to_string(), |plain| plain.to_string())
}

/// The plan that was measured to be the best, where the policy leaves the choice free and allows it.
pub fn tuned<P: Solvable>(problem: &P, caps: &DeviceCaps, policy: &Policy) -> Option<Candidate> {
    let choices = caps.tuned.0.as_ref().filter(|_| policy.only.is_none() && policy.config.is_none())?;
    let choice = choices.get(&key(&problem.problem()))?;
    if policy.skip.contains(&choice.solver) {
        return None;
    }
    let (only, config) = (Some(choice.solver.clone()), Some(choice.config.clone()));
    let rows = problem.rows(caps, &Policy { only, config, ..policy.clone() });
    // A solver or a configuration that is not there any more, or needs too much workspace, leaves the choice to the model.
    let mut found =
        rows.into_iter().filter(|(name, _)| *name == choice.solver).find_map(|(_, row)| row.ok())?;
    found.plan.tuned = true;
    Some(found)
}
