//! Batch norm over N x C x L, forward and backward.
//!
//! Each channel's sums are split over workgroups and added in a fixed order, so results repeat bit for bit.

mod inference;

use crate::call::{Bound, Call, by_float, fit, fit_all, flag, range, read, write};
use crate::{ElementType, OpError, Queue, View};
use wave32_params::{Name, bn_apply, bn_finish, bn_finish_back, bn_sums, norm_act};
use wave32_solve::Access;

/// Elements that one workgroup sums at least: fewer cost more in launches than they gain in parallelism.
pub(crate) const PART: u64 = 2048;
const THREADS: u64 = 256;

/// Parameters and statistics, one a channel, contiguous: f32, f16 or bf16.
#[derive(Debug, Clone, Copy)]
pub struct BatchNorm<'a> {
    /// Scale; 1 where absent.
    pub gamma: Option<&'a View>,
    /// Offset; 0 where absent.
    pub beta: Option<&'a View>,
    /// Running mean and variance. Training updates them where they are given; evaluation needs them.
    pub running: Option<(&'a View, &'a View)>,
    /// Statistics of this batch.
    pub training: bool,
    /// Share of the new statistics in the running ones.
    pub momentum: f32,
    /// Added to the variance.
    pub eps: f32,
}

/// What a batch norm's pass computes behind it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum NormActivation {
    /// Nothing.
    #[default]
    None,
    /// ReLU, with an upper bound where there is one.
    Relu(Option<f32>),
    /// x times its sigmoid.
    Silu,
}

impl NormActivation {
    /// As parameters of the kernels.
    pub(crate) fn words(self) -> (u32, f32) {
        match self {
            Self::None => (norm_act::ACT_NONE, f32::NAN),
            Self::Relu(most) => (norm_act::ACT_RELU, most.unwrap_or(f32::NAN)),
            Self::Silu => (norm_act::ACT_SILU, f32::NAN),
        }
    }
}

/// What follows a batch norm in the same pass: `y = activation(norm(x) + added)`.
#[derive(Debug, Clone, Copy, Default)]
pub struct NormChain<'a> {
    /// Of the sizes and type of x.
    pub added: Option<&'a View>,
    /// Behind the sum.
    pub activation: NormActivation,
    /// Gets four f32 a channel, for the backward pass of an activation.
    pub coefficients: Option<&'a View>,
    /// The moments of x's channels, f32 \[channel\]\[part\]\[4\], where the convolution before it wrote them
    /// ([`crate::ConvChain::with_statistics`]): x is then read once only. In training.
    pub statistics: Option<&'a View>,
}

/// The tensor seen as N x C x L.
pub(crate) struct Shape {
    pub channels: u64,
    pub length: u64,
    /// Elements of a channel.
    pub count: u64,
}

fn shape(x: &View) -> Result<Shape, OpError> {
    let sizes = x.sizes();
    if sizes.len() < 2 || !x.is_contiguous() || x.elements() == 0 {
        let detail = format!("sizes {sizes:?}, strides {:?}", x.strides());
        return Err(OpError::refused("not-contiguous-n-c-l", detail));
    }
    let length: u64 = sizes[2..].iter().product();
    Ok(Shape { channels: sizes[1], length, count: sizes[0] * length })
}

fn variant<K>(names: [Name<K>; 3], dtype: ElementType) -> Result<Name<K>, OpError> {
    by_float(names, dtype)
        .ok_or_else(|| OpError::refused("element-type", format!("{dtype:?} is not f32, f16 or bf16")))
}

/// What parameters may be.
const FLOATS: [ElementType; 3] = [ElementType::F32, ElementType::F16, ElementType::BF16];

fn check_of(types: &[ElementType], what: &str, view: &View, shape: &Shape) -> Result<(), OpError> {
    if types.contains(&view.dtype) && view.elements() == shape.channels && view.is_contiguous() {
        return Ok(());
    }
    let detail = format!("{what}: {:?} of sizes {:?}, {} channels", view.dtype, view.sizes(), shape.channels);
    Err(OpError::refused("not-a-float-a-channel", detail))
}

