//! Memory of the card: made, given back, counted.

use crate::ffi::Pointer;
use crate::gpu::Gpu;
use std::ptr::null_mut;
use wave32_device::DeviceError;

/// How much of the card's memory is held.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    in_use: u64,
    cap: Option<u64>,
}

impl Memory {
    /// None yet; `cap` bounds the bytes held at once.
    pub(crate) fn new(cap: Option<u64>) -> Self {
        Self { in_use: 0, cap }
    }

    /// The address of `bytes` new bytes.
    ///
    /// # Errors
    /// `Misuse` for 0 bytes; `OutOfMemory`; `Lost`; `Driver` where a HIP call fails.
    pub(crate) fn alloc(&mut self, gpu: &mut Gpu, bytes: u64) -> Result<u64, DeviceError> {
        if bytes == 0 {
            return Err(DeviceError::Misuse("a buffer has at least 1 byte".into()));
        }
        let out_of_memory = DeviceError::OutOfMemory { requested: bytes, in_use: self.in_use };
        let most = self.cap.unwrap_or(u64::MAX).min(gpu.adapter.info.memory_bytes);
        // Not left to the runtime: some releases round sizes up without looking.
        if self.in_use.checked_add(bytes).is_none_or(|total| total > most) {
            return Err(out_of_memory);
        }
        let mut made: Pointer = null_mut();
        let size =
            usize::try_from(bytes).map_err(|_| DeviceError::OutOfMemory { requested: bytes, in_use: 0 })?;
        // SAFETY: writes one address.
        let answer = unsafe { (gpu.api.malloc)(&mut made, size) };
        match gpu.check("hipMalloc", answer) {
            Err(DeviceError::OutOfMemory { .. }) => return Err(out_of_memory),
            other => other?,
        }
        if made.is_null() {
            return Err(out_of_memory);
        }
        self.in_use += bytes;
        Ok(made as u64)
    }

    /// Gives memory of [`Memory::alloc`] back, which nothing in flight uses: the runtime waits for the whole card
    /// otherwise, without a deadline.
    pub(crate) fn free(&mut self, gpu: &mut Gpu, address: u64, bytes: u64) {
        // SAFETY: made by hipMalloc, and given back once.
        let answer = unsafe { (gpu.api.free)(address as Pointer) };
        match gpu.check("hipFree", answer) {
            Ok(()) => self.in_use -= bytes,
            Err(error) => log::warn!("freeing {bytes} bytes: {error}"),
        }
    }
}
