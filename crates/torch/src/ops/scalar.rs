//! Elementwise operators that take a `Scalar`.

use crate::abi::conversions::default_float;
use crate::abi::error::Error;
use crate::dispatch::result::exactly;
use crate::dispatch::scalar::{Either, ScalarOp};
use crate::ops::binary;
use crate::ops::pointwise::{Input, Pointwise, Rule};
use crate::tensors::memory_ops::resize;
use crate::tensors::tensor::Tensor;
use smallvec::SmallVec;
use wave32_ops::{Number, Op};
use wave32_torch_logic::number::{self, bound, fitted};
use wave32_torch_logic::{Scalar, ScalarType, promotion};

/// Kernels of `aten`.
pub const SCALAR_OPS: &[ScalarOp] = crate::scalar_ops! {
    "add.Tensor" => |a: &Either, b: &Either, alpha: Scalar| added(a, b, alpha, false, To::New),
    "add_.Tensor" => |a: &Tensor, b: &Either, alpha: Scalar| added_in_place(a, b, alpha, false),
    "add.out" => |a: &Either, b: &Either, alpha: Scalar, out: &Tensor| added(a, b, alpha, false, To::Out(out)),
    "sub.Tensor" => |a: &Either, b: &Either, alpha: Scalar| added(a, b, alpha, true, To::New),
    "sub_.Tensor" => |a: &Tensor, b: &Either, alpha: Scalar| added_in_place(a, b, alpha, true),
    "sub.out" => |a: &Either, b: &Either, alpha: Scalar, out: &Tensor| added(a, b, alpha, true, To::Out(out)),
    "rsub.Tensor" => |a: &Either, b: &Either, alpha: Scalar| added(b, a, alpha, true, To::New),
    "clamp.out" => clamp,
    "clamp_min.out" => |x: &Tensor, min: Scalar, out: &Tensor| clamp(x, Some(min), None, out),
    "clamp_max.out" => |x: &Tensor, max: Scalar, out: &Tensor| clamp(x, None, Some(max), out),
    "pow.Tensor_Scalar_out" => power,
    "pow.Scalar_out" => |base: Scalar, x: &Tensor, out: &Tensor| {
        same(Op::Pow).promoting_to(promote(x, &[base])?).write(&[Input::Value(base.number()?), x.into()], out)
    },
    "eq.Scalar_out" => |x: &Tensor, y: Scalar, out: &Tensor| compare(Op::Eq, x, y, out),
    "ne.Scalar_out" => |x: &Tensor, y: Scalar, out: &Tensor| compare(Op::Ne, x, y, out),
    "lt.Scalar_out" => |x: &Tensor, y: Scalar, out: &Tensor| compare(Op::Lt, x, y, out),
    "le.Scalar_out" => |x: &Tensor, y: Scalar, out: &Tensor| compare(Op::Le, x, y, out),
    "gt.Scalar_out" => |x: &Tensor, y: Scalar, out: &Tensor| compare(Op::Gt, x, y, out),
    "ge.Scalar_out" => |x: &Tensor, y: Scalar, out: &Tensor| compare(Op::Ge, x, y, out),
    "addcmul.out" => |a: &Tensor, b: &Tensor, c: &Tensor, value: Scalar, out: &Tensor| {
        with(Op::Addcmul, value, Scalar::Int(0))?.write(&[a.into(), b.into(), c.into()], out)
    },
    "addcdiv.out" => |a: &Tensor, b: &Tensor, c: &Tensor, value: Scalar, out: &Tensor| {
        with(Op::Addcdiv, value, Scalar::Int(0))?.write(&[a.into(), b.into(), c.into()], out)
    },
    "lerp.Scalar_out" => |a: &Tensor, b: &Tensor, weight: Scalar, out: &Tensor| {
        exactly(out, a.dtype()?)?;
        same(Op::Lerp).write(&[a.into(), b.into(), Input::Value(weight.number()?)], out)
    },
    "masked_fill_.Scalar" => masked_fill,
    "arange.start_out" => arange,
    "linspace.out" => linspace,
    "threshold.out" => |x: &Tensor, threshold: Scalar, value: Scalar, out: &Tensor| {
        let dtype = x.dtype()?;
        let [s, t] = [threshold, value].map(|number| number.fits(dtype).and_then(|()| number.number()));
        let [s, t] = [fitted(s?, dtype, false), fitted(t?, dtype, false)];
        Pointwise::with(Op::Threshold, Rule::Same, s, t).write(&[x.into()], out)
    },
    "threshold_backward.grad_input" => |g: &Tensor, x: &Tensor, threshold: Scalar, out: &Tensor| {
        backward(Op::ThresholdBackward, g, x, threshold, Scalar::Int(0), out)
    },
    "leaky_relu.out" => |x: &Tensor, slope: Scalar, out: &Tensor| exact(Op::LeakyRelu, x, slope, Scalar::Int(0), out),
    "leaky_relu_backward.grad_input" => |g: &Tensor, x: &Tensor, slope: Scalar, _of_result: bool, out: &Tensor| {
        backward(Op::LeakyReluBackward, g, x, slope, Scalar::Int(0), out)
    },
    "elu.out" => |x: &Tensor, alpha: Scalar, scale: Scalar, input: Scalar, out: &Tensor| {
        exactly(out, x.dtype()?)?;
        elu(Op::Elu, [x.into(), x.into()], [alpha, scale, input], out)
    },
    "elu_backward.grad_input" =>
        |g: &Tensor, alpha: Scalar, scale: Scalar, input: Scalar, of_result: bool, x: &Tensor, out: &Tensor| {
            let op = if of_result { Op::EluBackwardOfResult } else { Op::EluBackward };
            elu(op, [g.into(), x.into()], [alpha, scale, input], out)
        },
    "hardtanh" => |x: &Tensor, min: Scalar, max: Scalar| same(Op::Clamp).make(&hardtanh(x, min, max)?),
    "hardtanh_" => |x: &Tensor, min: Scalar, max: Scalar| same(Op::Clamp).in_place(x, &hardtanh(x, min, max)?[1..]),
    "hardtanh.out" => |x: &Tensor, min: Scalar, max: Scalar, out: &Tensor| {
        exactly(out, x.dtype()?)?;
        same(Op::Clamp).write(&hardtanh(x, min, max)?, out)
    },
    "hardtanh_backward" => |g: &Tensor, x: &Tensor, min: Scalar, max: Scalar| {
        with(Op::HardtanhBackward, min, max)?.make(&[g.into(), x.into()])
    },
    "hardtanh_backward.grad_input" => |g: &Tensor, x: &Tensor, min: Scalar, max: Scalar, out: &Tensor| {
        backward(Op::HardtanhBackward, g, x, min, max, out)
    },
    "softplus.out" => |x: &Tensor, beta: Scalar, threshold: Scalar, out: &Tensor| {
        exact(Op::Softplus, x, beta, threshold, out)
    },
    "softplus_backward.grad_input" => |g: &Tensor, x: &Tensor, beta: Scalar, threshold: Scalar, out: &Tensor| {
        backward(Op::SoftplusBackward, g, x, beta, threshold, out)
    },
    "hardshrink.out" => |x: &Tensor, lambda: Scalar, out: &Tensor| exact(Op::Hardshrink, x, lambda, Scalar::Int(0), out),
    "hardshrink_backward.grad_input" => |g: &Tensor, x: &Tensor, lambda: Scalar, out: &Tensor| {
        backward(Op::ShrinkBackward, g, x, lambda, Scalar::Int(0), out)
    },
    "softshrink.out" => |x: &Tensor, lambda: Scalar, out: &Tensor| exact(Op::Softshrink, x, lambda, Scalar::Int(0), out),
    "softshrink_backward.grad_input" => |g: &Tensor, x: &Tensor, lambda: Scalar, out: &Tensor| {
        backward(Op::ShrinkBackward, g, x, lambda, Scalar::Int(0), out)
    },
};

