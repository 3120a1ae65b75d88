//! Pooling.

use crate::abi::error::Error;
use crate::dispatch::register::Registration;
use crate::dispatch::result::{empty_in_format, images, prepare};
use crate::runtime::bridge::run;
use crate::tensors::tensor::Tensor;
use wave32_ops::View;
use wave32_ops::pool::{Divisor, Windows, avg_pool2d, avg_pool2d_backward, max_pool2d, max_pool2d_backward};
use wave32_torch_logic::ScalarType;
use wave32_torch_logic::windows::{adaptive, sliding};

/// Kernels of `aten`. One-dimensional pooling arrives as two-dimensional.
pub const OPS: &[Registration] = crate::ops! {
    "max_pool2d_with_indices.out" => max_out,
    "max_pool2d_with_indices_backward.grad_input" => max_backward_out,
    "avg_pool2d.out" => avg_out,
    "avg_pool2d_backward.grad_input" => avg_backward_out,
    "adaptive_max_pool2d.out" => adaptive_max_out,
    "adaptive_max_pool2d_backward.grad_input" => adaptive_max_backward_out,
    "_adaptive_avg_pool2d" => adaptive_avg,
    "adaptive_avg_pool2d.out" => adaptive_avg_out,
    "_adaptive_avg_pool2d_backward" => adaptive_avg_backward,
};

/// The (N, C, H, W) views of tensors that all are images or batches of images.
fn sides<const N: usize>(tensors: [&Tensor; N]) -> Result<[View; N], Error> {
    let first = images(tensors[0], 2)?;
    let mut views = [first; N];
    for (view, tensor) in views.iter_mut().zip(tensors) {
        *view = images(tensor, 2)?;
    }
    Ok(views)
}

fn maxima(
    windows: Windows,
    sizes: &[i64],
    x: &Tensor,
    out: &Tensor,
    indices: &Tensor,
) -> Result<(Tensor, Tensor), Error> {
    prepare(out, sizes, x.dtype()?, &[x])?;
    prepare(indices, sizes, ScalarType::I64, &[x, out])?;
    let [from, to, places] = sides([x, out, indices])?;
    run(|queue| max_pool2d(queue, windows, &from, &to, &places))?;
    Ok((out.share()?, indices.share()?))
}

fn maxima_backward(
    windows: Windows,
    sizes: &[i64],
    grad: &Tensor,
    x: &Tensor,
    indices: &Tensor,
    grad_input: &Tensor,
) -> Result<Tensor, Error> {
    if grad.sizes()[..] != sizes[..] || indices.sizes()[..] != sizes[..] || grad.dtype()? != x.dtype()? {
        return Err(Error::NoKernel(format!("gradients of sizes {:?}, not {sizes:?}", grad.sizes())));
    }
    prepare(grad_input, &x.sizes(), x.dtype()?, &[grad, indices])?;
    let [from, places, to] = sides([grad, indices, grad_input])?;
    run(|queue| max_pool2d_backward(queue, windows, &from, &places, &to))?;
    grad_input.share()
}

#[allow(clippy::too_many_arguments)] // the schema's
fn max_out(
    x: &Tensor,
    kernel: &[i64],
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
    ceil: bool,
    out: &Tensor,
    indices: &Tensor,
) -> Result<(Tensor, Tensor), Error> {
    let (windows, sizes) = sliding(&x.sizes(), [kernel, stride, padding, dilation], ceil)?;
    maxima(windows, &sizes, x, out, indices)
}

#[allow(clippy::too_many_arguments)] // the schema's
fn max_backward_out(
    grad: &Tensor,
    x: &Tensor,
    kernel: &[i64],
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
    ceil: bool,
    indices: &Tensor,
    grad_input: &Tensor,
) -> Result<Tensor, Error> {
    let (windows, sizes) = sliding(&x.sizes(), [kernel, stride, padding, dilation], ceil)?;
    maxima_backward(windows, &sizes, grad, x, indices, grad_input)
}

fn adaptive_max_out(
    x: &Tensor,
    wanted: &[i64],
    out: &Tensor,
    indices: &Tensor,
) -> Result<(Tensor, Tensor), Error> {
    let sizes = adaptive(&x.sizes(), wanted)?;
    maxima(Windows::Adaptive, &sizes, x, out, indices)
}

