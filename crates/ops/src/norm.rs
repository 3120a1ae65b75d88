//! Layer norm and group norm.

use crate::batch_norm::{self, Apply, BatchNorm, Finish, NormActivation, NormChain, PART};
use crate::call::{Bound, Call, fit, flag, read, write};
use crate::lanes::Lanes;
use crate::reduction::inverse_deviation;
use crate::rows::{Norm, Pass, Rows};
use crate::scratch::scratch;
use crate::{ElementType, Elementwise, Op, OpError, Operand, Queue, Reduce, View, reduce};
use wave32_params::norm as kernel;
use wave32_params::norm_sums;

/// How a contiguous tensor is normalised: as `[rows][channels of a row][inner]`, each row by statistics of its
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

    /// That [`by_planes`] takes it: rows worth a workgroup, with one weight for many elements, as batch norm's kernels address them.
    fn has_planes(&self, queue: &dyn Queue, x: &View, y: &View) -> bool {
        let is_plain = [ElementType::F32, ElementType::F16, ElementType::BF16].contains(&x.dtype);
        let fits = self.rows <= u64::from(queue.caps().max_groups[1]);
        is_plain && x.dtype == y.dtype && fits && self.inner > 1 && self.row() >= PART
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
            if view.elements() != self.rows || !view.is_contiguous() || view.dtype != ElementType::F32 {
                return refused("statistics", view);
            }
        }
        for view in weights.iter().flatten() {
            if view.elements() != self.weights() || !view.is_contiguous() {
                return refused("weights", view);
            }
        }
        let all = tensors.iter().copied().chain(weights.iter().flatten().copied());
        if all.into_iter().any(|view| view.dtype == ElementType::F64) {
            return Err(OpError::refused("no-double", "a norm of f64"));
        }
        Ok(())
    }

    /// The kernel's parameters that both passes share; those of one pass alone are 0.
    fn params(&self, x: &View, buffers: &Buffers) -> Result<kernel::Params, OpError> {
        Ok(kernel::Params {
            count: fit(self.elements())?,
            inner: fit(self.inner)?,
            channels: fit(self.weights())?,
            per: fit(self.channels)?,
            flags: 0,
            x_type: x.dtype.code(),
            x_at: fit(buffers.src.at())?,
            dy_type: 0,
            dy_at: 0,
            out_type: 0,
            out_at: fit(buffers.dst.at())?,
            w_type: 0,
            w_at: fit(buffers.weights.at())?,
            b_type: 0,
            b_at: 0,
            mean_at: fit(buffers.means.at())?,
            rstd_at: fit(buffers.rstds.at())?,
            plane: 0,
            act: 0,
            n: 0.0,
            most: 0.0,
        })
    }
}

type Buffers = kernel::Buffers<Bound>;
const PER_GROUP: u64 = 256 * 4;

/// `y` = `activation`((x - mean) / sqrt(variance + `eps`) * weight + bias) by row, with `mean` and `rstd` (the inverse root),
/// both f32, for the backward pass. All are contiguous.
///
/// # Errors
/// `different-sizes`, `no-double`, `too-many-elements`, `range-too-large`; [`OpError::Device`] where the device fails.
#[allow(clippy::too_many_arguments)] // operands, results and statistics
pub fn norm(
    queue: &mut dyn Queue,
    shape: NormShape,
    x: &View,
    weight: Option<&View>,
    bias: Option<&View>,
    eps: f32,
    activation: NormActivation,
    y: &View,
    [mean, rstd]: [&View; 2],
) -> Result<(), OpError> {
    shape.check(&[x, y], [mean, rstd], &[weight, bias])?;
    if shape.elements() == 0 {
        return Ok(());
    }
    let held = Norm { shape, weight, bias, statistics: [mean, rstd] };
    if let Some(rows) = Rows::of_norm(&held, [Some(x), Some(y), None]) {
        return rows.run(queue, Pass::Norm { norm: &held, eps, activation }, x, None, y);
    }
    if shape.has_planes(queue, x, y) {
        return by_planes(queue, &held, x, eps, activation, y);
    }
    let (act, most) = activation.words();
    let rows = View::contiguous(x.address, x.dtype, &[shape.rows, shape.row()])?;
    let [flat_mean, flat_rstd] = [flat(mean)?, flat(rstd)?];
    inverse_deviation(queue, &rows, &[1], eps, &flat_rstd, &flat_mean)?;
    let src = read(queue, x)?;
    let operand = |view: Option<&View>| view.map_or(Ok(src.unused()), |view| read(queue, view));
    let code = |view: Option<&View>| view.map_or(0, |view| view.dtype.code());
    let buffers = Buffers {
        src,
        biases: operand(bias)?,
        grad: src.unused(),
        weights: operand(weight)?,
        means: read(queue, mean)?,
        rstds: read(queue, rstd)?,
        dst: write(queue, y)?,
        sums: src.unused(),
    };
    Call {
        kernel: kernel::Y,
        params: kernel::Params {
            flags: flag(weight.is_some(), kernel::FLAG_WEIGHTED) | flag(bias.is_some(), kernel::FLAG_BIASED),
            out_type: y.dtype.code(),
            w_type: code(weight),
            b_type: code(bias),
            b_at: fit(buffers.biases.at())?,
            act,
            most,
            ..shape.params(x, &buffers)?
        },
        buffers,
        flops: 0,
        bytes: shape.elements() * (x.dtype.size() + y.dtype.size()),
    }
    .launch_items(queue, shape.elements(), PER_GROUP)
}

