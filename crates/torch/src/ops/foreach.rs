//! Operators on lists of tensors that optimizers call (`torch._foreach_*`), one launch each where the lists allow. Lists of
//! other types than f32, f16 and bf16 are for `python/wave32/_foreach.py`.

use crate::abi::error::Error;
use crate::dispatch::scalar::ScalarOp;
use crate::ops::optim::lists;
use crate::ops::pointwise::{Input, Pointwise, Rule};
use crate::tensors::tensor::Tensor;
use smallvec::SmallVec;
use wave32_ops::optim::{Foreach, ForeachTensors};
use wave32_ops::{Number, Op, View};
use wave32_torch_logic::{Scalar, ScalarType};

type Floats = SmallVec<[f64; 4]>;

/// Kernels of `aten`.
pub const SCALAR_OPS: &[ScalarOp] = crate::scalar_ops! {
    "_foreach_add_.Scalar" => |x: &[Tensor], by: Scalar| by_numbers(Op::Add, x, &[by]),
    "_foreach_add_.ScalarList" => |x: &[Tensor], by: &[Scalar]| by_numbers(Op::Add, x, by),
    "_foreach_add_.List" => |x: &[Tensor], b: &[Tensor], alpha: Scalar| by_lists(Op::AddScaled, x, [b, &[]], &[alpha]),
    "_foreach_add.List" => |a: &[Tensor], b: &[Tensor], alpha: Scalar| sums(a, b, float(alpha)?),
    "_foreach_sub_.Scalar" => |x: &[Tensor], by: Scalar| match by {
        Scalar::Bool(_) => Err(Error::NoKernel("a truth".into())),
        _ => by_numbers(Op::Sub, x, &[by]),
    },
    "_foreach_sub_.List" => |x: &[Tensor], b: &[Tensor], alpha: Scalar| {
        foreach(Op::AddScaled, x, b, &[], &[], &[-float(alpha)?])
    },
    "_foreach_mul_.Scalar" => |x: &[Tensor], by: Scalar| by_numbers(Op::Mul, x, &[by]),
    "_foreach_mul_.ScalarList" => |x: &[Tensor], by: &[Scalar]| by_numbers(Op::Mul, x, by),
    "_foreach_mul_.List" => |x: &[Tensor], b: &[Tensor]| by_lists(Op::Mul, x, [b, &[]], &[]),
    "_foreach_div_.Scalar" => |x: &[Tensor], by: Scalar| by_numbers(Op::Div, x, &[by]),
    "_foreach_div_.ScalarList" => |x: &[Tensor], by: &[Scalar]| by_numbers(Op::Div, x, by),
    "_foreach_div_.List" => |x: &[Tensor], b: &[Tensor]| by_lists(Op::Div, x, [b, &[]], &[]),
    "_foreach_maximum_.List" => |x: &[Tensor], b: &[Tensor]| by_lists(Op::Maximum, x, [b, &[]], &[]),
    "_foreach_sqrt_" => |x: &[Tensor]| by_numbers(Op::Sqrt, x, &[]),
    "_foreach_neg_" => |x: &[Tensor]| by_numbers(Op::Neg, x, &[]),
    "_foreach_lerp_.Scalar" => |x: &[Tensor], b: &[Tensor], weight: Scalar| {
        foreach(Op::Lerp, x, b, &[], &[float(weight)?], &[])
    },
    "_foreach_addcmul_.Scalar" => |x: &[Tensor], b: &[Tensor], c: &[Tensor], value: Scalar| {
        by_lists(Op::Addcmul, x, [b, c], &[value])
    },
    "_foreach_addcmul_.ScalarList" => |x: &[Tensor], b: &[Tensor], c: &[Tensor], values: &[Scalar]| {
        by_lists(Op::Addcmul, x, [b, c], values)
    },
    "_foreach_addcdiv_.Scalar" => |x: &[Tensor], b: &[Tensor], c: &[Tensor], value: Scalar| {
        by_lists(Op::Addcdiv, x, [b, c], &[value])
    },
    "_foreach_addcdiv_.ScalarList" => |x: &[Tensor], b: &[Tensor], c: &[Tensor], values: &[Scalar]| {
        by_lists(Op::Addcdiv, x, [b, c], values)
    },
};

fn float(number: Scalar) -> Result<f64, Error> {
    match number {
        Scalar::Complex(..) => Err(Error::NoKernel("a complex number".into())),
        number => Ok(number.number()?.float()),
    }
}

fn floats(numbers: &[Scalar]) -> Result<Floats, Error> {
    numbers.iter().map(|number| float(*number)).collect()
}

fn by_numbers(op: Op, x: &[Tensor], by: &[Scalar]) -> Result<(), Error> {
    foreach(op, x, &[], &[], &floats(by)?, &[])
}

fn by_lists(op: Op, x: &[Tensor], [b, c]: [&[Tensor]; 2], s: &[Scalar]) -> Result<(), Error> {
    foreach(op, x, b, c, &[], &floats(s)?)
}

/// `a + s b`, as new tensors.
fn sums(a: &[Tensor], b: &[Tensor], s: f64) -> Result<Vec<Tensor>, Error> {
    let mut pairs = a.iter().zip(b).map(|(a, b)| Ok::<_, Error>(a.dtype()? == b.dtype()? && a.is_wave()));
    if a.len() != b.len() || !pairs.all(|fits| matches!(fits, Ok(true))) {
        return Err(Error::NoKernel("lists of two types or lengths".into()));
    }
    let made = a.iter().map(|x| x.empty_like(x.dtype()?)).collect::<Result<Vec<_>, _>>()?;
    foreach(Op::AddScaled, &made, a, b, &[], &[s])?;
    Ok(made)
}

