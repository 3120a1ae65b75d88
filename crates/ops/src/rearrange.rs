//! Elements in another order: flip, roll, concatenation, triangles of matrices.

use crate::call::{Call, fit, fit_all, read, write};
use crate::copy::{in_order, plain};
use crate::{Common, ElementType, OpError, Queue, View, copy};
use wave32_params::{Divisors, cat as cat_kernel, copy as copy_kernel, triangle as triangle_kernel};

const COPIED_PER_GROUP: u64 = 256 * 4;
const THREADS: u64 = 256;

/// `output[i] = input[i]` with the dimensions of `dims` in reverse order.
///
/// # Errors
/// `different-sizes`, `bad-type`, `too-many-elements`, `range-too-large`; [`OpError::Device`] where the device fails.
pub fn flip(queue: &mut dyn Queue, input: &View, dims: &[usize], output: &View) -> Result<(), OpError> {
    if input.sizes() != output.sizes() {
        return Err(different(input, output));
    }
    if input.dtype != output.dtype {
        return Err(OpError::refused("bad-type", format!("{:?} to {:?}", input.dtype, output.dtype)));
    }
    if input.elements() == 0 {
        return Ok(());
    }
    // What is left of each dimension after merging: size and strides, those of flipped ones negative. They
    // reach the kernel modulo 2^32, which is how it adds them up.
    let mut merged: Vec<(u64, i64, i64)> = Vec::new();
    let mut last_element = 0;
    for (dim, &size) in input.sizes().iter().enumerate().filter(|&(_, &size)| size != 1) {
        let (mut from, to) = (input.strides()[dim] as i64, output.strides()[dim] as i64);
        if dims.contains(&dim) {
            last_element += (size - 1) * input.strides()[dim];
            from = -from;
        }
        match merged.last_mut() {
            Some(last) if last.1 == from * size as i64 && last.2 == to * size as i64 => {
                *last = (last.0 * size, from, to);
            }
            _ => merged.push((size, from, to)),
        }
    }
    if merged.len() > 4 {
        let outermost = input.sizes().iter().position(|&size| size != 1).unwrap_or(0);
        let size = input.sizes()[outermost];
        let inner: Vec<usize> = dims
            .iter()
            .filter(|&&dim| dim != outermost)
            .map(|&dim| dim - usize::from(dim > outermost))
            .collect();
        return (0..size).try_for_each(|at| {
            let from = if dims.contains(&outermost) { size - 1 - at } else { at };
            flip(queue, &input.select(outermost, from), &inner, &output.select(outermost, at))
        });
    }
    let mut four = [(1, 0, 0); 4];
    let front = 4 - merged.len();
    four[front..].copy_from_slice(&merged);
    let (count, code) = (input.elements(), input.dtype.bits().code());
    let buffers = copy_kernel::Buffers { src: read(queue, input)?, dst: write(queue, output)? };
    let [_, s1, s2, s3] = four.map(|dim| dim.0);
    Call {
        kernel: plain(input.dtype),
        params: copy_kernel::Params {
            count: fit(count)?,
            in_type: code,
            out_type: code,
            in_at: fit(buffers.src.at() + last_element)?,
            out_at: fit(buffers.dst.at())?,
            size: fit_all([s1, s2, s3])?,
            i: four.map(|dim| dim.1 as u32),
            o: four.map(|dim| dim.2 as u32),
            by: Divisors::new([s1, s2, s3]),
        },
        buffers,
        flops: 0,
        bytes: 2 * count * input.dtype.size(),
    }
    .launch_items(queue, count, COPIED_PER_GROUP)
}

/// `output[(i + shift) % size] = input[i]` for each `(dimension, shift)`; no dimension twice.
///
/// # Errors
/// As [`copy()`].
pub fn roll(
    queue: &mut dyn Queue,
    input: &View,
    shifts: &[(usize, i64)],
    output: &View,
) -> Result<(), OpError> {
    if input.sizes() != output.sizes() {
        return Err(different(input, output));
    }
    let Some((&(dim, shift), rest)) = shifts.split_first() else {
        return copy(queue, input, output);
    };
    if input.elements() == 0 {
        return Ok(());
    }
    let size = input.sizes()[dim];
    let shift = shift.rem_euclid(size as i64) as u64;
    let (head, tail) = (size - shift, shift);
    roll(queue, &input.narrow(dim, 0, head), rest, &output.narrow(dim, shift, head))?;
    roll(queue, &input.narrow(dim, head, tail), rest, &output.narrow(dim, 0, tail))
}

