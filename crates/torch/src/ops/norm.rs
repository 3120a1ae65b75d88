//! Batch norm.

use crate::abi::error::Error;
use crate::dispatch::register::Registration;
use crate::runtime::bridge::{run, view};
use crate::tensors::copies::contiguous;
use crate::tensors::layout::{in_some_format, laid_out, normalises_channels_last, suggests_channels_last};
use crate::tensors::tensor::Tensor;
use wave32_ops::{
    BatchNorm, NormActivation, NormChain, NormSum, View, batch_norm_backward, batch_norm_chain,
    batch_norm_sum_backward,
};
use wave32_torch_logic::ScalarType;

/// The kernels of this file.
pub const OPS: &[Registration] = crate::ops! {
    "native_batch_norm" => native_batch_norm,
    "_native_batch_norm_legit" => native_batch_norm_legit,
    "_native_batch_norm_legit.no_stats" => no_stats,
    "native_batch_norm_backward" => backward,
};

/// Schemas of what `python/wave32/_fuse.py` and `_graph_fusion.py` call. `act`: 0 ReLU, 1 SiLU, 2 none; `most`: ReLU's upper bound.
pub const SCHEMAS: &[&str] = &[
    "batch_norm_act(Tensor x, Tensor? added, Tensor? weight, Tensor? bias, Tensor(a!)? running_mean, Tensor(b!)? running_var, \
     float momentum, float eps, int act, float? most, Tensor? statistics=None) -> (Tensor, Tensor, Tensor)",
    "batch_norm_act_backward(Tensor grad, Tensor x, Tensor? weight, Tensor save, Tensor coefficients, float eps, int act, \
     float? most) -> (Tensor, Tensor)",
    "batch_norm_sum_backward(Tensor grad, Tensor? also, Tensor x, Tensor y, Tensor? weight, Tensor save, float eps, float? most) \
     -> (Tensor, Tensor, Tensor)",
    "batch_norm_eval_act(Tensor x, Tensor? added, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, float eps, \
     int act, float? most) -> Tensor",
];

/// Kernels of those.
pub const OWN: &[Registration] = crate::ops! {
    "batch_norm_act" => with_activation,
    "batch_norm_act_backward" => with_activation_backward,
    "batch_norm_sum_backward" => sum_backward,
    "batch_norm_eval_act" => evaluated,
};

/// Of a schema's `act` and `most`.
pub(super) fn activation(act: i64, most: Option<f64>) -> Result<NormActivation, Error> {
    match act {
        0 => Ok(NormActivation::Relu(most.map(|most| most as f32))),
        1 => Ok(NormActivation::Silu),
        2 => Ok(NormActivation::None),
        _ => Err(Error::NoKernel(format!("activation {act} behind a norm"))),
    }
}

/// The type of the gradients of weight and bias.
fn of_gradients(weight: Option<&Tensor>) -> Result<ScalarType, Error> {
    weight.map_or(Ok(ScalarType::F32), Tensor::dtype)
}

fn channels_of(x: &Tensor) -> Result<i64, Error> {
    let channels = x.sizes().get(1).copied();
    channels.ok_or_else(|| Error::NoKernel("batch norm of fewer than 2 dimensions".into()))
}

