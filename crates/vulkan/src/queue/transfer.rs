//! Host copies of a queue, through two rings of host-visible memory.

use super::Parts;
use super::record::Command;
use crate::gpu::Gpu;
use crate::memory::{Buffer, Memory};
use ash::vk;
use gpu_allocator::MemoryLocation;
use std::collections::VecDeque;
use wave32_device::DeviceError;
use wave32_solve::Access;

/// Bytes of the ring for uploads. A piece of data takes at most a quarter of it.
const UP: u64 = 32 << 20;
/// Downloads go through two halves of this in turn.
const DOWN: u64 = 16 << 20;

/// Staging memory; allocated on first use.
#[derive(Default)]
pub(crate) struct Transfer {
    up: Option<Buffer>,
    down: Option<Buffer>,
    /// Where the next upload goes.
    head: u64,
    /// Bytes of the ring in flight, oldest first, an entry a submit: (bytes, timeline value, 0 while it is
    /// being recorded).
    pending: VecDeque<(u64, u64)>,
    used: u64,
}

impl Transfer {
    /// What was recorded so far is done when the timeline reaches `value`.
    pub(super) fn submitted(&mut self, value: u64) {
        if let Some((_, at)) = self.pending.back_mut().filter(|(_, at)| *at == 0) {
            *at = value;
        }
    }

    /// Takes `bytes` of the ring for the submit being recorded.
    fn reserve(&mut self, bytes: u64) {
        self.used += bytes;
        match self.pending.back_mut() {
            Some((all, 0)) => *all += bytes,
            _ => self.pending.push_back((bytes, 0)),
        }
    }

    /// Gives back what is done, as far as is known without asking the driver.
    fn reclaim(&mut self, reached: u64) {
        while let Some(&(bytes, value)) = self.pending.front() {
            if value == 0 || value > reached {
                return;
            }
            self.pending.pop_front();
            self.used -= bytes;
        }
    }

    /// Submits whose uploads may still be on their way.
    pub(super) fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Destroys the staging memory; nothing may be in flight.
    pub(crate) fn destroy(&mut self, gpu: &Gpu, memory: &mut Memory) {
        for buffer in [self.up.take(), self.down.take()].into_iter().flatten() {
            memory.destroy_buffer(gpu, buffer);
        }
    }
}

pub(crate) fn not_mapped() -> DeviceError {
    DeviceError::Driver { call: "vkMapMemory", code: "host-visible memory is not mapped".into() }
}

impl Parts {
    /// Room for `bytes` in the upload ring: its offset.
    fn upload_room(&mut self, bytes: u64) -> Result<u64, DeviceError> {
        if self.transfer.up.is_none() {
            let usage = vk::BufferUsageFlags::TRANSFER_SRC;
            let made = self.memory.create(&mut self.gpu, UP, usage, MemoryLocation::CpuToGpu)?;
            self.transfer.up = Some(made);
        }
        let wraps = self.transfer.head + bytes > UP;
        let skipped = if wraps { UP - self.transfer.head } else { 0 };
        self.transfer.reclaim(self.gpu.reached());
        while self.transfer.used + skipped + bytes > UP {
            let Some(&(_, value)) = self.transfer.pending.front() else { break };
            if value == 0 {
                // Recorded in the batch that is still open.
                self.flush()?;
                self.transfer.submitted(self.gpu.last_submitted());
                continue;
            }
            self.gpu.wait(value, "copy to the device", self.deadline())?;
            self.transfer.reclaim(value);
        }
        let start = if wraps { 0 } else { self.transfer.head };
        self.transfer.head = start + bytes;
        self.transfer.reserve(skipped + bytes);
        Ok(start)
    }

