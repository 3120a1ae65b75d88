//! Where a tensor is not zero. How many places there are decides a size, so that the caller has to wait in
//! between: [`count_nonzero`], sum up, [`nonzero`].

use super::THREADS;
use crate::call::{Call, fit, read, write};
use crate::{ElementType, OpError, Queue, View};
use wave32_params::nonzero as kernel;
use wave32_params::nonzero::{COORDINATE, COUNT};

/// Elements that one count stands for.
const CHUNK: u64 = 64;

/// Counts that [`count_nonzero`] makes for a tensor of so many elements.
pub fn nonzero_counts(elements: u64) -> u64 {
    elements.div_ceil(CHUNK)
}

/// `counts[i]` (int32): how many of the i-th 64 elements of contiguous `input` are not zero.
///
/// # Errors
/// `bad-shape`, `bad-type`, `too-many-elements`, `range-too-large`; [`OpError::Device`] where the device fails.
pub fn count_nonzero(queue: &mut dyn Queue, input: &View, counts: &View) -> Result<(), OpError> {
    // Something has to be bound for the result.
    launch(queue, COUNT, input, counts, counts, 0, [1, 1])
}

/// The coordinates of all elements of contiguous `input` that are not zero, in order: `output` is int64, a row
/// for each of them and a column for each dimension. `starts` (int32) is the sum of all counts before each.
///
/// # Errors
/// As [`count_nonzero`].
pub fn nonzero(queue: &mut dyn Queue, input: &View, starts: &View, output: &View) -> Result<(), OpError> {
    let rank = input.rank();
    if output.rank() != 2 || output.sizes()[1] != rank as u64 || output.dtype != ElementType::I64 {
        return Err(bad_shape(input, output));
    }
    if output.elements() == 0 {
        return Ok(());
    }
    let mut inner = input.elements();
    for (dim, &size) in input.sizes().iter().enumerate() {
        inner /= size;
        launch(queue, COORDINATE, input, starts, output, dim as u64, [inner, size])?;
    }
    Ok(())
}

fn launch(
    queue: &mut dyn Queue,
    mode: u32,
    input: &View,
    counts: &View,
    output: &View,
    column: u64,
    [inner, size]: [u64; 2],
) -> Result<(), OpError> {
    let (total, chunks) = (input.elements(), nonzero_counts(input.elements()));
    let sound = counts.dtype == ElementType::I32 && counts.elements() == chunks && counts.is_contiguous();
    if !sound || !input.is_contiguous() {
        return Err(bad_shape(input, counts));
    }
    if total == 0 {
        return Ok(());
    }
    let bits = 8 * input.dtype.size();
    let mask = if input.dtype.is_float() { u64::MAX >> (65 - bits) } else { u64::MAX };
    let buffers = kernel::Buffers {
        src: read(queue, input)?,
        counts: if mode == COUNT { write(queue, counts)? } else { read(queue, counts)? },
        dst: if mode == COORDINATE { write(queue, output)? } else { read(queue, output)?.unused() },
    };
    let (first, step) = match *output.strides() {
        [row, next] => (buffers.dst.at() + column * next, row),
        _ => (buffers.dst.at(), 1),
    };
    Call {
        kernel: kernel::I,
        params: kernel::Params {
            mode,
            count: fit(chunks)?,
            total: fit(total)?,
            dtype: input.dtype.bits().code(),
            mask,
            in_at: fit(buffers.src.at())?,
            counts_at: fit(buffers.counts.at())?,
            out_at: fit(first)?,
            step: fit(step)?,
            inner: fit(inner)?,
            size: fit(size)?,
        },
        buffers,
        flops: 4 * total,
        bytes: total * input.dtype.size() + output.elements() * output.dtype.size(),
    }
    .launch_items(queue, chunks, THREADS)
}

fn bad_shape(input: &View, other: &View) -> OpError {
    OpError::refused("bad-shape", format!("{input:?} with {other:?}"))
}