/// A view of the sizes and type of x, contiguous.
fn check_like(what: &str, view: &View, x: &View) -> Result<(), OpError> {
    if view.sizes() == x.sizes() && view.dtype == x.dtype && view.is_contiguous() {
        return Ok(());
    }
    Err(OpError::refused("wrong-size", format!("{what}: {:?} for {:?}", view.sizes(), x.sizes())))
}

/// Four f32 a channel where a range can begin.
fn check_coefficients(queue: &dyn Queue, view: &View, shape: &Shape) -> Result<(), OpError> {
    let begins = view.address.is_multiple_of(queue.caps().offset_alignment.max(16));
    if view.dtype == ElementType::F32
        && view.elements() == 4 * shape.channels
        && view.is_contiguous()
        && begins
    {
        return Ok(());
    }
    let detail = format!("coefficients of sizes {:?}, {} channels", view.sizes(), shape.channels);
    Err(OpError::refused("not-a-float-a-channel", detail))
}

/// Moments of any number of parts of each channel; that number and where they lie.
fn check_statistics(queue: &dyn Queue, view: &View, shape: &Shape) -> Result<(u64, u64), OpError> {
    let begins = view.address.is_multiple_of(queue.caps().offset_alignment.max(16));
    match *view.sizes() {
        [channels, parts, 4]
            if channels == shape.channels
                && parts > 0
                && view.dtype == ElementType::F32
                && view.is_contiguous()
                && begins =>
        {
            Ok((parts, view.address))
        }
        _ => {
            let detail = format!("statistics of sizes {:?}, {} channels", view.sizes(), shape.channels);
            Err(OpError::refused("not-moments-of-channels", detail))
        }
    }
}

/// Parts that a channel is cut into: enough workgroups to fill the card, none too short.
pub(crate) fn parts(queue: &dyn Queue, shape: &Shape) -> u64 {
    let caps = queue.caps();
    let resident = u64::from(caps.compute_units) * u64::from(caps.threads_per_cu) / THREADS;
    let wanted = resident.div_ceil(shape.channels).max(1);
    wanted.min(shape.count.div_ceil(PART)).min(256)
}

/// Elements of a vector that loads take: four where rows are whole numbers of them and all begin at one.
fn vector(shape: &Shape, ats: &[u64]) -> u64 {
    if shape.length.is_multiple_of(4) && ats.iter().all(|at| at % 4 == 0) { 4 } else { 1 }
}

/// Of the variants for x and for dy, each by elements and by vectors of four.
fn one_of<K>(names: [[Name<K>; 3]; 4], of_dy: bool, vector: u64) -> [Name<K>; 3] {
    let [x1, x4, dy1, dy4] = names;
    match (of_dy, vector) {
        (false, 4) => x4,
        (false, _) => x1,
        (true, 4) => dy4,
        (true, _) => dy1,
    }
}

/// The forward pass's activation and coefficients, for the backward pass.
type Kept<'a> = (NormActivation, &'a View);

/// The backward pass of `y = activation(norm(x) + added)`: one gradient for the norm's result and for what was added.
#[derive(Debug, Clone, Copy)]
pub struct NormSum<'a> {
    /// A second gradient of y.
    pub also: Option<&'a View>,
    /// The result.
    pub y: &'a View,
    /// A ReLU: its result tells enough.
    pub activation: NormActivation,
    /// Gets the gradient of the sum.
    pub gradient: &'a View,
}

/// What the backward pass begins with.
#[derive(Clone, Copy)]
pub(crate) struct Gradient<'a> {
    dy: &'a View,
    mean: &'a View,
    kept: Option<Kept<'a>>,
    sum: Option<NormSum<'a>>,
}

