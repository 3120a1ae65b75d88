//! Softmax and its logarithm along one dimension.

use crate::call::{Call, fit, fit_all, fit_inner, flag, read, write};
use crate::lanes::Lanes;
use crate::rows::{Pass, Rows};
use crate::{Common, ElementType, OpError, Queue, View};
use wave32_params::softmax as kernel;

/// `y` = softmax of `x` along `dim`, or its logarithm.
///
/// # Errors
/// `different-sizes`, `no-double`, `too-many-dimensions`, `too-many-elements`, `range-too-large`;
/// [`OpError::Device`] where the device fails.
pub fn softmax(queue: &mut dyn Queue, log: bool, x: &View, dim: usize, y: &View) -> Result<(), OpError> {
    launch(queue, log, dim, [x, y], None)
}

/// The gradient of softmax's input (or of its logarithm's) from that of the result and the result.
///
/// # Errors
/// As [`softmax`].
pub fn softmax_backward(
    queue: &mut dyn Queue,
    log: bool,
    grad: &View,
    y: &View,
    dim: usize,
    grad_input: &View,
) -> Result<(), OpError> {
    launch(queue, log, dim, [grad, y], Some(grad_input))
}

/// `y` of `x`; or, where it is wanted, the gradient `z` of the input, of that of the result, `x`, and the result `y`.
fn launch(
    queue: &mut dyn Queue,
    log: bool,
    dim: usize,
    [x, y]: [&View; 2],
    z: Option<&View>,
) -> Result<(), OpError> {
    let sides = [x, y, z.unwrap_or(y)];
    if sides.iter().any(|view| view.sizes() != x.sizes()) || dim >= x.rank() {
        return Err(OpError::refused("different-sizes", format!("{:?} along {dim}", x.sizes())));
    }
    if sides.iter().any(|view| view.dtype == ElementType::F64) {
        return Err(OpError::refused("no-double", "softmax of f64"));
    }
    if x.elements() == 0 {
        return Ok(());
    }
    let count = x.sizes()[dim];
    if x.sizes()[dim + 1..].iter().all(|&size| size == 1) {
        let tensors = [Some(x), z.map(|_| y), Some(sides[2])];
        if let Some(rows) = Rows::new(x.elements() / count, count, &tensors) {
            return match z {
                None => rows.run(queue, Pass::Softmax { log }, x, None, y),
                Some(z) => rows.run(queue, Pass::SoftmaxBackward { log }, y, Some(x), z),
            };
        }
    }
    let rows = sides.map(|view| view.select(dim, 0));
    let common = Common::new(&rows.each_ref()).with_small_outer(4);
    let kept = common.sizes4();
    let outs: u64 = kept.iter().product();
    let along = outs == 1 || x.strides()[dim] <= common.strides4(0)[3];
    let lanes = Lanes::whole(outs, count, along);
    common.outer(4, |offsets| {
        let dst = if z.is_some() { read(queue, y)? } else { write(queue, y)? };
        let grad = z.map_or(Ok(dst.unused()), |z| write(queue, z))?;
        let buffers = kernel::Buffers { src: read(queue, x)?, dst, grad };
        let groups = u32::try_from(lanes.groups).ok().filter(|_| outs < 1 << 31 && count < 1 << 31);
        let groups =
            groups.ok_or_else(|| OpError::refused("too-many-elements", format!("{outs} x {count}")))?;
        let bytes: u64 = sides.iter().map(|view| outs * count * view.dtype.size()).sum();
        Call {
            kernel: if z.is_some() { kernel::DX } else { kernel::Y },
            params: kernel::Params {
                outs: fit(outs)?,
                count: fit(count)?,
                flags: flag(log, kernel::FLAG_LOG),
                lanes: lanes.word,
                k: fit_inner(kept)?,
                x_type: x.dtype.code(),
                x_at: fit(buffers.src.at() + offsets[0])?,
                x: fit_all(common.strides4(0))?,
                xd: fit(x.strides()[dim])?,
                y_type: y.dtype.code(),
                y_at: fit(buffers.dst.at() + offsets[1])?,
                y: fit_all(common.strides4(1))?,
                yd: fit(y.strides()[dim])?,
                z_type: sides[2].dtype.code(),
                z_at: fit(buffers.grad.at() + offsets[2])?,
                z: fit_all(common.strides4(2))?,
                zd: fit(sides[2].strides()[dim])?,
            },
            buffers,
            flops: outs * count * 40,
            bytes,
        }
        .launch(queue, [groups, 1, 1])
    })
}
