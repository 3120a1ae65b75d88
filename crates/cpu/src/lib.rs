//! Convolutions and products of matrices on the CPU: the f64 [`oracle`], and [`run()`], a backend of im2col tiles and GEMM (direct
//! loops for depthwise and small groups) whose scratch memory stays under a cap.
//!
//! The caller's problem is valid by construction; what can still be wrong is the length or the type of
//! a tensor, and [`CpuError`] says which.
#![deny(unsafe_code)]

mod arena;
mod direct;
mod element;
mod filters;
mod gather;
mod geometry;
mod im2col;
mod matmul;
mod naive;
pub mod oracle;
mod products;
mod run;
mod scatter;
mod simd;
mod weights;

pub use products::run_problem;
pub use run::{CpuError, Options, Report, TensorMut, TensorRef, run, run_reported};

/// Operands of a product of matrices: a, b and, as the bias, what is added. Of a convolution, by direction: Forward (a = x, b = w), BackwardData (a = dy, b = w), BackwardWeights (a = x,
/// b = dy), in the problem's layout. For transposed problems too: x, w, y are the user's tensors.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a, T> {
    /// x, or dy of backward-data; a.
    pub a: &'a [T],
    /// w, or dy of backward-weights; b.
    pub b: &'a [T],
    /// One element an output channel, forward only; what is added to a product.
    pub bias: Option<&'a [T]>,
}