fn same(op: Op) -> Pointwise {
    Pointwise::new(op, Rule::Same)
}

fn with(op: Op, s: Scalar, t: Scalar) -> Result<Pointwise, Error> {
    Ok(Pointwise::with(op, Rule::Same, s.number()?, t.number()?))
}

fn exact(op: Op, x: &Tensor, s: Scalar, t: Scalar, out: &Tensor) -> Result<Tensor, Error> {
    exactly(out, x.dtype()?)?;
    with(op, s, t)?.write(&[x.into()], out)
}

fn backward(op: Op, grad: &Tensor, x: &Tensor, s: Scalar, t: Scalar, out: &Tensor) -> Result<Tensor, Error> {
    with(op, s, t)?.write(&[grad.into(), x.into()], out)
}

/// The type to compute in where the numbers decide that, which they do by being of a higher category.
fn promote(x: &Tensor, numbers: &[Scalar]) -> Result<Option<ScalarType>, Error> {
    Ok(promotion::promoted_by(x.dtype()?, numbers, default_float)?)
}

/// Where a result goes.
enum To<'a> {
    New,
    Out(&'a Tensor),
}

/// `a + alpha b`, `a - alpha b`.
fn added(a: &Either, b: &Either, alpha: Scalar, minus: bool, to: To) -> Result<Tensor, Error> {
    let (pointwise, inputs) = match (a, b) {
        (Either::Tensor(a), Either::Tensor(b)) => {
            (sum(alpha, minus, [a.dtype()?, b.dtype()?])?, [a.into(), b.into()])
        }
        (Either::Tensor(a), Either::Number(b)) => {
            let pointwise = sum(alpha, minus, [a.dtype()?, bool_or_more(*b)])?;
            (pointwise.promoting_to(promote(a, &[*b])?), [a.into(), Input::Value(b.number()?)])
        }
        (Either::Number(a), Either::Tensor(b)) => {
            let pointwise = sum(alpha, minus, [bool_or_more(*a), b.dtype()?])?;
            (pointwise.promoting_to(promote(b, &[*a])?), [Input::Value(a.number()?), b.into()])
        }
        (Either::Number(_), Either::Number(_)) => return Err(Error::Invalid("a sum of two numbers".into())),
    };
    match to {
        To::New => pointwise.make(&inputs),
        To::Out(out) => pointwise.write(&inputs, out),
    }
}

