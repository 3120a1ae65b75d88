//! Softmax and losses.

use crate::abi::error::Error;
use crate::dispatch::index_errors;
use crate::dispatch::register::Registration;
use crate::dispatch::result::{prepare, same_elements};
use crate::runtime::bridge::{run, view};
use crate::tensors::copies::{self, contiguous};
use crate::tensors::tensor::Tensor;
use wave32_ops::{NllLoss, Reduction, nll_loss, nll_loss_backward, softmax, softmax_backward};
use wave32_torch_logic::number::element;
use wave32_torch_logic::sizes::wrap;
use wave32_torch_logic::{Dims, ScalarType};

/// Kernels of `aten`.
pub const OPS: &[Registration] = crate::ops! {
    "_softmax.out" => |x: &Tensor, dim: i64, wider: bool, out: &Tensor| softmax_into(false, x, dim, wider, out),
    "_log_softmax.out" => |x: &Tensor, dim: i64, wider: bool, out: &Tensor| softmax_into(true, x, dim, wider, out),
    "_softmax_backward_data.out" => |grad: &Tensor, y: &Tensor, dim: i64, dtype: ScalarType, to: &Tensor| {
        softmax_backward_into(false, grad, y, dim, dtype, to)
    },
    "_log_softmax_backward_data.out" => |grad: &Tensor, y: &Tensor, dim: i64, dtype: ScalarType, to: &Tensor| {
        softmax_backward_into(true, grad, y, dim, dtype, to)
    },
    "nll_loss_forward.output" => nll_into,
    "nll_loss_backward.grad_input" => nll_backward_into,
    "nll_loss2d_forward" => nll2d,
    "nll_loss2d_forward.output" => nll_into,
    "nll_loss2d_backward" => nll2d_backward,
    "nll_loss2d_backward.grad_input" => nll_backward_into,
};

fn softmax_into(log: bool, x: &Tensor, dim: i64, wider: bool, out: &Tensor) -> Result<Tensor, Error> {
    let dim = wrap(dim, x.sizes().len())?;
    let dtype = if wider { ScalarType::F32 } else { x.dtype()? };
    if !dtype.is_float() {
        return Err(Error::NoKernel(format!("a softmax in {}", dtype.name())));
    }
    prepare(out, &x.sizes(), dtype, &[x])?;
    let (from, to) = (rows(x)?, rows(out)?);
    run(|queue| softmax(queue, log, &from, dim, &to))?;
    out.share()
}

/// A scalar is a row of one element.
fn rows(x: &Tensor) -> Result<wave32_ops::View, Error> {
    let plain = view(x)?;
    if plain.rank() > 0 {
        return Ok(plain);
    }
    Ok(wave32_ops::View::contiguous(plain.address, plain.dtype, &[1])?)
}

fn softmax_backward_into(
    log: bool,
    grad: &Tensor,
    y: &Tensor,
    dim: i64,
    dtype: ScalarType,
    grad_input: &Tensor,
) -> Result<Tensor, Error> {
    let dim = wrap(dim, y.sizes().len())?;
    prepare(grad_input, &y.sizes(), dtype, &[grad, y])?;
    let (from, result, to) = (rows(grad)?, rows(y)?, rows(grad_input)?);
    run(|queue| softmax_backward(queue, log, &from, &result, dim, &to))?;
    grad_input.share()
}

fn reduction_of(code: i64) -> Result<Reduction, Error> {
    match code {
        0 => Ok(Reduction::None),
        1 => Ok(Reduction::Mean),
        2 => Ok(Reduction::Sum),
        _ => Err(Error::NoKernel(format!("reduction {code}"))),
    }
}

/// Sizes of the items of an input (N, C, ...) or (C); what PyTorch refuses becomes `NoKernel`.
fn item_sizes(x: &Tensor, target: &Tensor, weight: Option<&Tensor>) -> Result<Dims, Error> {
    let sizes = x.sizes();
    let refused = || Error::NoKernel(format!("a loss of {sizes:?} for targets {:?}", target.sizes()));
    let classes = if sizes.len() == 1 { 0 } else { 1 };
    let items: Dims = sizes.iter().enumerate().filter(|(dim, _)| *dim != classes).map(|(_, &n)| n).collect();
    let is_alike = target.sizes()[..] == items[..] || (items.is_empty() && target.numel() == 1);
    let classes = *sizes.get(classes).ok_or_else(refused)?;
    let weights = weight.is_none_or(|weight| weight.sizes()[..] == [classes]);
    let types = x.dtype()?.is_float() && matches!(target.dtype()?, ScalarType::I64 | ScalarType::U8);
    if !is_alike || !weights || !types || classes == 0 {
        return Err(refused());
    }
    Ok(items)
}

