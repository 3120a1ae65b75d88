//! Running sums.

use crate::call::{Call, fit, fit_all, fit_inner, read, write};
use crate::{Common, Kind, OpError, Queue, View};
use wave32_params::scan;

/// `y[i]` = the sum of `x` up to and with element i of dimension `dim`, in the precision of the wider type.
///
/// # Errors
/// `different-sizes`, `too-many-elements`, `range-too-large`; [`OpError::Device`] where the device fails.
pub fn cumsum(queue: &mut dyn Queue, x: &View, dim: usize, y: &View) -> Result<(), OpError> {
    if x.sizes() != y.sizes() || dim >= x.rank() {
        let detail = format!("{:?} along {dim} into {:?}", x.sizes(), y.sizes());
        return Err(OpError::refused("different-sizes", detail));
    }
    if x.elements() == 0 {
        return Ok(());
    }
    let kernel = match Kind::of([x.dtype, y.dtype]) {
        Kind::Float => scan::F,
        Kind::Int => scan::I,
        Kind::Double => scan::D,
    };
    let count = x.sizes()[dim];
    let common = Common::new(&[&x.select(dim, 0), &y.select(dim, 0)]);
    let kept = common.sizes4();
    let outs: u64 = kept.iter().product();
    common.outer(4, |offsets| {
        let buffers = scan::Buffers { src: read(queue, x)?, dst: write(queue, y)? };
        Call {
            kernel,
            params: scan::Params {
                outs: fit(outs)?,
                count: fit(count)?,
                k: fit_inner(kept)?,
                x_type: x.dtype.code(),
                x_at: fit(buffers.src.at() + offsets[0])?,
                x: fit_all(common.strides4(0))?,
                xd: fit(x.strides()[dim])?,
                y_type: y.dtype.code(),
                y_at: fit(buffers.dst.at() + offsets[1])?,
                y: fit_all(common.strides4(1))?,
                yd: fit(y.strides()[dim])?,
            },
            buffers,
            flops: 8 * outs * count,
            bytes: outs * count * (x.dtype.size() + y.dtype.size()),
        }
        .launch_items(queue, outs, 1)
    })
}
