//! What is on this machine, what is wrong, what to change, how to undo it.

pub mod change;
#[cfg(target_os = "linux")]
pub mod launch;
pub mod profile;
