//! Reductions over any dimensions of strided tensors.
//!
//! `dims` are the reduced dimensions. A result has the other dimensions, or all of them with size 1 for the
//! reduced ones. The order of sums depends on sizes and strides only: results repeat bit by bit.

use crate::call::flag;
use crate::reduce_pass::{Family, Job, Ops};
use crate::steps::{Steps, wide};
use crate::{Kind, Number, Op, OpError, Queue, View, fill};
use wave32_params::reduction::{
    EXTREME_LEAST, EXTREME_PARTS, EXTREME_PLACE, EXTREME_VALUE, MAX, MIN, MOMENT_FROM_PARTS,
    MOMENT_INVERSE_ROOT, MOMENT_MEAN, MOMENT_ROOT, MOMENT_TO_PARTS, MOMENT_VARIANCE, PROD, SUM,
};

/// What becomes of the elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reduce {
    /// Their sum.
    Sum,
    /// Their mean (floats).
    Mean,
    /// Their product.
    Prod,
    /// The largest; NaN if one is.
    Max,
    /// The smallest; NaN if one is.
    Min,
    /// True if one is not zero.
    Any,
    /// True if none is zero.
    All,
    /// How many are not zero.
    CountNonzero,
    /// The norm of that order, which may be infinite (floats).
    Norm(f64),
}

impl Reduce {
    /// The kernel's codes of what is done to an element, how two combine, what is done to the result.
    fn codes(self) -> [u32; 3] {
        match self {
            Self::Sum => [0, SUM, 0],
            Self::Mean => [0, SUM, 1],
            Self::Prod => [0, PROD, 0],
            Self::Max => [0, MAX, 0],
            Self::Min => [0, MIN, 0],
            Self::Any => [1, MAX, 0],
            Self::All => [1, MIN, 0],
            Self::CountNonzero | Self::Norm(0.0) => [1, SUM, 0],
            Self::Norm(1.0) => [2, SUM, 0],
            Self::Norm(2.0) => [3, SUM, 2],
            Self::Norm(f64::INFINITY) => [2, MAX, 0],
            Self::Norm(f64::NEG_INFINITY) => [2, MIN, 0],
            Self::Norm(_) => [4, SUM, 3],
        }
    }
}

impl Reduce {
    /// How results of parts of the elements become one; none where they cannot.
    fn join(self) -> Option<Self> {
        match self {
            Self::Sum | Self::Mean | Self::CountNonzero => Some(Self::Sum),
            Self::Prod | Self::Max | Self::Min | Self::Any | Self::All => Some(self),
            Self::Norm(_) => None,
        }
    }
}

/// Where to cut an input that no launch binds: whether that dimension is kept, and which it is. The one that reaches
/// furthest; what halves of two reduced elements gave would be no less than they.
fn cut(queue: &dyn Queue, input: &View, dims: &[usize]) -> Option<(bool, usize)> {
    if input.fits(queue.caps()) {
        return None;
    }
    let reach = |&dim: &usize| (input.sizes()[dim] - 1) * input.strides()[dim];
    let is_kept = |dim: &usize| !dims.contains(dim);
    let helps = |dim: &usize| reach(dim) > 0 && (is_kept(dim) || input.sizes()[*dim] > 2);
    let furthest = (0..input.rank()).filter(helps).max_by_key(reach)?;
    Some((is_kept(&furthest), furthest))
}

/// Both halves of a kept dimension, one after the other.
fn halves(
    queue: &mut dyn Queue,
    input: &View,
    dims: &[usize],
    dim: usize,
    outs: &[&View],
    mut each: impl FnMut(&mut dyn Queue, &View, &[View]) -> Result<(), OpError>,
) -> Result<(), OpError> {
    let size = input.sizes()[dim];
    for (start, len) in [(0, size / 2), (size / 2, size - size / 2)] {
        let narrow = |out: &&View| {
            let keeps_dims = out.rank() == input.rank();
            let at = if keeps_dims { dim } else { (0..dim).filter(|dim| !dims.contains(dim)).count() };
            if out.sizes().get(at) == Some(&size) {
                Ok(out.narrow(at, start, len))
            } else {
                let detail = format!("{:?} over {dims:?} into {:?}", input.sizes(), out.sizes());
                Err(OpError::refused("different-sizes", detail))
            }
        };
        let outs = outs.iter().map(narrow).collect::<Result<Vec<_>, _>>()?;
        let part = input.narrow(dim, start, len);
        each(&mut *queue, &part, &outs)?;
    }
    Ok(())
}

