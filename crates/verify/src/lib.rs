//! Proof on the user's own machine: every problem in a guarded child, six verdicts, one report.
//!
//! The parent never loads a driver. It hands problems to a child process over a pipe ([`protocol`]),
//! watches the clock and the child's memory ([`guard`], [`supervisor`]) and decides the verdict; the child
//! ([`child`]) runs the problem on one [`backend`] and checks it ([`check`]). [`campaign`] walks the
//! problems, [`report`] keeps what came of them.
#![forbid(unsafe_code)]

mod proof;
pub use proof::{
    backend, bands, cases, check, compare, data, fuzz, inject, inputs, scale, selection, shrink, suites,
    tolerance,
};
mod process;
pub use process::{campaign, child, guard, protocol, supervisor};
mod output;
pub use output::{fold, html, report, sheet, table};
pub mod bench;
pub mod tune;
