//! Copies between the host and the card through a ring of pinned chunks.
//!
//! Only copies from and to pinned memory are truly asynchronous: with any other the runtime waits by itself, without a
//! deadline.

use crate::ffi::{DEVICE_TO_HOST, HOST_NON_COHERENT, HOST_TO_DEVICE, Pointer};
use crate::gpu::{Event, Gpu};
use std::collections::VecDeque;
use std::ptr::null_mut;
use wave32_device::{Deadline, DeviceError};

/// One chunk is copied by the card while the host fills or empties the next.
const CHUNK: usize = 4 << 20;
const CHUNKS: usize = 3;

/// A pinned chunk.
struct Chunk {
    host: Pointer,
    /// Bytes from its start that copies on their way use.
    used: usize,
    /// When they are done.
    busy: Option<Event>,
}

/// The chunks; made on first use.
#[derive(Default)]
pub(crate) struct Staging {
    chunks: Vec<Chunk>,
    /// The one being filled.
    now: usize,
}

impl Staging {
    fn prepare(&mut self, gpu: &mut Gpu) -> Result<(), DeviceError> {
        while self.chunks.len() < CHUNKS {
            let mut host = null_mut();
            // SAFETY: writes one address.
            let answer = unsafe { (gpu.api.host_malloc)(&mut host, CHUNK, HOST_NON_COHERENT) };
            gpu.check("hipHostMalloc", answer)?;
            self.chunks.push(Chunk { host, used: 0, busy: None });
        }
        Ok(())
    }

    /// Goes on to the next chunk, once the copies that use it are done.
    fn turn(&mut self, gpu: &mut Gpu, what: &str, deadline: Deadline) -> Result<(), DeviceError> {
        if self.chunks[self.now].used > 0 && self.chunks[self.now].busy.is_none() {
            self.chunks[self.now].busy = Some(gpu.record()?);
        }
        self.now = (self.now + 1) % CHUNKS;
        let chunk = &mut self.chunks[self.now];
        if let Some(event) = chunk.busy.take() {
            gpu.wait(event, what, deadline)?;
            gpu.recycle(event);
        }
        chunk.used = 0;
        Ok(())
    }

    /// Puts copies of `data` to `address` on the stream; returns once `data` may be changed.
    ///
    /// # Errors
    /// `Timeout` where earlier copies do not end; `Lost`, `OutOfMemory`, `Driver`.
    pub(crate) fn write(
        &mut self,
        gpu: &mut Gpu,
        address: u64,
        data: &[u8],
        deadline: Deadline,
    ) -> Result<(), DeviceError> {
        self.prepare(gpu)?;
        let mut done = 0;
        while done < data.len() {
            if self.chunks[self.now].used == CHUNK || self.chunks[self.now].busy.is_some() {
                self.turn(gpu, "copy to the device", deadline)?;
            }
            let chunk = &mut self.chunks[self.now];
            let piece = &data[done..data.len().min(done + CHUNK - chunk.used)];
            // SAFETY: the chunk has CHUNK bytes from `host`; those from `used` on are in no copy's way, and `piece`
            // ends where the chunk does at the latest.
            let from = unsafe {
                let from = chunk.host.cast::<u8>().add(chunk.used);
                from.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
                from
            };
            chunk.used += piece.len();
            let to = (address + done as u64) as Pointer;
            // SAFETY: both ranges are as long as `piece`: the chunk's is pinned and stays as it is until the copy is
            // done, the caller checked the card's.
            let answer =
                unsafe { (gpu.api.memcpy_async)(to, from.cast(), piece.len(), HOST_TO_DEVICE, gpu.stream) };
            gpu.check("hipMemcpyAsync", answer)?;
            done += piece.len();
        }
        Ok(())
    }

    /// Copies from `address` into `data` after all that is on the stream; waits.
    ///
    /// # Errors
    /// As [`Staging::write`].
    pub(crate) fn read(
        &mut self,
        gpu: &mut Gpu,
        address: u64,
        data: &mut [u8],
        deadline: Deadline,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "copy from the device";
        self.prepare(gpu)?;
        let (mut asked, mut done, mut flying) = (0, 0, VecDeque::with_capacity(CHUNKS));
        while done < data.len() {
            while asked < data.len() && flying.len() < CHUNKS - 1 {
                self.turn(gpu, WHAT, deadline)?;
                let chunk = &mut self.chunks[self.now];
                let length = CHUNK.min(data.len() - asked);
                let from = (address + asked as u64) as Pointer;
                // SAFETY: the chunk is pinned, has CHUNK bytes and is in no other copy's way; the caller checked the
                // card's range.
                let answer =
                    unsafe { (gpu.api.memcpy_async)(chunk.host, from, length, DEVICE_TO_HOST, gpu.stream) };
                gpu.check("hipMemcpyAsync", answer)?;
                chunk.busy = Some(gpu.record()?);
                flying.push_back((self.now, length));
                asked += length;
            }
            let Some((index, length)) = flying.pop_front() else { break };
            let chunk = &mut self.chunks[index];
            if let Some(event) = chunk.busy.take() {
                gpu.wait(event, WHAT, deadline)?;
                gpu.recycle(event);
            }
            // SAFETY: the copy into these bytes is done, and nothing writes there until the chunk is handed out again.
            let bytes = unsafe { std::slice::from_raw_parts(chunk.host.cast::<u8>(), length) };
            data[done..done + length].copy_from_slice(bytes);
            done += length;
        }
        Ok(())
    }

    /// Frees the chunks; nothing may be in flight.
    pub(crate) fn free(&mut self, gpu: &mut Gpu) {
        for chunk in self.chunks.drain(..) {
            if let Some(event) = chunk.busy {
                gpu.recycle(event);
            }
            // SAFETY: made by hipHostMalloc; nothing refers to it any more.
            let answer = unsafe { (gpu.api.host_free)(chunk.host) };
            if let Err(error) = gpu.check("hipHostFree", answer) {
                log::warn!("freeing pinned memory: {error}");
            }
        }
    }
}
