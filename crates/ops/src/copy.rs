//! Copies between strided views of any types.

use crate::call::{Call, fit, fit_all, fit_inner, range, read, write};
use crate::{Common, ElementType, Kind, OpError, Queue, View, storage};
use wave32_device::{Known, Made};
use wave32_params::{Divisors, Name, cast as cast_kernel, copy as kernel, copy_vectors, transpose};
use wave32_solve::Access;

const PER_GROUP: u64 = 256 * 4;
/// What `kernels/copy_vectors.kern` moves at once.
const VECTOR: u64 = 16;
/// From so many bytes on whole vectors are copied apart from the odd bytes behind them.
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
    let (from, to) = &in_order(from, to);
    let alike = from.dtype == to.dtype;
    if alike && from.is_contiguous() && to.is_contiguous() {
        return copy_bytes(queue, from.address, to.address, from.elements() * from.dtype.size());
    }
    if cast(queue, from, to)? { Ok(()) } else { strided(queue, from, to) }
}

/// The numbers at `from`, which are dense, as another type, in a block that the queue keeps until something writes to them.
/// The caller owns that block too, and frees it as any other; nobody may write to it. None where the queue keeps nothing of
/// them (yet: it does from the second time on that it meets them unchanged).
///
/// # Errors
/// As [`copy`]; `element-type` for types that are not floats of 32 or 16 bits.
pub fn kept_cast(queue: &mut dyn Queue, from: &View, to: ElementType) -> Result<Option<u64>, OpError> {
    let count = from.elements();
    let source = (from.address, from.address + count * from.dtype.size());
    let made = Made::Cast { from: storage(from.dtype)?, to: storage(to)? };
    let Some(kept) = queue.kept() else { return Ok(None) };
    match kept.ask(source, &made) {
        Known::At(address) => {
            kept.lend(address);
            return Ok(Some(address));
        }
        Known::Again => {}
        Known::New | Known::NoRoom => return Ok(None),
    }
    let Ok(address) = queue.alloc(count * to.size()) else { return Ok(None) };
    let [from, out] =
        [(source.0, from.dtype), (address, to)].map(|(at, dtype)| View::contiguous(at, dtype, &[count]));
    if let Err(error) = from.and_then(|from| copy(queue, &from, &out?)) {
        queue.free(address);
        return Err(error);
    }
    if let Some(kept) = queue.kept() {
        kept.keep(source, &made, address);
        kept.lend(address);
    }
    Ok(Some(address))
}

/// Dense floats to or from a type of 16 bits, by vectors; false where they are others.
fn cast(queue: &mut dyn Queue, from: &View, to: &View) -> Result<bool, OpError> {
    let kernel = match (from.dtype, to.dtype) {
        (ElementType::F32, ElementType::F16) => cast_kernel::TO_HALF,
        (ElementType::F32, ElementType::BF16) => cast_kernel::TO_BRAIN,
        (ElementType::F16, ElementType::F32) => cast_kernel::OF_HALF,
        (ElementType::BF16, ElementType::F32) => cast_kernel::OF_BRAIN,
        _ => return Ok(false),
    };
    let vectors = from.elements() / 4;
    let takes = |view: &View| view.is_contiguous() && view.fits(queue.caps()) && view.begins_with_vector();
    if vectors == 0 || !takes(from) || !takes(to) {
        return Ok(false);
    }
    let buffers = cast_kernel::Buffers { src: read(queue, from)?, dst: write(queue, to)? };
    let (start, end) = (fit(buffers.src.at() / 4)?, fit(buffers.dst.at() / 4)?);
    Call {
        kernel,
        params: cast_kernel::Params { count: fit(vectors)?, from: start, to: end },
        buffers,
        flops: 0,
        bytes: 4 * vectors * (from.dtype.size() + to.dtype.size()),
    }
    .launch_items(queue, vectors, 256 * u64::from(cast_kernel::VECTORS))?;
    let rest = from.elements() % 4;
    if rest > 0 {
        let last = |view: &View| {
            View::contiguous(view.address + 4 * vectors * view.dtype.size(), view.dtype, &[rest])
        };
        strided(queue, &last(from)?, &last(to)?)?;
    }
    Ok(true)
}

/// Copies where a kernel computes each place.
fn strided(queue: &mut dyn Queue, from: &View, to: &View) -> Result<(), OpError> {
    let alike = from.dtype == to.dtype;
    let wider = if bytes(from) > bytes(to) { from } else { to };
    if !wider.fits(queue.caps()) {
        // In halves of the dimension that reaches furthest.
        let reach = |&dim: &usize| (wider.sizes()[dim] - 1) * wider.strides()[dim];
        if let Some(dim) = (0..wider.rank()).filter(|&dim| wider.sizes()[dim] > 1).max_by_key(reach) {
            let (size, half) = (wider.sizes()[dim], wider.sizes()[dim] / 2);
            strided(queue, &from.narrow(dim, 0, half), &to.narrow(dim, 0, half))?;
            return strided(queue, &from.narrow(dim, half, size - half), &to.narrow(dim, half, size - half));
        }
    }
    let mut common = Common::new(&[from, to]);
    if alike && transposed(queue, from, to, &common)? {
        return Ok(());
    }
    let vector = if alike { vector(from, to, &common) } else { 1 };
    common.by_vectors(vector);
    let name = match Kind::of([from.dtype, to.dtype]) {
        _ if vector > 1 => kernel::S16,
        _ if alike => plain(from.dtype),
        Kind::Float => kernel::F,
        Kind::Int => kernel::I,
        Kind::Double => kernel::D,
    };
    let common = common.with_small_outer(4);
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
                in_at: fit(buffers.src.at() / vector + offsets[0])?,
                out_at: fit(buffers.dst.at() / vector + offsets[1])?,
                size: fit_inner(sizes)?,
                i: fit_all(common.strides4(0))?,
                o: fit_all(common.strides4(1))?,
                by: Divisors::new([sizes[1], sizes[2], sizes[3]]),
            },
            buffers,
            flops: 0,
            bytes: count * vector * (from.dtype.size() + to.dtype.size()),
        }
        .launch_items(queue, count, PER_GROUP)
    })
}

