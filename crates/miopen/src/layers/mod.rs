//! The other layers.

pub mod activation;
pub mod batch_norm;
pub(crate) mod batch_norm_calls;
pub(crate) mod bias;
pub(crate) mod dropout;
pub(crate) mod lrn;
pub mod pooling;
pub(crate) mod pooling_calls;
pub(crate) mod reduce;
pub(crate) mod softmax;
pub mod steps;
pub mod tensor;
pub(crate) mod tensor_ops;
pub(crate) mod tensor_queries;
