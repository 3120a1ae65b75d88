//! Layer norm and group norm.

use crate::abi::error::Error;
use crate::dispatch::register::Registration;
use crate::ops::norm::activation;
use crate::runtime::bridge::{run, view};
use crate::tensors::copies::{self, contiguous};
use crate::tensors::layout::{laid_out, suggests_channels_last};
use crate::tensors::tensor::Tensor;
use wave32_ops::{NormActivation, NormGrads, NormShape, View, norm, norm_backward};
use wave32_torch_logic::ScalarType;
use wave32_torch_logic::norms::{group, layer};

/// Kernels of `aten`.
pub const OPS: &[Registration] = crate::ops! {
    "native_layer_norm" => layer_norm,
    "native_layer_norm_backward" => layer_norm_backward,
    "native_group_norm" => group_norm,
    "native_group_norm_backward" => group_norm_backward,
};

/// Schema of what `python/wave32/_fuse.py` calls; `act` and `most` as a batch norm's.
pub const SCHEMAS: &[&str] = &[
    "group_norm_act(Tensor x, int groups, Tensor? weight, Tensor? bias, float eps, int act, float? most) -> Tensor",
];

/// Its kernel.
pub const OWN: &[Registration] = crate::ops! { "group_norm_act" => group_norm_act };

/// Weight and bias, contiguous.
fn plain(parameter: Option<&Tensor>) -> Result<Option<Tensor>, Error> {
    parameter.map(contiguous).transpose()
}

fn viewed(tensor: Option<&Tensor>) -> Result<Option<View>, Error> {
    tensor.map(view).transpose()
}

fn forward(
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    shape: NormShape,
    statistics: &[i64],
    eps: f64,
    activation: NormActivation,
) -> Result<(Tensor, Tensor, Tensor), Error> {
    if !x.dtype()?.is_float() {
        return Err(Error::NoKernel(format!("a norm of {}", x.dtype()?.name())));
    }
    let (x, weight, bias) = (contiguous(x)?, plain(weight)?, plain(bias)?);
    let y = Tensor::empty(&x.sizes(), x.dtype()?)?;
    let (mean, rstd) =
        (Tensor::empty(statistics, ScalarType::F32)?, Tensor::empty(statistics, ScalarType::F32)?);
    if x.numel() == 0 {
        // Statistics of rows without elements are for the CPU to define.
        return match mean.numel() {
            0 => Ok((y, mean, rstd)),
            _ => Err(Error::NoKernel("a norm of rows without elements".into())),
        };
    }
    let (from, to, saved) = (view(&x)?, view(&y)?, [view(&mean)?, view(&rstd)?]);
    let (w, b) = (viewed(weight.as_ref())?, viewed(bias.as_ref())?);
    let [m, r] = &saved;
    run(|queue| norm(queue, shape, &from, w.as_ref(), b.as_ref(), eps as f32, activation, &to, [m, r]))?;
    Ok((y, mean, rstd))
}

#[allow(clippy::too_many_arguments)] // the schemas'
fn backward(
    grad: &Tensor,
    x: &Tensor,
    mean: &Tensor,
    rstd: &Tensor,
    weight: Option<&Tensor>,
    parameters: (&[i64], ScalarType),
    shape: NormShape,
    mask: &[bool],
) -> Result<(Tensor, Tensor, Tensor), Error> {
    let &[for_x, for_weight, for_bias] = mask else {
        return Err(Error::Invalid(format!("a norm's mask {mask:?}")));
    };
    if x.numel() == 0 {
        let none = |wanted: bool, sizes: &[i64], dtype: ScalarType| {
            let made = if wanted { Tensor::empty(sizes, dtype)? } else { return Tensor::undefined() };
            copies::fill(&made, &[0])?;
            Ok(made)
        };
        let (sizes, dtype) = parameters;
        let dx = none(for_x, &x.sizes(), x.dtype()?)?;
        return Ok((dx, none(for_weight, sizes, dtype)?, none(for_bias, sizes, dtype)?));
    }
    let (x, grad, weight) = (contiguous(x)?, contiguous(grad)?, plain(weight)?);
    let (mean, rstd) = (contiguous(mean)?, contiguous(rstd)?);
    let make = |wanted: bool, sizes: &[i64], dtype: ScalarType| {
        if wanted { Tensor::empty(sizes, dtype) } else { Tensor::undefined() }
    };
    let (sizes, dtype) = parameters;
    let dx = make(for_x, &x.sizes(), x.dtype()?)?;
    let (dweight, dbias) = (make(for_weight, sizes, dtype)?, make(for_bias, sizes, dtype)?);
    let (from, grads, saved) = (view(&x)?, view(&grad)?, [view(&mean)?, view(&rstd)?]);
    let w = viewed(weight.as_ref())?;
    let into = [
        viewed(for_x.then_some(&dx))?,
        viewed(for_weight.then_some(&dweight))?,
        viewed(for_bias.then_some(&dbias))?,
    ];
    let wanted = NormGrads { x: into[0].as_ref(), weight: into[1].as_ref(), bias: into[2].as_ref() };
    let [m, r] = &saved;
    run(|queue| norm_backward(queue, shape, &grads, &from, w.as_ref(), [m, r], &wanted))?;
    Ok((dx, dweight, dbias))
}

