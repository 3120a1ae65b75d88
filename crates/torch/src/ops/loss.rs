//! Losses between a prediction and a target, and their gradients.

use crate::abi::calls::{BUILD_VERSION, api, check};
use crate::abi::error::Error;
use crate::dispatch::index_errors::raise_where;
use crate::dispatch::register::Registration;
use crate::ops::pointwise::{Input, Pointwise, Rule};
use crate::tensors::copies;
use crate::tensors::memory_ops::resize_output;
use crate::tensors::tensor::Tensor;
use std::ffi::CStr;
use wave32_ops::Op;
use wave32_torch_logic::checks::Check;
use wave32_torch_logic::promotion::castable;

/// Kernels of `aten`.
pub const OPS: &[Registration] = crate::ops! {
    "mse_loss.out" => |x: &Tensor, y: &Tensor, reduction: i64, out: &Tensor| {
        loss(Op::Mse, x, y, None, reduction, 0.0, Some(out))
    },
    "mse_loss_backward" => |g: &Tensor, x: &Tensor, y: &Tensor, reduction: i64| {
        backward(Op::MseBackward, [g, x, y], 2.0 * share(x, reduction), 0.0, None)
    },
    "mse_loss_backward.grad_input" => |g: &Tensor, x: &Tensor, y: &Tensor, reduction: i64, out: &Tensor| {
        backward(Op::MseBackward, [g, x, y], 2.0 * share(x, reduction), 0.0, Some(out))
    },
    "smooth_l1_loss.out" => |x: &Tensor, y: &Tensor, reduction: i64, beta: f64, out: &Tensor| {
        loss(Op::SmoothL1, x, y, None, reduction, beta, Some(out))
    },
    "smooth_l1_loss_backward.grad_input" =>
        |g: &Tensor, x: &Tensor, y: &Tensor, reduction: i64, beta: f64, out: &Tensor| {
            backward(Op::SmoothL1Backward, [g, x, y], beta, share(x, reduction), Some(out))
        },
    "huber_loss" => |x: &Tensor, y: &Tensor, reduction: i64, delta: f64| {
        loss(Op::Huber, x, y, None, reduction, positive(delta)?, None)
    },
    "huber_loss.out" => |x: &Tensor, y: &Tensor, reduction: i64, delta: f64, out: &Tensor| {
        loss(Op::Huber, x, y, None, reduction, positive(delta)?, Some(out))
    },
    "huber_loss_backward.out" =>
        |g: &Tensor, x: &Tensor, y: &Tensor, reduction: i64, delta: f64, out: &Tensor| {
            backward(Op::HuberBackward, [g, x, y], delta, share(x, reduction), Some(out))
        },
    "binary_cross_entropy" => |x: &Tensor, y: &Tensor, weight: Option<&Tensor>, reduction: i64| {
        loss(Op::Bce, x, y, weight, reduction, 0.0, None)
    },
    "binary_cross_entropy.out" =>
        |x: &Tensor, y: &Tensor, weight: Option<&Tensor>, reduction: i64, out: &Tensor| {
            loss(Op::Bce, x, y, weight, reduction, 0.0, Some(out))
        },
    "binary_cross_entropy_backward" =>
        |g: &Tensor, x: &Tensor, y: &Tensor, weight: Option<&Tensor>, reduction: i64| {
            bce_backward(g, x, y, weight, reduction, None)
        },
    "binary_cross_entropy_backward.grad_input" =>
        |g: &Tensor, x: &Tensor, y: &Tensor, weight: Option<&Tensor>, reduction: i64, out: &Tensor| {
            bce_backward(g, x, y, weight, reduction, Some(out))
        },
};

const MEAN: i64 = 1;

/// A Huber loss' delta.
fn positive(delta: f64) -> Result<f64, Error> {
    if delta > 0.0 {
        return Ok(delta);
    }
    Err(Error::Invalid("huber_loss does not support non-positive values for delta.".into()))
}

/// What each element's gradient is multiplied by.
fn share(x: &Tensor, reduction: i64) -> f64 {
    if reduction == MEAN { 1.0 / x.numel() as f64 } else { 1.0 }
}

