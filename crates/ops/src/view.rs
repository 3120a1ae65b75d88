//! [`View`]: a strided tensor in device memory, and what strided kernels need of several.

use crate::{ElementType, OpError};
use wave32_solve::DeviceCaps;

/// Most dimensions of a view.
pub const MAX_DIMS: usize = 8;

/// A strided tensor: address of its first element, type, sizes and strides in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Address of element 0, in bytes.
    pub address: u64,
    /// Type of the elements.
    pub dtype: ElementType,
    rank: u8,
    sizes: [u64; MAX_DIMS],
    strides: [u64; MAX_DIMS],
}

impl View {
    /// A view; `sizes` and `strides` are of the same length.
    ///
    /// # Errors
    /// `too-many-dimensions` above [`MAX_DIMS`].
    pub fn new(address: u64, dtype: ElementType, sizes: &[u64], strides: &[u64]) -> Result<Self, OpError> {
        let rank = sizes.len();
        if rank > MAX_DIMS || strides.len() != rank {
            let detail = format!("{rank} sizes and {} strides, {MAX_DIMS} at most", strides.len());
            return Err(OpError::refused("too-many-dimensions", detail));
        }
        let mut view =
            Self { address, dtype, rank: rank as u8, sizes: [1; MAX_DIMS], strides: [0; MAX_DIMS] };
        view.sizes[..rank].copy_from_slice(sizes);
        view.strides[..rank].copy_from_slice(strides);
        Ok(view)
    }

    /// A view of contiguous elements, the last dimension innermost.
    ///
    /// # Errors
    /// `too-many-dimensions` above [`MAX_DIMS`].
    pub fn contiguous(address: u64, dtype: ElementType, sizes: &[u64]) -> Result<Self, OpError> {
        let mut strides = vec![0; sizes.len()];
        let mut stride = 1u64;
        for (at, &size) in strides.iter_mut().zip(sizes).rev() {
            (*at, stride) = (stride, stride.saturating_mul(size.max(1)));
        }
        Self::new(address, dtype, sizes, &strides)
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        usize::from(self.rank)
    }

    /// The sizes.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes[..self.rank()]
    }

    /// The strides, in elements.
    pub fn strides(&self) -> &[u64] {
        &self.strides[..self.rank()]
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.sizes().iter().product()
    }

    /// Elements from the first to the last that it touches, that one included; 0 where it has none.
    pub fn extent(&self) -> u64 {
        if self.elements() == 0 {
            return 0;
        }
        1 + self.sizes().iter().zip(self.strides()).map(|(size, stride)| (size - 1) * stride).sum::<u64>()
    }

    /// True where a launch can bind all that it touches, whatever its address.
    pub fn fits(&self, caps: &DeviceCaps) -> bool {
        let slack = caps.offset_alignment.max(16) + 4;
        // Kernels count elements in 31 bits.
        self.extent() < 1 << 31
            && self.extent().saturating_mul(self.dtype.size()).saturating_add(slack) <= caps.max_range
    }

    /// Does it begin at a whole vector of four elements?
    pub(crate) fn begins_with_vector(&self) -> bool {
        (self.address / self.dtype.size()).is_multiple_of(4)
    }

    /// True where its elements lie one after the other in order.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for (&size, &stride) in self.sizes().iter().zip(self.strides()).rev() {
            if size != 1 && stride != expected {
                return false;
            }
            expected *= size;
        }
        true
    }

    /// The same elements broadcast to `sizes` (the rule of NumPy: missing dimensions in front, size 1 repeats).
    ///
    /// # Errors
    /// `no-broadcast`, `too-many-dimensions`.
    pub fn broadcast(&self, sizes: &[u64]) -> Result<Self, OpError> {
        let bad = || OpError::refused("no-broadcast", format!("{:?} to {sizes:?}", self.sizes()));
        let front = sizes.len().checked_sub(self.rank()).ok_or_else(bad)?;
        let mut strides = vec![0; sizes.len()];
        for (at, (&size, &stride)) in self.sizes().iter().zip(self.strides()).enumerate() {
            match (size, sizes[front + at]) {
                (from, to) if from == to => strides[front + at] = stride,
                (1, _) => {}
                _ => return Err(bad()),
            }
        }
        Self::new(self.address, self.dtype, sizes, &strides)
    }

    /// `len` indices of dimension `dim` from `start` on.
    pub fn narrow(&self, dim: usize, start: u64, len: u64) -> Self {
        let mut view = *self;
        view.address += start * self.strides[dim] * self.dtype.size();
        view.sizes[dim] = len;
        view
    }

    /// Its dimensions by falling stride, so that dense tensors of any order of dimensions merge; `None` where they are so.
    pub(crate) fn order(&self) -> Option<[usize; MAX_DIMS]> {
        let strides = self.strides();
        (!strides.is_sorted_by(|a, b| a >= b)).then(|| {
            let mut order = [0, 1, 2, 3, 4, 5, 6, 7];
            order[..self.rank()].sort_by_key(|&dim| std::cmp::Reverse(strides[dim]));
            order
        })
    }

    /// Its dimensions in another order.
    pub(crate) fn permuted(&self, order: &[usize; MAX_DIMS]) -> Self {
        let mut view = *self;
        for (to, &dim) in order[..self.rank()].iter().enumerate() {
            (view.sizes[to], view.strides[to]) = (self.sizes[dim], self.strides[dim]);
        }
        view
    }

    /// The dimension along which neighbours lie next to each other.
    pub(crate) fn dense_dim(&self) -> Option<usize> {
        (0..self.rank()).find(|&dim| self.sizes[dim] > 1 && self.strides[dim] == 1)
    }

    /// The same elements with dimension 1 behind the others: N C H W as N H W C. There are two or more.
    pub(crate) fn channels_last(&self) -> Self {
        let mut view = *self;
        view.sizes[1..self.rank()].rotate_left(1);
        view.strides[1..self.rank()].rotate_left(1);
        view
    }

    /// The same elements with the last dimension as number 1: N H W C as N C H W. There are two or more.
    pub(crate) fn channels_first(&self) -> Self {
        let mut view = *self;
        view.sizes[1..self.rank()].rotate_right(1);
        view.strides[1..self.rank()].rotate_right(1);
        view
    }

    /// One index of dimension `dim`: the view without it.
    pub fn select(&self, dim: usize, index: u64) -> Self {
        let mut view = *self;
        view.address += index * self.strides[dim] * self.dtype.size();
        view.sizes[dim..].rotate_left(1);
        view.strides[dim..].rotate_left(1);
        view.rank -= 1;
        view.sizes[view.rank()] = 1;
        view.strides[view.rank()] = 0;
        view
    }
}

