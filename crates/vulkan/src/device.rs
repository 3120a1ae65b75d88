//! [`VulkanDevice`]: the parts put together behind [`Device`].

use crate::Options;
use crate::adapter::Adapter;
use crate::cache::{DiskCache, default_dir};
use crate::gpu::Gpu;
use crate::instance::Instance;
use crate::memory::Memory;
use crate::pipelines::Pipelines;
use crate::ring::Ring;
use crate::sets::Sets;
use crate::staging::Staging;
use std::mem::ManuallyDrop;
use std::sync::PoisonError;
use std::time::Duration;
use wave32_device::Deadline;
use wave32_device::{Budget, BufferId, Device, DeviceError, DeviceInfo, Operands, Timing};
use wave32_solve::{DeviceCaps, Plan};

/// Everything of one device. Fields drop in order, so the logical device is last.
pub(crate) struct Parts {
    pub(crate) budget: Budget,
    pub(crate) ring: Ring,
    pub(crate) sets: Sets,
    pub(crate) pipelines: Pipelines,
    pub(crate) staging: Staging,
    pub(crate) memory: Memory,
    pub(crate) gpu: Gpu,
}

/// What a device and a stream both stand on.
pub(crate) struct Base {
    pub(crate) budget: Budget,
    pub(crate) pipelines: Pipelines,
    pub(crate) memory: Memory,
    pub(crate) gpu: Gpu,
}

impl Base {
    pub(crate) fn new(instance: Instance, adapter: Adapter, options: Options) -> Result<Self, DeviceError> {
        let mut budget = Budget::new(&adapter.caps);
        if let Some(target) = options.submit_target {
            budget = budget.with_target(target);
        }
        let dir = options.cache_dir.or_else(default_dir);
        let disk = dir.map(|dir| DiskCache::new(&dir, &adapter.identity));
        let gpu = Gpu::new(instance, adapter, options.robust)?;
        let memory = Memory::new(&gpu, options.memory_cap, options.always_stage)?;
        Ok(Self { budget, pipelines: Pipelines::new(options.kernels, disk), memory, gpu })
    }
}

/// A GPU opened through Vulkan.
///
/// It belongs to the process that opened it: after a fork, the child's calls answer
/// [`DeviceError::Misuse`] and the child opens its own. Dropping it waits at most five seconds for work
/// in flight; if that does not end, the device is leaked rather than torn from under the GPU.
pub struct VulkanDevice {
    parts: ManuallyDrop<Parts>,
}

impl std::fmt::Debug for VulkanDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VulkanDevice").field("info", self.info()).finish_non_exhaustive()
    }
}

impl VulkanDevice {
    pub(crate) fn new(instance: Instance, adapter: Adapter, options: Options) -> Result<Self, DeviceError> {
        let Base { budget, pipelines, memory, gpu } = Base::new(instance, adapter, options)?;
        let parts = Parts {
            budget,
            ring: Ring::default(),
            sets: Sets::default(),
            pipelines,
            staging: Staging::default(),
            memory,
            gpu,
        };
        Ok(Self { parts: ManuallyDrop::new(parts) })
    }

    /// What the validation layer has said since the device was opened; empty without
    /// [`Options::validation`].
    pub fn validation_messages(&self) -> Vec<String> {
        self.parts.gpu.instance.messages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes of the buffers that exist now.
    pub fn memory_in_use(&self) -> u64 {
        self.parts.memory.in_use()
    }
}

impl Device for VulkanDevice {
    fn info(&self) -> &DeviceInfo {
        &self.parts.gpu.adapter.info
    }

    fn caps(&self) -> &DeviceCaps {
        &self.parts.gpu.adapter.caps
    }

    fn alloc(&mut self, bytes: u64) -> Result<BufferId, DeviceError> {
        self.parts.gpu.guard()?;
        let parts = &mut *self.parts;
        parts.memory.alloc(&mut parts.gpu, bytes)
    }

    fn free(&mut self, buffer: BufferId) {
        // A device that was given up may still be using the buffer: it goes with the device, or leaks with it.
        let parts = &mut *self.parts;
        if parts.gpu.guard().is_ok() && parts.memory.get(buffer).is_ok() {
            parts.sets.forget(&parts.gpu, buffer);
            parts.memory.free(&parts.gpu, buffer);
        }
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.parts.gpu.guard()?;
        let Parts { gpu, memory, ring, staging, .. } = &mut *self.parts;
        let target = memory.get_mut(buffer)?;
        let range = target.range(offset, data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        // Every call waits for what it submits, so the GPU is idle and the next submit makes this visible.
        if let Some(bytes) = target.mapped_mut() {
            bytes[range].copy_from_slice(data);
            return Ok(());
        }
        staging.write(gpu, memory, ring, (buffer, offset), data)
    }

    fn read(&mut self, buffer: BufferId, offset: u64, data: &mut [u8]) -> Result<(), DeviceError> {
        self.parts.gpu.guard()?;
        let Parts { gpu, memory, ring, staging, .. } = &mut *self.parts;
        let source = memory.get(buffer)?;
        let range = source.range(offset, data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        if let Some(bytes) = source.mapped_cached() {
            data.copy_from_slice(&bytes[range]);
            return Ok(());
        }
        staging.read(gpu, memory, ring, (buffer, offset), data)
    }

    fn prepare(&mut self, plan: &Plan) -> Result<(), DeviceError> {
        self.parts.prepare(plan).map(drop)
    }

    fn run(&mut self, plan: &Plan, operands: &Operands, deadline: Duration) -> Result<Timing, DeviceError> {
        self.parts.run(plan, operands, Deadline::after(deadline))
    }

    fn time(
        &mut self,
        plan: &Plan,
        operands: &[Operands],
        repeats: u32,
        deadline: Duration,
    ) -> Result<Vec<Duration>, DeviceError> {
        self.parts.time(plan, operands, repeats, Deadline::after(deadline))
    }
}

impl Drop for VulkanDevice {
    fn drop(&mut self) {
        if !self.parts.gpu.quiet() {
            log::warn!(
                "a Vulkan device is leaked: it is busy, or this process is a fork of the one that opened it"
            );
            return;
        }
        let Parts { ring, sets, pipelines, staging, memory, gpu, .. } = &mut *self.parts;
        if gpu.is_alive() {
            pipelines.save(gpu);
        }
        ring.destroy(gpu);
        sets.destroy(gpu);
        pipelines.destroy(gpu);
        staging.destroy(gpu, memory);
        memory.destroy(gpu);
        // SAFETY: this is the end of `self`; the parts are not touched again.
        unsafe { ManuallyDrop::drop(&mut self.parts) };
    }
}