/// In place, `self[i] = op(self[i], b[i], c[i])`; where a list is empty, `values` (one for all, or one each) stands
/// for `b` and `c`; the parameter is of `s` likewise. `AddScaled` of three lists writes `b + s c` to the first.
fn foreach(op: Op, x: &[Tensor], b: &[Tensor], c: &[Tensor], values: &[f64], s: &[f64]) -> Result<(), Error> {
    let at = |list: &[f64], i: usize| Number::Float(list.get(i).or(list.first()).copied().unwrap_or(0.0));
    let is_sub = op == Op::Sub;
    // All of them or none: a refusal halfway would run twice what went before.
    for tensor in x.iter().chain(b).chain(c) {
        if !is_short_float(tensor.dtype()?) || !tensor.is_wave() {
            return Err(Error::NoKernel(format!("a list with {}", tensor.dtype()?.name())));
        }
    }
    let lists = alike(&[x, b, c])?;
    // A sum of two others has no way for each tensor: `x` has nothing yet.
    if op == Op::AddScaled && !c.is_empty() && lists.is_none() {
        return Err(Error::NoKernel("lists of other layouts".into()));
    }
    if let Some(op) = in_one_launch(op, !b.is_empty(), !c.is_empty())
        && let Some(lists) = lists
    {
        let number = |i: usize| {
            let list = if values.is_empty() || matches!(op, Foreach::Addcmul | Foreach::Addcdiv) {
                s
            } else {
                values
            };
            list.get(i).or(list.first()).copied().unwrap_or(0.0)
        };
        let sign = if op == Foreach::Add && is_sub { -1.0 } else { 1.0 };
        let tensors = |i: usize| {
            let (a, second, third) = (&lists[0][i], lists[1].get(i), lists[2].get(i));
            // A function of one operand reads it where others read their second.
            let b = if matches!(op, Foreach::Sqrt | Foreach::Neg) { Some(a) } else { second };
            ForeachTensors { a, b, c: third, s: sign * number(i) }
        };
        let all: Vec<_> = (0..x.len()).map(tensors).collect();
        return crate::runtime::bridge::run(|queue| wave32_ops::optim::foreach(queue, op, &all));
    }
    for (i, tensor) in x.iter().enumerate() {
        let value = Input::Value(at(values, i));
        let others = [b.get(i).map_or(value, Input::Of), c.get(i).map_or(value, Input::Of)];
        Pointwise::with(op, Rule::Same, at(s, i), 0.0).in_place(tensor, &others)?;
    }
    Ok(())
}

/// The square roots of a list, as new tensors.
pub fn roots(all: &[Tensor]) -> Result<Vec<Tensor>, Error> {
    let mut floats = all.iter().map(|x| Ok::<_, Error>(is_short_float(x.dtype()?) && x.is_wave()));
    if floats.all(|is| matches!(is, Ok(true))) {
        let made = all.iter().map(|x| x.empty_like(x.dtype()?)).collect::<Result<Vec<_>, _>>()?;
        if let Some(lists) = alike(&[&made, all, &[]])? {
            let tensors = |(a, b)| ForeachTensors { a, b: Some(b), c: None, s: 0.0 };
            let pairs: Vec<_> = lists[0].iter().zip(&lists[1]).map(tensors).collect();
            crate::runtime::bridge::run(|queue| wave32_ops::optim::foreach(queue, Foreach::Sqrt, &pairs))?;
            return Ok(made);
        }
    }
    let sqrt = Pointwise::new(Op::Sqrt, Rule::Float);
    all.iter().map(|x| sqrt.make(&[x.into()])).collect()
}

fn is_short_float(dtype: ScalarType) -> bool {
    matches!(dtype, ScalarType::F32 | ScalarType::F16 | ScalarType::BF16)
}

/// The operation on lists that is `op`, where there is one.
fn in_one_launch(op: Op, has_second: bool, has_third: bool) -> Option<Foreach> {
    Some(match (op, has_second) {
        (Op::AddScaled, true) if has_third => Foreach::Sum,
        (Op::Add | Op::Sub, false) => Foreach::Add,
        (Op::Mul, false) => Foreach::Mul,
        (Op::Div, false) => Foreach::Div,
        (Op::Sqrt, false) => Foreach::Sqrt,
        (Op::Neg, false) => Foreach::Neg,
        (Op::AddScaled, true) => Foreach::AddScaled,
        (Op::Mul, true) => Foreach::MulList,
        (Op::Div, true) => Foreach::DivList,
        (Op::Maximum, true) => Foreach::Maximum,
        (Op::Lerp, true) => Foreach::Lerp,
        (Op::Addcmul, true) => Foreach::Addcmul,
        (Op::Addcdiv, true) => Foreach::Addcdiv,
        _ => return None,
    })
}

/// The lists' views ([`lists`]), where they can be stepped together.
fn alike(all: &[&[Tensor]]) -> Result<Option<Vec<Vec<View>>>, Error> {
    match lists(all) {
        Ok(views) => Ok(Some(views)),
        Err(Error::NoKernel(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