/// The inputs one after the other along `dim` of `output`, converted to its type.
///
/// # Errors
/// As [`copy()`].
pub fn cat(queue: &mut dyn Queue, inputs: &[View], dim: usize, output: &View) -> Result<(), OpError> {
    let size = output.sizes().get(dim).copied();
    let total: u64 = inputs.iter().map(|input| input.sizes().get(dim).copied().unwrap_or(0)).sum();
    if size != Some(total) {
        return Err(OpError::refused("different-sizes", format!("{total} in all, {size:?} in the result")));
    }
    let mut at = 0;
    // Neighbouring inputs whose rows one launch moves.
    let mut group: Vec<Rows> = Vec::new();
    for input in inputs {
        let len = input.sizes()[dim];
        let place = output.narrow(dim, at, len);
        at += len;
        if input.elements() == 0 {
            continue;
        }
        let rows = Rows::new(queue, input, &place);
        if rows.is_none_or(|rows| !rows.follows(&group)) {
            copy_rows(queue, &group)?;
            group.clear();
        }
        match rows {
            Some(rows) => group.push(rows),
            None => copy(queue, input, &place)?,
        }
    }
    copy_rows(queue, &group)
}

/// A tensor and its place beside others: rows that are dense in both.
#[derive(Debug, Clone, Copy)]
struct Rows {
    from: View,
    to: View,
    count: u64,
    /// Elements of a row, and from one row to the next in both.
    width: u64,
    apart: [u64; 2],
}

impl Rows {
    /// `None` where the kernel cannot move them: rows that are not dense or not equally far apart, another type.
    fn new(queue: &dyn Queue, from: &View, to: &View) -> Option<Self> {
        let (from, to) = in_order(from, to);
        let common = Common::new(&[&from, &to]);
        let (count, width, apart) = match (&common.sizes[..], &common.strides[0][..], &common.strides[1][..])
        {
            (&[width], &[1], &[1]) => (1, width, [width; 2]),
            (&[count, width], &[a, 1], &[b, 1]) => (count, width, [a, b]),
            _ => return None,
        };
        let fits = from.dtype == to.dtype && from.fits(queue.caps()) && to.fits(queue.caps());
        fits.then_some(Self { from, to, count, width, apart })
    }

    /// Do they lie behind the last of the group, row by row?
    fn follows(&self, group: &[Self]) -> bool {
        let Some(last) = group.last() else { return true };
        let alike = (last.count, last.to.dtype) == (self.count, self.to.dtype);
        // Of a single row it does not matter where the next would be.
        let in_row = self.count == 1 || last.apart[1] == self.apart[1];
        let behind = last.to.address + last.width * last.to.dtype.size() == self.to.address;
        group.len() < MAX_INPUTS && alike && in_row && behind
    }
}

/// Most tensors of a launch.
const MAX_INPUTS: usize = 6;