/// Launches the sums, of x or of its gradient.
pub(crate) fn sums(
    queue: &mut dyn Queue,
    x: &View,
    back: Option<Gradient<'_>>,
    shape: &Shape,
    parts: u64,
    part: u64,
) -> Result<(), OpError> {
    let bound = read(queue, x)?;
    let (dy, mean) = match back {
        Some(back) => (read(queue, back.dy)?, read(queue, back.mean)?),
        None => (bound.unused(), bound.unused()),
    };
    let kept = back.and_then(|back| back.kept);
    let sum = back.and_then(|back| back.sum);
    let [also, y] = [sum.and_then(|sum| sum.also), sum.map(|sum| sum.y)]
        .map(|view| view.map_or(Ok(bound.unused()), |view| read(queue, view)));
    let joined = sum.map_or(Ok(bound.unused()), |sum| write(queue, sum.gradient))?;
    let buffers = bn_sums::Buffers {
        x: bound,
        dy,
        mean,
        part: range(queue, part, shape.channels * parts * 4, 4, Access::Write)?,
        kept: kept_range(queue, kept, bound)?,
        also: also?,
        y: y?,
        joined,
    };
    let ats = [buffers.x, buffers.dy, buffers.also, buffers.y, buffers.joined].map(|bound| bound.at());
    let vec = vector(shape, &ats);
    let names = match (sum, vec) {
        (Some(_), 4) => bn_sums::SUM4,
        (Some(_), _) => bn_sums::SUM1,
        _ => one_of([bn_sums::X1, bn_sums::X4, bn_sums::DY1, bn_sums::DY4], back.is_some(), vec),
    };
    let [x_at, dy_at, also_at, y_at, joined_at] = fit_all(ats.map(|at| at / vec))?;
    let columns = u32::try_from(parts).unwrap_or(u32::MAX);
    let channels = u32::try_from(shape.channels).ok().filter(|&c| c <= queue.caps().max_groups[1]);
    let channels =
        channels.ok_or_else(|| OpError::refused("too-many-channels", format!("{}", shape.channels)))?;
    let has_also = sum.is_some_and(|sum| sum.also.is_some());
    let passes = 1 + u64::from(back.is_some()) + 2 * u64::from(sum.is_some()) + u64::from(has_also);
    let activation = kept.map(|kept| kept.0).or(sum.map(|sum| sum.activation));
    let (act, most) = activation.unwrap_or_default().words();
    Call {
        kernel: variant(names, x.dtype)?,
        params: bn_sums::Params {
            channels,
            row: fit(shape.length / vec)?,
            count: fit(shape.count / vec)?,
            per_part: fit((shape.count / vec).div_ceil(parts))?,
            parts: columns,
            x_at,
            dy_at,
            mean_at: fit(mean.at())?,
            flags: flag(has_also, bn_sums::FLAG_ALSO),
            also_at,
            y_at,
            joined_at,
            act,
            most,
        },
        buffers,
        flops: 4 * x.elements(),
        bytes: passes * x.elements() * x.dtype.size(),
    }
    .launch(queue, [columns, channels, 1])
}

/// Binds what the forward pass kept, or `instead` unused.
fn kept_range(queue: &dyn Queue, kept: Option<Kept<'_>>, instead: Bound) -> Result<Bound, OpError> {
    // Its caller has checked that a range can begin there.
    kept.map_or(Ok(instead.unused()), |(_, coef)| {
        range(queue, coef.address, coef.elements(), 4, Access::Read)
    })
}

/// The elementwise part of either pass.
#[derive(Clone, Copy)]
pub(crate) enum Apply<'a> {
    Forward(NormChain<'a>),
    Back(&'a View, Option<Kept<'a>>),
}

