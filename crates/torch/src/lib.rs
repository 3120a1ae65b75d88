//! The PyTorch device `wave`: kernels registered with libtorch, and what its Python package asks for.
//!
//! libtorch is not linked but found in the process, through its stable C ABI ([`abi`]); a kernel is a plain function over
//! [`tensors::tensor::Tensor`] with a row in a table ([`dispatch::register`]). `docs/torch.md` tells how to add one. What
//! needs no libtorch is in `wave32-torch-logic`.

pub mod abi;
pub mod dispatch;
pub mod ops;
pub mod runtime;
pub mod tensors;
// As the preloaded libraries, it writes from somebody else's process.
#[path = "../../preload/src/stderr.rs"]
mod stderr;
