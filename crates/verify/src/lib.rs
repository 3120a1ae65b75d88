//! Proof on the user's own machine: every problem in a guarded child, six verdicts, one report.
//!
//! The parent never loads a driver. It hands problems to a child process over a pipe ([`protocol`]),
//! watches the clock and the child's memory ([`guard`], [`supervisor`]) and decides the verdict; the child
//! ([`child`]) runs the problem on one [`backend`] and checks it ([`check`]). [`campaign`] walks the
//! problems, [`report`] keeps what came of them.
#![forbid(unsafe_code)]

pub mod backend;
pub mod bands;
pub mod bench;
pub mod campaign;
pub mod cases;
pub mod check;
pub mod child;
pub mod compare;
pub mod data;
pub mod fold;
pub mod fuzz;
pub mod guard;
pub mod html;
pub mod inject;
pub mod inputs;
pub mod protocol;
pub mod report;
pub mod scale;
pub mod selection;
pub mod sheet;
pub mod shrink;
pub mod suites;
pub mod supervisor;
pub mod table;
pub mod tolerance;