pub(crate) fn apply(
    queue: &mut dyn Queue,
    x: &View,
    how: Apply<'_>,
    coef: u64,
    out: &View,
    shape: &Shape,
) -> Result<(), OpError> {
    let bound = read(queue, x)?;
    let (dy, kept, activation) = match how {
        Apply::Forward(chain) => (chain.added, None, chain.activation),
        Apply::Back(dy, kept) => (Some(dy), kept, kept.map_or(NormActivation::None, |kept| kept.0)),
    };
    let buffers = bn_apply::Buffers {
        x: bound,
        dy: dy.map_or(Ok(bound.unused()), |dy| read(queue, dy))?,
        coef: range(queue, coef, shape.channels * 4, 4, Access::Read)?,
        dst: write(queue, out)?,
        kept: kept_range(queue, kept, bound)?,
    };
    let is_back = matches!(how, Apply::Back(..));
    let (act, most) = activation.words();
    let ats = [buffers.x, buffers.dy, buffers.dst].map(|bound| bound.at());
    let vec = vector(shape, &ats);
    let names = one_of([bn_apply::X1, bn_apply::X4, bn_apply::DY1, bn_apply::DY4], is_back, vec);
    let [x_at, dy_at, out_at] = fit_all(ats.map(|at| at / vec))?;
    let count = x.elements() / vec;
    Call {
        kernel: variant(names, x.dtype)?,
        params: bn_apply::Params {
            count: fit(count)?,
            channels: fit(shape.channels)?,
            row: fit(shape.length / vec)?,
            x_at,
            dy_at,
            out_at,
            flags: flag(!is_back && dy.is_some(), bn_apply::FLAG_ADD),
            act,
            most,
        },
        buffers,
        flops: 3 * x.elements(),
        bytes: (2 + u64::from(dy.is_some())) * x.elements() * x.dtype.size(),
    }
    .launch_items(queue, count, THREADS * 4)
}

/// From sums to statistics and coefficients, in training.
pub(crate) struct Finish<'a> {
    pub norm: &'a BatchNorm<'a>,
    /// Of the statistics.
    pub shape: &'a Shape,
    /// Of each statistic, and where they lie.
    pub parts: u64,
    pub part: u64,
    /// Coefficients, as many of each statistic.
    pub channels: u64,
    /// Of gamma and beta.
    pub weights: u64,
}

impl Finish<'_> {
    /// Statistics (mean and inverse deviation) to `saved`, four f32 a channel to `coef`.
    pub fn launch(&self, queue: &mut dyn Queue, saved: [&View; 2], coef: u64) -> Result<(), OpError> {
        let Self { norm, shape, parts, channels, .. } = *self;
        let n = shape.count as f64;
        // A workgroup a channel, for one of sixteen.
        let is_long = parts > 128;
        let part = range(queue, self.part, shape.channels * parts * 4, 4, Access::Read)?;
        let bind = |view: Option<&View>, writes: bool| match view {
            Some(view) if writes => write(queue, view),
            Some(view) => read(queue, view),
            None => Ok(part.unused()),
        };
        let code = |view: Option<&View>| view.map_or(0, |view| view.dtype.code());
        let buffers = bn_finish::Buffers {
            part,
            gamma: bind(norm.gamma, false)?,
            beta: bind(norm.beta, false)?,
            rmean: bind(norm.running.map(|r| r.0), true)?,
            rvar: bind(norm.running.map(|r| r.1), true)?,
            means: write(queue, saved[0])?,
            rstds: write(queue, saved[1])?,
            coef: range(queue, coef, channels * 4, 4, Access::Write)?,
        };
        Call {
            kernel: if is_long { bn_finish::W } else { bn_finish::T },
            params: bn_finish::Params {
                channels: fit(channels)?,
                parts: fit(parts)?,
                flags: flag(norm.gamma.is_some(), bn_finish::FLAG_GAMMA)
                    | flag(norm.beta.is_some(), bn_finish::FLAG_BETA)
                    | flag(norm.running.is_some(), bn_finish::FLAG_RUNNING),
                count: n as f32,
                count_1: (n / (n - 1.0).max(1.0)) as f32,
                momentum: norm.momentum,
                eps: norm.eps,
                gamma_at: fit(buffers.gamma.at())?,
                beta_at: fit(buffers.beta.at())?,
                rmean_at: fit(buffers.rmean.at())?,
                rvar_at: fit(buffers.rvar.at())?,
                mean_at: fit(buffers.means.at())?,
                rstd_at: fit(buffers.rstds.at())?,
                per: fit(channels / shape.channels)?,
                weights: fit(self.weights)?,
                gamma_type: code(norm.gamma),
                beta_type: code(norm.beta),
                rmean_type: code(norm.running.map(|r| r.0)),
                rvar_type: code(norm.running.map(|r| r.1)),
            },
            buffers,
            flops: 10 * channels,
            bytes: shape.channels * (parts * 16 + 8) + channels * 32,
        }
        .launch_items(queue, channels, if is_long { 1 } else { 16 })
    }
}