/// Input and target with the dimension of items, and with the inner ones merged where they can be.
fn batched(x: &Tensor, target: &Tensor) -> Result<(Tensor, Tensor), Error> {
    if x.sizes().len() == 1 {
        let classes = x.sizes()[0];
        return Ok((
            x.alias(&[1, classes], &[classes, x.strides()[0]], x.offset())?,
            target.alias(&[1], &[1], target.offset())?,
        ));
    }
    if x.sizes().len() == 2 {
        return Ok((x.share()?, target.share()?));
    }
    // Channels last suits as well: one stride leads through all inner dimensions.
    let merges = |strides: &[i64], sizes: &[i64]| {
        (1..sizes.len()).all(|dim| strides[dim - 1] == strides[dim] * sizes[dim] || sizes[dim - 1] == 1)
    };
    let inner = if merges(&x.strides()[2..], &x.sizes()[2..]) { x.share()? } else { contiguous(x)? };
    Ok((inner, contiguous(target)?))
}

fn nll_into(
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore_index: i64,
    out: &Tensor,
    total: &Tensor,
) -> Result<(Tensor, Tensor), Error> {
    let (items, reduction) = (item_sizes(x, target, weight)?, reduction_of(reduction)?);
    let dtype = x.dtype()?;
    let sizes: &[i64] = if reduction == Reduction::None { &items } else { &[] };
    prepare(out, sizes, dtype, &[x])?;
    prepare(total, &[], dtype, &[x])?;
    if x.numel() == 0 {
        let loss = if reduction == Reduction::Mean { f64::NAN } else { 0.0 };
        copies::fill(out, &element(loss, dtype)?)?;
        copies::fill(total, &element(0.0, dtype)?)?;
        return Ok((out.share()?, total.share()?));
    }
    let (input, targets) = batched(x, target)?;
    let (from, wanted, mut to, sum) = (view(&input)?, view(&targets)?, view(out)?, view(total)?);
    if to.rank() == 0 && reduction == Reduction::None {
        to = wave32_ops::View::contiguous(to.address, to.dtype, &[1])?;
    }
    let weights = weight.map(view).transpose()?;
    let loss = NllLoss { weight: weights.as_ref(), reduction, ignore_index, errors: index_errors::word()? };
    run(|queue| nll_loss(queue, &from, &wanted, &loss, &to, &sum))?;
    Ok((out.share()?, total.share()?))
}

fn nll2d(
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore_index: i64,
) -> Result<(Tensor, Tensor), Error> {
    let items = item_sizes(x, target, weight)?;
    let sizes: &[i64] = if reduction == 0 { &items } else { &[] };
    let (out, total) = (Tensor::empty(sizes, x.dtype()?)?, Tensor::empty(&[], x.dtype()?)?);
    nll_into(x, target, weight, reduction, ignore_index, &out, &total)
}

#[allow(clippy::too_many_arguments)] // the schema's
fn nll_backward_into(
    grad: &Tensor,
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore_index: i64,
    total: &Tensor,
    grad_input: &Tensor,
) -> Result<Tensor, Error> {
    let (items, reduction) = (item_sizes(x, target, weight)?, reduction_of(reduction)?);
    let expected = if reduction == Reduction::None { items.as_slice() } else { &[] };
    if grad.sizes()[..] != expected[..] && grad.numel() != 1 {
        return Err(Error::NoKernel(format!("a gradient of sizes {:?}", grad.sizes())));
    }
    prepare(grad_input, &x.sizes(), x.dtype()?, &[x])?;
    if x.numel() == 0 {
        return grad_input.share();
    }
    let (to, targets) = batched(grad_input, target)?;
    let grads = contiguous(grad)?;
    let (mut from, wanted, sum, into) = (view(&grads)?, view(&targets)?, view(total)?, view(&to)?);
    if from.rank() == 0 {
        from = wave32_ops::View::contiguous(from.address, from.dtype, &[1])?;
    }
    let weights = weight.map(view).transpose()?;
    let loss = NllLoss { weight: weights.as_ref(), reduction, ignore_index, errors: index_errors::word()? };
    run(|queue| nll_loss_backward(queue, &from, &wanted, &loss, &sum, &into))?;
    if !same_elements(&to, grad_input) && x.sizes().len() > 1 {
        grad_input.copy_from(&to)?;
    }
    grad_input.share()
}

#[allow(clippy::too_many_arguments)] // the schema's
fn nll2d_backward(
    grad: &Tensor,
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore_index: i64,
    total: &Tensor,
) -> Result<Tensor, Error> {
    let grad_input = x.empty_like(x.dtype()?)?;
    nll_backward_into(grad, x, target, weight, reduction, ignore_index, total, &grad_input)
}