/// Each element's loss, with the strides that torch gives it.
fn each_loss(op: Op, pointwise: Pointwise, inputs: &[Input], x: &Tensor) -> Result<Tensor, Error> {
    match op {
        // Laid out as the prediction: torch makes these results before it looks at the target.
        Op::Huber | Op::Bce if x.is_wave() => pointwise.write(inputs, &x.empty_like(x.dtype()?)?),
        _ => pointwise.make(inputs),
    }
}

fn put(pointwise: Pointwise, inputs: &[Input], out: Option<&Tensor>) -> Result<Tensor, Error> {
    match out {
        Some(out) => pointwise.write(inputs, out),
        None => pointwise.make(inputs),
    }
}

fn loss(
    op: Op,
    x: &Tensor,
    y: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    s: f64,
    out: Option<&Tensor>,
) -> Result<Tensor, Error> {
    let each = Pointwise::with(op, Rule::Same, s, 0.0);
    let inputs = [x.into(), y.into()];
    if reduction == 0 && weight.is_none() {
        let made = match out {
            Some(out) => each.write(&inputs, out)?,
            None => each_loss(op, each, &inputs, x)?,
        };
        expect_numbers(op, &made)?;
        return Ok(made);
    }
    let made = each_loss(op, each, &inputs, x)?;
    expect_numbers(op, &made)?;
    if let Some(weight) = weight {
        Pointwise::new(Op::Mul, Rule::Same).in_place(&made, &[weight.into()])?;
    }
    let reduced = match reduction {
        0 => made,
        MEAN => reduce(c"aten::mean", &made)?,
        _ => reduce(c"aten::sum", &made)?,
    };
    let Some(out) = out else { return Ok(reduced) };
    castable(reduced.dtype()?, out.dtype()?)?;
    if out.sizes() != reduced.sizes() {
        resize_output(out, &reduced.sizes())?;
    }
    copies::copy(&reduced, out)?;
    out.share()
}

/// A binary cross-entropy is NaN for just those inputs that PyTorch refuses, and so is the sum that these are part of:
/// looked at when the device is next waited for.
fn expect_numbers(op: Op, losses: &Tensor) -> Result<(), Error> {
    if op != Op::Bce || losses.numel() == 0 {
        return Ok(());
    }
    let sum = reduce(c"aten::sum", losses)?;
    let wrong = Pointwise::new(Op::Ne, Rule::Truth).make(&[(&sum).into(), (&sum).into()])?;
    raise_where(&wrong, Check::Probability)
}

/// `aten::sum` or `aten::mean` over all.
fn reduce(name: &CStr, x: &Tensor) -> Result<Tensor, Error> {
    // No dtype: a null pointer.
    let mut stack = [x.share()?.into_word(), 0];
    // SAFETY: the operators take a tensor, which they own, and an optional type; they answer a tensor, ours.
    unsafe {
        let status =
            (api().torch_call_dispatcher)(name.as_ptr(), c"".as_ptr(), stack.as_mut_ptr(), BUILD_VERSION);
        check(status, "a reduction")?;
        Ok(Tensor::from_handle(stack[0] as crate::abi::calls::Handle))
    }
}

fn backward(op: Op, inputs: [&Tensor; 3], s: f64, t: f64, out: Option<&Tensor>) -> Result<Tensor, Error> {
    put(Pointwise::with(op, Rule::Same, s, t), &inputs.map(Input::from), out)
}

fn bce_backward(
    grad: &Tensor,
    x: &Tensor,
    y: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    out: Option<&Tensor>,
) -> Result<Tensor, Error> {
    let like = if out.is_none() { Some(x.empty_like(x.dtype()?)?) } else { None };
    let made = backward(Op::BceBackward, [grad, x, y], share(x, reduction), 0.0, out.or(like.as_ref()))?;
    match weight {
        Some(weight) => Pointwise::new(Op::Mul, Rule::Same).in_place(&made, &[weight.into()]),
        None => Ok(made),
    }
}
