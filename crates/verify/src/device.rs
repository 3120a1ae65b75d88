//! [`PlanDevice`]: what is verified and measured.

use std::time::Duration;
use wave32_device::{BufferId, DeviceError, DeviceInfo, Operands, Queue, Runner, Times, Timing};
use wave32_solve::{DeviceCaps, Plan};

/// Buffers, and plans that run on them: a [`Runner`] on any queue, or a libMIOpen that computes a plan's problem its own
/// way. Calls are the runner's.
pub trait PlanDevice {
    /// Identity.
    fn info(&self) -> &DeviceInfo;

    /// What solvers may know.
    fn caps(&self) -> &DeviceCaps;

    /// See [`Runner::alloc`].
    ///
    /// # Errors
    /// As [`Runner::alloc`].
    fn alloc(&mut self, bytes: u64) -> Result<BufferId, DeviceError>;

    /// See [`Runner::free`].
    fn free(&mut self, buffer: BufferId);

    /// See [`Runner::write`].
    ///
    /// # Errors
    /// As [`Runner::write`].
    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), DeviceError>;

    /// See [`Runner::read`].
    ///
    /// # Errors
    /// As [`Runner::read`].
    fn read(&mut self, buffer: BufferId, offset: u64, data: &mut [u8]) -> Result<(), DeviceError>;

    /// See [`Runner::run`].
    ///
    /// # Errors
    /// As [`Runner::run`].
    fn run(&mut self, plan: &Plan, operands: &Operands, deadline: Duration) -> Result<Timing, DeviceError>;

    /// See [`Runner::time`].
    ///
    /// # Errors
    /// As [`Runner::time`]; `Unsupported` by what is verified only.
    fn time(
        &mut self,
        plan: &Plan,
        operands: &[Operands],
        repeats: u32,
        deadline: Duration,
    ) -> Result<Times, DeviceError>;
}

impl<Q: Queue> PlanDevice for Runner<Q> {
    fn info(&self) -> &DeviceInfo {
        self.info()
    }

    fn caps(&self) -> &DeviceCaps {
        self.caps()
    }

    fn alloc(&mut self, bytes: u64) -> Result<BufferId, DeviceError> {
        self.alloc(bytes)
    }

    fn free(&mut self, buffer: BufferId) {
        self.free(buffer);
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.write(buffer, offset, data)
    }

    fn read(&mut self, buffer: BufferId, offset: u64, data: &mut [u8]) -> Result<(), DeviceError> {
        self.read(buffer, offset, data)
    }

    fn run(&mut self, plan: &Plan, operands: &Operands, deadline: Duration) -> Result<Timing, DeviceError> {
        self.run(plan, operands, deadline)
    }

    fn time(
        &mut self,
        plan: &Plan,
        operands: &[Operands],
        repeats: u32,
        deadline: Duration,
    ) -> Result<Times, DeviceError> {
        self.time(plan, operands, repeats, deadline)
    }
}
