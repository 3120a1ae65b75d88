//! Optimizer steps, one launch a tensor, and the scaling of gradients for mixed precision.

use crate::call::{Call, fit, flag, read, write};
use crate::{ElementType, OpError, Queue, View};
use wave32_params::unscale as unscale_kernel;
use wave32_params::{amp_scale, optim};

const PER_GROUP: u64 = 256 * 4;

/// What an optimizer step is told besides its tensors.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    /// Learning rate.
    pub lr: f64,
    /// Weight decay.
    pub decay: f64,
    /// Climb instead of descend.
    pub maximize: bool,
    /// A number (F32) that is 1 where a gradient was not finite: then nothing changes.
    pub found_inf: Option<&'a View>,
    /// A number (F32) by which gradients were multiplied: they are divided by it first, in place.
    pub grad_scale: Option<&'a View>,
}

/// Stochastic gradient descent.
#[derive(Debug, Clone, Copy)]
pub struct Sgd<'a> {
    /// Momentum; with none there is no buffer.
    pub momentum: f64,
    /// Dampening of the momentum.
    pub dampening: f64,
    /// Nesterov's momentum.
    pub nesterov: bool,
    /// The momentum's buffer.
    pub buffer: Option<&'a View>,
    /// The buffer starts as the gradient.
    pub first: bool,
}

/// Adam.
#[derive(Debug, Clone, Copy)]
pub struct Adam<'a> {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay apart from the gradient (AdamW).
    pub decoupled: bool,
    /// First moment.
    pub average: &'a View,
    /// Second moment.
    pub square: &'a View,
    /// The largest second moment, for AMSGrad.
    pub largest: Option<&'a View>,
    /// The number (F32) of this step, from 1 on.
    pub step: &'a View,
}

/// `param` after one step of SGD.
///
/// # Errors
/// `no-such-layout` unless all are contiguous floats of one size, none of 64 bits; `range-too-large`;
/// [`OpError::Device`] where the device fails.
pub fn sgd(
    queue: &mut dyn Queue,
    param: &View,
    grad: &View,
    settings: &Settings,
    sgd: &Sgd,
) -> Result<(), OpError> {
    let buffer = sgd.buffer.filter(|_| sgd.momentum != 0.0);
    let flags = flag(sgd.nesterov, optim::FLAG_NESTEROV)
        | flag(sgd.first, optim::FLAG_FIRST)
        | flag(buffer.is_some(), optim::FLAG_STATE);
    let floats = [sgd.momentum, 1.0 - sgd.dampening, 0.0, 0.0, 0.0, 0.0];
    step(queue, optim::SGD, flags, [Some(param), Some(grad), buffer, None, None], None, settings, floats)
}

/// `param` after one step of Adam.
///
/// # Errors
/// As [`sgd`].
pub fn adam(
    queue: &mut dyn Queue,
    param: &View,
    grad: &View,
    settings: &Settings,
    adam: &Adam,
) -> Result<(), OpError> {
    let flags = optim::FLAG_STATE | flag(adam.largest.is_some(), optim::FLAG_AMSGRAD);
    let floats = [1.0 - adam.beta1, adam.beta2, adam.eps, adam.beta1.ln(), adam.beta2.ln(), 1.0 - adam.beta2];
    let tensors = [Some(param), Some(grad), Some(adam.average), Some(adam.square), adam.largest];
    let mode = if adam.decoupled { optim::ADAMW } else { optim::ADAM };
    step(queue, mode, flags, tensors, Some(adam.step), settings, floats)
}

