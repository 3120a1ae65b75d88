//! From an operator of PyTorch to what computes it.

pub(crate) mod autocast;
pub(crate) mod deterministic;
pub mod fallback;
pub(crate) mod index_errors;
pub mod register;
pub(crate) mod result;
pub mod scalar;
pub(crate) mod tables;
