//! Running sums.

use crate::{Call, Common, Kind, OpError, Queue, View};

/// `y[i]` = the sum of `x` up to and with element i of dimension `dim`, in the precision of the wider type.
///
/// # Errors
/// `different-sizes`, `too-many-elements`, `range-too-large`, the device's.
pub fn cumsum(queue: &mut dyn Queue, x: &View, dim: usize, y: &View) -> Result<(), OpError> {
    if x.sizes() != y.sizes() || dim >= x.rank() {
        let detail = format!("{:?} along {dim} into {:?}", x.sizes(), y.sizes());
        return Err(OpError::refused("different-sizes", detail));
    }
    if x.elements() == 0 {
        return Ok(());
    }
    let kernel = match Kind::of([x.dtype, y.dtype]) {
        Kind::Float => "scan_f_f32",
        Kind::Int => "scan_i_f32",
        Kind::Double => "scan_d_f32",
    };
    let count = x.sizes()[dim];
    let common = Common::new(&[&x.select(dim, 0), &y.select(dim, 0)]);
    let kept = common.sizes4();
    let outs: u64 = kept.iter().product();
    common.outer(4, |offsets| {
        let mut call = Call::new();
        let starts = [call.view(queue, x, false)?, call.view(queue, y, true)?];
        call.numbers(&[outs, count])?.numbers(&kept[1..])?;
        for (at, view) in [x, y].into_iter().enumerate() {
            call.word(view.dtype.code()).numbers(&[u64::from(starts[at]) + offsets[at]])?;
            call.numbers(&common.strides4(at))?.numbers(&[view.strides()[dim]])?;
        }
        call.work(8 * outs * count, outs * count * (x.dtype.size() + y.dtype.size()));
        call.launch_items(queue, kernel, outs, 1)
    })
}
