//! A few command buffers, each with room for timestamps, used in turn.

use crate::error::at;
use crate::gpu::{Deadline, Gpu};
use ash::vk;
use std::time::Duration;
use wave32_device::DeviceError;

/// Timestamps that one submit can take.
pub(crate) const QUERIES: u32 = 512;
const SLOTS: usize = 4;

struct Slot {
    commands: vk::CommandBuffer,
    queries: vk::QueryPool,
    /// The timeline value at which the slot is free again.
    busy_until: u64,
}

/// The command buffers; made on first use.
#[derive(Default)]
pub(crate) struct Ring {
    pool: Option<vk::CommandPool>,
    slots: Vec<Slot>,
    next: usize,
}

/// A command buffer being recorded. It must go to [`Ring::submit`]; if dropped, the slot is reused.
pub(crate) struct Recording {
    slot: usize,
    pub(crate) commands: vk::CommandBuffer,
    queries: vk::QueryPool,
    stamps: u32,
}

/// A submit in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flight {
    pub(crate) value: u64,
    queries: vk::QueryPool,
    stamps: u32,
}

impl Ring {
    /// Starts recording into the next command buffer, once it is free.
    pub(crate) fn begin(&mut self, gpu: &mut Gpu, deadline: Deadline) -> Result<Recording, DeviceError> {
        if self.slots.len() < SLOTS {
            self.next = self.slots.len();
            let slot = self.new_slot(gpu)?;
            self.slots.push(slot);
        }
        let index = self.next;
        self.next = (self.next + 1) % SLOTS;
        let slot = &self.slots[index];
        gpu.wait(slot.busy_until, "earlier work", deadline)?;
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the buffer is not in flight; its pool allows the implicit reset; the query pool has
        // QUERIES queries and is reset before any is written.
        unsafe {
            gpu.raw.begin_command_buffer(slot.commands, &info).map_err(at("vkBeginCommandBuffer"))?;
            gpu.raw.cmd_reset_query_pool(slot.commands, slot.queries, 0, QUERIES);
        }
        Ok(Recording { slot: index, commands: slot.commands, queries: slot.queries, stamps: 0 })
    }

    fn new_slot(&mut self, gpu: &Gpu) -> Result<Slot, DeviceError> {
        let pool = match self.pool {
            Some(pool) => pool,
            None => {
                let info = vk::CommandPoolCreateInfo::default()
                    .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
                    .queue_family_index(gpu.family.index);
                // SAFETY: the family is the device's.
                let pool =
                    unsafe { gpu.raw.create_command_pool(&info, None) }.map_err(at("vkCreateCommandPool"))?;
                *self.pool.insert(pool)
            }
        };
        let info =
            vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(QUERIES);
        // SAFETY: the family has timestamps.
        let queries = unsafe { gpu.raw.create_query_pool(&info, None) }.map_err(at("vkCreateQueryPool"))?;
        let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
        // SAFETY: the pool is alive and used by `&mut self` only.
        match unsafe { gpu.raw.allocate_command_buffers(&info) } {
            Ok(buffers) => Ok(Slot { commands: buffers[0], queries, busy_until: 0 }),
            Err(code) => {
                // SAFETY: never used.
                unsafe { gpu.raw.destroy_query_pool(queries, None) };
                Err(at("vkAllocateCommandBuffers")(code))
            }
        }
    }

    /// Ends and submits the recording.
    pub(crate) fn submit(&mut self, gpu: &mut Gpu, recording: Recording) -> Result<Flight, DeviceError> {
        // SAFETY: the buffer is in the recording state since `begin`.
        unsafe { gpu.raw.end_command_buffer(recording.commands) }.map_err(at("vkEndCommandBuffer"))?;
        let value = gpu.submit(recording.commands)?;
        self.slots[recording.slot].busy_until = value;
        Ok(Flight { value, queries: recording.queries, stamps: recording.stamps })
    }

    /// Destroys everything; nothing may be in flight.
    pub(crate) fn destroy(&mut self, gpu: &Gpu) {
        // SAFETY: the caller knows that nothing is in flight; the handles are forgotten here.
        unsafe {
            for slot in self.slots.drain(..) {
                gpu.raw.destroy_query_pool(slot.queries, None);
            }
            if let Some(pool) = self.pool.take() {
                gpu.raw.destroy_command_pool(pool, None);
            }
        }
    }
}

