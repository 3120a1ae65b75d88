//! Where a tensor is not zero. How many places there are decides a size, so that the caller has to wait in
//! between: [`count_nonzero`], sum up, [`nonzero`].

use super::THREADS;
use crate::{Call, DType, OpError, Queue, View};

const COUNT: u32 = 0;
const COORDINATE: u32 = 1;
/// Elements that one count stands for.
const CHUNK: u64 = 64;

/// Counts that [`count_nonzero`] makes for a tensor of so many elements.
pub fn nonzero_counts(elements: u64) -> u64 {
    elements.div_ceil(CHUNK)
}

/// `counts[i]` (int32): how many of the i-th 64 elements of contiguous `input` are not zero.
///
/// # Errors
/// `bad-shape`, `bad-type`, `too-many-elements`, `range-too-large`, the device's.
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
    if output.rank() != 2 || output.sizes()[1] != rank as u64 || output.dtype != DType::I64 {
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
    let sound = counts.dtype == DType::I32 && counts.elements() == chunks && counts.is_contiguous();
    if !sound || !input.is_contiguous() {
        return Err(bad_shape(input, counts));
    }
    if total == 0 {
        return Ok(());
    }
    let bits = 8 * input.dtype.size();
    let mask = if input.dtype.is_float() { u64::MAX >> (65 - bits) } else { u64::MAX };
    let mut call = Call::new();
    let in_at = u64::from(call.view(queue, input, false)?);
    let counts_at = u64::from(call.view(queue, counts, mode == COUNT)?);
    let out_at = u64::from(call.view(queue, output, mode == COORDINATE)?);
    call.word(mode).numbers(&[chunks, total])?.word(input.dtype.bits().code());
    call.words([mask as u32, (mask >> 32) as u32]);
    let (first, step) = match *output.strides() {
        [row, next] => (out_at + column * next, row),
        _ => (out_at, 1),
    };
    call.numbers(&[in_at, counts_at, first, step, inner, size])?;
    call.work(4 * total, total * input.dtype.size() + output.elements() * output.dtype.size());
    call.launch_items(queue, "nonzero_i_f32", chunks, THREADS)
}

fn bad_shape(input: &View, other: &View) -> OpError {
    OpError::refused("bad-shape", format!("{input:?} with {other:?}"))
}
