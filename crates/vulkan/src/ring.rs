//! A few command buffers, each with room for timestamps, used in turn.

use crate::commands::{CommandPool, Commands};
use crate::gpu::Gpu;
use ash::vk;
use std::time::Duration;
use wave32_device::Deadline;
use wave32_device::DeviceError;

/// Timestamps that one submit can take.
pub(crate) const QUERIES: u32 = 512;
const SLOTS: usize = 4;

#[derive(Clone, Copy)]
struct Slot {
    commands: Commands,
    /// The timeline value at which the slot is free again.
    busy_until: u64,
}

/// The command buffers; made on first use.
#[derive(Default)]
pub(crate) struct Ring {
    pool: CommandPool,
    slots: Vec<Slot>,
    next: usize,
}

/// A command buffer being recorded. It must go to [`Ring::submit`]; if dropped, the slot is reused.
pub(crate) struct Recording {
    slot: usize,
    pub(crate) commands: Commands,
    stamps: u32,
}

/// A submit in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flight {
    pub(crate) value: u64,
    commands: Commands,
    stamps: u32,
}

impl Ring {
    /// Starts recording into the next command buffer, once it is free.
    pub(crate) fn begin(&mut self, gpu: &mut Gpu, deadline: Deadline) -> Result<Recording, DeviceError> {
        if self.slots.len() < SLOTS {
            self.next = self.slots.len();
            let commands = self.pool.make(gpu, QUERIES)?;
            self.slots.push(Slot { commands, busy_until: 0 });
        }
        let index = self.next;
        self.next = (self.next + 1) % SLOTS;
        let Slot { commands, busy_until } = self.slots[index];
        commands.begin(gpu, QUERIES, busy_until, deadline)?;
        Ok(Recording { slot: index, commands, stamps: 0 })
    }

    /// Ends and submits the recording.
    pub(crate) fn submit(&mut self, gpu: &mut Gpu, recording: Recording) -> Result<Flight, DeviceError> {
        let value = recording.commands.submit(gpu)?;
        self.slots[recording.slot].busy_until = value;
        Ok(Flight { value, commands: recording.commands, stamps: recording.stamps })
    }

    /// Destroys everything; nothing may be in flight.
    pub(crate) fn destroy(&mut self, gpu: &Gpu) {
        self.pool.destroy(gpu, self.slots.drain(..).map(|slot| slot.commands));
    }
}

impl Recording {
    /// Orders launches: those after see what those before wrote, and overwrite only what was read.
    pub(crate) fn barrier(&self, gpu: &Gpu) {
        let stage = vk::PipelineStageFlags::COMPUTE_SHADER;
        let (read, write) = (vk::AccessFlags::SHADER_READ, vk::AccessFlags::SHADER_WRITE);
        self.commands.memory_barrier(gpu, (stage, write), (stage, read | write));
    }

    /// As [`Recording::barrier`], for copies and the host's reads as well: the edges of an operation.
    pub(crate) fn fence(&self, gpu: &Gpu) {
        let device = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        let (read, write) = (vk::AccessFlags::MEMORY_READ, vk::AccessFlags::MEMORY_WRITE);
        self.commands.memory_barrier(
            gpu,
            (device, write),
            (device | vk::PipelineStageFlags::HOST, read | write),
        );
    }

    /// Takes the time at which everything before is done. At most [`QUERIES`] a recording.
    pub(crate) fn stamp(&mut self, gpu: &Gpu) {
        debug_assert!(self.stamps < QUERIES);
        self.commands.stamp(gpu, self.stamps);
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
        self.commands.stamps(gpu, self.stamps)
    }
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
