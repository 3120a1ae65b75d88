//! Softmax and its logarithm along one dimension.

use crate::lanes::Lanes;
use crate::{Call, Common, DType, OpError, Queue, View};

/// `y` = softmax of `x` along `dim`, or its logarithm.
///
/// # Errors
/// `different-sizes`, `no-double`, `too-many-dimensions`, `too-many-elements`, `range-too-large`, the device's.
pub fn softmax(queue: &mut dyn Queue, log: bool, x: &View, dim: usize, y: &View) -> Result<(), OpError> {
    launch(queue, "softmax_y_f32", log, dim, &[(x, false), (y, true)])
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
    launch(queue, "softmax_dx_f32", log, dim, &[(grad, false), (y, false), (grad_input, true)])
}

fn launch(
    queue: &mut dyn Queue,
    kernel: &str,
    log: bool,
    dim: usize,
    sides: &[(&View, bool)],
) -> Result<(), OpError> {
    let x = sides[0].0;
    if sides.iter().any(|(view, _)| view.sizes() != x.sizes()) || dim >= x.rank() {
        return Err(OpError::refused("different-sizes", format!("{:?} along {dim}", x.sizes())));
    }
    if sides.iter().any(|(view, _)| view.dtype == DType::F64) {
        return Err(OpError::refused("no-double", "softmax of f64"));
    }
    if x.elements() == 0 {
        return Ok(());
    }
    let count = x.sizes()[dim];
    let rows: Vec<View> = sides.iter().map(|(view, _)| view.select(dim, 0)).collect();
    let common = Common::new(&rows.iter().collect::<Vec<_>>());
    let kept = common.sizes4();
    let outs: u64 = kept.iter().product();
    let along = outs == 1 || x.strides()[dim] <= common.strides4(0)[3];
    let lanes = Lanes::whole(outs, count, along);
    common.outer(4, |offsets| {
        let mut call = Call::new();
        let mut starts = [0; 3];
        for (at, (view, writes)) in sides.iter().enumerate() {
            starts[at] = u64::from(call.view(queue, view, *writes)?) + offsets[at];
        }
        call.numbers(&[outs, count])?.words([u32::from(log), lanes.word]).numbers(&kept[1..])?;
        for (at, start) in starts.into_iter().enumerate() {
            let Some((view, _)) = sides.get(at) else {
                call.words([0; 7]);
                continue;
            };
            call.word(view.dtype.code()).numbers(&[start])?;
            call.numbers(&common.strides4(at))?.numbers(&[view.strides()[dim]])?;
        }
        let bytes: u64 = sides.iter().map(|(view, _)| outs * count * view.dtype.size()).sum();
        call.work(outs * count * 40, bytes + outs * count * x.dtype.size());
        let groups = u32::try_from(lanes.groups).ok().filter(|_| outs < 1 << 31 && count < 1 << 31);
        let groups =
            groups.ok_or_else(|| OpError::refused("too-many-elements", format!("{outs} x {count}")))?;
        call.launch(queue, kernel, [groups, 1, 1])
    })
}
