//! Every table of kernels.

use crate::register::Registration;
use crate::scalar::ScalarOp;
use crate::{
    index_errors, memory_ops, ops_binary, ops_conv, ops_index, ops_layer_norm, ops_loss, ops_matmul, ops_nll,
    ops_norm, ops_optim, ops_pool, ops_random, ops_reduction, ops_scalar, ops_shape, ops_sort, ops_unary,
    ops_upsample,
};

/// Kernels of `aten`.
pub const ATEN: &[&[Registration]] = &[
    memory_ops::OPS,
    ops_conv::OPS,
    ops_matmul::OPS,
    ops_unary::OPS,
    ops_unary::HOT,
    ops_unary::MORE,
    ops_binary::OPS,
    ops_binary::HOT,
    ops_binary::MORE,
    ops_loss::OPS,
    ops_random::OPS,
    ops_optim::OPS,
    ops_norm::OPS,
    ops_pool::OPS,
    ops_upsample::OPS,
    ops_index::OPS,
    ops_shape::OPS,
    ops_sort::OPS,
    ops_reduction::OPS,
    ops_nll::OPS,
    ops_layer_norm::OPS,
];

/// Schemas and kernels of this device's own operators, for its Python side.
pub const OWN: &[(&[&str], &[Registration])] = &[
    (memory_ops::SCHEMAS, memory_ops::OWN),
    (ops_conv::SCHEMAS, ops_conv::OWN),
    (ops_binary::SCHEMAS, ops_binary::OWN),
    (ops_index::SCHEMAS, ops_index::OWN),
    (ops_scalar::SCHEMAS, ops_scalar::OWN),
    (index_errors::SCHEMAS, index_errors::OWN),
];

/// Kernels of `aten` that have a `Scalar`.
pub const SCALAR: &[&[ScalarOp]] =
    &[memory_ops::SCALAR_OPS, ops_matmul::SCALAR_OPS, ops_reduction::SCALAR_OPS, ops_scalar::SCALAR_OPS];
