//! What is on this machine, what is wrong, what to change, how to undo it.

pub mod change;
pub mod profile;
