//! Resampling of images.

use crate::abi::error::Error;
use crate::dispatch::register::Registration;
use crate::dispatch::result::{images, prepare};
use crate::runtime::bridge::run;
use crate::tensors::tensor::Tensor;
use wave32_ops::upsample::{Resample, upsample1d, upsample2d, upsample2d_backward};
use wave32_torch_logic::windows::resampled;

type Scale = Option<f64>;

/// Kernels of `aten`. A signal is an image of height 1.
pub const OPS: &[Registration] = crate::ops! {
    "upsample_nearest1d.out" => |x: &Tensor, size: &[i64], w: Scale, out: &Tensor| {
        forward(Resample::Nearest, x, size, &[w], out)
    },
    "_upsample_nearest_exact1d.out" => |x: &Tensor, size: &[i64], w: Scale, out: &Tensor| {
        forward(Resample::NearestExact, x, size, &[w], out)
    },
    "upsample_linear1d.out" => |x: &Tensor, size: &[i64], align_corners: bool, w: Scale, out: &Tensor| {
        forward(Resample::Bilinear { align_corners }, x, size, &[w], out)
    },
    "upsample_nearest2d.out" => |x: &Tensor, size: &[i64], h: Scale, w: Scale, out: &Tensor| {
        forward(Resample::Nearest, x, size, &[h, w], out)
    },
    "_upsample_nearest_exact2d.out" => |x: &Tensor, size: &[i64], h: Scale, w: Scale, out: &Tensor| {
        forward(Resample::NearestExact, x, size, &[h, w], out)
    },
    "upsample_bilinear2d.out" => |x: &Tensor, size: &[i64], align_corners: bool, h: Scale, w: Scale, out: &Tensor| {
        forward(Resample::Bilinear { align_corners }, x, size, &[h, w], out)
    },
    "upsample_nearest1d_backward.grad_input" =>
        |grad: &Tensor, size: &[i64], from: &[i64], w: Scale, to: &Tensor| {
            backward(Resample::Nearest, grad, size, from, &[w], to)
        },
    "_upsample_nearest_exact1d_backward.grad_input" =>
        |grad: &Tensor, size: &[i64], from: &[i64], w: Scale, to: &Tensor| {
            backward(Resample::NearestExact, grad, size, from, &[w], to)
        },
    "upsample_linear1d_backward.grad_input" =>
        |grad: &Tensor, size: &[i64], from: &[i64], align_corners: bool, w: Scale, to: &Tensor| {
            backward(Resample::Bilinear { align_corners }, grad, size, from, &[w], to)
        },
    "upsample_nearest2d_backward.grad_input" =>
        |grad: &Tensor, size: &[i64], from: &[i64], h: Scale, w: Scale, to: &Tensor| {
            backward(Resample::Nearest, grad, size, from, &[h, w], to)
        },
    "_upsample_nearest_exact2d_backward.grad_input" =>
        |grad: &Tensor, size: &[i64], from: &[i64], h: Scale, w: Scale, to: &Tensor| {
            backward(Resample::NearestExact, grad, size, from, &[h, w], to)
        },
    "upsample_bilinear2d_backward.grad_input" =>
        |grad: &Tensor, size: &[i64], from: &[i64], align_corners: bool, h: Scale, w: Scale, to: &Tensor| {
            backward(Resample::Bilinear { align_corners }, grad, size, from, &[h, w], to)
        },
};

/// Scale factors of height and width.
fn factors(scales: &[Scale]) -> [Scale; 2] {
    match *scales {
        [w] => [None, w],
        [h, w, ..] => [h, w],
        [] => [None; 2],
    }
}

fn forward(how: Resample, x: &Tensor, size: &[i64], scales: &[Scale], out: &Tensor) -> Result<Tensor, Error> {
    let axes = scales.len();
    let sizes = resampled(&x.sizes(), size, axes)?;
    prepare(out, &sizes, x.dtype()?, &[x])?;
    let (from, to) = (images(x, axes)?, images(out, axes)?);
    run(|queue| match *scales {
        [factor] => upsample1d(queue, how, factor, &from, &to),
        _ => upsample2d(queue, how, factors(scales), &from, &to),
    })?;
    out.share()
}

fn backward(
    how: Resample,
    grad: &Tensor,
    size: &[i64],
    from: &[i64],
    scales: &[Scale],
    grad_input: &Tensor,
) -> Result<Tensor, Error> {
    let axes = scales.len();
    if grad.sizes() != resampled(from, size, axes)? {
        return Err(Error::NoKernel(format!("gradients of sizes {:?}", grad.sizes())));
    }
    prepare(grad_input, from, grad.dtype()?, &[grad])?;
    let (from, to) = (images(grad, axes)?, images(grad_input, axes)?);
    run(|queue| upsample2d_backward(queue, how, factors(scales), &from, &to))?;
    grad_input.share()
}