/// The result, mean and 1 / deviation, and what the backward pass needs of the activation.
#[allow(clippy::too_many_arguments)] // the schema's
fn with_activation(
    x: &Tensor,
    added: Option<&Tensor>,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    momentum: f64,
    eps: f64,
    act: i64,
    most: Option<f64>,
    statistics: Option<&Tensor>,
) -> Result<(Tensor, Tensor, Tensor), Error> {
    let channels = channels_of(x)?;
    let (x, added) = (&contiguous(x)?, added.map(contiguous).transpose()?);
    let y = Tensor::empty(&x.sizes(), x.dtype()?)?;
    let save = Tensor::empty(&[2 * channels], ScalarType::F32)?;
    let coefficients = Tensor::empty(&[4 * channels], ScalarType::F32)?;
    let (xv, yv, sv, cv) = (view(x)?, view(&y)?, view(&save)?, view(&coefficients)?);
    let given =
        [added.as_ref(), weight, bias, running_mean, running_var].map(|tensor| tensor.map(view).transpose());
    let [added, gamma, beta, mean, variance] = given;
    let (added, gamma, beta, mean, variance) = (added?, gamma?, beta?, mean?, variance?);
    let norm = BatchNorm {
        gamma: gamma.as_ref(),
        beta: beta.as_ref(),
        running: mean.as_ref().zip(variance.as_ref()),
        training: true,
        momentum: momentum as f32,
        eps: eps as f32,
    };
    let statistics = statistics.map(view).transpose()?;
    let chain = NormChain {
        added: added.as_ref(),
        activation: activation(act, most)?,
        coefficients: Some(&cv),
        statistics: statistics.as_ref(),
    };
    run(|queue| batch_norm_chain(queue, &xv, &norm, &chain, &yv, Some(&sv)))?;
    Ok((y, save, coefficients))
}

/// By running statistics: `act(norm(x) + added)`.
#[allow(clippy::too_many_arguments)] // the schema's
fn evaluated(
    x: &Tensor,
    added: Option<&Tensor>,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    running_mean: &Tensor,
    running_var: &Tensor,
    eps: f64,
    act: i64,
    most: Option<f64>,
) -> Result<Tensor, Error> {
    if x.numel() == 0 {
        return Err(Error::NoKernel("batch norm of an empty tensor, and an activation".into()));
    }
    if let Some(added) = added
        && (added.sizes() != x.sizes() || added.dtype()? != x.dtype()?)
    {
        return Err(Error::NoKernel("batch norm, and a sum with a tensor that is not like it".into()));
    }
    let other = added.map(contiguous).transpose()?;
    let behind = (other.as_ref(), activation(act, most)?);
    let running = [Some(running_mean), Some(running_var)];
    Ok(normalised(x, [weight, bias], running, (false, 0.0, eps), behind)?.0)
}

/// The gradient of x, and those of weight and bias in one tensor. Nothing was added.
#[allow(clippy::too_many_arguments)] // the schema's
fn with_activation_backward(
    grad: &Tensor,
    x: &Tensor,
    weight: Option<&Tensor>,
    save: &Tensor,
    coefficients: &Tensor,
    eps: f64,
    act: i64,
    most: Option<f64>,
) -> Result<(Tensor, Tensor), Error> {
    let (grad, x) = (contiguous(grad)?, &contiguous(x)?);
    let dx = Tensor::empty(&x.sizes(), x.dtype()?)?;
    let grads = Tensor::empty(&[2 * channels_of(x)?], of_gradients(weight)?)?;
    let (mean, invstd) = (view(&half_of(save, 0)?)?, view(&half_of(save, 1)?)?);
    let (xv, dyv, cv, dxv, to) = (view(x)?, view(&grad)?, view(coefficients)?, view(&dx)?, view(&grads)?);
    let gamma = weight.map(view).transpose()?;
    let kept = Some((activation(act, most)?, &cv));
    let mode = (true, eps as f32);
    run(|queue| {
        batch_norm_backward(queue, &xv, &dyv, (&mean, &invstd), gamma.as_ref(), mode, kept, Some(&dxv), &to)
    })?;
    Ok((dx, grads))
}

