//! How fast: GPU time by the device's own clock, CPU time by the wall clock, beside the floor that
//! arithmetic and memory set.
//!
//! A [`Meter`] times one problem on one device ([`GpuMeter`], [`CpuMeter`], or either in a child: [`GuardedMeter`]); [`run`] walks the problems
//! and fills a [`Report`], which prints as a table ([`table()`]), JSON and bars ([`svg()`]), and compares
//! with another ([`compare()`]).

mod cases;
mod compare;
mod cpu;
mod gpu;
mod guarded;
mod report;
mod stats;
mod svg;
mod table;
#[cfg(test)]
mod tests;

pub use cases::{Case, Selection, Wish, select};
pub use compare::{Comparison, Pair, compare};
pub use cpu::CpuMeter;
pub use gpu::GpuMeter;
pub use guarded::{GuardedMeter, ended_a_child};
pub use report::{BenchMode, Rates, Report, ReportError, Row, Subject, Times};
pub use stats::geometric_mean;
pub use svg::svg;
pub use table::{comparison_table, table};

use std::time::Duration;
use wave32_solve::Policy;

/// How to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Forced and skipped solvers, workspace cap.
    pub policy: Policy,
    /// Every applicable solver rather than the chosen one.
    pub all_solvers: bool,
    /// Runs to time; `None` times as many as fill about a fifth of a second.
    pub repeats: Option<u32>,
    /// Warm or cold caches.
    pub mode: BenchMode,
    /// Longest wait for one plan.
    pub deadline: Duration,
    /// Of the random operands.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            all_solvers: false,
            repeats: None,
            mode: BenchMode::Warm,
            deadline: Duration::from_secs(60),
            seed: 1,
        }
    }
}

/// The device cannot be used any more: what was measured until then stands.
#[derive(Debug, thiserror::Error)]
#[error("the device is lost to this process: {0}")]
pub struct Gone(pub String);

/// Something that times convolutions.
pub trait Meter {
    /// Who is measured.
    fn subject(&self) -> Subject;

    /// Times the case: one row a solver, the chosen one first. A solver that fails is a row with its error.
    ///
    /// # Errors
    /// [`Gone`], after which the meter must be dropped; the rows until then are in `rows`.
    fn measure(&mut self, case: &Case, settings: &Settings, rows: &mut Vec<Row>) -> Result<(), Gone>;
}

/// Measures every case in turn; `after` sees the report as it stands after each case and may end the
/// walk by returning false.
pub fn run(
    meter: &mut dyn Meter,
    selection: &Selection,
    settings: &Settings,
    mut after: impl FnMut(&Report, usize) -> bool,
) -> Report {
    let mut report = Report::new(meter.subject(), settings.mode);
    report.too_large = selection.too_large.clone();
    for (index, case) in selection.cases.iter().enumerate() {
        let result = meter.measure(case, settings, &mut report.rows);
        if let Err(gone) = result {
            report.ended_early = Some(gone.to_string());
        }
        let go_on = after(&report, index + 1);
        let left = selection.cases.len() - index - 1;
        if !go_on && left > 0 && report.ended_early.is_none() {
            report.ended_early = Some(format!("interrupted with {left} problems left"));
        }
        if report.ended_early.is_some() {
            break;
        }
    }
    report
}