/// Long rows of planes with weights of their own (a group norm's), as batch norm does it.
fn by_planes(
    queue: &mut dyn Queue,
    norm: &Norm<'_>,
    x: &View,
    eps: f32,
    activation: NormActivation,
    y: &View,
) -> Result<(), OpError> {
    let Norm { shape, weight, bias, statistics } = *norm;
    let rows = batch_norm::Shape { channels: shape.rows, length: shape.row(), count: shape.row() };
    let channels = shape.rows * shape.channels;
    let planes = batch_norm::Shape { channels, length: shape.inner, count: shape.inner };
    let parts = batch_norm::parts(queue, &rows);
    let of_rows = BatchNorm { gamma: weight, beta: bias, running: None, training: true, momentum: 0.0, eps };
    scratch(queue, ElementType::F32, &[channels, 4], |queue, coef| {
        scratch(queue, ElementType::F32, &[rows.channels, parts, 4], |queue, part| {
            batch_norm::sums(queue, x, None, &rows, parts, part.address)?;
            let part = part.address;
            Finish { norm: &of_rows, shape: &rows, parts, part, channels, weights: shape.weights() }.launch(
                queue,
                statistics,
                coef.address,
            )
        })?;
        let chain = NormChain { activation, ..NormChain::default() };
        batch_norm::apply(queue, x, Apply::Forward(chain), coef.address, y, &planes)
    })
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
            let span = Span {
                outs: channels,
                count: rows,
                steps: [1, channels],
                per: 1,
                flags: norm_sums::FLAG_STATISTICS_ALONG,
            };
            scratch(queue, ElementType::F32, &[2, channels], |queue, sums| {
                self.sums(queue, &span, sums)?;
                parameters(queue, sums, grads)
            })?;
        }
        let Some(dx) = grads.x else { return Ok(()) };
        let (weight, statistics) = (self.weight, [self.mean, self.rstd]);
        let held = Norm { shape: self.shape, weight, bias: None, statistics };
        if let Some(rows) = Rows::of_norm(&held, [Some(self.x), Some(self.dy), Some(dx)]) {
            return rows.run(queue, Pass::NormBackward { norm: &held }, self.x, Some(self.dy), dx);
        }
        let flags = flag(self.weight.is_some(), norm_sums::FLAG_WEIGHTED);
        let span = Span { outs: rows, count: channels, steps: [channels, 1], per: 1, flags };
        scratch(queue, ElementType::F32, &[2, rows], |queue, sums| {
            self.sums(queue, &span, sums)?;
            self.apply(queue, sums, dx)
        })
    }

    /// By channels of items; rows and parameters from their sums.
    fn group(&self, queue: &mut dyn Queue, grads: &NormGrads<'_>) -> Result<(), OpError> {
        let NormShape { rows, channels, inner, .. } = self.shape;
        let (weights, outs) = (self.shape.weights(), rows * channels);
        let span = Span { outs, count: inner, steps: [inner, 1], per: channels, flags: 0 };
        scratch(queue, ElementType::F32, &[2, outs], |queue, sums| {
            self.sums(queue, &span, sums)?;
            if grads.weight.is_some() || grads.bias.is_some() {
                let items =
                    View::contiguous(sums.address, ElementType::F32, &[2, outs / weights.max(1), weights])?;
                scratch(queue, ElementType::F32, &[2, weights], |queue, by_weight| {
                    reduce(queue, Reduce::Sum, &items, &[1], by_weight)?;
                    parameters(queue, by_weight, grads)
                })?;
            }
            let Some(dx) = grads.x else { return Ok(()) };
            if let Some(weight) = self.weight {
                let items =
                    View::contiguous(sums.address, ElementType::F32, &[2, outs / weights.max(1), weights])?;
                let weight = flat(weight)?;
                let operands = [Operand::Of(&items), Operand::Of(&weight)];
                Elementwise::new(Op::Mul, ElementType::F32).run(queue, &operands, &items)?;
            }
            let by_row = View::contiguous(sums.address, ElementType::F32, &[2, rows, channels])?;
            scratch(queue, ElementType::F32, &[2, rows], |queue, sums| {
                reduce(queue, Reduce::Sum, &by_row, &[2], sums)?;
                self.apply(queue, sums, dx)
            })
        })
    }

    /// Sums of dy and dy xhat into `to`, `[2][outs]` of f32.
    fn sums(&self, queue: &mut dyn Queue, span: &Span, to: &View) -> Result<(), OpError> {
        let &Span { outs, count, steps, per, flags } = span;
        let lanes = Lanes::new(outs, count, steps[1] <= steps[0]);
        let plane = lanes.splits * outs;
        let launch = |queue: &mut dyn Queue, to: &View| {
            let groups = u32::try_from(lanes.groups)
                .map_err(|_| OpError::refused("too-many-elements", format!("{outs} x {count}")))?;
            if groups == 0 {
                return Ok(());
            }
            let src = read(queue, self.x)?;
            let buffers = norm_sums::Buffers {
                src,
                grad: read(queue, self.dy)?,
                weights: self.weight.map_or(Ok(src.unused()), |weight| read(queue, weight))?,
                means: read(queue, self.mean)?,
                rstds: read(queue, self.rstd)?,
                dst: write(queue, to)?,
            };
            Call {
                kernel: norm_sums::T,
                params: norm_sums::Params {
                    outs: fit(outs)?,
                    count: fit(count)?,
                    lanes: lanes.word,
                    chunk: fit(lanes.chunk)?,
                    a: fit(steps[0])?,
                    b: fit(steps[1])?,
                    per: fit(per)?,
                    flags,
                    x_type: self.x.dtype.code(),
                    x_at: fit(src.at())?,
                    dy_type: self.dy.dtype.code(),
                    dy_at: fit(buffers.grad.at())?,
                    w_type: self.weight.map_or(0, |weight| weight.dtype.code()),
                    w_at: fit(buffers.weights.at())?,
                    mean_at: fit(buffers.means.at())?,
                    rstd_at: fit(buffers.rstds.at())?,
                    out_at: fit(buffers.dst.at())?,
                    plane: fit(plane)?,
                },
                buffers,
                flops: 4 * outs * count,
                bytes: outs * count * (self.x.dtype.size() + self.dy.dtype.size()),
            }
            .launch(queue, [groups, lanes.splits as u32, 1])
        };
        if lanes.splits == 1 {
            return launch(queue, to);
        }
        scratch(queue, ElementType::F32, &[2, lanes.splits, outs], |queue, parts| {
            launch(queue, parts)?;
            reduce(queue, Reduce::Sum, parts, &[1], to)
        })
    }

    fn apply(&self, queue: &mut dyn Queue, sums: &View, dx: &View) -> Result<(), OpError> {
        let shape = &self.shape;
        let (x, dy) = (self.x, self.dy);
        let src = read(queue, x)?;
        let buffers = Buffers {
            src,
            biases: src.unused(),
            grad: read(queue, dy)?,
            weights: self.weight.map_or(Ok(src.unused()), |weight| read(queue, weight))?,
            means: read(queue, self.mean)?,
            rstds: read(queue, self.rstd)?,
            dst: write(queue, dx)?,
            sums: read(queue, sums)?,
        };
        Call {
            kernel: kernel::DX,
            params: kernel::Params {
                flags: flag(self.weight.is_some(), kernel::FLAG_WEIGHTED),
                dy_type: dy.dtype.code(),
                dy_at: fit(buffers.grad.at())?,
                out_type: dx.dtype.code(),
                w_type: self.weight.map_or(0, |weight| weight.dtype.code()),
                b_at: fit(buffers.sums.at())?,
                plane: fit(shape.rows)?,
                n: shape.row() as f32,
                ..shape.params(x, &buffers)?
            },
            buffers,
            flops: 0,
            bytes: shape.elements() * (x.dtype.size() + dy.dtype.size() + dx.dtype.size()),
        }
        .launch_items(queue, shape.elements(), PER_GROUP)
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
