//! Every way to do a problem: for tuning, and for judging the choice.

use crate::solvers::offered;
use crate::{Candidate, DeviceCaps, Policy, Solvable};
use std::collections::BTreeSet;
use wave32_params::variants;

/// Sources whose solvers may choose a variant by a rule: a configuration there begins with a variant's tag.
const BY_RULE: [&str; 4] = ["direct", "direct_wrw", "igemm", "wrw"];

/// Every configuration of every solver within the policy: the one that the table chooses, then the cheapest first. A solver
/// that chooses by a rule may have a cheaper one than it chooses.
pub fn candidates<P: Solvable>(problem: &P, caps: &DeviceCaps, policy: &Policy) -> Vec<Candidate> {
    let chosen = problem.rows(caps, policy);
    let mut found: Vec<Candidate> = Vec::new();
    let mut first: Option<(f64, (&str, String))> = None;
    for (name, best) in chosen.into_iter().filter_map(|(name, row)| Some((name, row.ok()?))) {
        if first.as_ref().is_none_or(|(least, _)| best.cost < *least) {
            first = Some((best.cost, (name, best.plan.config.clone())));
        }
        let only = Policy { only: Some(name.into()), ..policy.clone() };
        let mut configs = offered(|| drop(problem.rows(caps, &only)));
        if policy.config.is_none() {
            let tags = BY_RULE.iter().flat_map(|source| variants::of(source, problem.problem().dtype()));
            configs.extend(tags.map(|variant| variant.tag.clone()));
        }
        configs.insert(best.plan.config.clone());
        let mut seen = BTreeSet::new();
        for config in configs {
            let policy = Policy { config: Some(config), ..only.clone() };
            let rows = problem.rows(caps, &policy).into_iter();
            let made = rows.filter_map(|(_, row)| row.ok());
            found.extend(made.filter(|candidate| seen.insert(candidate.plan.config.clone())));
        }
    }
    found.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    let is_first = |candidate: &Candidate| {
        first.as_ref().is_some_and(|(_, (name, config))| {
            (candidate.plan.solver, &candidate.plan.config) == (*name, config)
        })
    };
    if let Some(at) = found.iter().position(is_first) {
        found[..=at].rotate_right(1);
    }
    found
}