/// Several views of the same sizes, with dimensions merged wherever all of them allow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Common {
    /// Sizes after merging, outermost first; never empty.
    pub sizes: Vec<u64>,
    /// Strides of each view.
    pub strides: Vec<Vec<u64>>,
}

impl Common {
    /// The merged form of views that all have the sizes of the first.
    pub fn new(views: &[&View]) -> Self {
        let sizes = views.first().map_or(&[][..], |view| view.sizes());
        debug_assert!(views.iter().all(|view| view.sizes() == sizes));
        let mut common = Self { sizes: Vec::new(), strides: vec![Vec::new(); views.len()] };
        for (dim, &size) in sizes.iter().enumerate() {
            if size == 1 {
                continue;
            }
            let last = common.sizes.len().wrapping_sub(1);
            let merges = !common.sizes.is_empty()
                && views
                    .iter()
                    .zip(&common.strides)
                    .all(|(view, strides)| strides[last] == view.strides()[dim] * size);
            if merges {
                common.sizes[last] *= size;
            } else {
                common.sizes.push(size);
            }
            for (view, strides) in views.iter().zip(&mut common.strides) {
                if merges {
                    strides[last] = view.strides()[dim];
                } else {
                    strides.push(view.strides()[dim]);
                }
            }
        }
        if common.sizes.is_empty() {
            common.sizes.push(1);
            common.strides.iter_mut().for_each(|strides| strides.push(0));
        }
        common
    }

    /// Counts in vectors of so many neighbours: rows of the last dimension, and what lies between them, have whole ones.
    pub(crate) fn by_vectors(&mut self, vector: u64) {
        let last = self.sizes.len() - 1;
        self.sizes[last] /= vector;
        for strides in &mut self.strides {
            strides[..last].iter_mut().for_each(|stride| *stride /= vector);
        }
    }

    /// The same elements in another order of dimensions, in which [`outer`](Self::outer) has the fewest calls: in front of
    /// the last `inner` dimensions are the smallest. The last dimension stays.
    pub fn with_small_outer(mut self, inner: usize) -> Self {
        for front in 0..self.sizes.len().saturating_sub(inner) {
            let last = self.sizes.len() - 1;
            if let Some(smallest) = (front..last).min_by_key(|&dim| self.sizes[dim]) {
                let all = std::iter::once(&mut self.sizes).chain(&mut self.strides);
                all.for_each(|values| values[front..=smallest].rotate_right(1));
            }
        }
        self
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.sizes.iter().product()
    }

