//! The PyTorch device `wave`: kernels registered with libtorch, and what its Python package asks for.
//!
//! libtorch is not linked but found in the process, through its stable C ABI ([`abi`]); a kernel is a plain
//! function over [`tensor::Tensor`] with a row in a table ([`register`]). `docs/torch.md` tells how to add one.

pub mod abi;
pub mod bridge;
pub mod copies;
mod dlpack;
pub mod dtype;
pub mod error;
pub mod fallback;
pub mod memory_ops;
pub mod ops_binary;
mod ops_conv;
pub mod ops_loss;
mod ops_matmul;
pub mod ops_optim;
pub mod ops_random;
pub mod ops_scalar;
pub mod ops_unary;
pub mod pointwise;
mod python;
pub mod register;
pub mod rng;
pub mod stack;
pub mod state;
mod tables;
pub mod tensor;
