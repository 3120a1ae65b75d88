//! Problems, inputs, oracle, comparison.

pub mod backend;
pub mod bands;
pub mod cases;
pub mod check;
pub mod compare;
pub mod data;
pub mod fuzz;
pub mod inject;
pub mod inputs;
pub mod scale;
pub mod selection;
pub mod shrink;
pub mod suites;
pub mod tolerance;