    pub(super) fn upload(&mut self, address: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.gpu.guard()?;
        self.resolve(address, data.len() as u64)?;
        let mut to = address;
        for piece in data.chunks((UP / 4) as usize) {
            let bytes = piece.len() as u64;
            // Slots are opened before room is taken, so that an upload is always of the open batch.
            let slot = self.open(bytes as f64 * 32.0)?;
            let submits = self.submits;
            let room = self.upload_room(bytes.next_multiple_of(16))?;
            let slot = if self.submits == submits { slot } else { self.open(bytes as f64 * 32.0)? };
            let Some(buffer) = self.transfer.up.as_mut() else { return Err(not_mapped()) };
            let raw = buffer.raw;
            let mapped =
                buffer.mapped_mut().and_then(|all| all.get_mut(room as usize..(room + bytes) as usize));
            mapped.ok_or_else(not_mapped)?.copy_from_slice(piece);
            let (target, offset) = self.resolve(to, bytes)?;
            self.order(Command::Transfer, [((to, to + bytes), Access::Write)].into_iter(), slot);
            let region = vk::BufferCopy::default().src_offset(room).dst_offset(offset).size(bytes);
            // SAFETY: recording; both ranges are of their buffers, which are different; the ring keeps its
            // part until the submit is done.
            unsafe {
                self.gpu.raw.cmd_copy_buffer(self.slots.all[slot].commands.buffer, raw, target, &[region])
            };
            self.recorded(slot, bytes as f64 * 32.0)?;
            to += bytes;
        }
        Ok(())
    }

    pub(super) fn download(&mut self, address: u64, data: &mut [u8]) -> Result<(), DeviceError> {
        self.gpu.guard()?;
        self.resolve(address, data.len() as u64)?;
        if self.transfer.down.is_none() {
            let usage = vk::BufferUsageFlags::TRANSFER_DST;
            // Cached host memory: the only kind that the host reads at full speed.
            let made = self.memory.create(&mut self.gpu, DOWN, usage, MemoryLocation::GpuToCpu)?;
            self.transfer.down = Some(made);
        }
        let half = DOWN / 2;
        let pieces = data.len().div_ceil(half as usize);
        let length = |piece: usize| (data.len() as u64 - piece as u64 * half).min(half);
        let lengths: Vec<u64> = (0..pieces).map(length).collect();
        let mut values = [0u64; 2];
        let mut asked = 0;
        for (piece, to) in data.chunks_mut(half as usize).enumerate() {
            // The GPU copies the next piece while the host takes this one.
            while asked < pieces && asked < piece + 2 {
                let from = address + asked as u64 * half;
                values[asked % 2] = self.ask(from, lengths[asked], (asked as u64 % 2) * half)?;
                asked += 1;
            }
            self.gpu.wait(values[piece % 2], "copy from the device", self.deadline())?;
            let Some(buffer) = self.transfer.down.as_ref() else { return Err(not_mapped()) };
            let at = (piece % 2) * half as usize;
            let mapped = buffer.allocation.mapped_slice().and_then(|all| all.get(at..at + to.len()));
            to.copy_from_slice(mapped.ok_or_else(not_mapped)?);
        }
        Ok(())
    }

    /// Submits a copy into the download ring.
    fn ask(&mut self, from: u64, bytes: u64, at: u64) -> Result<u64, DeviceError> {
        let (source, offset) = self.resolve(from, bytes)?;
        let slot = self.open(bytes as f64 * 32.0)?;
        self.order(Command::Transfer, [((from, from + bytes), Access::Read)].into_iter(), slot);
        let Some(buffer) = self.transfer.down.as_ref() else { return Err(not_mapped()) };
        let region = vk::BufferCopy::default().src_offset(offset).dst_offset(at).size(bytes);
        // SAFETY: recording; both ranges are of their buffers, which are different; the caller does not use
        // this half for anything else before the copy is done.
        unsafe {
            self.gpu.raw.cmd_copy_buffer(self.slots.all[slot].commands.buffer, source, buffer.raw, &[region])
        };
        self.slots.all[slot].work += bytes as f64 * 32.0;
        self.slots.all[slot].launches += 1;
        self.flush()?.ok_or_else(not_mapped)
    }
}
