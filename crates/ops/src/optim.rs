//! Optimizer steps, one launch a tensor, and the scaling of gradients for mixed precision.

use crate::{Call, DType, OpError, Queue, View};

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
/// `no-such-layout` unless all are contiguous floats of one size, none of 64 bits; `range-too-large`, the device's.
pub fn sgd(
    queue: &mut dyn Queue,
    param: &View,
    grad: &View,
    settings: &Settings,
    sgd: &Sgd,
) -> Result<(), OpError> {
    let buffer = sgd.buffer.filter(|_| sgd.momentum != 0.0);
    let flags = u32::from(sgd.nesterov) * 2 + u32::from(sgd.first) * 4 + u32::from(buffer.is_some()) * 16;
    let floats = [sgd.momentum, 1.0 - sgd.dampening, 0.0, 0.0, 0.0, 0.0];
    step(queue, 0, flags, [Some(param), Some(grad), buffer, None, None], None, settings, floats)
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
    let flags = u32::from(adam.largest.is_some()) * 8 + 16;
    let floats = [1.0 - adam.beta1, adam.beta2, adam.eps, adam.beta1.ln(), adam.beta2.ln(), 1.0 - adam.beta2];
    let tensors = [Some(param), Some(grad), Some(adam.average), Some(adam.square), adam.largest];
    step(queue, 1 + u32::from(adam.decoupled), flags, tensors, Some(adam.step), settings, floats)
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
        let float = tensor.dtype.is_float() && tensor.dtype != DType::F64;
        if !tensor.is_contiguous() || tensor.sizes() != param.sizes() || !float {
            let detail = format!("{:?} of {:?}", tensor.dtype, tensor.sizes());
            return Err(OpError::refused("no-such-layout", detail));
        }
    }
    for number in [settings.found_inf, settings.grad_scale, steps].into_iter().flatten() {
        single(number, DType::F32)?;
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
        | u32::from(settings.maximize)
        | (u32::from(settings.found_inf.is_some()) * 32)
        | (u32::from(settings.grad_scale.is_some()) * 64);
    let mut call = Call::new();
    call.numbers(&[count])?.words([mode, flags]);
    let mut bytes = 0;
    for (at, tensor) in tensors.into_iter().enumerate() {
        // The gradient is written where it is unscaled; what is absent is not read.
        let writes = tensor.is_some() && (at != 1 || settings.grad_scale.is_some());
        let start = call.view(queue, tensor.unwrap_or(grad), writes)?;
        call.word(start);
        bytes += tensor.map_or(0, |tensor| 2 * tensor.dtype.size());
    }
    for number in [settings.found_inf, settings.grad_scale, steps] {
        let start = call.view(queue, number.unwrap_or(grad), false)?;
        call.word(start);
    }
    let code = |at: usize| tensors[at].map_or(0, |tensor| tensor.dtype.code());
    call.words([code(0) | (code(1) << 8) | (code(2) << 16) | (code(3) << 24), code(4)]);
    call.float(settings.lr as f32).float(settings.decay as f32);
    floats.into_iter().for_each(|value| {
        call.float(value as f32);
    });
    call.work(20 * count, bytes * count);
    call.launch_items(queue, "optim_t_f32", count, PER_GROUP)
}

/// Some elements of a contiguous tensor.
fn piece(tensor: &View, start: u64, size: u64) -> Result<View, OpError> {
    View::contiguous(tensor.address + start * tensor.dtype.size(), tensor.dtype, &[size])
}

fn single(number: &View, dtype: DType) -> Result<(), OpError> {
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
    single(found_inf, DType::F32)?;
    single(inv_scale, DType::F32)?;
    if !grad.is_contiguous() || !grad.dtype.is_float() || grad.dtype == DType::F64 {
        return Err(OpError::refused("no-such-layout", format!("{:?} {:?}", grad.dtype, grad.strides())));
    }
    let count = grad.elements();
    if !grad.fits(queue.caps()) {
        unscale(queue, &piece(grad, 0, count / 2)?, found_inf, inv_scale)?;
        return unscale(queue, &piece(grad, count / 2, count - count / 2)?, found_inf, inv_scale);
    }
    let mut call = Call::new();
    call.numbers(&[count])?.word(grad.dtype.code());
    for (view, writes) in [(grad, true), (found_inf, true), (inv_scale, false)] {
        let start = call.view(queue, view, writes)?;
        call.word(start);
    }
    call.work(count, 2 * count * grad.dtype.size());
    call.launch_items(queue, "unscale_t_f32", count, PER_GROUP)
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
    single(scale, DType::F32)?;
    single(tracker, DType::I32)?;
    single(found_inf, DType::F32)?;
    let mut call = Call::new();
    for (view, writes) in [(scale, true), (tracker, true), (found_inf, false)] {
        let start = call.view(queue, view, writes)?;
        call.word(start);
    }
    call.word(interval).float(growth as f32).float(backoff as f32);
    call.launch(queue, "amp_scale_t_f32", [1, 1, 1])
}
