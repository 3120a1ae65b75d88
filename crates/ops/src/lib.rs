//! What a CNN needs besides convolution, on strided tensors of any element type.
//!
//! An operation checks its operands, picks kernel variants and launches them on a [`Queue`]; it neither
//! waits nor allocates results. Operands are [`View`]s: an address, an element type, sizes and strides.
//! What an operation cannot do it refuses by name ([`OpError::Refused`]) before it launches anything, so
//! that a framework can go elsewhere.
#![forbid(unsafe_code)]

pub mod activation;
mod attention;
mod bands;
mod batch_norm;
mod call;
mod chain;
mod convolution;
mod copy;
mod dtype;
mod elementwise;
mod fill;
pub mod index;
mod lanes;
mod lists;
mod loss;
mod matmul;
mod norm;
mod op;
pub mod optim;
pub mod pad;
pub mod pool;
pub mod random;
pub mod rearrange;
mod reduce_pass;
mod reduction;
mod rows;
mod scan;
mod scratch;
mod softmax;
mod sort;
mod steps;
pub mod upsample;
mod view;

pub use attention::{Attended, Attention, Dropout, Gradients, attention, attention_back};
pub use batch_norm::{
    BatchNorm, NormActivation, NormChain, NormSum, batch_norm, batch_norm_backward, batch_norm_chain,
    batch_norm_sum_backward,
};
pub use chain::{ConvChain, ConvOperands, PostOp};
pub use convolution::{Planner, PricedPlan, storage};
pub use copy::{copy, copy_bytes, kept_cast};
pub use dtype::{ElementType, Kind};
pub use elementwise::{Elementwise, Number, Operand};
pub use fill::{arange, eye, fill, fill_words, linspace};
pub use loss::{NllLoss, Reduction, nll_loss, nll_loss_backward};
pub use matmul::Sum;
pub use norm::{NormGrads, NormShape, norm, norm_backward};
pub use op::Op;
pub use reduction::{Reduce, extreme, reduce, variance};
pub use scan::cumsum;
pub use softmax::{softmax, softmax_backward};
pub use sort::argsort;
pub use steps::{Steps, wide};
pub use view::{Common, MAX_DIMS, View};

pub use wave32_device::{Arg, Queue, Work};

/// Why an operation did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// It cannot do this; nothing was launched. A stable name and the numbers behind it.
    #[error("{name}: {detail}")]
    Refused {
        /// Stable, kebab-case: `too-many-elements`, ...
        name: &'static str,
        /// What was found.
        detail: String,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] wave32_device::DeviceError),
}

impl OpError {
    /// A refusal.
    pub fn refused(name: &'static str, detail: impl Into<String>) -> Self {
        Self::Refused { name, detail: detail.into() }
    }
}
