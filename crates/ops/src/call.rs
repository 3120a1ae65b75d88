//! [`Call`]: one launch being put together.

use crate::{Arg, OpError, Queue, View, Work};
use wave32_solve::Access;

const MAX_ARGS: usize = 8;
const MAX_PARAMS: usize = 32;

/// A launch: parameters and buffers in the kernel's order.
#[derive(Debug, Clone)]
pub struct Call {
    params: [u32; MAX_PARAMS],
    words: usize,
    args: [Arg; MAX_ARGS],
    buffers: usize,
    work: Work,
}

impl Default for Call {
    fn default() -> Self {
        Self::new()
    }
}

impl Call {
    /// Nothing yet but `x0`.
    pub fn new() -> Self {
        Self {
            params: [0; MAX_PARAMS],
            words: 1,
            args: [Arg::default(); MAX_ARGS],
            buffers: 0,
            work: Work::default(),
        }
    }

    /// The next parameter word.
    pub fn word(&mut self, word: u32) -> &mut Self {
        self.params[self.words] = word;
        self.words += 1;
        self
    }

    /// The next parameter words.
    pub fn words(&mut self, words: impl IntoIterator<Item = u32>) -> &mut Self {
        words.into_iter().for_each(|word| {
            self.word(word);
        });
        self
    }

    /// The next parameter, a float.
    pub fn float(&mut self, value: f32) -> &mut Self {
        self.word(value.to_bits())
    }

    /// The next parameters, which are sizes, strides or offsets.
    ///
    /// # Errors
    /// `too-many-elements` where one is past 32 bits.
    pub fn numbers(&mut self, numbers: &[u64]) -> Result<&mut Self, OpError> {
        for &number in numbers {
            let word = u32::try_from(number)
                .map_err(|_| OpError::refused("too-many-elements", format!("{number} is past 32 bits")))?;
            self.word(word);
        }
        Ok(self)
    }

    /// The next four parameters: what `quotient` of `kernels/divide.h` divides by channels, width and height with.
    pub fn divisors(&mut self, divisors: [u64; 3]) -> &mut Self {
        let mut shifts = 0;
        for (at, divisor) in divisors.into_iter().enumerate() {
            // 2^(31 + log) / divisor, rounded up: off by less than one part in 2^31.
            let log = divisor.max(1).next_power_of_two().trailing_zeros();
            self.word(((1u64 << (31 + log)) / divisor.max(1) + 1) as u32);
            shifts |= (31 + log) << (8 * at);
        }
        self.word(shifts)
    }

    /// The next buffer: all that a view touches. Its first element's index there, for the kernel to add:
    /// ranges start at the device's alignment, views anywhere.
    ///
    /// # Errors
    /// `range-too-large` where the device cannot bind that much; `too-many-elements`.
    pub fn view(&mut self, queue: &dyn Queue, view: &View, writes: bool) -> Result<u32, OpError> {
        self.range(queue, view.address, view.extent().max(1), view.dtype.size(), writes)
    }

    /// The next buffer: `count` elements of `size` bytes from `address` on; see [`Call::view`].
    ///
    /// # Errors
    /// As [`Call::view`].
    pub fn range(
        &mut self,
        queue: &dyn Queue,
        address: u64,
        count: u64,
        size: u64,
        writes: bool,
    ) -> Result<u32, OpError> {
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
            return Err(OpError::refused(
                "misaligned",
                format!("address {address:#x}, elements of {size} bytes"),
            ));
        }
        let access = if writes { Access::Write } else { Access::Read };
        self.args[self.buffers] = Arg { address: start, bytes, access };
        self.buffers += 1;
        Ok((skipped / size) as u32)
    }

    /// Sets what it costs.
    pub fn work(&mut self, flops: u64, bytes: u64) -> &mut Self {
        self.work = Work { flops, bytes };
        self
    }

    /// Launches it.
    ///
    /// # Errors
    /// The device's.
    pub fn launch(&self, queue: &mut dyn Queue, kernel: &str, grid: [u32; 3]) -> Result<(), OpError> {
        let (params, args) = (&self.params[..self.words], &self.args[..self.buffers]);
        Ok(queue.launch(kernel, grid, params, args, self.work)?)
    }

    /// Launches as many workgroups in a row as `items` need at `per_group` each.
    ///
    /// # Errors
    /// `too-many-elements`, the device's.
    pub fn launch_items(
        &self,
        queue: &mut dyn Queue,
        kernel: &str,
        items: u64,
        per_group: u64,
    ) -> Result<(), OpError> {
        let groups = u32::try_from(items.div_ceil(per_group)).ok().filter(|_| items < 1 << 31);
        let groups =
            groups.ok_or_else(|| OpError::refused("too-many-elements", format!("{items} elements")))?;
        if groups == 0 { Ok(()) } else { self.launch(queue, kernel, [groups, 1, 1]) }
    }
}
