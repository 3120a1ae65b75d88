//! [`Queue`], the one trait that runs work on a GPU: Vulkan and HIP implement it. [`execute`] launches a plan on any
//! queue; [`PlanDevice`] is what tools run, check and time plans on, [`Runner`] one on a queue. The conformance suite in
//! [`conformance`] runs on each queue.
//!
//! Contract. The caller (solve) has validated the problem and the plan; a queue checks only what
//! depends on it: memory, sizes against bindings, its own limits. Errors are those a caller
//! cannot foresee. Every call returns within its deadline or with [`DeviceError::Timeout`].
#![forbid(unsafe_code)]

use std::time::Duration;
use wave32_solve::{DeviceCaps, Role};

mod budget;
pub mod check;
pub mod conformance;
mod deadline;
pub mod heap;
mod kept;
mod queue;
mod runner;
pub mod tuned;

pub use budget::Budget;
pub use deadline::Deadline;
pub use kept::{Kept, Known, Made};
pub use queue::{
    Addresses, Arg, MAX_ARGS, MAX_PARAMS, PreparedAt, Queue, Stamp, Work, execute, execute_prepared,
    run_number,
};
pub use runner::{PlanDevice, Runner, Times, Timing};

/// A device's identity, for people and caches.
#[derive(Debug, Clone, serde::Serialize)]
pub struct DeviceInfo {
    /// How `--device` names it: `vulkan:0`.
    pub id: String,
    /// The driver's name for the card.
    pub name: String,
    /// Driver and version, as text.
    pub driver: String,
    /// What sort of hardware it is.
    pub kind: DeviceKind,
    /// Bytes of memory on the device.
    pub memory_bytes: u64,
}

/// What sort of hardware a device is, the best first. Its text, in reports too, is the name in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A card of its own.
    Discrete,
    /// Part of the processor's chip, with the processor's memory.
    Integrated,
    /// A card that a virtual machine was lent.
    Virtual,
    /// Software on the processor, or this project's virtual card.
    Cpu,
    /// None of these.
    Other,
}

impl std::fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Discrete => "discrete",
            Self::Integrated => "integrated",
            Self::Virtual => "virtual",
            Self::Cpu => "cpu",
            Self::Other => "other",
        })
    }
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

/// Handle of a buffer of one device.
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
    slots: [Option<(BufferId, u64)>; Role::ALL.len()],
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
