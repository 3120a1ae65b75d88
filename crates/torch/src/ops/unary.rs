//! Functions of one tensor.

use crate::abi::error::Error;
use crate::dispatch::register::Registration;
use crate::dispatch::result::{exactly, prepare};
use crate::ops::pointwise::{Input, Pointwise, Rule};
use crate::tensors::copies;
use crate::tensors::tensor::Tensor;
use wave32_ops::Op;
use wave32_torch_logic::ScalarType;

/// A row each: `out=` of a function; functional and in-place forms follow from it.
macro_rules! functions {
    ($($name:literal => $op:ident, $rule:ident;)*) => {
        crate::ops! { $($name => |x: &Tensor, out: &Tensor| write(Op::$op, Rule::$rule, x, out),)* }
    };
}

/// What keeps its operand's type converts no result, as in PyTorch; of complex numbers, `abs` makes real ones.
fn write(op: Op, rule: Rule, x: &Tensor, out: &Tensor) -> Result<Tensor, Error> {
    let (from, to) = (x.dtype()?, out.dtype()?);
    if rule == Rule::Same && from != to && !from.is_complex() {
        return Err(Error::Invalid(format!(
            "Found dtype {} but expected {}",
            to.scalar_name(),
            from.scalar_name()
        )));
    }
    Pointwise::new(op, rule).write(&[x.into()], out)
}

/// Kernels of `aten`.
pub const OPS: &[Registration] = functions! {
    "abs.out" => Abs, Same;
    "neg.out" => Neg, Same;
    "sign.out" => Sign, Same;
    "sgn.out" => Sign, Same;
    "floor.out" => Floor, Same;
    "ceil.out" => Ceil, Same;
    "round.out" => Round, Same;
    "trunc.out" => Trunc, Same;
    "frac.out" => Frac, Same;
    "logical_not.out" => LogicalNot, Truth;
    "bitwise_not.out" => BitwiseNot, Same;
    "exp.out" => Exp, Float;
    "expm1.out" => Expm1, Float;
    "exp2.out" => Exp2, Float;
    "log.out" => Log, Float;
    "log2.out" => Log2, Float;
    "log10.out" => Log10, Float;
    "log1p.out" => Log1p, Float;
    "sqrt.out" => Sqrt, Float;
    "rsqrt.out" => Rsqrt, Float;
    "sin.out" => Sin, Float;
    "cos.out" => Cos, Float;
    "tan.out" => Tan, Float;
    "asin.out" => Asin, Float;
    "acos.out" => Acos, Float;
    "atan.out" => Atan, Float;
    "sinh.out" => Sinh, Float;
    "cosh.out" => Cosh, Float;
    "tanh.out" => Tanh, Float;
    "asinh.out" => Asinh, Float;
    "acosh.out" => Acosh, Float;
    "atanh.out" => Atanh, Float;
    "erf.out" => Erf, Float;
    "erfc.out" => Erfc, Float;
    "erfinv.out" => Erfinv, Float;
    "sigmoid.out" => Sigmoid, Float;
    "sinc.out" => Sinc, Float;
};

macro_rules! hot {
    ($($name:literal => $op:ident, $rule:ident;)*) => {
        crate::ops! { $($name => |x: &Tensor| Pointwise::new(Op::$op, Rule::$rule).make(&[x.into()]),)* }
    };
}

/// Hot functions by themselves: torch's way from one to its `out=` takes longer than the launch. None whose arguments torch
/// checks on that way.
pub const HOT: &[Registration] = hot! {
    "exp" => Exp, Float;
    "log" => Log, Float;
    "sqrt" => Sqrt, Float;
    "rsqrt" => Rsqrt, Float;
    "sin" => Sin, Float;
    "cos" => Cos, Float;
    "tanh" => Tanh, Float;
    "sigmoid" => Sigmoid, Float;
    "silu" => Silu, Same;
};

/// Kernels of `aten` whose other forms do not follow from `out=`.
pub const MORE: &[Registration] = crate::ops! {
    "isnan" => |x: &Tensor| Pointwise::new(Op::Ne, Rule::Truth).make(&[x.into(), x.into()]),
    "isposinf.out" => |x: &Tensor, out: &Tensor| is_number(x, f64::INFINITY, out),
    "isneginf.out" => |x: &Tensor, out: &Tensor| is_number(x, f64::NEG_INFINITY, out),
    "logit" => |x: &Tensor, eps: Option<f64>| logit(eps).make(&[x.into()]),
    "logit_" => |x: &Tensor, eps: Option<f64>| logit(eps).in_place(x, &[]),
    "logit.out" => |x: &Tensor, eps: Option<f64>, out: &Tensor| logit(eps).write(&[x.into()], out),
    "nan_to_num.out" => nan_to_num,
    "relu" => |x: &Tensor| relu().make(&[x.into()]),
    "relu_" => |x: &Tensor| relu().in_place(x, &[]),
    "hardswish" => |x: &Tensor| hardswish().make(&[x.into()]),
    "hardswish_" => |x: &Tensor| hardswish().in_place(x, &[]),
    "hardswish.out" => |x: &Tensor, out: &Tensor| write(Op::Hardswish, Rule::Same, x, out),
    "silu.out" => |x: &Tensor, out: &Tensor| write(Op::Silu, Rule::Same, x, out),
    "mish.out" => |x: &Tensor, out: &Tensor| write(Op::Mish, Rule::Same, x, out),
    "hardsigmoid.out" => |x: &Tensor, out: &Tensor| write(Op::Hardsigmoid, Rule::Same, x, out),
    "signbit.out" => |x: &Tensor, out: &Tensor| {
        exactly(out, ScalarType::Bool)?;
        Pointwise::new(Op::Signbit, Rule::Truth).write(&[x.into()], out)
    },
    "gelu.out" => gelu,
    "log_sigmoid_forward" => log_sigmoid,
    "log_sigmoid_forward.output" => log_sigmoid_out,
    // As a quotient, which exists in f64 too: gradient scaling asks for that every step.
    "reciprocal.out" => |x: &Tensor, out: &Tensor| {
        Pointwise::new(Op::Div, Rule::Float).write(&[Input::Value(1.0.into()), x.into()], out)
    },
    "_foreach_sqrt" => |all: &[Tensor]| crate::ops::foreach::roots(all),
    "eye.m_out" => eye,
    "eye.out" => |n: i64, out: &Tensor| eye(n, n, out),
};

