//! Steps of optimizers and elementwise operations on lists of tensors, in few launches, and the scaling of gradients for mixed
//! precision.

use crate::call::{Call, fit, flag, read, write};
use crate::lists::{self, Common, Item, Number, single};
use crate::{ElementType, OpError, Queue, View};
use wave32_params::{amp_scale, optim};

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
pub struct Sgd {
    /// Momentum; with 0 there is no buffer.
    pub momentum: f64,
    /// Dampening of the momentum.
    pub dampening: f64,
    /// Nesterov's momentum.
    pub nesterov: bool,
    /// The buffer starts as the gradient.
    pub first: bool,
}

/// Adam.
#[derive(Debug, Clone, Copy)]
pub struct Adam {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay apart from the gradient (AdamW).
    pub decoupled: bool,
}

/// One tensor's part in a step of SGD.
#[derive(Debug, Clone, Copy)]
pub struct SgdTensors<'a> {
    /// The parameter.
    pub param: &'a View,
    /// Its gradient.
    pub grad: &'a View,
    /// The momentum's buffer.
    pub buffer: Option<&'a View>,
}

/// One tensor's part in a step of Adam.
#[derive(Debug, Clone, Copy)]
pub struct AdamTensors<'a> {
    /// The parameter.
    pub param: &'a View,
    /// Its gradient.
    pub grad: &'a View,
    /// First moment.
    pub average: &'a View,
    /// Second moment.
    pub square: &'a View,
    /// The largest second moment, for AMSGrad.
    pub largest: Option<&'a View>,
    /// The number (F32) of this step, from 1 on.
    pub step: &'a View,
}

/// One step of SGD of all parameters.
///
/// # Errors
/// `no-such-layout` unless the tensors of each are contiguous floats of one size, none of 64 bits; `range-too-large`;
/// [`OpError::Device`] where the device fails.
pub fn sgd(queue: &mut dyn Queue, all: &[SgdTensors], settings: &Settings, sgd: &Sgd) -> Result<(), OpError> {
    let has_state = sgd.momentum != 0.0 && all.iter().any(|one| one.buffer.is_some());
    let flags = flag(sgd.nesterov, optim::FLAG_NESTEROV)
        | flag(sgd.first, optim::FLAG_FIRST)
        | flag(has_state, optim::FLAG_STATE);
    let tensors = all.iter().map(|one| {
        let buffer = one.buffer.filter(|_| has_state);
        if has_state && buffer.is_none() {
            return Err(OpError::refused("no-such-layout", "a parameter without a momentum buffer"));
        }
        Ok([Some(one.param), Some(one.grad), buffer, None, None])
    });
    let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
    let items = tensors.iter().map(|&tensors| Item { tensors, number: Number::Is(0.0), found: None });
    let floats = [sgd.momentum, 1.0 - sgd.dampening, 0.0, 0.0, 0.0, 0.0];
    lists::step(queue, &items.collect::<Vec<_>>(), &common(optim::SGD, flags, settings, floats))
}

/// One step of Adam of all parameters.
///
/// # Errors
/// As [`sgd`].
pub fn adam(
    queue: &mut dyn Queue,
    all: &[AdamTensors],
    settings: &Settings,
    adam: &Adam,
) -> Result<(), OpError> {
    let amsgrad = all.iter().any(|one| one.largest.is_some());
    let flags = optim::FLAG_STATE | flag(amsgrad, optim::FLAG_AMSGRAD);
    let tensors = all.iter().map(|one| {
        if one.largest.is_some() != amsgrad {
            return Err(OpError::refused("no-such-layout", "AMSGrad of some parameters"));
        }
        let tensors = [Some(one.param), Some(one.grad), Some(one.average), Some(one.square), one.largest];
        Ok((tensors, one.step))
    });
    let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
    let items =
        tensors.iter().map(|&(tensors, step)| Item { tensors, number: Number::Of(step), found: None });
    let floats = [1.0 - adam.beta1, adam.beta2, adam.eps, adam.beta1.ln(), adam.beta2.ln(), 1.0 - adam.beta2];
    let mode = if adam.decoupled { optim::ADAMW } else { optim::ADAM };
    lists::step(queue, &items.collect::<Vec<_>>(), &common(mode, flags, settings, floats))
}

