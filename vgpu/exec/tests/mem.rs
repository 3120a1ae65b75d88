//! Memory instructions, each held against a model of its own (`mem/machine.rs`), on random state and EXEC, both wave
//! sizes.

#[path = "common/mod.rs"]
mod common;
#[path = "mem/flat.rs"]
mod flat;
#[path = "mem/machine.rs"]
mod machine;
