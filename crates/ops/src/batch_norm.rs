//! Batch norm over N x C x L, forward and backward.
//!
//! Each channel's sums are split over workgroups and added in a fixed order, so results repeat bit for bit.

use crate::{Call, DType, OpError, Queue, View};

/// Elements that one workgroup sums at least: fewer cost more in launches than they gain in parallelism.
const PART: u64 = 2048;
const THREADS: u64 = 256;

/// Parameters and statistics, one f32 a channel, contiguous.
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

/// The tensor seen as N x C x L.
struct Shape {
    channels: u64,
    length: u64,
    /// Elements of a channel.
    count: u64,
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

fn suffix(dtype: DType) -> Result<&'static str, OpError> {
    match dtype {
        DType::F32 => Ok("f32"),
        DType::F16 => Ok("f16"),
        DType::BF16 => Ok("bf16"),
        other => Err(OpError::refused("element-type", format!("{other:?} is not f32, f16 or bf16"))),
    }
}

fn check(what: &str, view: &View, shape: &Shape) -> Result<(), OpError> {
    if view.dtype == DType::F32 && view.elements() == shape.channels && view.is_contiguous() {
        return Ok(());
    }
    let detail = format!("{what}: {:?} of sizes {:?}, {} channels", view.dtype, view.sizes(), shape.channels);
    Err(OpError::refused("not-a-float-a-channel", detail))
}

/// Parts that a channel is cut into: enough workgroups to fill the card, none too short.
fn parts(queue: &dyn Queue, shape: &Shape) -> u64 {
    let caps = queue.caps();
    let resident = u64::from(caps.compute_units) * u64::from(caps.threads_per_cu) / THREADS;
    let wanted = resident.div_ceil(shape.channels).max(1);
    wanted.min(shape.count.div_ceil(PART)).min(256)
}

/// Launches the sums; `dy` and `mean` for the backward pass.
fn sums(
    queue: &mut dyn Queue,
    x: &View,
    dy: Option<(&View, &View)>,
    shape: &Shape,
    parts: u64,
    part: u64,
) -> Result<(), OpError> {
    let kernel = format!("bn_sums_{}_{}", if dy.is_some() { "dy" } else { "x" }, suffix(x.dtype)?);
    let per_part = shape.count.div_ceil(parts);
    let mut call = Call::new();
    call.numbers(&[shape.channels, shape.length, shape.count, per_part, parts])?;
    let x_at = call.view(queue, x, false)?;
    // Buffers that a pass does not read are bound to what it does.
    let dy_at = call.view(queue, dy.map_or(x, |(dy, _)| dy), false)?;
    let mean_at = match dy {
        Some((_, mean)) => call.view(queue, mean, false)?,
        None => call.range(queue, x.address, 1, x.dtype.size(), false)?,
    };
    call.range(queue, part, shape.channels * parts * 3, 4, true)?;
    call.words([x_at, dy_at, mean_at]);
    let reads = if dy.is_some() { 2 } else { 1 };
    call.work(4 * x.elements(), reads * x.elements() * x.dtype.size());
    let columns = u32::try_from(parts).unwrap_or(u32::MAX);
    let channels = u32::try_from(shape.channels).ok().filter(|&c| c <= queue.caps().max_groups[1]);
    let channels =
        channels.ok_or_else(|| OpError::refused("too-many-channels", format!("{}", shape.channels)))?;
    call.launch(queue, &kernel, [columns, channels, 1])
}

fn apply(
    queue: &mut dyn Queue,
    x: &View,
    dy: Option<&View>,
    coef: u64,
    out: &View,
    shape: &Shape,
) -> Result<(), OpError> {
    let mut call = Call::new();
    let x_at = call.view(queue, x, false)?;
    let dy_at = call.view(queue, dy.unwrap_or(x), false)?;
    call.range(queue, coef, shape.channels * 4, 4, false)?;
    let out_at = call.view(queue, out, true)?;
    let ats = [x_at, dy_at, out_at];
    let vec = if shape.length.is_multiple_of(4) && ats.iter().all(|at| at % 4 == 0) { 4 } else { 1 };
    let count = x.elements() / vec;
    call.numbers(&[count, shape.channels, shape.length / vec])?;
    call.words(ats.map(|at| at / vec as u32));
    call.work(3 * x.elements(), (2 + u64::from(dy.is_some())) * x.elements() * x.dtype.size());
    let kernel = format!("bn_apply_{}{vec}_{}", if dy.is_some() { "dy" } else { "x" }, suffix(x.dtype)?);
    call.launch_items(queue, &kernel, count, THREADS * 4)
}

