//! Functions of two and three tensors.

use crate::abi::error::Error;
use crate::dispatch::register::Registration;
use crate::dispatch::result::{alone, exactly, prepare};
use crate::ops::pointwise::{Input, Pointwise, Rule};
use crate::ops::unary;
use crate::tensors::tensor::Tensor;
use smallvec::SmallVec;
use wave32_ops::{Number, Op};
use wave32_torch_logic::sizes::wrap;
use wave32_torch_logic::strides::{Operand, elementwise};
use wave32_torch_logic::{Scalar, ScalarType};

/// A row each: `out=` of a function; functional and in-place forms follow from it.
macro_rules! functions {
    ($($name:literal => $op:ident, $rule:ident;)*) => {
        crate::ops! {
            $($name => |a: &Tensor, b: &Tensor, out: &Tensor| {
                Pointwise::new(Op::$op, Rule::$rule).write(&[a.into(), b.into()], out)
            },)*
        }
    };
}

/// Kernels of `aten`.
pub const OPS: &[Registration] = functions! {
    "mul.out" => Mul, Same;
    "div.out" => Div, Float;
    "floor_divide.out" => DivFloor, Same;
    "remainder.Tensor_out" => Remainder, Same;
    "fmod.Tensor_out" => Fmod, Same;
    "pow.Tensor_Tensor_out" => Pow, Same;
    "maximum.out" => Maximum, Same;
    "minimum.out" => Minimum, Same;
    "atan2.out" => Atan2, Float;
    "fmax.out" => Fmax, Same;
    "fmin.out" => Fmin, Same;
    "hypot.out" => Hypot, Same;
    "copysign.out" => Copysign, Float;
    "xlogy.OutTensor" => Xlogy, Float;
    "special_xlog1py.out" => Xlog1py, Float;
    "logaddexp.out" => Logaddexp, Same;
    "logaddexp2.out" => Logaddexp2, Same;
    "eq.Tensor_out" => Eq, Truth;
    "ne.Tensor_out" => Ne, Truth;
    "lt.Tensor_out" => Lt, Truth;
    "le.Tensor_out" => Le, Truth;
    "gt.Tensor_out" => Gt, Truth;
    "ge.Tensor_out" => Ge, Truth;
    "logical_and.out" => LogicalAnd, Truth;
    "logical_or.out" => LogicalOr, Truth;
    "logical_xor.out" => LogicalXor, Truth;
    "bitwise_and.Tensor_out" => BitwiseAnd, Same;
    "bitwise_or.Tensor_out" => BitwiseOr, Same;
    "bitwise_xor.Tensor_out" => BitwiseXor, Same;
    "clamp_min.Tensor_out" => Maximum, Same;
    "clamp_max.Tensor_out" => Minimum, Same;
    "sigmoid_backward.grad_input" => SigmoidBackward, Same;
    "tanh_backward.grad_input" => TanhBackward, Same;
    "silu_backward.grad_input" => SiluBackward, Same;
    "hardsigmoid_backward.grad_input" => HardsigmoidBackward, Same;
};

macro_rules! hot {
    ($($name:literal => $op:ident, $rule:ident;)*) => {
        crate::ops! {
            $($name => |a: &Tensor, b: &Tensor| Pointwise::new(Op::$op, Rule::$rule).make(&[a.into(), b.into()]),)*
        }
    };
}

/// Hot functions by themselves: torch's way from one to its `out=` takes longer than the launch. None whose arguments torch
/// checks on that way.
pub const HOT: &[Registration] = hot! {
    "mul.Tensor" => Mul, Same;
    "div.Tensor" => Div, Float;
    "floor_divide" => DivFloor, Same;
    "maximum" => Maximum, Same;
    "minimum" => Minimum, Same;
    "eq.Tensor" => Eq, Truth;
    "ne.Tensor" => Ne, Truth;
    "lt.Tensor" => Lt, Truth;
    "le.Tensor" => Le, Truth;
    "gt.Tensor" => Gt, Truth;
    "ge.Tensor" => Ge, Truth;
    "sigmoid_backward" => SigmoidBackward, Same;
    "tanh_backward" => TanhBackward, Same;
    "silu_backward" => SiluBackward, Same;
    "mish_backward" => MishBackward, Same;
    "hardswish_backward" => HardswishBackward, Same;
};

