//! What is on this machine, what is wrong, what to change.
#![forbid(unsafe_code)]

pub mod ask;
pub mod build_torch;
pub mod code_objects;
pub mod facts;
pub mod finding;
pub mod miopen;
pub mod native;
pub mod repair;
pub mod report;
pub mod restore;
pub mod rules;
pub mod scan;
pub mod situation;
pub mod system;
pub mod verdict;

#[cfg(test)]
mod hostile_tests;