impl Recording {
    /// Orders launches: those after see what those before wrote, and overwrite only what was read.
    pub(crate) fn barrier(&self, gpu: &Gpu) {
        let stage = vk::PipelineStageFlags::COMPUTE_SHADER;
        let (read, write) = (vk::AccessFlags::SHADER_READ, vk::AccessFlags::SHADER_WRITE);
        self.memory_barrier(gpu, (stage, write), (stage, read | write));
    }

    /// As [`Recording::barrier`], for copies and the host's reads as well: the edges of an operation.
    pub(crate) fn fence(&self, gpu: &Gpu) {
        let device = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        let (read, write) = (vk::AccessFlags::MEMORY_READ, vk::AccessFlags::MEMORY_WRITE);
        self.memory_barrier(gpu, (device, write), (device | vk::PipelineStageFlags::HOST, read | write));
    }

    fn memory_barrier(
        &self,
        gpu: &Gpu,
        (from, written): (vk::PipelineStageFlags, vk::AccessFlags),
        (to, accessed): (vk::PipelineStageFlags, vk::AccessFlags),
    ) {
        let barrier = vk::MemoryBarrier::default().src_access_mask(written).dst_access_mask(accessed);
        let none = vk::DependencyFlags::empty();
        // SAFETY: recording, on a queue with compute; the callers' access masks fit their stages.
        unsafe { gpu.raw.cmd_pipeline_barrier(self.commands, from, to, none, &[barrier], &[], &[]) };
    }

    /// Takes the time at which everything before is done. At most [`QUERIES`] a recording.
    pub(crate) fn stamp(&mut self, gpu: &Gpu) {
        debug_assert!(self.stamps < QUERIES);
        let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: recording; the query is in the pool, was reset and is written once.
        unsafe { gpu.raw.cmd_write_timestamp(self.commands, stage, self.queries, self.stamps) };
        self.stamps += 1;
    }

    /// True where another `count` timestamps fit.
    pub(crate) fn has_room(&self, count: u32) -> bool {
        self.stamps + count <= QUERIES
    }
}

impl Flight {
    /// The raw timestamps, in order, after waiting for the submit.
    pub(crate) fn stamps(
        &self,
        gpu: &mut Gpu,
        what: &str,
        deadline: Deadline,
    ) -> Result<Vec<u64>, DeviceError> {
        gpu.wait(self.value, what, deadline)?;
        read_stamps(gpu, self.queries, self.stamps)
    }
}

/// The first `count` timestamps of a pool; the submit that wrote them is done.
pub(crate) fn read_stamps(
    gpu: &mut Gpu,
    queries: vk::QueryPool,
    count: u32,
) -> Result<Vec<u64>, DeviceError> {
    let mut ticks = vec![0u64; count as usize];
    if ticks.is_empty() {
        return Ok(ticks);
    }
    // SAFETY: the submit that wrote the queries is done; `ticks` has one 64-bit word for each. Without WAIT
    // the call cannot block.
    let answer =
        unsafe { gpu.raw.get_query_pool_results(queries, 0, &mut ticks, vk::QueryResultFlags::TYPE_64) };
    answer.map_err(|code| gpu.failed("vkGetQueryPoolResults", code))?;
    Ok(ticks)
}

/// Device time from one timestamp to a later one; the counter may wrap once in between.
pub(crate) fn elapsed(gpu: &Gpu, from: u64, to: u64) -> Duration {
    ticks_to_time(from, to, gpu.family.timestamp_bits, gpu.adapter.limits.timestamp_period_ns)
}

fn ticks_to_time(from: u64, to: u64, bits: u32, period_ns: f64) -> Duration {
    let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
    let ticks = to.wrapping_sub(from) & mask;
    // "Later" by more than half the range is in truth earlier: drivers may order stamps a tick off.
    let ticks = if ticks > mask / 2 { 0 } else { ticks };
    Duration::from_secs_f64(ticks as f64 * period_ns * 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_time() {
        let ns = |from, to, bits, period| ticks_to_time(from, to, bits, period).as_nanos();
        assert_eq!(ns(100, 350, 64, 10.0), 2500);
        assert_eq!(ns(100, 350, 64, 1.0), 250);
        assert_eq!(ns((1 << 36) - 10, 5, 36, 1.0), 15, "wraps at the valid bits");
        assert_eq!(ns(7, 7, 64, 1.0), 0);
        assert_eq!(ns(8, 7, 64, 1.0), 0, "a tick backwards is no aeon");
    }
}
