//! The PyTorch device `wave`: kernels registered with libtorch, and what its Python package asks for.
//!
//! libtorch is not linked but found in the process, through its stable C ABI ([`abi`]); a kernel is a plain
//! function over [`tensor::Tensor`] with a row in a table ([`register`]). `docs/torch.md` tells how to add one.

pub mod abi;
pub mod copies;
mod dlpack;
pub mod dtype;
pub mod error;
pub mod fallback;
pub mod memory_ops;
mod python;
pub mod register;
pub mod rng;
pub mod scalar;
pub mod stack;
pub mod state;
pub mod tensor;