fn layer_norm(
    x: &Tensor,
    normalized: &[i64],
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor), Error> {
    let (shape, statistics) = layer(&x.sizes(), normalized)?;
    if [weight, bias].into_iter().flatten().any(|parameter| parameter.sizes()[..] != normalized[..]) {
        return Err(Error::NoKernel(format!("a layer norm's parameters, not of sizes {normalized:?}")));
    }
    forward(x, weight, bias, shape, &statistics, eps, NormActivation::None)
}

#[allow(clippy::too_many_arguments)] // the schema's
fn layer_norm_backward(
    grad: &Tensor,
    x: &Tensor,
    normalized: &[i64],
    mean: &Tensor,
    rstd: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    mask: &[bool],
) -> Result<(Tensor, Tensor, Tensor), Error> {
    let (shape, _) = layer(&x.sizes(), normalized)?;
    let dtype = weight.or(bias).unwrap_or(x).dtype()?;
    backward(grad, x, mean, rstd, weight, (normalized, dtype), shape, mask)
}

#[allow(clippy::too_many_arguments)] // the schema's
fn group_norm(
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    batch: i64,
    channels: i64,
    inner: i64,
    count: i64,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor), Error> {
    let shape = group(&x.sizes(), [batch, channels, inner, count])?;
    let (y, mean, rstd) = forward(x, weight, bias, shape, &[batch, count], eps, NormActivation::None)?;
    Ok((laid_out(y, suggests_channels_last(x))?, mean, rstd))
}

/// A group norm's result alone, through an activation.
fn group_norm_act(
    x: &Tensor,
    groups: i64,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
    act: i64,
    most: Option<f64>,
) -> Result<Tensor, Error> {
    let sizes = x.sizes();
    let &[batch, channels, ref rest @ ..] = &sizes[..] else {
        return Err(Error::NoKernel("a group norm of fewer than 2 dimensions".into()));
    };
    if [weight, bias].into_iter().flatten().any(|parameter| parameter.sizes()[..] != [channels]) {
        return Err(Error::NoKernel(format!("a group norm's parameters, not of {channels} channels")));
    }
    let shape = group(&sizes, [batch, channels, rest.iter().product(), groups])?;
    let (y, ..) = forward(x, weight, bias, shape, &[batch, groups], eps, activation(act, most)?)?;
    laid_out(y, suggests_channels_last(x))
}

#[allow(clippy::too_many_arguments)] // the schema's
fn group_norm_backward(
    grad: &Tensor,
    x: &Tensor,
    mean: &Tensor,
    rstd: &Tensor,
    weight: Option<&Tensor>,
    batch: i64,
    channels: i64,
    inner: i64,
    count: i64,
    mask: &[bool],
) -> Result<(Tensor, Tensor, Tensor), Error> {
    let shape = group(&x.sizes(), [batch, channels, inner, count])?;
    let dtype = weight.unwrap_or(x).dtype()?;
    let (dx, dweight, dbias) = backward(grad, x, mean, rstd, weight, (&[channels], dtype), shape, mask)?;
    let dx = if dx.is_defined() { laid_out(dx, suggests_channels_last(x))? } else { dx };
    Ok((dx, dweight, dbias))
}
