//! Layer norm and group norm.

use crate::lanes::Lanes;
use crate::reduction::inverse_deviation;
use crate::scratch::scratch;
use crate::{Call, DType, Elementwise, Op, OpError, Operand, Queue, Reduce, View, reduce};

/// How a contiguous tensor is normalised: as [rows][channels of a row][inner], each row by statistics of its
/// own. Weights belong to channels; every `rows_per_item` rows they start over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NormShape {
    /// Rows.
    pub rows: u64,
    /// Rows of one item of the batch.
    pub rows_per_item: u64,
    /// Channels of a row.
    pub channels: u64,
    /// Elements of a channel.
    pub inner: u64,
}

impl NormShape {
    /// Layer norm of `rows` times `elements`, each with its weight.
    pub fn layer(rows: u64, elements: u64) -> Self {
        Self { rows, rows_per_item: 1, channels: elements, inner: 1 }
    }

    /// Group norm of (N, C, ...) with `inner` elements a channel.
    pub fn group(batch: u64, channels: u64, inner: u64, groups: u64) -> Self {
        Self { rows: batch * groups, rows_per_item: groups, channels: channels / groups.max(1), inner }
    }

    fn row(&self) -> u64 {
        self.channels * self.inner
    }

    fn elements(&self) -> u64 {
        self.rows * self.row()
    }

    fn weights(&self) -> u64 {
        self.rows_per_item * self.channels
    }

    fn check(
        &self,
        tensors: &[&View],
        statistics: [&View; 2],
        weights: &[Option<&View>],
    ) -> Result<(), OpError> {
        let refused =
            |what: &str, view: &View| Err(OpError::refused("different-sizes", format!("{what} {view:?}")));
        for view in tensors {
            if view.elements() != self.elements() || !view.is_contiguous() {
                return refused("a tensor", view);
            }
        }
        for view in statistics {
            if view.elements() != self.rows || !view.is_contiguous() || view.dtype != DType::F32 {
                return refused("statistics", view);
            }
        }
        for view in weights.iter().flatten() {
            if view.elements() != self.weights() || !view.is_contiguous() {
                return refused("weights", view);
            }
        }
        let all = tensors.iter().copied().chain(weights.iter().flatten().copied());
        if all.into_iter().any(|view| view.dtype == DType::F64) {
            return Err(OpError::refused("no-double", "a norm of f64"));
        }
        Ok(())
    }
}

const WEIGHTED: u32 = 1;
const BIASED: u32 = 2;
const STATISTICS_ALONG: u32 = 2;
const PER_GROUP: u64 = 256 * 4;

/// `y` = (x - mean) / sqrt(variance + `eps`) * weight + bias by row, with `mean` and `rstd` (the inverse root),
/// both f32, for the backward pass. All are contiguous.
///
/// # Errors
/// `different-sizes`, `no-double`, `too-many-elements`, `range-too-large`, the device's.
#[allow(clippy::too_many_arguments)] // operands, results and statistics
pub fn norm(
    queue: &mut dyn Queue,
    shape: NormShape,
    x: &View,
    weight: Option<&View>,
    bias: Option<&View>,
    eps: f32,
    y: &View,
    [mean, rstd]: [&View; 2],
) -> Result<(), OpError> {
    shape.check(&[x, y], [mean, rstd], &[weight, bias])?;
    if shape.elements() == 0 {
        return Ok(());
    }
    let rows = View::contiguous(x.address, x.dtype, &[shape.rows, shape.row()])?;
    let [flat_mean, flat_rstd] = [flat(mean)?, flat(rstd)?];
    inverse_deviation(queue, &rows, &[1], eps, &flat_rstd, &flat_mean)?;
    let flags = if weight.is_some() { WEIGHTED } else { 0 } | if bias.is_some() { BIASED } else { 0 };
    let (w, b) = (weight.unwrap_or(x), bias.unwrap_or(x));
    let mut call = Call::new();
    let (x_at, b_at) = (call.view(queue, x, false)?, call.view(queue, b, false)?);
    let (w_at, mean_at) = (call.view(queue, w, false)?, call.view(queue, mean, false)?);
    let (rstd_at, y_at) = (call.view(queue, rstd, false)?, call.view(queue, y, true)?);
    call.numbers(&[shape.elements(), shape.inner, shape.weights(), shape.channels])?.word(flags);
    call.words([x.dtype.code(), x_at, 0, 0, y.dtype.code(), y_at]);
    call.words([w.dtype.code(), w_at, b.dtype.code(), b_at, mean_at, rstd_at, 0]).float(0.0);
    call.work(0, shape.elements() * (x.dtype.size() + y.dtype.size()));
    call.launch_items(queue, "norm_y_f32", shape.elements(), PER_GROUP)
}