/// Schemas of what `python/wave32/_complex.py` calls.
pub const SCHEMAS: &[&str] = &["elementwise_empty(Tensor[] operands, ScalarType dtype) -> Tensor"];

/// Kernels of those.
pub const OWN: &[Registration] = crate::ops! { "elementwise_empty" => elementwise_empty };

/// Kernels of `aten` with more to them, or hot ones in all their forms.
pub const MORE: &[Registration] = crate::ops! {
    "mul_.Tensor" => |a: &Tensor, b: &Tensor| Pointwise::new(Op::Mul, Rule::Same).in_place(a, &[b.into()]),
    "div_.Tensor" => |a: &Tensor, b: &Tensor| Pointwise::new(Op::Div, Rule::Float).in_place(a, &[b.into()]),
    "floor_divide_.Tensor" => |a: &Tensor, b: &Tensor| Pointwise::new(Op::DivFloor, Rule::Same).in_place(a, &[b.into()]),
    "div.out_mode" => div_mode,
    "heaviside.out" => heaviside,
    "bitwise_left_shift.Tensor_out" => |a: &Tensor, b: &Tensor, out: &Tensor| shift(Op::ShiftLeft, a, b, out),
    "bitwise_right_shift.Tensor_out" => |a: &Tensor, b: &Tensor, out: &Tensor| shift(Op::ShiftRight, a, b, out),
    "clamp.Tensor_out" => clamp,
    "where.self" => |c: &Tensor, a: &Tensor, b: &Tensor| choose(c, a, b, None),
    "where.self_out" => |c: &Tensor, a: &Tensor, b: &Tensor, out: &Tensor| choose(c, a, b, Some(out)),
    "masked_fill_.Tensor" => |x: &Tensor, mask: &Tensor, value: &Tensor| masked_fill(x, mask, value.into()),
    "lerp.Tensor_out" => |a: &Tensor, b: &Tensor, w: &Tensor, out: &Tensor| {
        exactly(out, a.dtype()?)?;
        Pointwise::new(Op::Lerp, Rule::Same).write(&[a.into(), b.into(), w.into()], out)
    },
    "logit_backward.grad_input" => |g: &Tensor, x: &Tensor, eps: Option<f64>, out: &Tensor| {
        Pointwise::with(Op::LogitBackward, Rule::Same, eps.unwrap_or(-1.0), 0.0).write(&[g.into(), x.into()], out)
    },
    "glu.out" => |x: &Tensor, dim: i64, out: &Tensor| {
        let [a, b] = halves(x, dim)?;
        Pointwise::new(Op::Glu, Rule::Same).write(&[(&a).into(), (&b).into()], out)
    },
    "glu_backward" => |g: &Tensor, x: &Tensor, dim: i64| glu_backward(g, x, dim, &Tensor::empty(&x.sizes(), x.dtype()?)?),
    "glu_backward.grad_input" => glu_backward,
    "gelu_backward.grad_input" => gelu_backward,
    "log_sigmoid_backward" => |g: &Tensor, x: &Tensor, _buffer: &Tensor| {
        Pointwise::new(Op::LogSigmoidBackward, Rule::Same).make(&[g.into(), x.into()])
    },
    "log_sigmoid_backward.grad_input" => |g: &Tensor, x: &Tensor, _buffer: &Tensor, out: &Tensor| {
        exactly(out, x.dtype()?)?;
        Pointwise::new(Op::LogSigmoidBackward, Rule::Same).write(&[g.into(), x.into()], out)
    },
    "_prelu_kernel" => |x: &Tensor, weight: &Tensor| Pointwise::new(Op::Prelu, Rule::Same).make(&[x.into(), weight.into()]),
    "_prelu_kernel_backward" => prelu_backward,
};

