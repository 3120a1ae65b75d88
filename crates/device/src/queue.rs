//! [`Queue`]: the asynchronous side of a device, for frameworks that launch many small operations.

use crate::DeviceError;
use wave32_solve::DeviceCaps;

/// A range of a queue's memory that a launch binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Arg {
    /// First byte, within a block from [`Queue::alloc`]; a multiple of the device's offset alignment.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// True where the launch writes there.
    pub writes: bool,
}

/// What a launch costs, for the time budget.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes through memory.
    pub bytes: u64,
}

/// An in-order queue with memory of its own: calls return before the work has run, work on the same
/// memory runs in the order of the calls.
pub trait Queue {
    /// What plans may know of the device.
    fn caps(&self) -> &DeviceCaps;

    /// A block of at least `bytes`, content undefined; its address is a multiple of 512.
    ///
    /// # Errors
    /// `OutOfMemory`, `Lost`, `Driver`.
    fn alloc(&mut self, bytes: u64) -> Result<u64, DeviceError>;

    /// Gives a block back; work already launched may still use it. Unknown addresses are ignored.
    fn free(&mut self, address: u64);

    /// Launches `grid` workgroups of the kernel of that name. `params[0]` is the first workgroup's x index
    /// and must be 0.
    ///
    /// # Errors
    /// `Unsupported` where the device lacks what the kernel or the grid needs; `Misuse` for a range outside
    /// of the queue's memory; `Timeout` where earlier work does not end; `Lost`, `Driver`.
    fn launch(
        &mut self,
        kernel: &str,
        grid: [u32; 3],
        params: &[u32],
        args: &[Arg],
        work: Work,
    ) -> Result<(), DeviceError>;

    /// Fills `bytes` from `address` with copies of a 32-bit word; both are multiples of 4.
    ///
    /// # Errors
    /// As [`Queue::launch`].
    fn fill(&mut self, address: u64, bytes: u64, word: u32) -> Result<(), DeviceError>;

    /// Copies `bytes` between ranges that do not overlap.
    ///
    /// # Errors
    /// As [`Queue::launch`].
    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Copies `data` to `address`. Returns once `data` may be changed; the copy runs in order.
    ///
    /// # Errors
    /// As [`Queue::launch`], `OutOfMemory`.
    fn upload(&mut self, address: u64, data: &[u8]) -> Result<(), DeviceError>;

    /// Copies from `address` into `data`, after all work launched before. Waits.
    ///
    /// # Errors
    /// As [`Queue::upload`].
    fn download(&mut self, address: u64, data: &mut [u8]) -> Result<(), DeviceError>;
}
