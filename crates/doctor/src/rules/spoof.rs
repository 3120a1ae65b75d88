//! `HSA_OVERRIDE_GFX_VERSION`: claiming to be another card.

use super::variable::unset;
use crate::facts::{Facts, Variable};
use crate::finding::{Found, Rule, Severity};
use wave32_cards::targets;
use wave32_profile::Route;

const THUNK: &str = "https://github.com/ROCm/ROCR-Runtime/blob/amd-staging/libhsakmt/src/topology.c";
const LLVM: &str = "https://llvm.org/docs/AMDGPUUsage.html#generic-processor-code-object";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "spoof-across-families",
        severity: Severity::Harmful,
        routes: &[Route::Rocm],
        meaning: "It makes ROCm run code of another instruction set on this card. It seems to work, then hangs, faults \
                  (aperture violation) or computes wrongly: on RDNA1 MIOpen's convolutions above 42x42 were seen to hang for ever.",
        source: "https://github.com/ROCm/ROCm/issues/2527",
        check: across,
    },
    Rule {
        id: "spoof-malformed",
        severity: Severity::Broken,
        routes: &[Route::Rocm],
        meaning: "ROCm reads MAJOR.MINOR.STEPPING in numbers and refuses to start with anything else.",
        source: THUNK,
        check: malformed,
    },
    Rule {
        id: "spoof-within-family",
        severity: Severity::Note,
        routes: &[Route::Rocm],
        meaning: "Both targets share an instruction set, so such code runs. It is only needed where libraries have \
                  no code for the card itself.",
        source: LLVM,
        check: within,
    },
];

/// Settings of the variable, for all GPUs or for one (`..._1`), each with the target it claims.
fn overrides(facts: &Facts) -> impl Iterator<Item = (&Variable, String, Option<String>)> {
    let named = |v: &&Variable| {
        let rest = v.name.strip_prefix("HSA_OVERRIDE_GFX_VERSION");
        rest.is_some_and(|r| r.is_empty() || r.strip_prefix('_').is_some_and(|n| n.parse::<u32>().is_ok()))
    };
    facts.variables.iter().filter(named).flat_map(|variable| {
        let mut values: Vec<String> = variable.settings().map(|(value, _)| value.to_string()).collect();
        values.dedup();
        values.into_iter().map(move |value| {
            let target = targets::by_override(&value);
            (variable, value, target)
        })
    })
}

/// Targets that are claimed, now or by some file.
pub(super) fn claimed(facts: &Facts) -> Vec<String> {
    overrides(facts).filter_map(|(_, _, target)| target).collect()
}

/// Names and targets of the cards that an override would be applied to.
fn cards(facts: &Facts) -> Vec<(&str, &str)> {
    facts.gpus.iter().filter_map(|g| Some((g.name.as_str(), g.target.as_deref()?))).collect()
}

fn pairs(facts: &Facts, wanted: fn(&str, &str) -> bool) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for (variable, value, claimed) in overrides(facts) {
        let Some(claimed) = claimed else { continue };
        let setting = format!("{}={value} ", variable.name);
        let hit = cards(facts).into_iter().find(|(_, card)| wanted(card, &claimed));
        if let Some((name, card)) = hit
            && !found.iter().any(|f| f.what.starts_with(&setting))
        {
            found.push(unset(variable, format!("{setting}claims {claimed}; the {name} is {card}")));
        }
    }
    found
}

fn across(facts: &Facts) -> Vec<Found> {
    pairs(facts, |card, claimed| targets::family(card) != targets::family(claimed))
}

fn within(facts: &Facts) -> Vec<Found> {
    pairs(facts, |card, claimed| card != claimed && targets::family(card) == targets::family(claimed))
}

fn malformed(facts: &Facts) -> Vec<Found> {
    let bad = overrides(facts).filter(|(_, _, claimed)| claimed.is_none());
    bad.map(|(variable, value, _)| unset(variable, format!("{}={value} is no version", variable.name)))
        .collect()
}
