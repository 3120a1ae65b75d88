//! Convolutions: find, immediate mode, fusion plans.

pub mod bound_conv;
pub mod conv_call;
pub mod convolution;
pub(crate) mod find;
pub(crate) mod find2;
pub mod fusion;
pub(crate) mod fusion_calls;
pub(crate) mod immediate;
pub mod proven;
pub(crate) mod proven_table;
pub mod rewriting;
pub mod rewritten;
pub mod solutions;
