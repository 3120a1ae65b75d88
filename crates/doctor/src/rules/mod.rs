//! What can be wrong, as one table: each row says what it means, for which routes, by which source, and how it
//! is put right. A check is pure: facts in, evidence out.

mod card;
mod leftover;
mod manager;
pub(crate) mod own;
mod runtime;
mod spoof;
pub(crate) mod stack;
mod variable;
mod vulkan;
mod wsl;

use crate::facts::Facts;
use crate::finding::{Finding, Rule};

/// Every rule, in groups: card and kernel, WSL, spoof, variables, ROCm and PyTorch, run time, Vulkan, leftovers.
pub fn table() -> impl Iterator<Item = &'static Rule> {
    let groups = [
        card::RULES,
        wsl::RULES,
        spoof::RULES,
        variable::RULES,
        stack::RULES,
        own::RULES,
        runtime::RULES,
        vulkan::RULES,
        leftover::RULES,
    ];
    groups.into_iter().flatten()
}

/// Applies every rule; worst first, in the table's order among equals.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let found = table().flat_map(|rule| {
        (rule.check)(facts).into_iter().map(|found| Finding {
            rule: rule.id,
            severity: rule.severity,
            routes: rule.routes.to_vec(),
            what: found.what,
            evidence: found.evidence,
            meaning: rule.meaning,
            source: rule.source,
            fix: found.fix,
        })
    });
    let mut found: Vec<Finding> = found.collect();
    found.sort_by_key(|f| f.severity);
    found
}