fn added_in_place(x: &Tensor, y: &Either, alpha: Scalar, minus: bool) -> Result<Tensor, Error> {
    match y {
        Either::Tensor(y) => sum(alpha, minus, [x.dtype()?, y.dtype()?])?.in_place(x, &[y.into()]),
        Either::Number(y) => sum(alpha, minus, [x.dtype()?, bool_or_more(*y)])?
            .promoting_to(promote(x, &[*y])?)
            .in_place(x, &[Input::Value(y.number()?)]),
    }
}

fn bool_or_more(number: Scalar) -> ScalarType {
    if matches!(number, Scalar::Bool(_)) { ScalarType::Bool } else { ScalarType::I64 }
}

fn sum(alpha: Scalar, minus: bool, of: [ScalarType; 2]) -> Result<Pointwise, Error> {
    if minus && of.contains(&ScalarType::Bool) {
        let (with, instead) = match of {
            [ScalarType::Bool, ScalarType::Bool] => {
                ("two bool tensors", "Use the `^` or `logical_xor()` operator instead.")
            }
            _ => (
                "a bool tensor",
                "If you are trying to invert a mask, use the `~` or `logical_not()` operator instead.",
            ),
        };
        // A RuntimeError in torch 2.11, a NotImplementedError, which is one too, in 2.15.
        return Err(Error::Refused(format!(
            "Subtraction, the `-` operator, with {with} is not supported. {instead}"
        )));
    }
    let whole = |dtype: ScalarType| !dtype.is_float() && !dtype.is_complex();
    if matches!(alpha, Scalar::Float(_)) && of.into_iter().all(whole) {
        return Err(Error::Invalid(
            "For integral input tensors, argument alpha must not be a floating point number.".into(),
        ));
    }
    let alpha = match alpha.number()? {
        // A truth value itself: any factor but 0 is 1.
        Number::Int(alpha) if of == [ScalarType::Bool; 2] => Number::Int(i64::from(alpha != 0)),
        alpha => alpha,
    };
    let alpha = match alpha {
        Number::Int(1) => return Ok(same(if minus { Op::Sub } else { Op::Add })),
        Number::Int(alpha) => Number::Int(if minus { alpha.wrapping_neg() } else { alpha }),
        Number::Float(1.0) => return Ok(same(if minus { Op::Sub } else { Op::Add })),
        Number::Float(alpha) => Number::Float(if minus { -alpha } else { alpha }),
    };
    Ok(Pointwise::with(Op::AddScaled, Rule::Same, alpha, 0.0))
}

fn clamp(x: &Tensor, min: Option<Scalar>, max: Option<Scalar>, out: &Tensor) -> Result<Tensor, Error> {
    let numbers: SmallVec<[Scalar; 2]> = min.into_iter().chain(max).collect();
    let to = promote(x, &numbers)?;
    let dtype = to.map_or_else(|| x.dtype(), Ok)?;
    exactly(out, dtype)?;
    let min = min.map(|min| bound(min, dtype)).transpose()?.map(Input::Value);
    let max = max.map(|max| bound(max, dtype)).transpose()?.map(Input::Value);
    match (min, max) {
        (Some(min), Some(max)) => same(Op::Clamp).promoting_to(to).write(&[x.into(), min, max], out),
        (Some(min), None) => same(Op::Maximum).promoting_to(to).write(&[x.into(), min], out),
        (None, Some(max)) => same(Op::Minimum).promoting_to(to).write(&[x.into(), max], out),
        (None, None) => {
            Err(Error::Invalid("torch.clamp: At least one of 'min' or 'max' must not be None".into()))
        }
    }
}

