//! Where elements lie, and the strides that PyTorch gives results.

use crate::Dims;
use smallvec::SmallVec;

/// Dimensions, innermost first.
type Order = SmallVec<[usize; 8]>;

/// Row-major strides.
pub fn contiguous(sizes: &[i64]) -> Dims {
    packed(sizes, (0..sizes.len()).rev())
}

/// Strides with the channels (dimension 1) fastest, as PyTorch's channels_last formats.
pub fn channels_last(sizes: &[i64]) -> Dims {
    packed(sizes, channels_first_order(sizes.len()))
}

/// `sizes` with the channels last, or the usual strides.
pub fn in_format(last: bool, sizes: &[i64]) -> Dims {
    if last && (3..=5).contains(&sizes.len()) { channels_last(sizes) } else { contiguous(sizes) }
}

/// Dense strides in the order of `strides`: what `empty_like` gives for tensors that are not dense.
pub fn preserved(sizes: &[i64], strides: &[i64]) -> Dims {
    packed(sizes, order(sizes, &[strides]))
}

/// Strides without gaps. A dimension without elements counts as one of one.
fn packed(sizes: &[i64], innermost_first: impl IntoIterator<Item = usize>) -> Dims {
    let mut strides = Dims::from_elem(1, sizes.len());
    let mut next = 1i64;
    for dim in innermost_first {
        strides[dim] = next;
        next = next.saturating_mul(sizes[dim].max(1));
    }
    strides
}

/// The order of N C H W in memory where the channels come last; of two dimensions or more.
fn channels_first_order(rank: usize) -> impl Iterator<Item = usize> {
    std::iter::once(1).chain((2..rank).rev()).chain([0])
}

/// Elements from the first to the end of the last; none past 64 bits.
pub fn checked_span(sizes: &[i64], strides: &[i64]) -> Option<u64> {
    if sizes.contains(&0) {
        return Some(0);
    }
    sizes.iter().zip(strides).try_fold(1u64, |sum, (size, stride)| {
        sum.checked_add(u64::try_from(size - 1).ok()?.checked_mul(u64::try_from(*stride).ok()?)?)
    })
}

/// Elements from the first to the end of the last, [`u64::MAX`] where that is more.
pub fn span(sizes: &[i64], strides: &[i64]) -> u64 {
    checked_span(sizes, strides).unwrap_or(u64::MAX)
}

/// Dimensions follow each other in memory, innermost first.
fn in_order(sizes: &[i64], strides: &[i64], innermost_first: impl IntoIterator<Item = usize>) -> bool {
    let mut next = 1;
    for dim in innermost_first {
        if sizes[dim] != 1 {
            if strides[dim] != next {
                return false;
            }
            next *= sizes[dim];
        }
    }
    true
}

/// True where elements follow each other in memory in the usual order.
pub fn is_contiguous(sizes: &[i64], strides: &[i64]) -> bool {
    sizes.contains(&0) || in_order(sizes, strides, (0..sizes.len()).rev())
}

/// True where elements follow each other in memory with the channels last; of two dimensions or more.
pub fn is_channels_last(sizes: &[i64], strides: &[i64]) -> bool {
    in_order(sizes, strides, channels_first_order(sizes.len()))
}

/// True where elements fill a range of memory without gaps or overlaps, in whatever order.
pub fn is_dense(sizes: &[i64], strides: &[i64]) -> bool {
    let mut dims: Order = (0..sizes.len()).filter(|&dim| sizes[dim] > 1).collect();
    dims.sort_by_key(|&dim| strides[dim]);
    sizes.contains(&0) || in_order(sizes, strides, dims)
}

/// True where both strides lead to the same places: those of dimensions of size 1 mean nothing.
pub fn are_alike(sizes: &[i64], a: &[i64], b: &[i64]) -> bool {
    a.iter().zip(b).zip(sizes).all(|((a, b), size)| a == b || *size == 1)
}

/// True where several elements are one place in memory because a dimension is expanded.
pub fn overlap(sizes: &[i64], strides: &[i64]) -> bool {
    !sizes.contains(&0) && sizes.iter().zip(strides).any(|(&size, &stride)| size > 1 && stride == 0)
}

