//! The one trait that runs plans on a GPU. Vulkan, HIP and the virtual gfx1010 implement it; the
//! conformance suite in [`conformance`] runs on each.
//!
//! Contract. The caller (solve) has validated the problem and the plan; a device checks only what
//! depends on it: buffer handles, sizes against bindings, its own limits. Errors are those a caller
//! cannot foresee. Every call returns within its deadline or with [`DeviceError::Timeout`].
#![forbid(unsafe_code)]

use std::time::Duration;
use wave32_solve::{DeviceCaps, Plan, Role};

mod budget;
pub mod check;
pub mod conformance;
mod deadline;
pub mod heap;
mod queue;

pub use budget::{Budget, Cursor};
pub use deadline::Deadline;
pub use queue::{Arg, Queue, Work};

/// A device's identity, for people and caches.
#[derive(Debug, Clone, serde::Serialize)]
pub struct DeviceInfo {
    /// How `--device` names it: `vulkan:0`.
    pub id: String,
    /// The driver's name for the card.
    pub name: String,
    /// Driver and version, as text.
    pub driver: String,
    /// `discrete`, `integrated`, `cpu`, `virtual` or `other`.
    pub kind: &'static str,
    /// Bytes of memory on the device.
    pub memory_bytes: u64,
}

/// A device that a driver offers.
#[derive(Debug, Clone)]
pub struct Listed {
    /// What the driver's `open` takes.
    pub index: usize,
    /// What it is.
    pub info: DeviceInfo,
    /// What solvers may know of it.
    pub caps: DeviceCaps,
    /// Why it cannot be opened, if so.
    pub unusable: Option<String>,
}

/// Handle of a buffer of one device; freed by [`Device::free`] or with the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufferId(pub u64);

/// What a device can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// No such device.
    #[error("no device `{0}`; `wave32 devices` lists those that are here")]
    NotFound(String),
    /// The driver or its loader is missing or too old.
    #[error("{0}")]
    Unavailable(String),
    /// Device (or host-visible) memory is exhausted.
    #[error(
        "out of device memory: {requested} bytes wanted, {in_use} in use; use a smaller problem, batch or workspace cap"
    )]
    OutOfMemory {
        /// Bytes of the failed allocation.
        requested: u64,
        /// Bytes this device object held then.
        in_use: u64,
    },
    /// The GPU did not finish in time. The device object must be dropped.
    #[error("the GPU did not finish `{what}` within {deadline:?}; the device is given up")]
    Timeout {
        /// The work waited for.
        what: String,
        /// The deadline that passed.
        deadline: Duration,
    },
    /// The driver lost the device (reset or crash). The device object must be dropped.
    #[error("the driver lost the device during `{0}`; see the kernel log, then run again")]
    Lost(String),
    /// The device cannot run this plan (a limit or a missing feature).
    #[error("the device cannot run this: {0}")]
    Unsupported(String),
    /// A handle, range or plan that contradicts this contract: a bug in the caller.
    #[error("wrong use of the device: {0}")]
    Misuse(String),
    /// Any other answer of the driver.
    #[error("driver call {call} failed: {code}")]
    Driver {
        /// The call.
        call: &'static str,
        /// The driver's code, as text.
        code: String,
    },
}

/// The operand buffers of a plan: a buffer and a byte offset for each role the plan binds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Operands {
    slots: [Option<(BufferId, u64)>; 5],
}

impl Operands {
    /// None bound.
    pub fn new() -> Self {
        Self::default()
    }

    /// With `role` in `buffer` from byte `offset`.
    #[must_use]
    pub fn with(mut self, role: Role, buffer: BufferId, offset: u64) -> Self {
        self.slots[role as usize] = Some((buffer, offset));
        self
    }

    /// What is bound to `role`.
    pub fn get(&self, role: Role) -> Option<(BufferId, u64)> {
        self.slots[role as usize]
    }
}

/// What one execution of a plan took on the device's own clock.
#[derive(Debug, Clone, Default)]
pub struct Timing {
    /// First launch's start to last launch's end.
    pub total: Duration,
    /// Each launch, in the plan's order (the sum of its parts where it was cut).
    pub launches: Vec<Duration>,
    /// Submits it was cut into.
    pub submits: u32,
}

/// A GPU.
pub trait Device {
    /// Identity.
    fn info(&self) -> &DeviceInfo;

    /// What solvers may know.
    fn caps(&self) -> &DeviceCaps;

    /// A buffer of `bytes` (at least 1) on the device, content undefined.
    ///
    /// # Errors
    /// `OutOfMemory`, `Lost`, `Driver`.
    fn alloc(&mut self, bytes: u64) -> Result<BufferId, DeviceError>;

    /// Gives the buffer back. Unknown handles are ignored.
    fn free(&mut self, buffer: BufferId);

    /// Copies `data` to byte `offset` of the buffer; returns when it is there.
    ///
    /// # Errors
    /// `Misuse` past the end, `Timeout`, `Lost`, `OutOfMemory`, `Driver`.
    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), DeviceError>;

    /// Copies from byte `offset` of the buffer into `data`.
    ///
    /// # Errors
    /// As [`Device::write`].
    fn read(&mut self, buffer: BufferId, offset: u64, data: &mut [u8]) -> Result<(), DeviceError>;

    /// Makes everything the plan needs before it runs (pipelines, modules). Idempotent; `run` does it too.
    ///
    /// # Errors
    /// `Unsupported` where a kernel or a limit is missing here; `Driver`.
    fn prepare(&mut self, plan: &Plan) -> Result<(), DeviceError>;

    /// Runs the plan once and waits, `deadline` at most, cutting it into submits that stay within the
    /// time budget.
    ///
    /// # Errors
    /// `Misuse` where an operand is missing or too small; `Timeout`, `Lost`, `Unsupported`, `Driver`.
    fn run(&mut self, plan: &Plan, operands: &Operands, deadline: Duration) -> Result<Timing, DeviceError>;

    /// Device time of one run of the plan, `repeats` times after warming up: runs are recorded back
    /// to back (as a captured graph would be) and each is timed by device timestamps. `operands` are
    /// rotated through, so that several sets larger than the caches measure memory.
    ///
    /// # Errors
    /// As [`Device::run`].
    fn time(
        &mut self,
        plan: &Plan,
        operands: &[Operands],
        repeats: u32,
        deadline: Duration,
    ) -> Result<Vec<Duration>, DeviceError>;
}
