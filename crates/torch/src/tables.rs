//! Every table of kernels.

use crate::register::Op;
use crate::{memory_ops, ops_conv, ops_matmul};

/// Kernels of `aten`.
pub const ATEN: &[&[Op]] = &[memory_ops::OPS, ops_conv::OPS, ops_matmul::OPS];

/// Schemas and kernels of this device's own operators, for its Python side.
pub const OWN: &[(&[&str], &[Op])] = &[(memory_ops::SCHEMAS, memory_ops::OWN)];