/// Of `y = relu(norm(x) + added)` with one or two gradients of y: the gradient of x, that of what was added, and those of weight
/// and bias in one tensor.
#[allow(clippy::too_many_arguments)] // the schema's
fn sum_backward(
    grad: &Tensor,
    also: Option<&Tensor>,
    x: &Tensor,
    y: &Tensor,
    weight: Option<&Tensor>,
    save: &Tensor,
    eps: f64,
    most: Option<f64>,
) -> Result<(Tensor, Tensor, Tensor), Error> {
    let (grad, also) = (contiguous(grad)?, also.map(contiguous).transpose()?);
    let (x, y) = (&contiguous(x)?, &contiguous(y)?);
    let (dx, gradient) = (Tensor::empty(&x.sizes(), x.dtype()?)?, Tensor::empty(&x.sizes(), x.dtype()?)?);
    let grads = Tensor::empty(&[2 * channels_of(x)?], of_gradients(weight)?)?;
    let (mean, invstd) = (view(&half_of(save, 0)?)?, view(&half_of(save, 1)?)?);
    let (xv, dyv, yv, dxv, to) = (view(x)?, view(&grad)?, view(y)?, view(&dx)?, view(&grads)?);
    let (gamma, gv) = (weight.map(view).transpose()?, view(&gradient)?);
    let also = also.as_ref().map(view).transpose()?;
    let sum = NormSum { also: also.as_ref(), y: &yv, activation: activation(0, most)?, gradient: &gv };
    run(|queue| {
        let statistics = (&mean, &invstd);
        batch_norm_sum_backward(queue, &xv, &dyv, statistics, gamma.as_ref(), eps as f32, sum, &dxv, &to)
    })?;
    Ok((dx, gradient, grads))
}

/// A parameter or statistic as contiguous f32, kept alive by the tensor.
fn float(tensor: Option<&Tensor>) -> Result<Option<Tensor>, Error> {
    let Some(tensor) = tensor else { return Ok(None) };
    if tensor.dtype()? == ScalarType::F32 {
        return contiguous(tensor).map(Some);
    }
    let made = Tensor::empty(&tensor.sizes(), ScalarType::F32)?;
    let (from, to) = (view(tensor)?, view(&made)?);
    run(|queue| wave32_ops::copy(queue, &from, &to))?;
    Ok(Some(made))
}

/// A parameter or statistic as kernels take it.
fn parameter(tensor: Option<&Tensor>) -> Result<Option<Tensor>, Error> {
    match tensor {
        Some(given) if given.dtype()?.is_float() && given.dtype()? != ScalarType::F64 => {
            contiguous(given).map(Some)
        }
        other => float(other),
    }
}

fn half_of(save: &Tensor, index: i64) -> Result<Tensor, Error> {
    let channels = save.numel() / 2;
    save.alias(&[channels], &[1], index * channels)
}

fn viewed(tensor: &Option<Tensor>) -> Result<Option<View>, Error> {
    tensor.as_ref().map(view).transpose()
}

/// The result, laid out as `input` is, and what training saves; `how`: training, momentum, eps; `behind`: what is added, and an activation.
fn normalised(
    input: &Tensor,
    [weight, bias]: [Option<&Tensor>; 2],
    running: [Option<&Tensor>; 2],
    (training, momentum, eps): (bool, f64, f64),
    (added, activation): (Option<&Tensor>, NormActivation),
) -> Result<(Tensor, Option<Tensor>), Error> {
    let channels = channels_of(input)?;
    let x = contiguous(input)?;
    let y = Tensor::empty(&input.sizes(), input.dtype()?)?;
    let saves = training || input.numel() == 0;
    let save = saves.then(|| Tensor::empty(&[2 * channels], ScalarType::F32)).transpose()?;
    let given = [weight, bias, running[0], running[1]];
    let last = normalises_channels_last(input, given.iter().flatten().all(|given| given.is_contiguous()));
    if input.numel() == 0 {
        return Ok((laid_out(y, last)?, save));
    }
    let (gamma, beta) = (parameter(weight)?, parameter(bias)?);
    let [rmean, rvar] = [parameter(running[0])?, parameter(running[1])?];
    let (xv, yv, sv, added) = (view(&x)?, view(&y)?, viewed(&save)?, added.map(view).transpose()?);
    let (g, b, m, v) = (viewed(&gamma)?, viewed(&beta)?, viewed(&rmean)?, viewed(&rvar)?);
    let norm = BatchNorm {
        gamma: g.as_ref(),
        beta: b.as_ref(),
        running: m.as_ref().zip(v.as_ref()),
        training,
        momentum: momentum as f32,
        eps: eps as f32,
    };
    let chain = NormChain { added: added.as_ref(), activation, ..NormChain::default() };
    run(|queue| batch_norm_chain(queue, &xv, &norm, &chain, &yv, sv.as_ref()))?;
    // Other running statistics were updated in a copy.
    for (given, used) in running.into_iter().zip([&rmean, &rvar]) {
        let moved = given.zip(used.as_ref()).filter(|(given, used)| training && !given.is_same(used));
        if let Some((given, used)) = moved {
            let (from, to) = (view(used)?, view(given)?);
            run(|queue| wave32_ops::copy(queue, &from, &to))?;
        }
    }
    Ok((laid_out(y, last)?, save))
}

