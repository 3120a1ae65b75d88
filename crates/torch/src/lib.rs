//! The PyTorch device `wave`: kernels registered with libtorch, and what its Python package asks for.
//!
//! libtorch is not linked but found in the process, through its stable C ABI ([`abi`]); a kernel is a plain
//! function over [`tensor::Tensor`] with a row in a table ([`register`]). `docs/torch.md` tells how to add one.

pub mod abi;
pub mod bridge;
pub mod copies;
mod deterministic;
mod dlpack;
pub mod dtype;
pub mod error;
pub mod fallback;
mod generator;
mod gil;
mod guard;
mod hooks;
mod index_errors;
mod layout;
pub mod memory_ops;
mod ops_binary;
mod ops_conv;
mod ops_index;
mod ops_layer_norm;
mod ops_loss;
mod ops_matmul;
mod ops_nll;
mod ops_norm;
mod ops_optim;
mod ops_pool;
mod ops_random;
mod ops_reduction;
mod ops_scalar;
mod ops_shape;
mod ops_sort;
mod ops_unary;
mod ops_upsample;
mod pinned;
mod pointwise;
mod python;
pub mod register;
mod result;
pub mod rng;
pub mod scalar;
pub mod stack;
pub mod state;
// As the preloaded libraries, it writes from somebody else's process.
#[path = "../../preload/src/stderr.rs"]
mod stderr;
mod storage;
mod tables;
pub mod tensor;
mod vtable;