/// Both halves of a reduced dimension, then what they gave.
fn in_two(
    queue: &mut dyn Queue,
    (how, join): (Reduce, Reduce),
    input: &View,
    dims: &[usize],
    dim: usize,
    out: &View,
) -> Result<(), OpError> {
    let dtype = if Kind::of([out.dtype]) == Kind::Int { out.dtype } else { wide(out.dtype) };
    let mut steps = Steps::new(queue);
    let parts = steps.make(dtype, &[&[2], out.sizes()].concat())?;
    let how_of_parts = if how == Reduce::Mean { Reduce::Sum } else { how };
    let size = input.sizes()[dim];
    for (at, (start, len)) in [(0, size / 2), (size / 2, size - size / 2)].into_iter().enumerate() {
        let part = input.narrow(dim, start, len);
        reduce(steps.queue, how_of_parts, &part, dims, &parts.select(0, at as u64))?;
    }
    if how != Reduce::Mean {
        return reduce(steps.queue, join, &parts, &[0], out);
    }
    let sum = steps.make(dtype, out.sizes())?;
    reduce(steps.queue, join, &parts, &[0], &sum)?;
    let count: u64 = dims.iter().map(|&dim| input.sizes()[dim]).product();
    steps.run(Op::Div, &[(&sum).into(), (count as f64).into()], [0.0; 2], out)
}

/// Reduces `input` over `dims` into `out`, in the precision of the wider type (f32 at least for floats).
///
/// # Errors
/// `different-sizes`, `empty-extreme`, `not-a-float`, `no-double-power`, `too-many-elements`,
/// `range-too-large`, the device's.
pub fn reduce(
    queue: &mut dyn Queue,
    how: Reduce,
    input: &View,
    dims: &[usize],
    out: &View,
) -> Result<(), OpError> {
    if let Some((kept, half)) = cut(queue, input, dims) {
        if kept {
            return halves(queue, input, dims, half, &[out], |queue, input, outs| {
                reduce(queue, how, input, dims, &outs[0])
            });
        }
        if let Some(join) = how.join() {
            return in_two(queue, (how, join), input, dims, half, out);
        }
    }
    let mut job = Job::new(input, dims, &[out], false)?;
    let [map, combine, finish] = how.codes();
    let counts = matches!(how, Reduce::Any | Reduce::All | Reduce::CountNonzero);
    let kind = Kind::of([input.dtype].into_iter().chain((!counts).then_some(out.dtype)));
    let bad = |name, detail: String| Err(OpError::refused(name, detail));
    if job.count == 0 && !counts && combine >= MAX {
        return bad("empty-extreme", format!("{how:?} of no elements"));
    }
    if job.count == 0 && matches!(how, Reduce::Any | Reduce::All) {
        return fill(queue, out, Number::Int(i64::from(how == Reduce::All)));
    }
    if matches!(how, Reduce::Mean | Reduce::Norm(_)) && kind == Kind::Int {
        return bad("not-a-float", format!("{how:?} of {:?}", input.dtype));
    }
    if map == 4 && kind == Kind::Double {
        return bad("no-double-power", format!("{how:?}"));
    }
    let is_counted = how == Reduce::CountNonzero && kind == Kind::Float;
    if (is_counted || how == Reduce::Mean && kind == Kind::Double) && job.count >= 1 << 24 {
        return bad("too-many-elements", format!("{} counted in floats", job.count));
    }
    job.scalar = match how {
        Reduce::Norm(p) => p as f32,
        _ => job.count as f32,
    };
    let op = |map, finish| map | combine << 4 | finish << 8;
    let ops = Ops { whole: op(map, finish), part: op(map, 0), last: op(0, finish) };
    let family = if map == 4 { Family::power() } else { Family::plain(kind) };
    job.run(queue, family, ops, &[out])
}