fn common<'a>(mode: u32, flags: u32, settings: &Settings<'a>, rest: [f64; 6]) -> Common<'a> {
    let [beta1, beta2, eps, log1, log2, rest2] = rest;
    Common {
        mode,
        flags: flags | flag(settings.maximize, optim::FLAG_MAXIMIZE),
        found_inf: settings.found_inf,
        grad_scale: settings.grad_scale,
        floats: [settings.lr, settings.decay, beta1, beta2, eps, log1, log2, rest2],
        flops: 20,
    }
}

/// An operation on lists, in place on `a`: see [`foreach`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Foreach {
    /// `a + s`
    Add = optim::ADD,
    /// `a s`
    Mul = optim::MUL,
    /// `a / s`
    Div = optim::DIV,
    /// `a + s b`
    AddScaled = optim::ADD_SCALED,
    /// `a b`
    MulList = optim::MUL_LIST,
    /// `a / b`
    DivList = optim::DIV_LIST,
    /// The larger of `a` and `b`.
    Maximum = optim::MAXIMUM,
    /// `a + s (b - a)`
    Lerp = optim::LERP,
    /// `a + s b c`
    Addcmul = optim::ADDCMUL,
    /// `a + s b / c`
    Addcdiv = optim::ADDCDIV,
    /// The square root of `b`.
    Sqrt = optim::SQRT_OF,
    /// `-b`
    Neg = optim::NEG_OF,
    /// `b + s c`
    Sum = optim::SUM_OF,
}

/// One tensor of each list, and its number.
#[derive(Debug, Clone, Copy)]
pub struct ForeachTensors<'a> {
    /// What is written.
    pub a: &'a View,
    /// What the operation reads besides.
    pub b: Option<&'a View>,
    /// And the third.
    pub c: Option<&'a View>,
    /// The number.
    pub s: f64,
}

/// An elementwise operation on lists of tensors, as if on one after the other. Computed in F32.
///
/// # Errors
/// As [`sgd`]; `no-such-layout` too where the operation has no operand for what it reads.
pub fn foreach(queue: &mut dyn Queue, op: Foreach, all: &[ForeachTensors]) -> Result<(), OpError> {
    let wanted = match op {
        Foreach::Add | Foreach::Mul | Foreach::Div => (false, false),
        Foreach::Addcmul | Foreach::Addcdiv | Foreach::Sum => (true, true),
        _ => (true, false),
    };
    if all.iter().any(|one| (one.b.is_some(), one.c.is_some()) != wanted) {
        return Err(OpError::refused("no-such-layout", format!("{op:?} of other lists")));
    }
    let items = all.iter().map(|one| {
        let tensors = [Some(one.a), one.b, one.c, None, None];
        Item { tensors, number: Number::Is(one.s as f32), found: None }
    });
    let common = Common { mode: op as u32, flops: 2, ..Common::default() };
    lists::step(queue, &items.collect::<Vec<_>>(), &common)
}

/// Gradients times `inv_scale`; `found_inf` becomes 1 where one is not finite, and stays else.
///
/// # Errors
/// `no-such-layout` unless the gradients are contiguous floats of at most 32 bits and the others single F32s;
/// `range-too-large`, the device's.
pub fn unscale(
    queue: &mut dyn Queue,
    grads: &[View],
    found_inf: &View,
    inv_scale: &View,
) -> Result<(), OpError> {
    let items = grads.iter().map(|grad| {
        let tensors = [Some(grad), None, None, None, None];
        Item { tensors, number: Number::Of(inv_scale), found: Some(found_inf) }
    });
    let common = Common { mode: optim::UNSCALE, flops: 1, ..Common::default() };
    lists::step(queue, &items.collect::<Vec<_>>(), &common)
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