/// What [`norm_backward`] is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct NormGrads<'a> {
    /// The gradient of `x`, contiguous.
    pub x: Option<&'a View>,
    /// That of the weight.
    pub weight: Option<&'a View>,
    /// That of the bias.
    pub bias: Option<&'a View>,
}

/// The gradients of [`norm`].
///
/// # Errors
/// As [`norm`].
pub fn norm_backward(
    queue: &mut dyn Queue,
    shape: NormShape,
    dy: &View,
    x: &View,
    weight: Option<&View>,
    [mean, rstd]: [&View; 2],
    grads: &NormGrads<'_>,
) -> Result<(), OpError> {
    let mut tensors = vec![dy, x];
    tensors.extend(grads.x);
    shape.check(&tensors, [mean, rstd], &[weight, grads.weight, grads.bias])?;
    let job = Backward { shape, dy, x, weight, mean, rstd };
    if shape.inner == 1 && shape.rows_per_item == 1 {
        job.layer(queue, grads)
    } else {
        job.group(queue, grads)
    }
}

struct Backward<'a> {
    shape: NormShape,
    dy: &'a View,
    x: &'a View,
    weight: Option<&'a View>,
    mean: &'a View,
    rstd: &'a View,
}

/// What [`Backward::sums`] reduces: outputs and reduced elements, and their steps in x and dy.
struct Span {
    outs: u64,
    count: u64,
    steps: [u64; 2],
    /// Outputs that share statistics.
    per: u64,
    flags: u32,
}