/// The largest (or with `least` the smallest) elements of `input` over `dims`, and where they are: the index
/// among the reduced elements. NaN comes before all, of equal ones the first.
///
/// # Errors
/// `different-sizes`, `different-strides`, `empty-extreme`, `too-many-elements`, `range-too-large`;
/// [`OpError::Device`] where the device fails.
pub fn extreme(
    queue: &mut dyn Queue,
    least: bool,
    input: &View,
    dims: &[usize],
    values: Option<&View>,
    places: Option<&View>,
) -> Result<(), OpError> {
    let (Some(first), Some(second)) = (values.or(places), places.or(values)) else { return Ok(()) };
    if let Some((true, half)) = cut(queue, input, dims) {
        return halves(queue, input, dims, half, &[first, second], |queue, input, outs| {
            let [values, places] = [values.map(|_| &outs[0]), places.map(|_| &outs[1])];
            extreme(queue, least, input, dims, values, places)
        });
    }
    let job = Job::new(input, dims, &[first, second], true)?;
    if job.count == 0 && job.outs > 0 {
        return Err(OpError::refused("empty-extreme", "of no elements"));
    }
    let wanted = flag(values.is_some(), EXTREME_VALUE) | flag(places.is_some(), EXTREME_PLACE);
    let least = flag(least, EXTREME_LEAST);
    let part = EXTREME_VALUE | EXTREME_PLACE | least;
    let ops = Ops { whole: wanted | least, part, last: wanted | least | EXTREME_PARTS };
    let family = Family::extreme(Kind::of([input.dtype]));
    job.run(queue, family, ops, &[first, second])
}

/// Variance (with `root` the standard deviation) with divisor count - `correction`, and mean.
///
/// # Errors
/// As [`reduce`]; `different-strides`.
pub fn variance(
    queue: &mut dyn Queue,
    input: &View,
    dims: &[usize],
    correction: f32,
    root: bool,
    variances: Option<&View>,
    means: Option<&View>,
) -> Result<(), OpError> {
    let flags = flag(variances.is_some(), MOMENT_VARIANCE)
        | flag(means.is_some(), MOMENT_MEAN)
        | flag(root, MOMENT_ROOT);
    moments(queue, input, dims, correction, flags, variances, means)
}

/// 1 / sqrt(variance + `eps`) and mean, the variance with divisor count.
///
/// # Errors
/// As [`variance`].
pub(crate) fn inverse_deviation(
    queue: &mut dyn Queue,
    input: &View,
    dims: &[usize],
    eps: f32,
    inverse: &View,
    means: &View,
) -> Result<(), OpError> {
    let flags = MOMENT_VARIANCE | MOMENT_MEAN | MOMENT_INVERSE_ROOT;
    moments(queue, input, dims, eps, flags, Some(inverse), Some(means))
}

fn moments(
    queue: &mut dyn Queue,
    input: &View,
    dims: &[usize],
    scalar: f32,
    flags: u32,
    first: Option<&View>,
    second: Option<&View>,
) -> Result<(), OpError> {
    let (Some(one), Some(other)) = (first.or(second), second.or(first)) else { return Ok(()) };
    if let Some((true, half)) = cut(queue, input, dims) {
        return halves(queue, input, dims, half, &[one, other], |queue, input, outs| {
            let [first, second] = [first.map(|_| &outs[0]), second.map(|_| &outs[1])];
            moments(queue, input, dims, scalar, flags, first, second)
        });
    }
    let kind = Kind::of([input.dtype, one.dtype, other.dtype]);
    if kind == Kind::Int {
        return Err(OpError::refused("not-a-float", format!("variance of {:?}", input.dtype)));
    }
    let mut job = Job::new(input, dims, &[one, other], false)?;
    job.scalar = scalar;
    let ops = Ops { whole: flags, part: MOMENT_TO_PARTS, last: flags | MOMENT_FROM_PARTS };
    job.run(queue, Family::moments(kind), ops, &[one, other])
}
