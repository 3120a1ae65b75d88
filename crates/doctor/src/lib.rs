//! What is on this machine, what is wrong, what to change, how to undo it.

pub mod code_objects;
pub mod system;
pub mod targets;
pub mod facts;
pub mod scan;
pub mod native;
pub mod rules;
