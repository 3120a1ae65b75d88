//! The guarded child and what passes to and from it.

pub mod campaign;
pub mod child;
pub mod guard;
pub mod protocol;
pub mod supervisor;
