//! Copies between strided views of any types.

use crate::call::{Call, fit, fit_all, fit_inner, range, read, write};
use crate::{Common, ElementType, Kind, OpError, Queue, View};
use wave32_params::{Divisors, Name, copy as kernel, copy_vectors};
use wave32_solve::Access;

const PER_GROUP: u64 = 256 * 4;
/// What `kernels/copy_vectors.kern` moves at once.
const VECTOR: u64 = 16;
/// From so many bytes on a kernel copies; the device's own command is as good for less.
const LARGE: u64 = 1 << 20;

/// `to[i] = from[i]`, converted; both have the same sizes and do not overlap. Whole numbers and doubles are
/// converted exactly; floats become integers by truncation.
///
/// # Errors
/// `different-sizes`, `too-many-elements`, `range-too-large`; [`OpError::Device`] where the device fails.
pub fn copy(queue: &mut dyn Queue, from: &View, to: &View) -> Result<(), OpError> {
    if from.sizes() != to.sizes() {
        return Err(OpError::refused("different-sizes", format!("{:?} to {:?}", from.sizes(), to.sizes())));
    }
    if from.elements() == 0 {
        return Ok(());
    }
    if from.dtype == to.dtype && from.is_contiguous() && to.is_contiguous() {
        return copy_bytes(queue, from.address, to.address, from.elements() * from.dtype.size());
    }
    let wider = if bytes(from) > bytes(to) { from } else { to };
    if !wider.fits(queue.caps()) {
        // In halves of the dimension that reaches furthest.
        let reach = |&dim: &usize| (wider.sizes()[dim] - 1) * wider.strides()[dim];
        if let Some(dim) = (0..wider.rank()).filter(|&dim| wider.sizes()[dim] > 1).max_by_key(reach) {
            let (size, half) = (wider.sizes()[dim], wider.sizes()[dim] / 2);
            copy(queue, &from.narrow(dim, 0, half), &to.narrow(dim, 0, half))?;
            return copy(queue, &from.narrow(dim, half, size - half), &to.narrow(dim, half, size - half));
        }
    }
    let name = match Kind::of([from.dtype, to.dtype]) {
        _ if from.dtype == to.dtype => plain(from.dtype),
        Kind::Float => kernel::F,
        Kind::Int => kernel::I,
        Kind::Double => kernel::D,
    };
    let common = Common::new(&[from, to]).with_small_outer(4);
    let sizes = common.sizes4();
    let count: u64 = sizes.iter().product();
    common.outer(4, |offsets| {
        let buffers = kernel::Buffers { src: read(queue, from)?, dst: write(queue, to)? };
        Call {
            kernel: name,
            params: kernel::Params {
                count: fit(count)?,
                in_type: from.dtype.code(),
                out_type: to.dtype.code(),
                in_at: fit(buffers.src.at() + offsets[0])?,
                out_at: fit(buffers.dst.at() + offsets[1])?,
                size: fit_inner(sizes)?,
                i: fit_all(common.strides4(0))?,
                o: fit_all(common.strides4(1))?,
                by: Divisors::new([sizes[1], sizes[2], sizes[3]]),
            },
            buffers,
            flops: 0,
            bytes: count * (from.dtype.size() + to.dtype.size()),
        }
        .launch_items(queue, count, PER_GROUP)
    })
}

/// Copies bytes as they are, to where none of them lies.
///
/// # Errors
/// [`OpError::Device`] where the device fails.
pub fn copy_bytes(queue: &mut dyn Queue, from: u64, to: u64, bytes: u64) -> Result<(), OpError> {
    let places = from.is_multiple_of(VECTOR) && to.is_multiple_of(VECTOR);
    let apart = from.abs_diff(to) >= bytes;
    if bytes < LARGE || !places || !apart {
        return Ok(queue.copy(from, to, bytes)?);
    }
    let most = (queue.caps().max_range - VECTOR) / VECTOR * VECTOR;
    let part = most.min(bytes - bytes % VECTOR);
    if part < bytes {
        copy_bytes(queue, from + part, to + part, bytes - part)?;
    }
    let vectors = part / VECTOR;
    let buffers = copy_vectors::Buffers {
        src: range(queue, from, vectors, VECTOR, Access::Read)?,
        dst: range(queue, to, vectors, VECTOR, Access::Write)?,
    };
    let (start, end) = (fit(buffers.src.at())?, fit(buffers.dst.at())?);
    Call {
        kernel: copy_vectors::T,
        params: copy_vectors::Params { count: fit(vectors)?, from: start, to: end },
        buffers,
        flops: 0,
        bytes: 2 * part,
    }
    .launch_items(queue, vectors, 256 * u64::from(copy_vectors::VECTORS))
}

fn bytes(view: &View) -> u64 {
    view.extent() * view.dtype.size()
}

/// The kernel that copies elements of this type as they are.
pub(crate) fn plain(dtype: ElementType) -> Name<kernel::Kernel> {
    match dtype.size() {
        1 => kernel::S1,
        2 => kernel::S2,
        4 => kernel::S4,
        _ => kernel::S8,
    }
}
