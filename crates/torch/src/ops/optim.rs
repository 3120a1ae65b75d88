//! Steps of optimizers on lists of tensors, and gradient scaling.

use crate::abi::error::Error;
use crate::dispatch::register::Registration;
use crate::runtime::bridge::{run, view};
use crate::tensors::copies::same_layout;
use crate::tensors::tensor::Tensor;
use wave32_ops::View;
use wave32_ops::optim::{Adam, AdamTensors, Settings, Sgd, SgdTensors, adam, sgd, unscale, update_scale};

/// Kernels of `aten`.
pub const OPS: &[Registration] = crate::ops! {
    "_fused_sgd_" => fused_sgd,
    "_fused_adam_" => |p: &[Tensor], g: &[Tensor], m: &[Tensor], v: &[Tensor], w: &[Tensor], steps: &[Tensor],
        lr: f64, beta1: f64, beta2: f64, decay: f64, eps: f64, amsgrad: bool, maximize: bool,
        scale: Option<&Tensor>, found: Option<&Tensor>| {
        fused_adam([p, g, m, v, w, steps], [lr, beta1, beta2, decay, eps], [amsgrad, maximize, false], scale, found)
    },
    "_fused_adamw_" => |p: &[Tensor], g: &[Tensor], m: &[Tensor], v: &[Tensor], w: &[Tensor], steps: &[Tensor],
        lr: f64, beta1: f64, beta2: f64, decay: f64, eps: f64, amsgrad: bool, maximize: bool,
        scale: Option<&Tensor>, found: Option<&Tensor>| {
        fused_adam([p, g, m, v, w, steps], [lr, beta1, beta2, decay, eps], [amsgrad, maximize, true], scale, found)
    },
    "_amp_foreach_non_finite_check_and_unscale_" => unscale_all,
    "_amp_update_scale_" => next_scale,
};

/// Views of a list that a step takes: dense ones as if contiguous, which is the same to an elementwise step if all
/// that belong together are dense in the same order.
///
/// # Errors
/// `NoKernel` for other layouts, lengths and types than a step takes.
pub fn lists(all: &[&[Tensor]]) -> Result<Vec<Vec<View>>, Error> {
    let Some(params) = all.first() else { return Ok(Vec::new()) };
    let mut made = vec![Vec::with_capacity(params.len()); all.len()];
    for (list, made) in all.iter().zip(&mut made) {
        for (tensor, param) in list.iter().zip(params.iter()) {
            if tensor.sizes() != param.sizes() || !same_layout(tensor, param) || !tensor.is_dense() {
                return Err(Error::NoKernel("states laid out otherwise than their parameter".into()));
            }
            let plain = view(tensor)?;
            made.push(View::contiguous(plain.address, plain.dtype, plain.sizes())?);
        }
    }
    for list in &made {
        let types = list.iter().all(|v| v.dtype.is_float() && v.dtype != wave32_ops::ElementType::F64);
        if !types || !(list.is_empty() || list.len() == params.len()) {
            return Err(Error::NoKernel("lists of other types or lengths".into()));
        }
    }
    Ok(made)
}

#[allow(clippy::too_many_arguments)] // as the schema's
fn fused_sgd(
    params: &[Tensor],
    grads: &[Tensor],
    buffers: &[Tensor],
    decay: f64,
    momentum: f64,
    lr: f64,
    dampening: f64,
    nesterov: bool,
    maximize: bool,
    first: bool,
    scale: Option<&Tensor>,
    found: Option<&Tensor>,
) -> Result<(), Error> {
    let views = lists(&[params, grads, buffers])?;
    let (scale, found) = (scale.map(view).transpose()?, found.map(view).transpose()?);
    let settings = Settings { lr, decay, maximize, found_inf: found.as_ref(), grad_scale: scale.as_ref() };
    let tensors =
        |at: usize| SgdTensors { param: &views[0][at], grad: &views[1][at], buffer: views[2].get(at) };
    let all: Vec<_> = (0..params.len()).map(tensors).collect();
    run(|queue| sgd(queue, &all, &settings, &Sgd { momentum, dampening, nesterov, first }))
}

fn fused_adam(
    [params, grads, averages, squares, largest, steps]: [&[Tensor]; 6],
    [lr, beta1, beta2, decay, eps]: [f64; 5],
    [amsgrad, maximize, decoupled]: [bool; 3],
    scale: Option<&Tensor>,
    found: Option<&Tensor>,
) -> Result<(), Error> {
    let views = lists(&[params, grads, averages, squares, if amsgrad { largest } else { &[] }])?;
    let steps = steps.iter().map(view).collect::<Result<Vec<_>, _>>()?;
    let (scale, found) = (scale.map(view).transpose()?, found.map(view).transpose()?);
    let settings = Settings { lr, decay, maximize, found_inf: found.as_ref(), grad_scale: scale.as_ref() };
    let tensors = |at: usize| AdamTensors {
        param: &views[0][at],
        grad: &views[1][at],
        average: &views[2][at],
        square: &views[3][at],
        largest: views[4].get(at),
        step: &steps[at],
    };
    let all: Vec<_> = (0..params.len().min(steps.len())).map(tensors).collect();
    run(|queue| adam(queue, &all, &settings, &Adam { beta1, beta2, eps, decoupled }))
}

fn unscale_all(grads: &[Tensor], found: &Tensor, inverse: &Tensor) -> Result<(), Error> {
    let views = lists(&[grads])?;
    let (found, inverse) = (view(found)?, view(inverse)?);
    run(|queue| unscale(queue, &views[0], &found, &inverse))
}

fn next_scale(
    scale: &Tensor,
    tracker: &Tensor,
    found: &Tensor,
    growth: f64,
    backoff: f64,
    interval: i64,
) -> Result<Tensor, Error> {
    let views = [view(scale)?, view(tracker)?, view(found)?];
    let interval = u32::try_from(interval).unwrap_or(u32::MAX);
    run(|queue| update_scale(queue, &views[0], &views[1], &views[2], [growth, backoff], interval))?;
    scale.share()
}