fn relu() -> Pointwise {
    Pointwise::new(Op::Relu, Rule::Same)
}

fn hardswish() -> Pointwise {
    Pointwise::new(Op::Hardswish, Rule::Same)
}

/// Whether a gelu is the one by tanh.
///
/// # Errors
/// `Invalid` for a name that is of neither.
pub fn by_tanh(approximate: &str) -> Result<bool, Error> {
    match approximate {
        "none" => Ok(false),
        "tanh" => Ok(true),
        _ => Err(Error::Invalid("approximate argument must be either none or tanh.".into())),
    }
}

fn gelu(x: &Tensor, approximate: &str, out: &Tensor) -> Result<Tensor, Error> {
    write(if by_tanh(approximate)? { Op::GeluTanh } else { Op::Gelu }, Rule::Same, x, out)
}

/// The buffer is the CPU kernels' own; ours need none.
fn log_sigmoid(x: &Tensor) -> Result<(Tensor, Tensor), Error> {
    // Contiguous whatever the input is, as the CPU's.
    let out = Tensor::empty(&x.sizes(), x.dtype()?)?;
    let made = Pointwise::new(Op::LogSigmoid, Rule::Same).write(&[x.into()], &out)?;
    Ok((made, Tensor::empty(&[0], x.dtype()?)?))
}

fn log_sigmoid_out(x: &Tensor, out: &Tensor, buffer: &Tensor) -> Result<(Tensor, Tensor), Error> {
    let made = Pointwise::new(Op::LogSigmoid, Rule::Same).write(&[x.into()], out)?;
    Ok((made, buffer.share()?))
}

fn eye(rows: i64, columns: i64, out: &Tensor) -> Result<Tensor, Error> {
    if rows < 0 || columns < 0 {
        return Err(Error::Invalid(format!("n must be greater or equal to 0, got {}", rows.min(columns))));
    }
    if out.sizes()[..] != [rows, columns] {
        crate::tensors::memory_ops::resize(out, &[rows, columns])?;
    }
    let view = crate::runtime::bridge::view(out)?;
    crate::runtime::bridge::run(|queue| wave32_ops::eye(queue, &view))?;
    out.share()
}

fn is_number(x: &Tensor, number: f64, out: &Tensor) -> Result<Tensor, Error> {
    exactly(out, ScalarType::Bool)?;
    // Whole numbers are neither, and compare as such.
    let pointwise = Pointwise::new(Op::Eq, Rule::Truth);
    let float = x.dtype()?.is_float();
    let pointwise = if float { pointwise } else { pointwise.promoting_to(Some(ScalarType::F32)) };
    pointwise.write(&[x.into(), Input::Value(number.into())], out)
}

fn logit(eps: Option<f64>) -> Pointwise {
    Pointwise::with(Op::Logit, Rule::Float, eps.unwrap_or(-1.0), 0.0)
}

fn nan_to_num(
    x: &Tensor,
    nan: Option<f64>,
    high: Option<f64>,
    low: Option<f64>,
    out: &Tensor,
) -> Result<Tensor, Error> {
    let dtype = x.dtype()?;
    if !dtype.is_float() && !dtype.is_complex() {
        // As the CPU has it: a copy, whose result does not get the operand's order of dimensions.
        prepare(out, &x.sizes(), dtype, &[x])?;
        copies::copy(x, out)?;
        return out.share();
    }
    exactly(out, dtype)?;
    let most = match dtype {
        ScalarType::F16 => 65504.0,
        ScalarType::F64 => f64::MAX,
        ScalarType::BF16 => f64::from_bits(0x47ef_e000_0000_0000),
        _ => f64::from(f32::MAX),
    };
    let (high, low) = (high.unwrap_or(most), low.unwrap_or(-most));
    let mend = Pointwise::with(Op::NanToNum, Rule::Same, nan.unwrap_or(0.0), high);
    mend.write(&[x.into(), Input::Value(low.into())], out)
}
