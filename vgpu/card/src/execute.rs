//! Runs kernels.

use crate::aql::Dispatch;
use crate::device::Device;
use crate::queue::{Failure, Queue};
use crate::settings::Settings;

/// See the module.
pub struct Executor {}

impl Executor {
    /// As asked for.
    pub fn new(_settings: &Settings) -> Self {
        Self {}
    }

    /// Runs a kernel to its end.
    pub fn run(&self, _device: &'static Device, _queue: &Queue, dispatch: &Dispatch) -> Result<(), Failure> {
        eprintln!("wave32-vgpu: kernels cannot be executed yet: {dispatch:?}");
        Err(Failure::Queue(crate::aql::error::CODE))
    }

    /// Code may have changed.
    pub fn forget_code(&self) {}

    /// The process may be about to end.
    pub fn flush_report(&self) {}
}