fn div_mode(a: &Tensor, b: &Tensor, mode: Option<&str>, out: &Tensor) -> Result<Tensor, Error> {
    let (op, rule) = match mode {
        None => (Op::Div, Rule::Float),
        Some("floor") => (Op::DivFloor, Rule::Same),
        Some("trunc") => (Op::DivTrunc, Rule::Same),
        Some(other) => {
            let text = "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found";
            return Err(Error::Invalid(format!("{text} '{other}'")));
        }
    };
    Pointwise::new(op, rule).write(&[a.into(), b.into()], out)
}

/// Of whole numbers by choices: the function's kernel computes in floats.
fn heaviside(x: &Tensor, at_zero: &Tensor, out: &Tensor) -> Result<Tensor, Error> {
    let dtype = x.dtype()?;
    if at_zero.dtype()? != dtype || out.dtype()? != dtype {
        let text = "heaviside is not yet implemented for tensors with different dtypes.";
        return Err(Error::Invalid(text.into()));
    }
    if dtype.is_float() || dtype.is_complex() {
        return Pointwise::new(Op::Heaviside, Rule::Same).write(&[x.into(), at_zero.into()], out);
    }
    let zero = Input::Value(Number::Int(0));
    let positive = Pointwise::new(Op::Gt, Rule::As(dtype)).make(&[x.into(), zero])?;
    Pointwise::new(Op::Where, Rule::As(dtype)).write(&[x.into(), (&positive).into(), at_zero.into()], out)
}

fn shift(op: Op, a: &Tensor, b: &Tensor, out: &Tensor) -> Result<Tensor, Error> {
    let bits = 8 * crate::ops::pointwise::promoted(&[a.into(), b.into()])?.bytes();
    Pointwise::with(op, Rule::Same, bits as f64, 0.0).write(&[a.into(), b.into()], out)
}

fn clamp(x: &Tensor, min: Option<&Tensor>, max: Option<&Tensor>, out: &Tensor) -> Result<Tensor, Error> {
    let same = |op| Pointwise::new(op, Rule::Same);
    match (min, max) {
        (Some(min), Some(max)) => same(Op::Clamp).write(&[x.into(), min.into(), max.into()], out),
        (Some(min), None) => same(Op::Maximum).write(&[x.into(), min.into()], out),
        (None, Some(max)) => same(Op::Minimum).write(&[x.into(), max.into()], out),
        (None, None) => {
            Err(Error::Invalid("torch.clamp: At least one of 'min' or 'max' must not be None".into()))
        }
    }
}

fn choose(condition: &Tensor, a: &Tensor, b: &Tensor, out: Option<&Tensor>) -> Result<Tensor, Error> {
    let to = crate::ops::pointwise::promoted(&[a.into(), b.into()])?;
    let inputs = [condition.into(), a.into(), b.into()];
    let pointwise = Pointwise::new(Op::Where, Rule::As(to));
    match out {
        Some(out) => {
            exactly(out, to)?;
            pointwise.write(&inputs, out)
        }
        None => pointwise.make(&inputs),
    }
}

/// `x[mask] = value`; the mask broadcasts.
///
/// # Errors
/// `Invalid` for a value with dimensions or a mask of another type; the stream's.
pub fn masked_fill(x: &Tensor, mask: &Tensor, value: Input) -> Result<Tensor, Error> {
    if let Input::Of(value) = value
        && value.dim() != 0
    {
        let text = "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with";
        return Err(Error::Invalid(format!("{text} {} dimension(s).", value.dim())));
    }
    if mask.dtype()? != ScalarType::Bool {
        let name = mask.dtype()?.name();
        return Err(Error::Invalid(format!(
            "masked_fill_ only supports boolean masks, but got mask with dtype {name}"
        )));
    }
    let sizes = crate::ops::pointwise::broadcast(&[x.into(), mask.into()])?;
    if x.sizes()[..] != sizes[..] {
        return Err(Error::Invalid(format!(
            "output with shape {:?} doesn't match the broadcast shape {:?}",
            x.sizes(),
            &sizes[..]
        )));
    }
    alone(x)?;
    let value = match value {
        Input::Of(value) => held(value, x.dtype()?)?.map_or(Input::Of(value), Input::Value),
        number => number,
    };
    Pointwise::new(Op::Where, Rule::As(x.dtype()?)).write(&[mask.into(), value, x.into()], x)
}

