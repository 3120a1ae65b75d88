//! Copies between strided views of any types.

use crate::{Call, Common, DType, Kind, OpError, Queue, View};

const PER_GROUP: u64 = 256 * 4;

/// `to[i] = from[i]`, converted; both have the same sizes and do not overlap. Whole numbers and doubles are
/// converted exactly; floats become integers by truncation.
///
/// # Errors
/// `different-sizes`, `too-many-elements`, `range-too-large`, the device's.
pub fn copy(queue: &mut dyn Queue, from: &View, to: &View) -> Result<(), OpError> {
    if from.sizes() != to.sizes() {
        return Err(OpError::refused("different-sizes", format!("{:?} to {:?}", from.sizes(), to.sizes())));
    }
    if from.elements() == 0 {
        return Ok(());
    }
    if from.dtype == to.dtype && from.is_contiguous() && to.is_contiguous() {
        return Ok(queue.copy(from.address, to.address, from.elements() * from.dtype.size())?);
    }
    let wider = if bytes(from) > bytes(to) { from } else { to };
    if bytes(wider) > queue.caps().max_range {
        // In halves of the dimension that reaches furthest.
        let reach = |&dim: &usize| (wider.sizes()[dim] - 1) * wider.strides()[dim];
        if let Some(dim) = (0..wider.rank()).filter(|&dim| wider.sizes()[dim] > 1).max_by_key(reach) {
            let (size, half) = (wider.sizes()[dim], wider.sizes()[dim] / 2);
            copy(queue, &from.narrow(dim, 0, half), &to.narrow(dim, 0, half))?;
            return copy(queue, &from.narrow(dim, half, size - half), &to.narrow(dim, half, size - half));
        }
    }
    let kernel = match Kind::of([from.dtype, to.dtype]) {
        _ if from.dtype == to.dtype => plain(from.dtype),
        Kind::Float => "copy_f_f32",
        Kind::Int => "copy_i_f32",
        Kind::Double => "copy_d_f32",
    };
    let common = Common::new(&[from, to]);
    let sizes = common.sizes4();
    let count: u64 = sizes.iter().product();
    common.outer(4, |offsets| {
        let mut call = Call::new();
        let from_at = u64::from(call.view(queue, from, false)?) + offsets[0];
        let to_at = u64::from(call.view(queue, to, true)?) + offsets[1];
        call.numbers(&[count])?.words([from.dtype.code(), to.dtype.code()]);
        call.numbers(&[from_at, to_at])?.numbers(&sizes[1..])?;
        call.numbers(&common.strides4(0))?.numbers(&common.strides4(1))?;
        call.divisors([sizes[1], sizes[2], sizes[3]]);
        call.work(0, count * (from.dtype.size() + to.dtype.size()));
        call.launch_items(queue, kernel, count, PER_GROUP)
    })
}

fn bytes(view: &View) -> u64 {
    view.extent() * view.dtype.size()
}

/// The kernel that copies elements of this type as they are.
pub(crate) fn plain(dtype: DType) -> &'static str {
    match dtype.size() {
        1 => "copy_s1_f32",
        2 => "copy_s2_f32",
        4 => "copy_s4_f32",
        _ => "copy_s8_f32",
    }
}