#[allow(clippy::too_many_arguments)] // the schema's
fn native_batch_norm(
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    training: bool,
    momentum: f64,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor), Error> {
    let running = [running_mean, running_var];
    let behind = (None, NormActivation::None);
    let (y, save) = normalised(input, [weight, bias], running, (training, momentum, eps), behind)?;
    match save {
        Some(save) => Ok((y, half_of(&save, 0)?, half_of(&save, 1)?)),
        None => Ok((y, Tensor::empty(&[0], ScalarType::F32)?, Tensor::empty(&[0], ScalarType::F32)?)),
    }
}

#[allow(clippy::too_many_arguments)] // the schema's
fn native_batch_norm_legit(
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    running_mean: &Tensor,
    running_var: &Tensor,
    training: bool,
    momentum: f64,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor), Error> {
    native_batch_norm(input, weight, bias, Some(running_mean), Some(running_var), training, momentum, eps)
}

fn no_stats(
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    training: bool,
    momentum: f64,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor), Error> {
    native_batch_norm(input, weight, bias, None, None, training, momentum, eps)
}

#[allow(clippy::too_many_arguments)] // the schema's
fn backward(
    grad: &Tensor,
    input: &Tensor,
    weight: Option<&Tensor>,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    save_mean: Option<&Tensor>,
    save_invstd: Option<&Tensor>,
    training: bool,
    eps: f64,
    mask: &[bool],
) -> Result<(Tensor, Tensor, Tensor), Error> {
    let wanted = |index: usize| mask.get(index).copied().unwrap_or(false);
    let channels = channels_of(input)?;
    let (x, dy) = (contiguous(input)?, contiguous(grad)?);
    let gamma = parameter(weight)?;
    let statistics = if training { (save_mean, save_invstd) } else { (running_mean, running_var) };
    let (Some(mean), Some(invstd)) = (float(statistics.0)?, float(statistics.1)?) else {
        return Err(Error::NoKernel("batch norm's backward pass without statistics".into()));
    };
    let dx = if wanted(0) { Tensor::empty(&input.sizes(), input.dtype()?)? } else { Tensor::undefined()? };
    // In the type that the kernels take the weight in.
    let written = of_gradients(gamma.as_ref())?;
    let grads = Tensor::empty(&[2 * channels], written)?;
    if input.numel() == 0 {
        crate::tensors::copies::fill(&grads, &[0])?;
    } else {
        let (xv, dyv, mv, iv, gv) = (view(&x)?, view(&dy)?, view(&mean)?, view(&invstd)?, viewed(&gamma)?);
        let dxv = if wanted(0) { Some(view(&dx)?) } else { None };
        let to = view(&grads)?;
        run(|queue| {
            let mode = (training, eps as f32);
            batch_norm_backward(queue, &xv, &dyv, (&mv, &iv), gv.as_ref(), mode, None, dxv.as_ref(), &to)
        })?;
    }
    let part = |index: i64| -> Result<Tensor, Error> {
        if !wanted(index as usize + 1) {
            return Tensor::undefined();
        }
        let half = half_of(&grads, index)?;
        let of_weight = of_gradients(weight)?;
        if written == of_weight {
            return Ok(half);
        }
        let made = Tensor::empty(&[channels], of_weight)?;
        let (from, to) = (view(&half)?, view(&made)?);
        run(|queue| wave32_ops::copy(queue, &from, &to))?;
        Ok(made)
    };
    let plain = in_some_format(grad) && suggests_channels_last(grad) == suggests_channels_last(input);
    let dx = if wanted(0) { laid_out(dx, normalises_channels_last(input, plain))? } else { dx };
    Ok((dx, part(0)?, part(1)?))
}