/// A new tensor for an elementwise result of these operands.
fn elementwise_empty(operands: &[Tensor], dtype: ScalarType) -> Result<Tensor, Error> {
    let inputs: SmallVec<[Input; 3]> = operands.iter().map(Input::from).collect();
    let sizes = crate::ops::pointwise::broadcast(&inputs)?;
    let laid: SmallVec<[Operand; 3]> = operands.iter().map(|x| (x.sizes(), x.strides())).collect();
    Tensor::empty_strided(&sizes, &elementwise(&sizes, &laid), dtype)
}

/// The number of a tensor without dimensions where its type holds some that `to` does not: PyTorch takes it out, which waits
/// for the device, and refuses those.
fn held(value: &Tensor, to: ScalarType) -> Result<Option<Number>, Error> {
    let from = value.dtype()?;
    if crate::ops::pointwise::promote_types(from, to)? == to {
        return Ok(None);
    }
    let number = if value.is_wave() {
        crate::tensors::memory_ops::local_scalar_dense(value)?
    } else {
        match crate::ops::pointwise::host_number(value)? {
            Number::Int(number) => Scalar::Int(number),
            Number::Float(number) => Scalar::Float(number),
        }
    };
    number.fits(to)?;
    Ok(Some(number.number()?))
}

fn gelu_backward(grad: &Tensor, x: &Tensor, approximate: &str, out: &Tensor) -> Result<Tensor, Error> {
    exactly(out, x.dtype()?)?;
    let op = if unary::by_tanh(approximate)? { Op::GeluTanhBackward } else { Op::GeluBackward };
    Pointwise::new(op, Rule::Same).write(&[grad.into(), x.into()], out)
}

fn prelu_backward(grad: &Tensor, x: &Tensor, weight: &Tensor) -> Result<(Tensor, Tensor), Error> {
    // Of the input: the gradient, scaled where it was negative; the op reads (gradient, input, weight).
    let operands = [x, weight, grad].map(|tensor| (tensor.sizes(), tensor.strides()));
    let strides = elementwise(&x.sizes(), &operands);
    let made = || Tensor::empty_strided(&x.sizes(), &strides, x.dtype()?);
    let of_input = Pointwise::new(Op::PreluBackward, Rule::Same)
        .write(&[grad.into(), x.into(), weight.into()], &made()?)?;
    let of_weight =
        Pointwise::new(Op::PreluBackwardWeight, Rule::Same).write(&[grad.into(), x.into()], &made()?)?;
    Ok((of_input, of_weight))
}

/// Both halves along a dimension.
fn halves(x: &Tensor, dim: i64) -> Result<[Tensor; 2], Error> {
    let dim = wrap(dim, x.sizes().len())?;
    let mut sizes = x.sizes();
    match sizes.get_mut(dim) {
        Some(size) if *size % 2 == 0 => *size /= 2,
        _ => return Err(Error::NoKernel(format!("halves of {:?} along {dim}", x.sizes()))),
    }
    let second = x.offset() + sizes[dim] * x.strides()[dim];
    Ok([x.alias(&sizes, &x.strides(), x.offset())?, x.alias(&sizes, &x.strides(), second)?])
}

fn glu_backward(grad: &Tensor, x: &Tensor, dim: i64, out: &Tensor) -> Result<Tensor, Error> {
    prepare(out, &x.sizes(), x.dtype()?, &[x, grad])?;
    let ([a, b], [of_a, of_b]) = (halves(x, dim)?, halves(out, dim)?);
    Pointwise::new(Op::Glu, Rule::Same).write(&[grad.into(), (&b).into()], &of_a)?;
    Pointwise::new(Op::GluBackward, Rule::Same).write(&[grad.into(), (&a).into(), (&b).into()], &of_b)?;
    out.share()
}