impl Backward<'_> {
    /// By rows for dx, by columns for the parameters.
    fn layer(&self, queue: &mut dyn Queue, grads: &NormGrads<'_>) -> Result<(), OpError> {
        let NormShape { rows, channels, .. } = self.shape;
        if grads.weight.is_some() || grads.bias.is_some() {
            let span =
                Span { outs: channels, count: rows, steps: [1, channels], per: 1, flags: STATISTICS_ALONG };
            scratch(queue, DType::F32, &[2, channels], |queue, sums| {
                self.sums(queue, &span, sums)?;
                parameters(queue, sums, grads)
            })?;
        }
        let Some(dx) = grads.x else { return Ok(()) };
        let flags = if self.weight.is_some() { WEIGHTED } else { 0 };
        let span = Span { outs: rows, count: channels, steps: [channels, 1], per: 1, flags };
        scratch(queue, DType::F32, &[2, rows], |queue, sums| {
            self.sums(queue, &span, sums)?;
            self.apply(queue, sums, dx)
        })
    }

    /// By channels of items; rows and parameters from their sums.
    fn group(&self, queue: &mut dyn Queue, grads: &NormGrads<'_>) -> Result<(), OpError> {
        let NormShape { rows, channels, inner, .. } = self.shape;
        let (weights, outs) = (self.shape.weights(), rows * channels);
        let span = Span { outs, count: inner, steps: [inner, 1], per: channels, flags: 0 };
        scratch(queue, DType::F32, &[2, outs], |queue, sums| {
            self.sums(queue, &span, sums)?;
            if grads.weight.is_some() || grads.bias.is_some() {
                let items = View::contiguous(sums.address, DType::F32, &[2, outs / weights.max(1), weights])?;
                scratch(queue, DType::F32, &[2, weights], |queue, by_weight| {
                    reduce(queue, Reduce::Sum, &items, &[1], by_weight)?;
                    parameters(queue, by_weight, grads)
                })?;
            }
            let Some(dx) = grads.x else { return Ok(()) };
            if let Some(weight) = self.weight {
                let items = View::contiguous(sums.address, DType::F32, &[2, outs / weights.max(1), weights])?;
                let weight = flat(weight)?;
                let operands = [Operand::Of(&items), Operand::Of(&weight)];
                Elementwise::new(Op::Mul, DType::F32).run(queue, &operands, &items)?;
            }
            let by_row = View::contiguous(sums.address, DType::F32, &[2, rows, channels])?;
            scratch(queue, DType::F32, &[2, rows], |queue, sums| {
                reduce(queue, Reduce::Sum, &by_row, &[2], sums)?;
                self.apply(queue, sums, dx)
            })
        })
    }

    /// Sums of dy and dy xhat into `to`, [2][outs] of f32.
    fn sums(&self, queue: &mut dyn Queue, span: &Span, to: &View) -> Result<(), OpError> {
        let &Span { outs, count, steps, per, flags } = span;
        let lanes = Lanes::new(outs, count, steps[1] <= steps[0]);
        let plane = lanes.splits * outs;
        let w = self.weight.unwrap_or(self.x);
        let launch = |queue: &mut dyn Queue, to: &View| {
            let mut call = Call::new();
            let (x_at, dy_at) = (call.view(queue, self.x, false)?, call.view(queue, self.dy, false)?);
            let (w_at, mean_at) = (call.view(queue, w, false)?, call.view(queue, self.mean, false)?);
            let (rstd_at, to_at) = (call.view(queue, self.rstd, false)?, call.view(queue, to, true)?);
            call.numbers(&[outs, count])?.word(lanes.word).numbers(&[lanes.chunk])?;
            call.numbers(&steps)?.numbers(&[per])?.word(flags);
            call.words([self.x.dtype.code(), x_at, self.dy.dtype.code(), dy_at, w.dtype.code(), w_at]);
            call.words([mean_at, rstd_at, to_at]).numbers(&[plane])?;
            call.work(4 * outs * count, outs * count * (self.x.dtype.size() + self.dy.dtype.size()));
            let groups = u32::try_from(lanes.groups)
                .map_err(|_| OpError::refused("too-many-elements", format!("{outs} x {count}")))?;
            if groups == 0 {
                return Ok(());
            }
            call.launch(queue, "norm_sums_t_f32", [groups, lanes.splits as u32, 1])
        };
        if lanes.splits == 1 {
            return launch(queue, to);
        }
        scratch(queue, DType::F32, &[2, lanes.splits, outs], |queue, parts| {
            launch(queue, parts)?;
            reduce(queue, Reduce::Sum, parts, &[1], to)
        })
    }

    fn apply(&self, queue: &mut dyn Queue, sums: &View, dx: &View) -> Result<(), OpError> {
        let shape = &self.shape;
        let (x, dy, w) = (self.x, self.dy, self.weight.unwrap_or(self.x));
        let mut call = Call::new();
        let (x_at, dy_at) = (call.view(queue, x, false)?, call.view(queue, dy, false)?);
        let (w_at, mean_at) = (call.view(queue, w, false)?, call.view(queue, self.mean, false)?);
        let (rstd_at, dx_at) = (call.view(queue, self.rstd, false)?, call.view(queue, dx, true)?);
        let sums_at = call.view(queue, sums, false)?;
        let flags = if self.weight.is_some() { WEIGHTED } else { 0 };
        call.numbers(&[shape.elements(), shape.inner, shape.weights(), shape.channels])?.word(flags);
        call.words([x.dtype.code(), x_at, dy.dtype.code(), dy_at, dx.dtype.code(), dx_at]);
        call.words([w.dtype.code(), w_at, 0, sums_at, mean_at, rstd_at]).numbers(&[shape.rows])?;
        call.float(shape.row() as f32);
        call.work(0, shape.elements() * (x.dtype.size() + dy.dtype.size() + dx.dtype.size()));
        call.launch_items(queue, "norm_dx_f32", shape.elements(), PER_GROUP)
    }
}

/// The parameters' gradients from the sums of dy and dy xhat.
fn parameters(queue: &mut dyn Queue, sums: &View, grads: &NormGrads<'_>) -> Result<(), OpError> {
    for (grad, index) in [(grads.bias, 0), (grads.weight, 1)] {
        if let Some(grad) = grad {
            crate::copy(queue, &sums.select(0, index), &flat(grad)?)?;
        }
    }
    Ok(())
}

fn flat(view: &View) -> Result<View, OpError> {
    View::contiguous(view.address, view.dtype, &[view.elements()])
}