/// Both with their dimensions as they lie in memory, where neighbours of one are neighbours of the other.
pub(crate) fn in_order(from: &View, to: &View) -> (View, View) {
    match (from.dense_dim(), to.dense_dim(), to.order()) {
        (Some(a), Some(b), Some(order)) if a == b => (from.permuted(&order), to.permuted(&order)),
        _ => (*from, *to),
    }
}

/// Elements of one type that move at once: as many as 16 bytes hold where neighbours of one view are neighbours of the other, in
/// rows of whole vectors, or one.
fn vector(from: &View, to: &View, common: &Common) -> u64 {
    let vector = VECTOR / from.dtype.size();
    let last = common.sizes.len() - 1;
    let is_whole = |strides: &Vec<u64>| {
        strides[last] == 1 && strides[..last].iter().all(|stride| stride.is_multiple_of(vector))
    };
    let places = from.address.is_multiple_of(VECTOR) && to.address.is_multiple_of(VECTOR);
    let rows = common.sizes[last].is_multiple_of(vector) && common.strides.iter().all(is_whole);
    if places && rows { vector } else { 1 }
}

/// Copies by way of local memory where neighbours of each view lie apart in the other one; false where this is not so.
fn transposed(queue: &mut dyn Queue, from: &View, to: &View, common: &Common) -> Result<bool, OpError> {
    /// Shorter sides leave too much of a tile empty.
    const SHORTEST: u64 = 16;
    let size = from.dtype.size();
    if size != 2 && size != 4 {
        return Ok(false);
    }
    let dense = |view: usize| {
        (0..common.sizes.len()).find(|&dim| common.strides[view][dim] == 1 && common.sizes[dim] >= SHORTEST)
    };
    let (Some(col), Some(row)) = (dense(0), dense(1)) else { return Ok(false) };
    let outer: Vec<usize> = (0..common.sizes.len()).filter(|&dim| dim != col && dim != row).collect();
    let [_, _, most_z] = queue.caps().max_groups;
    let matrices: u64 = outer.iter().map(|&dim| common.sizes[dim]).product();
    if col == row || outer.len() > 2 || matrices > u64::from(most_z) {
        return Ok(false);
    }
    // Size, stride of each view.
    let of = |at: Option<&usize>| {
        at.map_or([1, 0, 0], |&dim| [common.sizes[dim], common.strides[0][dim], common.strides[1][dim]])
    };
    let (inner, outer) = (of(outer.get(1)), of(outer.first()));
    let (rows, cols) = (common.sizes[row], common.sizes[col]);
    let (in_row, out_row) = (common.strides[0][row], common.strides[1][col]);
    let words = [rows, cols, in_row, out_row, inner[1], inner[2], outer[1], outer[2]];
    let in_words = (from.address | to.address).is_multiple_of(4) && words.iter().all(|n| n.is_multiple_of(2));
    // What starts and strides are counted in.
    let (kernel, side, lot) = match size {
        2 if in_words => (transpose::P2, 64, 2),
        2 => (transpose::S2, 64, 1),
        _ => (transpose::S4, 32, 1),
    };
    let buffers = transpose::Buffers { src: read(queue, from)?, dst: write(queue, to)? };
    Call {
        kernel,
        params: transpose::Params {
            rows: fit(rows)?,
            cols: fit(cols)?,
            count0: fit(inner[0])?,
            in_at: fit(buffers.src.at() / lot)?,
            out_at: fit(buffers.dst.at() / lot)?,
            in_row: fit(in_row / lot)?,
            out_row: fit(out_row / lot)?,
            in_0: fit(inner[1] / lot)?,
            in_1: fit(outer[1] / lot)?,
            out_0: fit(inner[2] / lot)?,
            out_1: fit(outer[2] / lot)?,
        },
        buffers,
        flops: 0,
        bytes: 2 * matrices * rows * cols * size,
    }
    .launch(queue, [fit(rows.div_ceil(side) * cols.div_ceil(side))?, 1, fit(matrices)?])?;
    Ok(true)
}

/// Copies bytes as they are, to where none of them lies.
///
/// Kernels do it, however few they are: between launches the device's own command has to wait, and be waited for, 4 us each on
/// an NVIDIA card, and several of them run one after the other.
///
/// # Errors
/// [`OpError::Device`] where the device fails.
pub fn copy_bytes(queue: &mut dyn Queue, from: u64, to: u64, bytes: u64) -> Result<(), OpError> {
    if bytes == 0 || from.abs_diff(to) < bytes {
        // The queue refuses bytes onto themselves.
        return Ok(queue.copy(from, to, bytes)?);
    }
    let in_vectors = from.is_multiple_of(VECTOR) && to.is_multiple_of(VECTOR);
    if !in_vectors || (bytes < LARGE && !bytes.is_multiple_of(VECTOR)) {
        let units = [ElementType::I64, ElementType::I32, ElementType::I16];
        let fits = |unit: &ElementType| (from | to | bytes).is_multiple_of(unit.size());
        let unit = units.into_iter().find(fits).unwrap_or(ElementType::U8);
        let view = |address| View::contiguous(address, unit, &[bytes / unit.size()]);
        return strided(queue, &view(from)?, &view(to)?);
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
