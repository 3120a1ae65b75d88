//! Losses that are more than elementwise.

use crate::index::Errors;
use crate::scratch::scratch;
use crate::{Call, Common, DType, Number, OpError, Queue, Reduce, View, fill, reduce};

/// What becomes of the losses of the items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// They stay.
    None,
    /// Their mean by weight.
    Mean,
    /// Their sum.
    Sum,
}

/// Negative log likelihood over the classes of (N, C, ...).
#[derive(Debug, Clone, Copy)]
pub struct NllLoss<'a> {
    /// A factor for each class.
    pub weight: Option<&'a View>,
    /// How losses are reduced.
    pub reduction: Reduction,
    /// Targets that do not count.
    pub ignore_index: i64,
    /// Raised where a target that counts is no class.
    pub errors: Errors,
}

const MEAN: u32 = 1;
const WEIGHTED: u32 = 2;
const PARTS: u32 = 4;

/// (N, C, S) of an input and (N, S) of its target.
struct Items {
    sizes: [u64; 3],
    input: [u64; 3],
    target: [u64; 2],
}

impl Items {
    fn new(input: &View, target: &View) -> Result<Self, OpError> {
        let (sizes, strides) = (input.sizes(), input.strides());
        if sizes.len() < 2 || sizes[0] != target.sizes()[0] || sizes[2..] != target.sizes()[1..] {
            let detail = format!("{sizes:?} and targets {:?}", target.sizes());
            return Err(OpError::refused("different-sizes", detail));
        }
        let inner = View::new(0, input.dtype, &sizes[2..], &strides[2..])?;
        let inner_target = View::new(0, target.dtype, &target.sizes()[1..], &target.strides()[1..])?;
        let common = Common::new(&[&inner, &inner_target]);
        let [inner] = common.sizes[..] else {
            return Err(OpError::refused("scattered", format!("{sizes:?} with strides {strides:?}")));
        };
        Ok(Self {
            sizes: [sizes[0], sizes[1], inner],
            input: [strides[0], strides[1], common.strides[0][0]],
            target: [target.strides()[0], common.strides[1][0]],
        })
    }

    fn count(&self) -> u64 {
        self.sizes[0] * self.sizes[2]
    }
}

/// A buffer of the kernel, with the strides that it takes there.
struct Side<'a>(&'a View, &'a [u64], bool);

fn launch(
    queue: &mut dyn Queue,
    loss: &NllLoss<'_>,
    op: u32,
    flags: u32,
    [count, classes, inner]: [u64; 3],
    sides: [Side<'_>; 5],
) -> Result<(), OpError> {
    let mut call = Call::new();
    let flags = flags | if loss.weight.is_some() { WEIGHTED } else { 0 };
    call.numbers(&[count])?.words([op, flags]).numbers(&[classes, inner])?;
    for Side(view, strides, writes) in sides {
        let start = call.view(queue, view, writes)?;
        call.words([view.dtype.code(), start]).numbers(strides)?;
    }
    call.range(queue, loss.errors.0, 1, 4, true)?;
    call.words([loss.ignore_index as u32, (loss.ignore_index >> 32) as u32]);
    call.work(4 * count, 16 * count);
    call.launch_items(queue, "nll_t_f32", count, 256)
}

fn no_doubles(views: &[&View]) -> Result<(), OpError> {
    if views.iter().any(|view| view.dtype == DType::F64) {
        return Err(OpError::refused("no-double", "a loss of f64"));
    }
    Ok(())
}

/// The loss of log-probabilities (N, C, ...) for targets (N, ...), and the targets' total weight. Without a
/// reduction `out` is contiguous, of the target's sizes. A target that is no class makes the loss NaN
/// and raises `loss.errors`.
///
/// # Errors
/// `different-sizes`, `scattered`, `no-double`, `not-contiguous`, `too-many-elements`, `range-too-large`, the
/// device's.
pub fn nll_loss(
    queue: &mut dyn Queue,
    input: &View,
    target: &View,
    loss: &NllLoss<'_>,
    out: &View,
    total: &View,
) -> Result<(), OpError> {
    no_doubles(&[input, out, total])?;
    let items = Items::new(input, target)?;
    let [_, classes, inner] = items.sizes;
    let count = items.count();
    let weight = loss.weight.unwrap_or(input);
    let weight_step = [loss.weight.map_or(0, |weight| weight.strides()[0])];
    let each = |queue: &mut dyn Queue, flags: u32, to: &View| {
        let sides = [
            Side(input, &items.input, false),
            Side(target, &items.target, false),
            Side(weight, &weight_step, false),
            Side(to, &[0; 3], true),
            Side(total, &[], true),
        ];
        launch(queue, loss, 0, flags, [count, classes, inner], sides)
    };
    if loss.reduction == Reduction::None {
        if out.sizes() != target.sizes() || !out.is_contiguous() {
            return Err(OpError::refused("not-contiguous", format!("{out:?}")));
        }
        each(queue, 0, out)?;
        return fill(queue, total, Number::Float(0.0));
    }
    scratch(queue, DType::F32, &[2, count.max(1)], |queue, parts| {
        scratch(queue, DType::F32, &[2], |queue, sums| {
            each(queue, PARTS, parts)?;
            let parts = View::contiguous(parts.address, DType::F32, &[2, count])?;
            reduce(queue, Reduce::Sum, &parts, &[1], sums)?;
            let flags = if loss.reduction == Reduction::Mean { MEAN } else { 0 };
            let sides = [
                Side(sums, &[0; 3], false),
                Side(target, &[0; 2], false),
                Side(weight, &[0], false),
                Side(out, &[0; 3], true),
                Side(total, &[], true),
            ];
            launch(queue, loss, 1, flags, [1, 1, 1], sides)
        })
    })
}

/// The gradient of [`nll_loss`]'s input: `grad` is that of the result.
///
/// # Errors
/// As [`nll_loss`].
pub fn nll_loss_backward(
    queue: &mut dyn Queue,
    grad: &View,
    target: &View,
    loss: &NllLoss<'_>,
    total: &View,
    grad_input: &View,
) -> Result<(), OpError> {
    no_doubles(&[grad, grad_input, total])?;
    let items = Items::new(grad_input, target)?;
    let mut steps = [0; 3];
    if loss.reduction == Reduction::None {
        let shape: Vec<u64> = [grad.sizes()[0], 1].iter().chain(&grad.sizes()[1..]).copied().collect();
        let strides: Vec<u64> = [grad.strides()[0], 0].iter().chain(&grad.strides()[1..]).copied().collect();
        steps = Items::new(&View::new(0, grad.dtype, &shape, &strides)?, target)?.input;
    }
    let flags = if loss.reduction == Reduction::Mean { MEAN } else { 0 };
    let weight = loss.weight.unwrap_or(grad);
    let weight_step = [loss.weight.map_or(0, |weight| weight.strides()[0])];
    let [_, classes, inner] = items.sizes;
    let sides = [
        Side(grad, &steps, false),
        Side(target, &items.target, false),
        Side(weight, &weight_step, false),
        Side(grad_input, &items.input, true),
        Side(total, &[], false),
    ];
    launch(queue, loss, 2, flags, [items.count() * classes, classes, inner], sides)
}