/// True where PyTorch takes a tensor of four or five dimensions for one whose channels come last: by the order of its
/// strides, gaps allowed.
pub fn suggest_channels_last(sizes: &[i64], strides: &[i64]) -> bool {
    if !(4..=5).contains(&sizes.len()) || strides[1] == 0 {
        return false;
    }
    let mut least = 0;
    for dim in channels_first_order(sizes.len()) {
        // At the batch, one stride for all is taken for the usual order.
        if sizes[dim] == 0 || strides[dim] < least || dim == 0 && least == strides[1] {
            return false;
        }
        least = strides[dim] * sizes[dim].max(1);
    }
    true
}

/// As [`suggest_channels_last`], where a signal counts as an image of height 1.
pub fn suggest_channels_last_image(sizes: &[i64], strides: &[i64]) -> bool {
    match (sizes, strides) {
        (&[n, c, w], &[of_n, of_c, of_w]) => {
            suggest_channels_last(&[n, c, 1, w], &[of_n, of_c, w * of_w, of_w])
        }
        _ => suggest_channels_last(sizes, strides),
    }
}

/// Sizes and strides: what [`elementwise`] is told of an operand.
pub type Operand = (Dims, Dims);

/// Strides of an elementwise result of `sizes` that is made of operands which broadcast to them: their order of
/// dimensions is kept, and the first operand that tells two dimensions apart decides.
pub fn elementwise(sizes: &[i64], operands: &[Operand]) -> Dims {
    if operands.iter().all(|(own, _)| own[..] == *sizes) {
        if operands.iter().all(|(own, strides)| is_contiguous(own, strides)) {
            return contiguous(sizes);
        }
        if sizes.len() == 4 && operands.iter().all(|(own, strides)| is_channels_last(own, strides)) {
            return channels_last(sizes);
        }
        if let Some((_, first)) = operands.first()
            && operands.iter().all(|(own, strides)| strides == first && is_dense(own, strides))
        {
            return first.clone();
        }
    }
    let full: SmallVec<[Dims; 4]> =
        operands.iter().map(|(own, strides)| expanded(own, strides, sizes)).collect();
    let order = order(sizes, &full);
    if order.iter().rev().copied().eq(0..sizes.len()) {
        return contiguous(sizes);
    }
    let mut made = Dims::from_elem(1, sizes.len());
    let mut next = 1i64;
    for dim in order {
        made[dim] = next;
        next = next.saturating_mul(sizes[dim]);
    }
    made
}

/// Strides as of a view broadcast to `sizes`, which the own ones broadcast to.
pub fn expanded(own: &[i64], strides: &[i64], sizes: &[i64]) -> Dims {
    let mut full = Dims::from_elem(0, sizes.len());
    let front = sizes.len() - own.len();
    for (dim, (&size, &stride)) in own.iter().zip(strides).enumerate() {
        if size != 1 || sizes[front + dim] == 1 {
            full[front + dim] = stride;
        }
    }
    full
}

/// As TensorIterator: an insertion sort, as not every two dimensions can be compared (a stride of 0, of an expanded one,
/// tells nothing).
fn order<S: AsRef<[i64]>>(sizes: &[i64], operands: &[S]) -> Order {
    let mut order: Order = (0..sizes.len()).rev().collect();
    let is_after = |inner: usize, outer: usize| {
        for strides in operands {
            let (a, b) = (strides.as_ref()[inner], strides.as_ref()[outer]);
            if a == 0 || b == 0 {
                continue;
            }
            if a != b {
                return Some(a > b);
            }
            if sizes[inner] > sizes[outer] {
                return Some(true);
            }
        }
        None
    };
    for start in 1..order.len() {
        let mut at = start;
        for before in (0..start).rev() {
            match is_after(order[before], order[at]) {
                Some(true) => {
                    order.swap(before, at);
                    at = before;
                }
                Some(false) => break,
                None => {}
            }
        }
    }
    order
}

#[cfg(test)]
mod tests;
