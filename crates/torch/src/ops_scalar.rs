//! This device's own operators behind those of aten that take a `Scalar` (`python/wave32/_scalar_ops.py`).

use crate::dtype::DType;
use crate::error::Error;
use crate::ops_binary;
use crate::pointwise::{Input, Pointwise, Rule};
use crate::register::Op as Row;
use crate::tensor::Tensor;
use wave32_ops::{Number, Op};

/// What they are called with. `op` is an index into `_native.pointwise_ops()`.
pub const SCHEMAS: &[&str] = &[
    "add(Tensor self, Tensor other, float alpha) -> Tensor",
    "add_(Tensor(a!) self, Tensor other, float alpha) -> Tensor(a!)",
    "add_out(Tensor self, Tensor other, float alpha, Tensor(a!) out) -> Tensor(a!)",
    "add_number(Tensor self, float other, ScalarType? dtype) -> Tensor",
    "add_number_(Tensor(a!) self, float other, ScalarType? dtype) -> Tensor(a!)",
    "pointwise_out(int op, int rule, Tensor? a, Tensor? b, Tensor? c, float[] values, float s, float t, \
     ScalarType? dtype, Tensor(a!) out) -> Tensor(a!)",
    "masked_fill_(Tensor(a!) self, Tensor mask, float value) -> Tensor(a!)",
    "arange_(Tensor(a!) self, float start, float step) -> Tensor(a!)",
    "linspace_(Tensor(a!) self, float start, float end) -> Tensor(a!)",
    "foreach_(int op, Tensor(a!)[] self, Tensor[] b, Tensor[] c, float[] values, float[] s) -> ()",
];

/// Their kernels.
pub const OWN: &[Row] = crate::ops! {
    "add" => |a: &Tensor, b: &Tensor, alpha: f64| added(alpha).make(&[a.into(), b.into()]),
    "add_" => |a: &Tensor, b: &Tensor, alpha: f64| added(alpha).in_place(a, &[b.into()]),
    "add_out" => |a: &Tensor, b: &Tensor, alpha: f64, out: &Tensor| added(alpha).write(&[a.into(), b.into()], out),
    "add_number" => |a: &Tensor, b: f64, dtype: Option<DType>| {
        added(1.0).promoting_to(dtype).make(&[a.into(), Input::Value(b)])
    },
    "add_number_" => |a: &Tensor, b: f64, dtype: Option<DType>| {
        added(1.0).promoting_to(dtype).in_place(a, &[Input::Value(b)])
    },
    "pointwise_out" => pointwise_out,
    "masked_fill_" => |x: &Tensor, mask: &Tensor, value: f64| ops_binary::masked_fill(x, mask, Input::Value(value)),
    "arange_" => arange,
    "linspace_" => linspace,
    "foreach_" => foreach,
};

fn added(alpha: f64) -> Pointwise {
    let op = if alpha == 1.0 { Op::Add } else { Op::AddScaled };
    Pointwise::with(op, Rule::Same, alpha, 0.0)
}

fn operation(op: i64) -> Result<Op, Error> {
    let known = usize::try_from(op).ok().and_then(|op| Op::ALL.get(op).copied());
    known.ok_or_else(|| Error::Invalid(format!("there is no operation {op}")))
}

#[allow(clippy::too_many_arguments)] // as the schema's
fn pointwise_out(
    op: i64,
    rule: i64,
    a: Option<&Tensor>,
    b: Option<&Tensor>,
    c: Option<&Tensor>,
    values: &[f64],
    s: f64,
    t: f64,
    dtype: Option<DType>,
    out: &Tensor,
) -> Result<Tensor, Error> {
    let rule = match rule {
        0 => Rule::Same,
        1 => Rule::Float,
        _ => Rule::Truth,
    };
    let value = |at: usize| Input::Value(values.get(at).copied().unwrap_or(0.0));
    let inputs =
        [a.map_or(value(0), Input::Of), b.map_or(value(1), Input::Of), c.map_or(value(2), Input::Of)];
    Pointwise::with(operation(op)?, rule, s, t).promoting_to(dtype).write(&inputs, out)
}

fn arange(out: &Tensor, start: f64, step: f64) -> Result<Tensor, Error> {
    let view = crate::bridge::view(out)?;
    let numbers =
        [start, step].map(|n| if n.fract() == 0.0 { Number::Int(n as i64) } else { Number::Float(n) });
    crate::bridge::run(|queue| wave32_ops::arange(queue, &view, numbers[0], numbers[1]))?;
    out.share()
}

fn linspace(out: &Tensor, start: f64, end: f64) -> Result<Tensor, Error> {
    if !out.dtype()?.is_float() {
        return Err(Error::NoKernel("linspace of whole numbers".into()));
    }
    let view = crate::bridge::view(out)?;
    crate::bridge::run(|queue| wave32_ops::linspace(queue, &view, Number::Float(start), Number::Float(end)))?;
    out.share()
}

/// In place, `self[i] = op(self[i], b[i], c[i])`; where a list is empty, `values` (one for all, or one each) stands
/// for `b`, and so does `s` for the parameter.
fn foreach(
    op: i64,
    x: &[Tensor],
    b: &[Tensor],
    c: &[Tensor],
    values: &[f64],
    s: &[f64],
) -> Result<(), Error> {
    let op = operation(op)?;
    let at = |list: &[f64], i: usize| list.get(i).or(list.first()).copied().unwrap_or(0.0);
    // All of them or none: a refusal halfway would run twice what went before.
    for tensor in x.iter().chain(b).chain(c) {
        if !matches!(tensor.dtype()?, DType::F32 | DType::F16 | DType::BF16) || !tensor.is_wave() {
            return Err(Error::NoKernel(format!("a list with {}", tensor.dtype()?.name())));
        }
    }
    for (i, tensor) in x.iter().enumerate() {
        let value = Input::Value(at(values, i));
        let others = [b.get(i).map_or(value, Input::Of), c.get(i).map_or(value, Input::Of)];
        Pointwise::with(op, Rule::Same, at(s, i), 0.0).in_place(tensor, &others)?;
    }
    Ok(())
}
