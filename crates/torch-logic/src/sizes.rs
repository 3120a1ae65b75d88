//! Sizes of results.

use crate::{Dims, Wrong};
use smallvec::SmallVec;

/// A dimension counted from the front; scalars have one.
///
/// # Errors
/// `Index`, as PyTorch words it.
pub fn wrap(dim: i64, rank: usize) -> Result<usize, Wrong> {
    let most = rank.max(1) as i64;
    if (-most..most).contains(&dim) {
        return Ok((if dim < 0 { dim + most } else { dim }) as usize);
    }
    Err(Wrong::Index(format!(
        "Dimension out of range (expected to be in range of [{}, {}], but got {dim})",
        -most,
        most - 1
    )))
}

/// The sizes that operands broadcast to.
///
/// # Errors
/// `Invalid`, as PyTorch words it, where they do not broadcast.
pub fn broadcast<S: AsRef<[i64]>>(operands: impl IntoIterator<Item = S>) -> Result<Dims, Wrong> {
    let mut sizes = Dims::new();
    for other in operands {
        let other = other.as_ref();
        if sizes[..] == *other {
            continue;
        }
        while sizes.len() < other.len() {
            sizes.insert(0, 1);
        }
        let front = sizes.len() - other.len();
        // From the last on, so that of several that do not fit PyTorch's is told.
        for (at, &size) in other.iter().enumerate().rev() {
            let to = &mut sizes[front + at];
            if *to == 1 {
                *to = size;
            } else if size != 1 && size != *to {
                return Err(Wrong::Invalid(format!(
                    "The size of tensor a ({}) must match the size of tensor b ({size}) at non-singleton dimension {}",
                    *to,
                    front + at
                )));
            }
        }
    }
    Ok(sizes)
}

/// Sizes with the one -1 replaced.
///
/// # Errors
/// `Invalid`, as PyTorch words it, where they are not those of `numel` elements.
pub fn infer(sizes: &[i64], numel: i64) -> Result<Dims, Wrong> {
    let wrong = || Wrong::Invalid(format!("shape '{sizes:?}' is invalid for input of size {numel}"));
    let mut inferred = Dims::from_slice(sizes);
    let known: i64 = sizes.iter().filter(|size| **size != -1).product();
    match sizes.iter().filter(|size| **size < 0).count() {
        0 if known == numel => Ok(inferred),
        1 => {
            let at = sizes.iter().position(|size| *size == -1).ok_or_else(wrong)?;
            if known == 0 {
                return Err(Wrong::Invalid(format!(
                    "cannot reshape tensor of 0 elements into shape {sizes:?} because the unspecified dimension \
                     size -1 can be any value and is ambiguous"
                )));
            }
            if numel % known != 0 {
                return Err(wrong());
            }
            inferred[at] = numel / known;
            Ok(inferred)
        }
        0 => Err(wrong()),
        _ => Err(Wrong::Invalid("only one dimension can be inferred".into())),
    }
}

/// Reduced dimensions and the sizes of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reduced {
    /// The dimensions, counted from the front.
    pub dims: SmallVec<[usize; 8]>,
    /// What is left.
    pub sizes: Dims,
}

impl Reduced {
    /// No dimensions named are all of them.
    ///
    /// # Errors
    /// `Index` for a dimension out of range, `NoKernel` for one that is named twice.
    pub fn new(sizes: &[i64], named: Option<&[i64]>, keep: bool) -> Result<Self, Wrong> {
        let rank = sizes.len();
        let mut dims = SmallVec::new();
        for &dim in named.unwrap_or_default() {
            let dim = wrap(dim, rank)?;
            if dims.contains(&dim) {
                return Err(Wrong::NoKernel(format!("dimension {dim} appears twice")));
            }
            dims.push(dim);
        }
        if dims.is_empty() {
            dims.extend(0..rank);
        }
        // A scalar has no dimension to reduce, though it may be called 0.
        dims.retain(|dim| *dim < rank);
        let mut left = Dims::new();
        for (dim, &size) in sizes.iter().enumerate() {
            match (dims.contains(&dim), keep) {
                (false, _) => left.push(size),
                (true, true) => left.push(1),
                (true, false) => {}
            }
        }
        Ok(Self { dims, sizes: left })
    }
}

/// Sizes of parts that are joined along a dimension, with that dimension counted from the front.
///
/// # Errors
/// `NoKernel` for what PyTorch refuses, which the CPU words; `Index` for a dimension out of range.
pub fn joined<S: AsRef<[i64]>>(parts: &[S], dim: i64) -> Result<(usize, Dims), Wrong> {
    let first = parts.first().map(AsRef::as_ref).unwrap_or_default();
    let dim = wrap(dim, first.len())?;
    if first.is_empty() {
        return Err(Wrong::NoKernel("a concatenation of scalars".into()));
    }
    let mut sizes = Dims::from_slice(first);
    sizes[dim] = 0;
    for part in parts.iter().map(AsRef::as_ref) {
        let fits = part.len() == sizes.len()
            && part.iter().zip(&sizes).enumerate().all(|(at, (a, b))| at == dim || a == b);
        if !fits {
            return Err(Wrong::NoKernel(format!("a part of sizes {part:?}")));
        }
        sizes[dim] += part[dim];
    }
    Ok((dim, sizes))
}

/// Dimensions counted from the front, in order, for an operator that takes each once.
///
/// # Errors
/// `Index` for a dimension out of range; `Invalid`, as PyTorch words it, for one that is named twice.
pub fn distinct(dims: &[i64], rank: usize) -> Result<Vec<usize>, Wrong> {
    let mut wrapped = dims.iter().map(|&dim| wrap(dim, rank)).collect::<Result<Vec<_>, _>>()?;
    wrapped.sort_unstable();
    if wrapped.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Wrong::Invalid(format!("dim {dims:?} appears multiple times in the list of dims")));
    }
    // The only dimension that a scalar has is the one that it does not have.
    wrapped.retain(|&dim| dim < rank);
    Ok(wrapped)
}

/// Sums of shifts by dimension, each shorter than the dimension: one that is named twice rolls twice.
///
/// # Errors
/// `Index` for a dimension out of range.
pub fn rolls(sizes: &[i64], shifts: &[i64], dims: &[i64]) -> Result<Vec<(usize, i64)>, Wrong> {
    let mut all: Vec<(usize, i64)> = Vec::new();
    for (&dim, &shift) in dims.iter().zip(shifts) {
        let dim = wrap(dim, sizes.len())?;
        let size = sizes[dim].max(1);
        match all.iter_mut().find(|(known, _)| *known == dim) {
            Some((_, sum)) => *sum = (*sum + shift % size) % size,
            None => all.push((dim, shift % size)),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
