//! Losses that are more than elementwise.

use crate::call::{Call, fit, flag, range, read, write};
use crate::index::Errors;
use crate::scratch::scratch;
use crate::{Common, ElementType, Number, OpError, Queue, Reduce, View, fill, reduce};
use wave32_params::nll;
use wave32_solve::Access;

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

/// What a launch of the kernel reads and writes: source, targets, class weights, result and total weight.
struct Sides<'a> {
    src: (&'a View, [u64; 3]),
    targets: (&'a View, [u64; 2]),
    out: (&'a View, [u64; 3]),
    total: &'a View,
}

fn launch(
    queue: &mut dyn Queue,
    loss: &NllLoss<'_>,
    op: u32,
    flags: u32,
    [count, classes, inner]: [u64; 3],
    Sides { src: (src, s), targets: (targets, t), out: (out, o), total }: Sides<'_>,
) -> Result<(), OpError> {
    let weighted = flag(loss.weight.is_some(), nll::FLAG_WEIGHTED);
    let bound = read(queue, src)?;
    let buffers = nll::Buffers {
        src: bound,
        targets: read(queue, targets)?,
        weights: loss.weight.map_or(Ok(bound.unused()), |weight| read(queue, weight))?,
        dst: write(queue, out)?,
        totals: if op == nll::BACKWARD { read(queue, total)? } else { write(queue, total)? },
        errors: range(queue, loss.errors.0, 1, 4, Access::Write)?,
    };
    Call {
        kernel: nll::T,
        params: nll::Params {
            count: fit(count)?,
            op,
            flags: flags | weighted,
            classes: fit(classes)?,
            inner: fit(inner)?,
            src_type: src.dtype.code(),
            src_at: fit(bound.at())?,
            s_n: fit(s[0])?,
            s_c: fit(s[1])?,
            s_s: fit(s[2])?,
            t_type: targets.dtype.code(),
            t_at: fit(buffers.targets.at())?,
            t_n: fit(t[0])?,
            t_s: fit(t[1])?,
            w_type: loss.weight.map_or(0, |weight| weight.dtype.code()),
            w_at: fit(buffers.weights.at())?,
            w_c: fit(loss.weight.map_or(0, |weight| weight.strides()[0]))?,
            out_type: out.dtype.code(),
            out_at: fit(buffers.dst.at())?,
            o_n: fit(o[0])?,
            o_c: fit(o[1])?,
            o_s: fit(o[2])?,
            total_type: total.dtype.code(),
            total_at: fit(buffers.totals.at())?,
            ignore: loss.ignore_index as u64,
        },
        buffers,
        flops: 4 * count,
        bytes: 16 * count,
    }
    .launch_items(queue, count, 256)
}

fn no_doubles(views: &[&View]) -> Result<(), OpError> {
    if views.iter().any(|view| view.dtype == ElementType::F64) {
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
    let each = |queue: &mut dyn Queue, flags: u32, to: &View| {
        let sides =
            Sides { src: (input, items.input), targets: (target, items.target), out: (to, [0; 3]), total };
        launch(queue, loss, nll::EACH, flags, [count, classes, inner], sides)
    };
    if loss.reduction == Reduction::None {
        if out.sizes() != target.sizes() || !out.is_contiguous() {
            return Err(OpError::refused("not-contiguous", format!("{out:?}")));
        }
        each(queue, 0, out)?;
        return fill(queue, total, Number::Float(0.0));
    }
    scratch(queue, ElementType::F32, &[2, count.max(1)], |queue, parts| {
        scratch(queue, ElementType::F32, &[2], |queue, sums| {
            each(queue, nll::FLAG_PARTS, parts)?;
            let parts = View::contiguous(parts.address, ElementType::F32, &[2, count])?;
            reduce(queue, Reduce::Sum, &parts, &[1], sums)?;
            let flags = flag(loss.reduction == Reduction::Mean, nll::FLAG_MEAN);
            let sides = Sides { src: (sums, [0; 3]), targets: (target, [0; 2]), out: (out, [0; 3]), total };
            launch(queue, loss, nll::JOIN, flags, [1, 1, 1], sides)
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
    let flags = flag(loss.reduction == Reduction::Mean, nll::FLAG_MEAN);
    let [_, classes, inner] = items.sizes;
    let sides =
        Sides { src: (grad, steps), targets: (target, items.target), out: (grad_input, items.input), total };
    launch(queue, loss, nll::BACKWARD, flags, [items.count() * classes, classes, inner], sides)
}