#[allow(clippy::too_many_arguments)] // both steps' common end
fn step(
    queue: &mut dyn Queue,
    mode: u32,
    flags: u32,
    tensors: [Option<&View>; 5],
    steps: Option<&View>,
    settings: &Settings,
    floats: [f64; 6],
) -> Result<(), OpError> {
    let [Some(param), Some(grad), ..] = tensors else {
        return Err(OpError::refused("no-such-layout", "no parameter"));
    };
    for tensor in tensors.into_iter().flatten() {
        let float = tensor.dtype.is_float() && tensor.dtype != ElementType::F64;
        if !tensor.is_contiguous() || tensor.sizes() != param.sizes() || !float {
            let detail = format!("{:?} of {:?}", tensor.dtype, tensor.sizes());
            return Err(OpError::refused("no-such-layout", detail));
        }
    }
    for number in [settings.found_inf, settings.grad_scale, steps].into_iter().flatten() {
        single(number, ElementType::F32)?;
    }
    if !tensors.into_iter().flatten().all(|tensor| tensor.fits(queue.caps())) {
        // In halves: order does not matter, and nothing but the step's number is shared.
        let all = param.elements();
        for (start, size) in [(0, all / 2), (all / 2, all - all / 2)] {
            let mut parts = [None; 5];
            for (part, tensor) in parts.iter_mut().zip(tensors) {
                *part = tensor.map(|tensor| piece(tensor, start, size)).transpose()?;
            }
            step(queue, mode, flags, parts.each_ref().map(Option::as_ref), steps, settings, floats)?;
        }
        return Ok(());
    }
    let count = param.elements();
    let flags = flags
        | flag(settings.maximize, optim::FLAG_MAXIMIZE)
        | flag(settings.found_inf.is_some(), optim::FLAG_FOUND_INF)
        | flag(settings.grad_scale.is_some(), optim::FLAG_GRAD_SCALE);
    let bound = read(queue, grad)?;
    // What is absent is not read.
    let state = |tensor: Option<&View>| tensor.map_or(Ok(bound.unused()), |tensor| write(queue, tensor));
    let number = |number: Option<&View>| number.map_or(Ok(bound.unused()), |number| read(queue, number));
    let buffers = optim::Buffers {
        param: write(queue, param)?,
        // The gradient is written where it is unscaled.
        grad: if settings.grad_scale.is_some() { write(queue, grad)? } else { bound },
        m: state(tensors[2])?,
        v: state(tensors[3])?,
        w: state(tensors[4])?,
        found: number(settings.found_inf)?,
        scale: number(settings.grad_scale)?,
        steps: number(steps)?,
    };
    let code = |at: usize| tensors[at].map_or(0, |tensor| tensor.dtype.code());
    let [beta1, beta2, eps, log1, log2, rest2] = floats.map(|value| value as f32);
    let bytes: u64 = tensors.iter().flatten().map(|tensor| 2 * tensor.dtype.size()).sum();
    Call {
        kernel: optim::T,
        params: optim::Params {
            count: fit(count)?,
            mode,
            flags,
            param_at: fit(buffers.param.at())?,
            grad_at: fit(buffers.grad.at())?,
            m_at: fit(buffers.m.at())?,
            v_at: fit(buffers.v.at())?,
            w_at: fit(buffers.w.at())?,
            f_at: fit(buffers.found.at())?,
            g_at: fit(buffers.scale.at())?,
            s_at: fit(buffers.steps.at())?,
            types0: code(0) | (code(1) << 8) | (code(2) << 16) | (code(3) << 24),
            types1: code(4),
            lr: settings.lr as f32,
            decay: settings.decay as f32,
            beta1,
            beta2,
            eps,
            log1,
            log2,
            rest2,
        },
        buffers,
        flops: 20 * count,
        bytes: bytes * count,
    }
    .launch_items(queue, count, PER_GROUP)
}

/// Some elements of a contiguous tensor.
fn piece(tensor: &View, start: u64, size: u64) -> Result<View, OpError> {
    View::contiguous(tensor.address + start * tensor.dtype.size(), tensor.dtype, &[size])
}

fn single(number: &View, dtype: ElementType) -> Result<(), OpError> {
    if number.elements() == 1 && number.dtype == dtype {
        return Ok(());
    }
    let detail = format!("{:?} of {:?} for one {dtype:?}", number.dtype, number.sizes());
    Err(OpError::refused("no-such-layout", detail))
}

/// `grad *= inv_scale`; `found_inf` becomes 1 where a gradient is not finite, and stays else.
///
/// # Errors
/// `no-such-layout` unless the gradient is a contiguous float of at most 32 bits and the others single F32s;
/// `range-too-large`, the device's.
pub fn unscale(
    queue: &mut dyn Queue,
    grad: &View,
    found_inf: &View,
    inv_scale: &View,
) -> Result<(), OpError> {
    single(found_inf, ElementType::F32)?;
    single(inv_scale, ElementType::F32)?;
    if !grad.is_contiguous() || !grad.dtype.is_float() || grad.dtype == ElementType::F64 {
        return Err(OpError::refused("no-such-layout", format!("{:?} {:?}", grad.dtype, grad.strides())));
    }
    let count = grad.elements();
    if !grad.fits(queue.caps()) {
        unscale(queue, &piece(grad, 0, count / 2)?, found_inf, inv_scale)?;
        return unscale(queue, &piece(grad, count / 2, count - count / 2)?, found_inf, inv_scale);
    }
    let buffers = unscale_kernel::Buffers {
        grad: write(queue, grad)?,
        found: write(queue, found_inf)?,
        scale: read(queue, inv_scale)?,
    };
    Call {
        kernel: unscale_kernel::T,
        params: unscale_kernel::Params {
            count: fit(count)?,
            dtype: grad.dtype.code(),
            grad_at: fit(buffers.grad.at())?,
            f_at: fit(buffers.found.at())?,
            s_at: fit(buffers.scale.at())?,
        },
        buffers,
        flops: count,
        bytes: 2 * count * grad.dtype.size(),
    }
    .launch_items(queue, count, PER_GROUP)
}

/// The next loss scale: times `backoff` where `found_inf` is not 0, times `growth` after `interval` steps without.
///
/// # Errors
/// As [`unscale`].
pub fn update_scale(
    queue: &mut dyn Queue,
    scale: &View,
    tracker: &View,
    found_inf: &View,
    [growth, backoff]: [f64; 2],
    interval: u32,
) -> Result<(), OpError> {
    single(scale, ElementType::F32)?;
    single(tracker, ElementType::I32)?;
    single(found_inf, ElementType::F32)?;
    let buffers = amp_scale::Buffers {
        scale: write(queue, scale)?,
        tracker: write(queue, tracker)?,
        found: read(queue, found_inf)?,
    };
    Call {
        kernel: amp_scale::T,
        params: amp_scale::Params {
            scale_at: fit(buffers.scale.at())?,
            tracker_at: fit(buffers.tracker.at())?,
            f_at: fit(buffers.found.at())?,
            interval,
            growth: growth as f32,
            backoff: backoff as f32,
        },
        buffers,
        flops: 0,
        bytes: 0,
    }
    .launch(queue, [1, 1, 1])
}