/// `y = (x - mean) / sqrt(variance + eps) * gamma + beta`. In training `save` gets mean and 1 / sqrt(variance + eps), C f32
/// each; in evaluation nothing, and may be absent.
///
/// # Errors
/// `not-contiguous-n-c-l`, `not-a-float-a-channel`, `element-type`, `no-statistics`, `wrong-size`; [`OpError::Device`] where
/// the device fails.
pub fn batch_norm(
    queue: &mut dyn Queue,
    x: &View,
    norm: &BatchNorm<'_>,
    y: &View,
    save: Option<&View>,
) -> Result<(), OpError> {
    batch_norm_chain(queue, x, norm, &NormChain::default(), y, save)
}

/// The same with what follows it.
///
/// # Errors
/// As [`batch_norm`]; `no-coefficients` where they are wanted in evaluation.
pub fn batch_norm_chain(
    queue: &mut dyn Queue,
    x: &View,
    norm: &BatchNorm<'_>,
    chain: &NormChain<'_>,
    y: &View,
    save: Option<&View>,
) -> Result<(), OpError> {
    let shape = shape(x)?;
    variant(bn_sums::X1, x.dtype)?;
    check_like("the result", y, x)?;
    if let Some(added) = chain.added {
        check_like("what is added", added, x)?;
    }
    if let Some(coefficients) = chain.coefficients {
        check_coefficients(queue, coefficients, &shape)?;
    }
    let (mean, variance) = norm.running.unzip();
    for (what, view) in
        [("gamma", norm.gamma), ("beta", norm.beta), ("running mean", mean), ("running variance", variance)]
    {
        view.map_or(Ok(()), |view| check_of(&FLOATS, what, view, &shape))?;
    }
    if !norm.training {
        let running = norm
            .running
            .ok_or_else(|| OpError::refused("no-statistics", "evaluation without running statistics"))?;
        if chain.coefficients.is_some() {
            return Err(OpError::refused("no-coefficients", "evaluation makes none"));
        }
        return inference::run(queue, x, norm, running, chain, y, &shape);
    }
    let save = save.filter(|save| save.elements() == 2 * shape.channels && save.dtype == ElementType::F32);
    let save = save.ok_or_else(|| OpError::refused("wrong-size", "training saves two f32 a channel"))?;
    let given = chain.statistics.map(|view| check_statistics(queue, view, &shape)).transpose()?;
    let made = if given.is_some() { 1 } else { parts(queue, &shape) };
    let scratch = queue.alloc(shape.channels * (made + 1) * 16 + 16)?;
    let (parts, part) = given.unwrap_or((made, scratch + shape.channels * 16));
    let coef = chain.coefficients.map_or(scratch, |view| view.address);
    let run = (|| {
        if given.is_none() {
            sums(queue, x, None, &shape, parts, part)?;
        }
        let saved = View::contiguous(save.address, save.dtype, &[2, shape.channels])?;
        let saved = [&saved.select(0, 0), &saved.select(0, 1)];
        Finish { norm, shape: &shape, parts, part, channels: shape.channels, weights: shape.channels }
            .launch(queue, saved, coef)?;
        apply(queue, x, Apply::Forward(*chain), coef, y, &shape)
    })();
    queue.retire(scratch);
    run
}

/// Gradients of [`batch_norm`]: of x to `dx`, where wanted, and of gamma and beta to `grads` (C each). `mean` and `invstd`
/// (f32) are what the forward pass saved, or, in evaluation, the running mean and variance. `kept`: the activation behind
/// it, with nothing added in between, and the coefficients of [`batch_norm_chain`]; `dy` is then that of its result.
///
/// # Errors
/// As [`batch_norm`].
#[allow(clippy::too_many_arguments)] // operands
pub fn batch_norm_backward(
    queue: &mut dyn Queue,
    x: &View,
    dy: &View,
    (mean, invstd): (&View, &View),
    gamma: Option<&View>,
    mode: (bool, f32),
    kept: Option<(NormActivation, &View)>,
    dx: Option<&View>,
    grads: &View,
) -> Result<(), OpError> {
    kept.map_or(Ok(()), |(_, coefficients)| check_coefficients(queue, coefficients, &shape(x)?))?;
    gradients(queue, x, Gradient { dy, mean, kept, sum: None }, (invstd, gamma), mode, dx, grads)
}