fn adaptive_max_backward_out(
    grad: &Tensor,
    x: &Tensor,
    indices: &Tensor,
    grad_input: &Tensor,
) -> Result<Tensor, Error> {
    maxima_backward(Windows::Adaptive, &grad.sizes(), grad, x, indices, grad_input)
}

fn divisor(count_include_pad: bool, fixed: Option<i64>) -> Result<Divisor, Error> {
    match fixed {
        Some(by) => i32::try_from(by)
            .map(Divisor::Fixed)
            .map_err(|_| Error::NoKernel(format!("an average divided by {by}"))),
        None if count_include_pad => Ok(Divisor::WithPadding),
        None => Ok(Divisor::WithoutPadding),
    }
}

#[allow(clippy::too_many_arguments)] // the schema's
fn avg_out(
    x: &Tensor,
    kernel: &[i64],
    stride: &[i64],
    padding: &[i64],
    ceil: bool,
    count_include_pad: bool,
    fixed: Option<i64>,
    out: &Tensor,
) -> Result<Tensor, Error> {
    let (windows, sizes) = sliding(&x.sizes(), [kernel, stride, padding, &[]], ceil)?;
    averages(windows, divisor(count_include_pad, fixed)?, x, &sizes, out)
}

#[allow(clippy::too_many_arguments)] // the schema's
fn avg_backward_out(
    grad: &Tensor,
    x: &Tensor,
    kernel: &[i64],
    stride: &[i64],
    padding: &[i64],
    ceil: bool,
    count_include_pad: bool,
    fixed: Option<i64>,
    grad_input: &Tensor,
) -> Result<Tensor, Error> {
    let (windows, sizes) = sliding(&x.sizes(), [kernel, stride, padding, &[]], ceil)?;
    let divisor = divisor(count_include_pad, fixed)?;
    if grad.sizes()[..] != sizes[..] || grad.dtype()? != x.dtype()? {
        return Err(Error::NoKernel(format!("gradients of sizes {:?}, not {sizes:?}", grad.sizes())));
    }
    prepare(grad_input, &x.sizes(), x.dtype()?, &[grad])?;
    let [from, to] = sides([grad, grad_input])?;
    run(|queue| avg_pool2d_backward(queue, windows, divisor, &from, &to))?;
    grad_input.share()
}

fn averages(
    windows: Windows,
    divisor: Divisor,
    x: &Tensor,
    sizes: &[i64],
    out: &Tensor,
) -> Result<Tensor, Error> {
    prepare(out, sizes, x.dtype()?, &[x])?;
    let [from, to] = sides([x, out])?;
    run(|queue| avg_pool2d(queue, windows, divisor, &from, &to))?;
    out.share()
}

fn adaptive_avg_into(x: &Tensor, sizes: &[i64], out: &Tensor) -> Result<Tensor, Error> {
    averages(Windows::Adaptive, Divisor::WithoutPadding, x, sizes, out)
}

fn adaptive_avg(x: &Tensor, wanted: &[i64]) -> Result<Tensor, Error> {
    let sizes = adaptive(&x.sizes(), wanted)?;
    adaptive_avg_into(x, &sizes, &empty_in_format(x, &sizes)?)
}

fn adaptive_avg_out(x: &Tensor, wanted: &[i64], out: &Tensor) -> Result<Tensor, Error> {
    adaptive_avg_into(x, &adaptive(&x.sizes(), wanted)?, out)
}

fn adaptive_avg_backward(grad: &Tensor, x: &Tensor) -> Result<Tensor, Error> {
    let rank = x.sizes().len();
    let alike = grad.sizes().len() == rank && rank >= 3 && grad.sizes()[..rank - 2] == x.sizes()[..rank - 2];
    if !alike || grad.dtype()? != x.dtype()? {
        return Err(Error::NoKernel(format!("gradients of sizes {:?}", grad.sizes())));
    }
    let grad_input = empty_in_format(x, &x.sizes())?;
    let [from, to] = sides([grad, &grad_input])?;
    run(|queue| avg_pool2d_backward(queue, Windows::Adaptive, Divisor::WithoutPadding, &from, &to))?;
    Ok(grad_input)
}
