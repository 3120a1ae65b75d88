//! Reports of `wave32 bench`: files of `wave32-verify`.

#[allow(dead_code)]
#[path = "../../../crates/verify/src/bench/compare.rs"]
mod compare;
#[allow(dead_code)]
#[path = "../../../crates/verify/src/bench/report.rs"]
mod report;
#[allow(dead_code)]
#[path = "../../../crates/verify/src/bench/stats.rs"]
mod stats;

pub use compare::compare;
pub use report::{Report, Row};

/// What `report` makes rows of.
pub struct Case {
    pub label: String,
    pub problem: wave32_problem::Problem,
}