/// `y = (x - mean) / sqrt(variance + eps) * gamma + beta`. `save` gets mean and 1 / sqrt(variance + eps), C f32 each.
///
/// # Errors
/// `not-contiguous-n-c-l`, `not-a-float-a-channel`, `element-type`, `no-statistics`, the device's.
pub fn batch_norm(
    queue: &mut dyn Queue,
    x: &View,
    norm: &BatchNorm<'_>,
    y: &View,
    save: &View,
) -> Result<(), OpError> {
    let shape = shape(x)?;
    suffix(x.dtype)?;
    if y.sizes() != x.sizes()
        || y.dtype != x.dtype
        || !y.is_contiguous()
        || save.elements() != 2 * shape.channels
    {
        return Err(OpError::refused("wrong-size", format!("{:?} to {:?}", x.sizes(), y.sizes())));
    }
    let mut flags = if norm.training { 8 } else { 0 };
    for (bit, what, view) in [
        (1, "gamma", norm.gamma),
        (2, "beta", norm.beta),
        (4, "running mean", norm.running.map(|r| r.0)),
        (4, "running variance", norm.running.map(|r| r.1)),
    ] {
        if let Some(view) = view {
            check(what, view, &shape)?;
            flags |= bit;
        }
    }
    if !norm.training && norm.running.is_none() {
        return Err(OpError::refused("no-statistics", "evaluation without running statistics"));
    }
    let parts = if norm.training { parts(queue, &shape) } else { 1 };
    let scratch = queue.alloc((shape.channels * (parts * 3 + 4)) * 4 + 16)?;
    let (coef, part) = (scratch, scratch + shape.channels * 16);
    let run = (|| {
        if norm.training {
            sums(queue, x, None, &shape, parts, part)?;
        }
        let mut call = Call::new();
        call.numbers(&[shape.channels, parts])?.word(flags);
        let n = shape.count as f64;
        call.float(n as f32).float((n / (n - 1.0).max(1.0)) as f32).float(norm.momentum).float(norm.eps);
        call.range(queue, part, shape.channels * parts * 3, 4, false)?;
        let mut ats = [0; 4];
        let running = norm.running;
        let bound = [norm.gamma, norm.beta, running.map(|r| r.0), running.map(|r| r.1)];
        for (index, (at, view)) in ats.iter_mut().zip(bound).enumerate() {
            let writes = index >= 2 && norm.training;
            *at = match view {
                Some(view) => call.view(queue, view, writes)?,
                None => call.range(queue, coef, 4, 4, false)?,
            };
        }
        call.view(queue, save, true)?;
        call.range(queue, coef, shape.channels * 4, 4, true)?;
        call.words(ats);
        call.work(10 * shape.channels, shape.channels * (parts * 12 + 40));
        call.launch_items(queue, "bn_finish_x_f32", shape.channels, 64)?;
        apply(queue, x, None, coef, y, &shape)
    })();
    queue.free(scratch);
    run
}

/// Gradients of [`batch_norm`]: of x to `dx`, where wanted, and of gamma and beta to `grads` (C f32 each). `mean` and
/// `invstd` are what the forward pass saved, or, in evaluation, the running mean and variance.
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
    (training, eps): (bool, f32),
    dx: Option<&View>,
    grads: &View,
) -> Result<(), OpError> {
    let shape = shape(x)?;
    let ranges = [Some(dy), dx];
    for view in ranges.into_iter().flatten() {
        if view.sizes() != x.sizes() || view.dtype != x.dtype || !view.is_contiguous() {
            return Err(OpError::refused("wrong-size", format!("{:?} and {:?}", x.sizes(), view.sizes())));
        }
    }
    for (what, view) in [("mean", Some(mean)), ("variance", Some(invstd)), ("gamma", gamma)] {
        if let Some(view) = view {
            check(what, view, &shape)?;
        }
    }
    let parts = parts(queue, &shape);
    let scratch = queue.alloc((shape.channels * (parts * 3 + 4)) * 4 + 16)?;
    let (coef, part) = (scratch, scratch + shape.channels * 16);
    let run = (|| {
        sums(queue, x, Some((dy, mean)), &shape, parts, part)?;
        let mut call = Call::new();
        let flags = u32::from(gamma.is_some()) + if training { 8 } else { 0 };
        call.numbers(&[shape.channels, parts])?.word(flags).float(shape.count as f32).float(eps);
        call.range(queue, part, shape.channels * parts * 3, 4, false)?;
        let gamma_at = match gamma {
            Some(gamma) => call.view(queue, gamma, false)?,
            None => call.range(queue, part, 1, 4, false)?,
        };
        let mean_at = call.view(queue, mean, false)?;
        let invstd_at = call.view(queue, invstd, false)?;
        call.view(queue, grads, true)?;
        call.range(queue, coef, shape.channels * 4, 4, true)?;
        call.words([gamma_at, mean_at, invstd_at]);
        call.work(10 * shape.channels, shape.channels * (parts * 12 + 40));
        call.launch_items(queue, "bn_finish_dy_f32", shape.channels, 64)?;
        match dx {
            Some(dx) => apply(queue, x, Some(dy), coef, dx, &shape),
            None => Ok(()),
        }
    })();
    queue.free(scratch);
    run
}
