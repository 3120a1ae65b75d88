//! What is on this machine, what is wrong, what to change, how to undo it.

#[cfg(target_os = "linux")]
pub mod launch;
