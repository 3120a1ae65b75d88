//! What is on this machine, what is wrong, what to change, how to undo it.
#![forbid(unsafe_code)]

pub mod ask;
pub mod build_torch;
pub mod code_objects;
pub mod facts;
pub mod finding;
#[cfg(target_os = "linux")]
pub mod launch;
pub mod miopen;
pub mod native;
pub mod repair;
pub mod report;
pub mod rules;
pub mod scan;
pub mod situation;
pub mod system;
pub mod verdict;

#[cfg(test)]
mod hostile_tests;
