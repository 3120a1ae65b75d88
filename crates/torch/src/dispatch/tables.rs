//! Every table of kernels.

use crate::abi::unboxed::{Candidate, Way};
use crate::dispatch::register::Registration;
use crate::dispatch::scalar::ScalarOp;
use crate::ops::attention;
use crate::ops::binary;
use crate::ops::checks;
use crate::ops::conv;
use crate::ops::foreach;
use crate::ops::index;
use crate::ops::layer_norm;
use crate::ops::loss;
use crate::ops::matmul;
use crate::ops::nll;
use crate::ops::norm;
use crate::ops::optim;
use crate::ops::pool;
use crate::ops::random;
use crate::ops::reduction;
use crate::ops::scalar;
use crate::ops::shape;
use crate::ops::sort;
use crate::ops::unary;
use crate::ops::upsample;
use crate::tensors::{copies, memory_ops};

/// Kernels of `aten`.
pub const ATEN: &[&[Registration]] = &[
    memory_ops::OPS,
    conv::OPS,
    matmul::OPS,
    unary::OPS,
    unary::HOT,
    unary::MORE,
    binary::OPS,
    binary::HOT,
    binary::MORE,
    loss::OPS,
    random::OPS,
    optim::OPS,
    norm::OPS,
    pool::OPS,
    upsample::OPS,
    index::OPS,
    shape::OPS,
    sort::OPS,
    reduction::OPS,
    nll::OPS,
    layer_norm::OPS,
];

/// Schemas and kernels of this device's own operators, for its Python side.
pub const OWN: &[(&[&str], &[Registration])] = &[
    (memory_ops::SCHEMAS, memory_ops::OWN),
    (copies::SCHEMAS, copies::OWN),
    (attention::SCHEMAS, attention::OWN),
    (conv::SCHEMAS, conv::OWN),
    (matmul::SCHEMAS, matmul::OWN),
    (norm::SCHEMAS, norm::OWN),
    (layer_norm::SCHEMAS, layer_norm::OWN),
    (binary::SCHEMAS, binary::OWN),
    (index::SCHEMAS, index::OWN),
    (checks::SCHEMAS, checks::OWN),
];

/// Kernels of `aten` that have a `Scalar`.
pub const SCALAR: &[&[ScalarOp]] = &[
    memory_ops::SCALAR_OPS,
    matmul::SCALAR_OPS,
    reduction::SCALAR_OPS,
    scalar::SCALAR_OPS,
    foreach::SCALAR_OPS,
];

/// Kernels of `aten` that this torch gets: with the conversion of types, where it has what that needs.
pub fn aten() -> impl Iterator<Item = &'static [Registration]> {
    ATEN.iter().copied().chain(copies::can_convert().then_some(copies::OPS))
}

/// Kernels of `aten` that C++ may call by itself.
pub fn candidates() -> Vec<Candidate> {
    let scalars = SCALAR.iter().copied().flatten();
    let scalars = scalars.map(|op| Candidate { name: op.name, way: Way::Python, functions: op.functions });
    aten().flatten().map(Registration::candidate).chain(scalars).collect()
}
