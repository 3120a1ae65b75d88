//! Padding by reflection and by replication, forward and backward.

use crate::call::{Call, fit, read, write};
use crate::rearrange::flip;
use crate::scratch::scratch;
use crate::{Kind, OpError, Queue, View, copy};
use wave32_params::pad_back;

const THREADS: u64 = 256;

/// What lies in the padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// The elements next to the edge in reverse order, without the edge itself.
    Reflect,
    /// The edge.
    Replicate,
}

/// Pads the last dimensions of `input` by `sides` elements before and after, outermost dimension first;
/// negative ones cut off, which leaves what the other side mirrors or repeats as it was.
///
/// # Errors
/// `bad-shape` where sizes do not fit or a reflection would reach past the other edge; those of [`copy()`].
pub fn pad(
    queue: &mut dyn Queue,
    padding: Padding,
    sides: &[[i64; 2]],
    input: &View,
    output: &View,
) -> Result<(), OpError> {
    check(padding, sides, input, output)?;
    if output.elements() == 0 {
        return Ok(());
    }
    let front = input.rank() - sides.len();
    Filling { padding, sides, front }.fill(queue, 0, &mut Vec::new(), input, output)
}

struct Filling<'a> {
    padding: Padding,
    sides: &'a [[i64; 2]],
    front: usize,
}

impl Filling<'_> {
    /// Fills what is before, inside and after along the padded dimension number `at`, each of them along all
    /// further ones.
    fn fill(
        &self,
        queue: &mut dyn Queue,
        at: usize,
        flipped: &mut Vec<usize>,
        from: &View,
        to: &View,
    ) -> Result<(), OpError> {
        let Some(&[before, _]) = self.sides.get(at) else {
            return flip(queue, from, flipped, to);
        };
        let dim = self.front + at;
        let (size, outs) = (from.sizes()[dim] as i64, to.sizes()[dim] as i64);
        // Where along `to` the input itself begins and ends.
        let (begin, end) = (before.clamp(0, outs), (before + size).clamp(0, outs));
        if begin < end {
            let inside = from.narrow(dim, (begin - before) as u64, (end - begin) as u64);
            self.fill(queue, at + 1, flipped, &inside, &to.narrow(dim, begin as u64, (end - begin) as u64))?;
        }
        // What lies before and after: its place, and the first of the mirrored elements in ascending order.
        let after = [before + 2 * size - 1 - outs, size - 1];
        for (start, len, [mirrored, edge]) in [(0, begin, [before - begin + 1, 0]), (end, outs - end, after)]
        {
            if len == 0 {
                continue;
            }
            let to = to.narrow(dim, start as u64, len as u64);
            match self.padding {
                Padding::Reflect => {
                    flipped.push(dim);
                    let from = from.narrow(dim, mirrored as u64, len as u64);
                    let done = self.fill(queue, at + 1, flipped, &from, &to);
                    flipped.pop();
                    done?;
                }
                Padding::Replicate => {
                    let edge = from.narrow(dim, edge as u64, 1);
                    let mut sizes = edge.sizes().to_vec();
                    sizes[dim] = len as u64;
                    self.fill(queue, at + 1, flipped, &edge.broadcast(&sizes)?, &to)?;
                }
            }
        }
        Ok(())
    }
}

/// The gradient of [`pad`].
///
/// # Errors
/// As [`pad`]; `bad-type`.
pub fn pad_backward(
    queue: &mut dyn Queue,
    padding: Padding,
    sides: &[[i64; 2]],
    grad_output: &View,
    grad_input: &View,
) -> Result<(), OpError> {
    check(padding, sides, grad_input, grad_output)?;
    if grad_input.elements() == 0 {
        return Ok(());
    }
    if !grad_output.is_contiguous() {
        return scratch(queue, grad_output.dtype, grad_output.sizes(), |queue, plain| {
            copy(queue, grad_output, plain)?;
            pad_backward(queue, padding, sides, plain, grad_input)
        });
    }
    if !grad_input.is_contiguous() {
        return scratch(queue, grad_input.dtype, grad_input.sizes(), |queue, plain| {
            pad_backward(queue, padding, sides, grad_output, plain)?;
            copy(queue, plain, grad_input)
        });
    }
    unpad(queue, padding, sides, 0, grad_output, grad_input)
}

/// Takes the padding of dimension `at` and all further ones off contiguous `from`.
fn unpad(
    queue: &mut dyn Queue,
    padding: Padding,
    sides: &[[i64; 2]],
    at: usize,
    from: &View,
    to: &View,
) -> Result<(), OpError> {
    let Some(&side) = sides.get(at) else {
        return copy(queue, from, to);
    };
    let dim = to.rank() - sides.len() + at;
    if sides[at + 1..].iter().all(|side| *side == [0, 0]) {
        return unpad_one(queue, padding, dim, side[0], from, to);
    }
    if side == [0, 0] {
        return unpad(queue, padding, sides, at + 1, from, to);
    }
    let mut sizes = from.sizes().to_vec();
    sizes[dim] = to.sizes()[dim];
    scratch(queue, to.dtype, &sizes, |queue, between| {
        unpad_one(queue, padding, dim, side[0], from, between)?;
        unpad(queue, padding, sides, at + 1, between, to)
    })
}

fn unpad_one(
    queue: &mut dyn Queue,
    padding: Padding,
    dim: usize,
    before: i64,
    from: &View,
    to: &View,
) -> Result<(), OpError> {
    let kernel = match Kind::of([from.dtype]) {
        Kind::Float => pad_back::F,
        Kind::Double => pad_back::D,
        Kind::Int => return Err(OpError::refused("bad-type", format!("{:?}", from.dtype))),
    };
    let (count, size) = (to.elements(), to.sizes()[dim]);
    let inner = to.sizes()[dim + 1..].iter().product();
    let buffers = pad_back::Buffers { src: read(queue, from)?, dst: write(queue, to)? };
    Call {
        kernel,
        params: pad_back::Params {
            count: fit(count)?,
            dtype: from.dtype.code(),
            mirror: (padding == Padding::Reflect).into(),
            size: fit(size)?,
            before: before as i32,
            padded: fit(from.sizes()[dim])?,
            inner: fit(inner)?,
            in_at: fit(buffers.src.at())?,
            out_at: fit(buffers.dst.at())?,
        },
        buffers,
        flops: 4 * count,
        bytes: (from.elements() + count) * to.dtype.size(),
    }
    .launch_items(queue, count, THREADS)
}

fn check(padding: Padding, sides: &[[i64; 2]], input: &View, output: &View) -> Result<(), OpError> {
    let bad = || OpError::refused("bad-shape", format!("{input:?} to {output:?} by {sides:?}"));
    let front = input.rank().checked_sub(sides.len()).ok_or_else(bad)?;
    if input.dtype != output.dtype || input.rank() != output.rank() {
        return Err(bad());
    }
    for (dim, (&size, &padded)) in input.sizes().iter().zip(output.sizes()).enumerate() {
        let [before, after] = if dim < front { [0, 0] } else { sides[dim - front] };
        let (size, padded) = (size as i64, padded as i64);
        let too_far = match padding {
            Padding::Reflect => before.max(after) >= size.max(1),
            Padding::Replicate => size == 0 && padded > 0,
        };
        if padded != size + before + after || too_far || before.unsigned_abs() > 1 << 30 {
            return Err(bad());
        }
    }
    Ok(())
}
