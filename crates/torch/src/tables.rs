//! Every table of kernels.

use crate::register::Op;
use crate::{
    memory_ops, ops_binary, ops_conv, ops_loss, ops_matmul, ops_optim, ops_random, ops_scalar, ops_unary,
};

/// Kernels of `aten`.
pub const ATEN: &[&[Op]] = &[
    memory_ops::OPS,
    ops_conv::OPS,
    ops_matmul::OPS,
    ops_unary::OPS,
    ops_unary::MORE,
    ops_binary::OPS,
    ops_binary::MORE,
    ops_loss::OPS,
    ops_random::OPS,
    ops_optim::OPS,
];

/// Schemas and kernels of this device's own operators, for its Python side.
pub const OWN: &[(&[&str], &[Op])] =
    &[(memory_ops::SCHEMAS, memory_ops::OWN), (ops_scalar::SCHEMAS, ops_scalar::OWN)];