/// Moves a group, of which each follows the one before, in one launch.
fn copy_rows(queue: &mut dyn Queue, group: &[Rows]) -> Result<(), OpError> {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return Ok(()) };
    let size = first.to.dtype.size();
    // What all of a row begin at, lie apart by and are long in whole units of.
    let in_units = |unit: u64| {
        group.iter().all(|rows| {
            let bytes = [
                rows.from.address,
                rows.to.address,
                rows.width * size,
                rows.apart[0] * size,
                rows.apart[1] * size,
            ];
            bytes.iter().all(|bytes| bytes.is_multiple_of(unit))
        })
    };
    let units = [(16, cat_kernel::S16), (4, cat_kernel::S4), (2, cat_kernel::S2), (1, cat_kernel::S1)];
    let (unit, kernel) = units.into_iter().find(|&(unit, _)| in_units(unit)).unwrap_or((1, cat_kernel::S1));
    let long = last.to.address + last.to.extent() * size - first.to.address;
    let together = View::contiguous(first.to.address, ElementType::U8, &[long])?;
    let total: u64 = group.iter().map(|rows| rows.width * rows.count * size / unit).sum();
    if group.len() == 1 || !together.fits(queue.caps()) || total >= 1 << 31 {
        return group.iter().try_for_each(|rows| copy(queue, &rows.from, &rows.to));
    }
    let dst = write(queue, &together)?;
    let [mut at, mut row, mut width, mut by] = [[0; MAX_INPUTS]; 4];
    let (mut shifts, mut groups) = (0, 0);
    let mut sources = [dst.unused(); MAX_INPUTS];
    for (place, rows) in group.iter().enumerate() {
        let units = |elements: u64| elements * size / unit;
        sources[place] = read(queue, &rows.from)?;
        at[place] = fit(units(sources[place].at()))?;
        row[place] = fit(units(rows.apart[0]))?;
        width[place] = fit(units(rows.width))?;
        let (magic, shift) = Divisors::one(units(rows.width));
        by[place] = magic;
        shifts |= (shift - 31) << (5 * place);
        groups += (rows.count * units(rows.width)).div_ceil(THREADS * u64::from(cat_kernel::EACH));
    }
    let [src0, src1, src2, src3, src4, src5] = sources;
    Call {
        kernel,
        params: cat_kernel::Params {
            rows: fit(first.count)?,
            out_at: fit(dst.at() / unit)?,
            out_row: fit(first.apart[1] * size / unit)?,
            shifts,
            at,
            row,
            width,
            by,
        },
        buffers: cat_kernel::Buffers { src0, src1, src2, src3, src4, src5, dst },
        flops: 0,
        bytes: 2 * total * unit,
    }
    .launch(queue, [fit(groups)?, 1, 1])
}

/// The lower or upper triangle of each matrix (the last two dimensions); 0 elsewhere. `diagonal` counts from
/// the main one to the upper right.
///
/// # Errors
/// `different-sizes`, `bad-shape`, `bad-type`, `too-many-elements`, `range-too-large`; [`OpError::Device`] where the
/// device fails.
pub fn triangle(
    queue: &mut dyn Queue,
    input: &View,
    upper: bool,
    diagonal: i64,
    output: &View,
) -> Result<(), OpError> {
    if input.sizes() != output.sizes() {
        return Err(different(input, output));
    }
    if input.dtype != output.dtype {
        return Err(OpError::refused("bad-type", format!("{:?} to {:?}", input.dtype, output.dtype)));
    }
    let rank = input.rank();
    if rank < 2 {
        return Err(OpError::refused("bad-shape", format!("{:?}", input.sizes())));
    }
    if input.elements() == 0 {
        return Ok(());
    }
    if rank > 4 {
        return (0..input.sizes()[0]).try_for_each(|at| {
            triangle(queue, &input.select(0, at), upper, diagonal, &output.select(0, at))
        });
    }
    let pad = |values: &[u64], fill: u64| {
        let mut four = [fill; 4];
        four[4 - rank..].copy_from_slice(values);
        four
    };
    let count = input.elements();
    let buffers = triangle_kernel::Buffers { src: read(queue, input)?, dst: write(queue, output)? };
    let [_, s1, s2, s3] = pad(input.sizes(), 1);
    Call {
        kernel: triangle_kernel::I,
        params: triangle_kernel::Params {
            count: fit(count)?,
            dtype: input.dtype.bits().code(),
            upper: upper.into(),
            // All of a matrix lies within a diagonal of +-2^30: no device binds more elements.
            diagonal: diagonal.clamp(-(1 << 30), 1 << 30) as i32,
            in_at: fit(buffers.src.at())?,
            out_at: fit(buffers.dst.at())?,
            size: fit_all([s1, s2, s3])?,
            a: fit_all(pad(input.strides(), 0))?,
            b: fit_all(pad(output.strides(), 0))?,
        },
        buffers,
        flops: 0,
        bytes: 2 * count * input.dtype.size(),
    }
    .launch_items(queue, count, THREADS)
}

fn different(input: &View, output: &View) -> OpError {
    OpError::refused("different-sizes", format!("{:?} to {:?}", input.sizes(), output.sizes()))
}
