//! [`Call`]: one launch of a kernel, with its parameters and buffers by name.

use crate::{Arg, ElementType, OpError, Queue, View, Work};
use wave32_params::{Buffers, Kernel, Name, Params};
use wave32_solve::Access;

/// A launch of the kernel source `K`.
pub(crate) struct Call<K: Kernel> {
    /// Which of its variants.
    pub kernel: Name<K>,
    pub params: K::Params,
    pub buffers: K::Buffers<Bound>,
    /// What it costs.
    pub flops: u64,
    pub bytes: u64,
}

impl<K: Kernel> Call<K> {
    /// # Errors
    /// [`OpError::Device`] where the device fails.
    pub fn launch(self, queue: &mut dyn Queue, grid: [u32; 3]) -> Result<(), OpError> {
        let (params, bound) = (self.params.words(), self.buffers.array());
        let mut args = [Arg::default(); wave32_device::MAX_ARGS];
        let args = &mut args[..bound.as_ref().len()];
        args.iter_mut().zip(bound.as_ref()).for_each(|(arg, bound)| *arg = bound.arg);
        let work = Work { flops: self.flops, bytes: self.bytes };
        Ok(queue.launch(self.kernel.as_str(), grid, params.as_ref(), args, work)?)
    }

    /// Launches as many workgroups in a row as `items` need at `per_group` each.
    ///
    /// # Errors
    /// `too-many-elements`; [`OpError::Device`] where the device fails.
    pub fn launch_items(self, queue: &mut dyn Queue, items: u64, per_group: u64) -> Result<(), OpError> {
        let groups = u32::try_from(items.div_ceil(per_group)).ok().filter(|_| items < 1 << 31);
        let groups =
            groups.ok_or_else(|| OpError::refused("too-many-elements", format!("{items} elements")))?;
        if groups == 0 { Ok(()) } else { self.launch(queue, [groups, 1, 1]) }
    }
}

/// A buffer that a launch binds: all that a view touches. Ranges start at the device's alignment, views anywhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    arg: Arg,
    first: u64,
}

impl Bound {
    /// Which element of the range is the view's first, for the kernel to add.
    pub fn at(self) -> u64 {
        self.first
    }

    /// The same in the run of that number.
    pub fn of_run(mut self, run: u32) -> Self {
        self.arg.access = self.arg.access.of_run(run);
        self
    }

    /// Bound where the kernel only reads it this time.
    pub fn read(mut self) -> Self {
        self.arg.access = Access::Read;
        self
    }

    /// Bound in a place that the kernel does not look at this time.
    pub fn unused(mut self) -> Self {
        self.arg.access = Access::Unused;
        self
    }
}

/// Binds a view that the kernel reads.
///
/// # Errors
/// `range-too-large` where the device cannot bind that much; `too-many-elements`.
pub(crate) fn read(queue: &dyn Queue, view: &View) -> Result<Bound, OpError> {
    range(queue, view.address, view.extent().max(1), view.dtype.size(), Access::Read)
}

/// Binds a view that the kernel writes, or reads and writes.
///
/// # Errors
/// As [`read`].
pub(crate) fn write(queue: &dyn Queue, view: &View) -> Result<Bound, OpError> {
    range(queue, view.address, view.extent().max(1), view.dtype.size(), Access::Write)
}

/// Binds `count` elements of `size` bytes from `address` on.
///
/// # Errors
/// As [`read`].
pub(crate) fn range(
    queue: &dyn Queue,
    address: u64,
    count: u64,
    size: u64,
    access: Access,
) -> Result<Bound, OpError> {
    // Aligned to whole elements of every size as well, so that the offset is a whole number of them.
    let alignment = queue.caps().offset_alignment.max(16);
    let start = address - address % alignment;
    let skipped = address - start;
    let end = (address + count * size).next_multiple_of(4);
    let (bytes, most) = (end - start, queue.caps().max_range);
    if bytes > most || count > 1 << 31 {
        let detail = format!("{bytes} bytes, the device binds {most}");
        return Err(OpError::refused("range-too-large", detail));
    }
    if !skipped.is_multiple_of(size) {
        let detail = format!("address {address:#x}, elements of {size} bytes");
        return Err(OpError::refused("misaligned", detail));
    }
    Ok(Bound { arg: Arg { address: start, bytes, access }, first: skipped / size })
}

/// A size, stride or offset as a parameter.
///
/// # Errors
/// `too-many-elements` where it is past 32 bits.
pub(crate) fn fit(number: u64) -> Result<u32, OpError> {
    u32::try_from(number)
        .map_err(|_| OpError::refused("too-many-elements", format!("{number} is past 32 bits")))
}

/// Several of them.
///
/// # Errors
/// As [`fit`].
pub(crate) fn fit_all<const N: usize>(numbers: [u64; N]) -> Result<[u32; N], OpError> {
    let mut words = [0; N];
    for (word, number) in words.iter_mut().zip(numbers) {
        *word = fit(number)?;
    }
    Ok(words)
}

/// Sizes of dimensions 1 to 3.
///
/// # Errors
/// As [`fit`].
pub(crate) fn fit_inner([_, a, b, c]: [u64; 4]) -> Result<[u32; 3], OpError> {
    fit_all([a, b, c])
}

/// The bits of a flag where it is set, else none.
pub(crate) fn flag(set: bool, bits: u32) -> u32 {
    if set { bits } else { 0 }
}

/// The variant for a float of at most 32 bits; `None` for other types.
pub(crate) fn by_float<K>(names: [Name<K>; 3], dtype: ElementType) -> Option<Name<K>> {
    matches!(dtype, ElementType::F32 | ElementType::F16 | ElementType::BF16).then(|| names[dtype as usize])
}
