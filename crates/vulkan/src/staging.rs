//! Copies between the host and device-local buffers through a ring of host-visible chunks.

use crate::gpu::Gpu;
use crate::memory::{Buffer, Memory};
use crate::ring::Ring;
use ash::vk;
use gpu_allocator::MemoryLocation;
use std::time::Duration;
use wave32_device::Deadline;
use wave32_device::{BufferId, DeviceError};

/// One chunk is copied by the GPU while the host fills or empties the next.
const CHUNK: usize = 4 << 20;
const CHUNKS: usize = 3;

/// Longest wait for one chunk: even PCIe x1 moves 4 MB in 20 ms, so beyond this the device hangs.
const DEADLINE: Duration = Duration::from_secs(10);

/// The chunks; allocated on first use.
#[derive(Default)]
pub(crate) struct Staging {
    buffer: Option<Buffer>,
    /// The timeline value at which each chunk is free again.
    busy_until: [u64; CHUNKS],
}

impl Staging {
    fn prepare(&mut self, gpu: &mut Gpu, memory: &mut Memory) -> Result<(), DeviceError> {
        if self.buffer.is_none() {
            let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
            // Cached host memory: the only kind that the host reads at full speed.
            let made = memory.create(gpu, (CHUNK * CHUNKS) as u64, usage, MemoryLocation::GpuToCpu)?;
            self.buffer = Some(made);
        }
        Ok(())
    }

    /// Copies `data` to byte `offset` of the buffer and waits until it is there.
    pub(crate) fn write(
        &mut self,
        gpu: &mut Gpu,
        memory: &mut Memory,
        ring: &mut Ring,
        (target, offset): (BufferId, u64),
        data: &[u8],
    ) -> Result<(), DeviceError> {
        self.prepare(gpu, memory)?;
        let target = memory.get(target)?.raw;
        let Some(buffer) = self.buffer.as_mut() else { return Err(no_chunks()) };
        let mut last = 0;
        for (number, piece) in data.chunks(CHUNK).enumerate() {
            let (chunk, done) = (number % CHUNKS, (number * CHUNK) as u64);
            gpu.wait(self.busy_until[chunk], "copy to the device", Deadline::after(DEADLINE))?;
            let at = chunk * CHUNK;
            let mapped = buffer.mapped_mut().and_then(|bytes| bytes.get_mut(at..at + piece.len()));
            mapped.ok_or_else(no_chunks)?.copy_from_slice(piece);
            let copy = region(at as u64, offset + done, piece.len());
            last = submit_copy(gpu, ring, buffer.raw, target, copy)?;
            self.busy_until[chunk] = last;
        }
        gpu.wait(last, "copy to the device", Deadline::after(DEADLINE))
    }

    /// Copies from byte `offset` of the buffer into `data`.
    pub(crate) fn read(
        &mut self,
        gpu: &mut Gpu,
        memory: &mut Memory,
        ring: &mut Ring,
        (source, offset): (BufferId, u64),
        data: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.prepare(gpu, memory)?;
        let source = memory.get(source)?.raw;
        let Some(buffer) = self.buffer.as_ref() else { return Err(no_chunks()) };
        let lengths: Vec<usize> = data.chunks(CHUNK).map(<[u8]>::len).collect();
        let mut asked = 0;
        for (number, piece) in data.chunks_mut(CHUNK).enumerate() {
            // Keep every chunk busy: ask for those ahead before waiting for this one.
            while asked < lengths.len() && asked < number + CHUNKS {
                let chunk = asked % CHUNKS;
                let copy = region(offset + (asked * CHUNK) as u64, (chunk * CHUNK) as u64, lengths[asked]);
                self.busy_until[chunk] = submit_copy(gpu, ring, source, buffer.raw, copy)?;
                asked += 1;
            }
            let chunk = number % CHUNKS;
            gpu.wait(self.busy_until[chunk], "copy from the device", Deadline::after(DEADLINE))?;
            let at = chunk * CHUNK;
            let mapped = buffer.allocation.mapped_slice().and_then(|bytes| bytes.get(at..at + piece.len()));
            piece.copy_from_slice(mapped.ok_or_else(no_chunks)?);
        }
        Ok(())
    }

    /// Destroys the chunks; nothing may be in flight.
    pub(crate) fn destroy(&mut self, gpu: &Gpu, memory: &mut Memory) {
        if let Some(buffer) = self.buffer.take() {
            memory.destroy_buffer(gpu, buffer);
        }
    }
}

fn no_chunks() -> DeviceError {
    DeviceError::Driver { call: "vkMapMemory", code: "host-visible memory is not mapped".into() }
}

fn region(from: u64, to: u64, len: usize) -> vk::BufferCopy {
    vk::BufferCopy::default().src_offset(from).dst_offset(to).size(len as u64)
}

/// Submits one copy, ordered after everything before it and before everything after.
fn submit_copy(
    gpu: &mut Gpu,
    ring: &mut Ring,
    from: vk::Buffer,
    to: vk::Buffer,
    copy: vk::BufferCopy,
) -> Result<u64, DeviceError> {
    let recording = ring.begin(gpu, Deadline::after(DEADLINE))?;
    recording.fence(gpu);
    // SAFETY: recording; the caller checked both ranges against their buffers, which are different.
    unsafe { gpu.raw.cmd_copy_buffer(recording.commands.buffer, from, to, &[copy]) };
    recording.fence(gpu);
    Ok(ring.submit(gpu, recording)?.value)
}