/// The same for a norm in training to which something was added.
///
/// # Errors
/// As [`batch_norm`].
#[allow(clippy::too_many_arguments)] // operands
pub fn batch_norm_sum_backward(
    queue: &mut dyn Queue,
    x: &View,
    dy: &View,
    (mean, invstd): (&View, &View),
    gamma: Option<&View>,
    eps: f32,
    sum: NormSum<'_>,
    dx: &View,
    grads: &View,
) -> Result<(), OpError> {
    if !matches!(sum.activation, NormActivation::Relu(_)) {
        return Err(OpError::refused("activation", format!("{:?} behind a sum", sum.activation)));
    }
    for (what, view) in
        [("a gradient", sum.also), ("the result", Some(sum.y)), ("the sum's", Some(sum.gradient))]
    {
        view.map_or(Ok(()), |view| check_like(what, view, x))?;
    }
    let back = Gradient { dy, mean, kept: None, sum: Some(sum) };
    gradients(queue, x, back, (invstd, gamma), (true, eps), Some(dx), grads)
}

fn gradients(
    queue: &mut dyn Queue,
    x: &View,
    back: Gradient<'_>,
    (invstd, gamma): (&View, Option<&View>),
    (training, eps): (bool, f32),
    dx: Option<&View>,
    grads: &View,
) -> Result<(), OpError> {
    let shape = shape(x)?;
    let Gradient { dy, mean, kept, sum } = back;
    check_like("the result's gradient", dy, x)?;
    dx.map_or(Ok(()), |dx| check_like("the gradient", dx, x))?;
    for (what, view) in [("mean", mean), ("variance", invstd)] {
        check_of(&FLOATS[..1], what, view, &shape)?;
    }
    gamma.map_or(Ok(()), |gamma| check_of(&FLOATS, "gamma", gamma, &shape))?;
    if !FLOATS.contains(&grads.dtype) || grads.elements() != 2 * shape.channels || !grads.is_contiguous() {
        return Err(OpError::refused("wrong-size", format!("gradients of parameters: {:?}", grads.sizes())));
    }
    let parts = parts(queue, &shape);
    let scratch = queue.alloc(shape.channels * (parts + 1) * 16 + 16)?;
    let (coef, part) = (scratch, scratch + shape.channels * 16);
    let run = (|| {
        sums(queue, x, Some(back), &shape, parts, part)?;
        let part = range(queue, part, shape.channels * parts * 4, 4, Access::Read)?;
        let buffers = bn_finish_back::Buffers {
            part,
            gamma: gamma.map_or(Ok(part.unused()), |gamma| read(queue, gamma))?,
            mean: read(queue, mean)?,
            invstd: read(queue, invstd)?,
            grads: write(queue, grads)?,
            coef: range(queue, coef, shape.channels * 4, 4, Access::Write)?,
        };
        Call {
            kernel: bn_finish_back::T,
            params: bn_finish_back::Params {
                channels: fit(shape.channels)?,
                parts: fit(parts)?,
                flags: flag(gamma.is_some(), bn_finish_back::FLAG_GAMMA)
                    | flag(training, bn_finish_back::FLAG_BATCH),
                count: shape.count as f32,
                eps,
                gamma_at: fit(buffers.gamma.at())?,
                mean_at: fit(buffers.mean.at())?,
                invstd_at: fit(buffers.invstd.at())?,
                grads_at: fit(buffers.grads.at())?,
                gamma_type: gamma.map_or(0, |gamma| gamma.dtype.code()),
                grads_type: grads.dtype.code(),
            },
            buffers,
            flops: 10 * shape.channels,
            bytes: shape.channels * (parts * 16 + 40),
        }
        .launch_items(queue, shape.channels, 64)?;
        match dx {
            Some(dx) => {
                apply(queue, x, Apply::Back(sum.map_or(dy, |sum| sum.gradient), kept), coef, dx, &shape)
            }
            None => Ok(()),
        }
    })();
    queue.retire(scratch);
    run
}
