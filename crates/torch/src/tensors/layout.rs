//! Where elements lie: overlaps that PyTorch refuses, and the strides that it gives results.

use crate::abi::error::Error;
use crate::tensors::tensor::{Dims, Tensor, channels_last, contiguous};
use smallvec::SmallVec;

/// True where several elements are one place in memory, as in expanded tensors.
pub fn overlaps_itself(tensor: &Tensor) -> bool {
    !tensor.is_contiguous()
        && tensor.numel() > 0
        && tensor.sizes().iter().zip(&tensor.strides()).any(|(&size, &stride)| size > 1 && stride == 0)
}

/// Refuses to write into a tensor that overlaps itself.
///
/// # Errors
/// `Invalid`, as PyTorch words it.
pub fn no_internal_overlap(out: &Tensor) -> Result<(), Error> {
    if overlaps_itself(out) {
        return Err(Error::Invalid(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. \
             Please clone() the tensor before performing the operation."
                .into(),
        ));
    }
    Ok(())
}

/// Refuses to write into `out` where that shares some of the input's memory, but not element by element. As in
/// PyTorch only tensors without gaps are looked at.
///
/// # Errors
/// `Invalid`, as PyTorch words it.
pub fn no_partial_overlap(out: &Tensor, input: &Tensor) -> Result<(), Error> {
    let end = |tensor: &Tensor| Ok::<_, Error>(tensor.address() + tensor.span_bytes()?);
    let (to, from) = (out.address(), input.address());
    if to == 0 || out.is_same(input) || to >= end(input)? || from >= end(out)? {
        return Ok(());
    }
    if !out.is_dense() || !input.is_dense() {
        return Ok(());
    }
    let full = to == from && end(out)? == end(input)? && out.strides() == input.strides();
    if full { Ok(()) } else { Err(shared()) }
}

/// What PyTorch says where a result is part of an operand.
pub fn shared() -> Error {
    Error::Invalid(
        "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory \
         location. Please clone() the tensor before performing the operation."
            .into(),
    )
}

/// What [`strides`] is told of an operand.
pub type Operand = (Dims, Dims);

/// Strides of an elementwise result of `sizes` that is made of operands which broadcast to them: their order of
/// dimensions is kept, and the first operand that tells two dimensions apart decides.
pub fn strides(sizes: &[i64], operands: &[Operand]) -> Dims {
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

/// Strides as of a view broadcast to `sizes`.
fn expanded(own: &[i64], strides: &[i64], sizes: &[i64]) -> Dims {
    let mut full = Dims::from_elem(0, sizes.len());
    let front = sizes.len() - own.len();
    for (dim, (&size, &stride)) in own.iter().zip(strides).enumerate() {
        if size != 1 || sizes[front + dim] == 1 {
            full[front + dim] = stride;
        }
    }
    full
}

/// Dimensions, innermost first: an insertion sort, as not every two of them can be compared.
fn order(sizes: &[i64], operands: &[Dims]) -> SmallVec<[usize; 8]> {
    let mut order: SmallVec<[usize; 8]> = (0..sizes.len()).rev().collect();
    let is_after = |inner: usize, outer: usize| {
        for strides in operands {
            let (a, b) = (strides[inner], strides[outer]);
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

fn is_contiguous(sizes: &[i64], strides: &[i64]) -> bool {
    sizes.contains(&0) || in_order(sizes, strides, (0..sizes.len()).rev())
}

fn is_channels_last(sizes: &[i64], strides: &[i64]) -> bool {
    in_order(sizes, strides, std::iter::once(1).chain((2..sizes.len()).rev()).chain([0]))
}

/// Dimensions follow each other in memory, innermost first.
fn in_order(sizes: &[i64], strides: &[i64], dims: impl Iterator<Item = usize>) -> bool {
    let mut next = 1;
    for dim in dims {
        if sizes[dim] != 1 {
            if strides[dim] != next {
                return false;
            }
            next *= sizes[dim];
        }
    }
    true
}

fn is_dense(sizes: &[i64], strides: &[i64]) -> bool {
    let mut dims: SmallVec<[usize; 8]> = (0..sizes.len()).filter(|&dim| sizes[dim] > 1).collect();
    dims.sort_by_key(|&dim| strides[dim]);
    sizes.contains(&0) || in_order(sizes, strides, dims.into_iter())
}

/// True where PyTorch takes a tensor of four or five dimensions for one whose channels come last: by the order of its
/// strides, gaps allowed.
pub fn suggests_channels_last(tensor: &Tensor) -> bool {
    are_channels_last(&tensor.sizes(), &tensor.strides())
}

fn are_channels_last(sizes: &[i64], strides: &[i64]) -> bool {
    if !(4..=5).contains(&sizes.len()) || strides[1] == 0 {
        return false;
    }
    let mut least = 0;
    for dim in std::iter::once(1).chain((2..sizes.len()).rev()).chain([0]) {
        // At the batch, one stride for all is taken for the usual order.
        if sizes[dim] == 0 || strides[dim] < least || dim == 0 && least == strides[1] {
            return false;
        }
        least = strides[dim] * sizes[dim].max(1);
    }
    true
}

/// True where results of a convolution of these come with the channels last: where PyTorch takes one of them for that. A
/// signal counts as an image of height 1, which a permuted input is copied into.
pub fn convolves_channels_last(input: &Tensor, weight: &Tensor) -> bool {
    let image = |tensor: &Tensor| match (&tensor.sizes()[..], &tensor.strides()[..]) {
        (&[n, c, w], &[of_n, of_c, of_w]) => are_channels_last(&[n, c, 1, w], &[of_n, of_c, w * of_w, of_w]),
        (sizes, strides) => are_channels_last(sizes, strides),
    };
    let copied = input.dim() == 3 && !input.is_contiguous();
    (!copied && image(input)) || image(weight)
}

/// True where elements follow each other in memory, channels last or as usual.
pub fn in_some_format(tensor: &Tensor) -> bool {
    let last = || (4..=5).contains(&tensor.dim()) && is_channels_last(&tensor.sizes(), &tensor.strides());
    tensor.is_contiguous() || last()
}

/// True where a normalisation keeps the channels last: in memory without gaps, whatever the strides of single elements
/// are, else as PyTorch takes the order of the strides. `plain`: so do the other operands.
pub fn normalises_channels_last(input: &Tensor, plain: bool) -> bool {
    match plain && in_some_format(input) {
        true => !input.is_contiguous(),
        false => suggests_channels_last(input),
    }
}

/// `sizes` with the channels last, or the usual strides.
pub fn in_format(last: bool, sizes: &[i64]) -> Dims {
    if last && (3..=5).contains(&sizes.len()) { channels_last(sizes) } else { contiguous(sizes) }
}

/// A tensor in another layout: itself where it has that layout.
///
/// # Errors
/// `Device`, `Gone` or `OutOfMemory` from the queue.
pub fn laid_out(tensor: Tensor, last: bool) -> Result<Tensor, Error> {
    let (sizes, present) = (tensor.sizes(), tensor.strides());
    let strides = in_format(last, &sizes);
    if present == strides {
        return Ok(tensor);
    }
    let mut pairs = present.iter().zip(&strides).zip(&sizes);
    if pairs.all(|((have, wanted), &size)| have == wanted || size == 1) {
        // Elements lie right; PyTorch reads the format off strides that mean nothing.
        return tensor.alias(&sizes, &strides, tensor.offset());
    }
    let made = Tensor::empty_strided(&sizes, &strides, tensor.dtype()?)?;
    crate::tensors::copies::copy(&tensor, &made)?;
    Ok(made)
}