    /// Calls `each` with the element offset of every view for each index of the dimensions in front of the
    /// last `inner`, which kernels cannot address themselves.
    ///
    /// # Errors
    /// The first error that `each` returns.
    pub fn outer(
        &self,
        inner: usize,
        mut each: impl FnMut(&[u64]) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let front = self.sizes.len().saturating_sub(inner);
        let count: u64 = self.sizes[..front].iter().product();
        let mut offsets = vec![0; self.strides.len()];
        for index in 0..count {
            for (offset, strides) in offsets.iter_mut().zip(&self.strides) {
                let mut rest = index;
                *offset = 0;
                for (size, stride) in self.sizes[..front].iter().zip(strides).rev() {
                    *offset += rest % size * stride;
                    rest /= size;
                }
            }
            each(&offsets)?;
        }
        Ok(())
    }

    /// The last four sizes, 1 in front where there are fewer.
    pub fn sizes4(&self) -> [u64; 4] {
        last4(&self.sizes, 1)
    }

    /// The last four strides of a view, 0 in front where there are fewer.
    pub fn strides4(&self, view: usize) -> [u64; 4] {
        last4(&self.strides[view], 0)
    }
}

fn last4(from: &[u64], fill: u64) -> [u64; 4] {
    let mut four = [fill; 4];
    for (to, &value) in four.iter_mut().rev().zip(from.iter().rev()) {
        *to = value;
    }
    four
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(sizes: &[u64], strides: &[u64]) -> View {
        View::new(0, ElementType::F32, sizes, strides).unwrap()
    }

    #[test]
    fn dimensions_merge_where_all_views_allow() {
        let plain = View::contiguous(0, ElementType::F32, &[2, 3, 4, 5]).unwrap();
        assert_eq!(plain.strides(), [60, 20, 5, 1]);
        assert!(plain.is_contiguous());
        let common = Common::new(&[&plain, &plain]);
        assert_eq!((common.sizes.as_slice(), common.strides[0].as_slice()), (&[120][..], &[1][..]));
        let bias = view(&[3], &[1]).broadcast(&[2, 3]).unwrap();
        assert_eq!(bias.strides(), [0, 1]);
        let channel = view(&[3, 1, 1], &[1, 1, 1]).broadcast(&[2, 3, 4, 5]).unwrap();
        let common = Common::new(&[&plain, &channel]);
        assert_eq!(common.sizes, [2, 3, 20]);
        assert_eq!(common.strides4(1), [0, 0, 1, 0]);
        assert!(view(&[3], &[1]).broadcast(&[2, 4]).is_err());
        let scalar = view(&[], &[]);
        assert_eq!((scalar.elements(), scalar.extent()), (1, 1));
        assert_eq!(Common::new(&[&scalar]).sizes, [1]);
    }

    #[test]
    fn outer_dimensions_are_walked_in_order() {
        let odd = view(&[2, 3, 2, 2, 2, 2], &[1000, 1, 50, 200, 3, 12]);
        let common = Common::new(&[&odd]);
        let mut seen = Vec::new();
        common
            .outer(4, |offsets| {
                seen.push(offsets[0]);
                Ok(())
            })
            .unwrap();
        assert_eq!(seen, [0, 1, 2, 1000, 1001, 1002]);
    }

    #[test]
    fn the_smallest_dimensions_are_walked() {
        let patches = view(&[128, 2, 3, 16, 5], &[1100, 500, 3, 31, 1]);
        let common = Common::new(&[&patches]).with_small_outer(4);
        assert_eq!(common.sizes, [2, 128, 3, 16, 5]);
        assert_eq!(common.strides, [[500, 1100, 3, 31, 1]]);
        let common = Common::new(&[&patches]).with_small_outer(3);
        assert_eq!(common.sizes, [2, 3, 128, 16, 5]);
        let four = Common::new(&[&patches]).with_small_outer(5);
        assert_eq!(four, Common::new(&[&patches]));
    }

    #[test]
    fn select_drops_a_dimension() {
        let plain = View::contiguous(0, ElementType::F16, &[2, 3, 4]).unwrap().select(1, 2);
        assert_eq!((plain.sizes(), plain.strides(), plain.address), (&[2, 4][..], &[12, 1][..], 16));
    }
}