fn power(x: &Tensor, exponent: Scalar, out: &Tensor) -> Result<Tensor, Error> {
    let to = promote(x, &[exponent])?;
    // Of -inf and -0 roots are not what powers are; which of them PyTorch's CPU takes goes by the type.
    let common = to.map_or_else(|| x.dtype(), Ok)?;
    let by_root = common.is_float() && common != ScalarType::F16;
    match exponent.number()? {
        Number::Float(0.5) if by_root => same(Op::Sqrt).promoting_to(to).write(&[x.into()], out),
        Number::Float(-0.5) if by_root => same(Op::Rsqrt).promoting_to(to).write(&[x.into()], out),
        Number::Int(2) | Number::Float(2.0) => {
            same(Op::Mul).promoting_to(to).write(&[x.into(), x.into()], out)
        }
        number => same(Op::Pow).promoting_to(to).write(&[x.into(), Input::Value(number)], out),
    }
}

fn compare(op: Op, x: &Tensor, y: Scalar, out: &Tensor) -> Result<Tensor, Error> {
    let compare = Pointwise::new(op, Rule::Truth).promoting_to(promote(x, &[y])?);
    compare.write(&[x.into(), Input::Value(y.number()?)], out)
}

/// Its numbers are the products that the kernel multiplies by, and the third operand.
fn elu(
    op: Op,
    [a, b]: [Input; 2],
    [alpha, scale, input]: [Scalar; 3],
    out: &Tensor,
) -> Result<Tensor, Error> {
    let (alpha, scale) = (alpha.number()?.float(), scale.number()?.float());
    Pointwise::with(op, Rule::Same, alpha * scale, scale).write(&[a, b, Input::Value(input.number()?)], out)
}

/// A type that lacks one of the limits is the CPU's: what it does about that depends on torch's version.
fn hardtanh(x: &Tensor, min: Scalar, max: Scalar) -> Result<[Input<'_>; 3], Error> {
    let dtype = x.dtype()?;
    if dtype == ScalarType::Bool
        || min.fits(dtype).and(max.fits(dtype)).is_err()
        || lacks(dtype, min)
        || lacks(dtype, max)
    {
        return Err(Error::NoKernel(format!("limits {min:?} and {max:?} of {}", dtype.name())));
    }
    Ok([x.into(), Input::Value(min.number()?), Input::Value(max.number()?)])
}

/// True where a number is negative and the type knows none such.
fn lacks(dtype: ScalarType, number: Scalar) -> bool {
    dtype == ScalarType::U8 && matches!(number, Scalar::Int(..0))
}

fn masked_fill(x: &Tensor, mask: &Tensor, value: Scalar) -> Result<Tensor, Error> {
    let number = value.number()?;
    value.fits(x.dtype()?)?;
    binary::masked_fill(x, mask, Input::Value(number))
}

fn arange(start: Scalar, end: Scalar, step: Scalar, out: &Tensor) -> Result<Tensor, Error> {
    let (from, to, by) = (start.number()?, end.number()?, step.number()?);
    let length = number::steps(from, to, by)?;
    if out.numel() != length {
        if out.numel() > 0 {
            crate::abi::gil::warn(&format!(
                "The number of elements in the out tensor of shape {:?} is {} which does not match the computed number of \
                 elements {length}. Note that this may occur as a result of rounding error. The out tensor will be \
                 resized to a tensor of shape ({length},).",
                out.sizes(),
                out.numel()
            ))?;
        }
        resize(out, &[length])?;
    }
    let whole = |number| number::whole_for(number, out.dtype().unwrap_or(ScalarType::F32));
    counted(out, |queue, view| wave32_ops::arange(queue, view, whole(from), whole(by)))
}

/// Fills `out` by the places of its elements, which kernels count in the order of memory.
fn counted(
    out: &Tensor,
    fill: impl FnOnce(&mut dyn wave32_ops::Queue, &wave32_ops::View) -> Result<(), wave32_ops::OpError>,
) -> Result<Tensor, Error> {
    crate::tensors::layout::no_internal_overlap(out)?;
    let in_order = out.dim() < 2 || out.is_contiguous();
    let made = if in_order { out.share()? } else { Tensor::empty(&out.sizes(), out.dtype()?)? };
    let view = crate::runtime::bridge::view(&made)?;
    crate::runtime::bridge::run(|queue| fill(queue, &view))?;
    if !in_order {
        crate::tensors::copies::copy(&made, out)?;
    }
    out.share()
}

fn linspace(start: Scalar, end: Scalar, steps: i64, out: &Tensor) -> Result<Tensor, Error> {
    if steps < 0 {
        return Err(Error::Invalid("number of steps must be non-negative".into()));
    }
    if !out.dtype()?.is_float() {
        return Err(Error::NoKernel("linspace of whole numbers".into()));
    }
    if out.numel() != steps {
        resize(out, &[steps])?;
    }
    let (start, end) = (start.number()?, end.number()?);
    counted(out, |queue, view| wave32_ops::linspace(queue, view, start, end))
}
