//! A queue on the caller's streams and memory: what a drop-in for a vendor's library lives on.
//!
//! Work of one queue runs in the order of its calls, whichever streams they name: a stream that follows another waits for
//! it on the card, since both use the queue's own memory. A stream that is being captured into a graph is neither waited
//! for nor made to wait; memory that its launches use is theirs for good, since the graph may run at any time.

use crate::RawStream;
use crate::ffi::{CAPTURE_RELAXED, Pointer, PointerAttributes, Status};
use crate::gpu::Gpu;
use std::ffi::c_int;
use std::ptr::null_mut;
use wave32_device::DeviceError;

/// The first runtime with today's numbers of `hipMemoryType`.
const ROCM_6: c_int = 60_000_000;

/// The first runtime that is known to capture what `hipModuleLaunchKernel` launches, rather than to run it at once.
const CAPTURES: c_int = 50_600_000;

/// Bytes past the end of an allocation that belong to it all the same: no runtime hands out less at a time.
const GRAIN: u64 = 16;

/// Ranges of the caller's memory that were found good since the last look.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    known: Vec<(u64, u64)>,
}

impl Lent {
    /// Forgets all: the caller may have freed them.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }

    /// That the range is memory of the card, of whoever allocated it.
    ///
    /// # Errors
    /// `Misuse` where the range is not memory of the card; it says what it is.
    pub(crate) fn check(&mut self, gpu: &Gpu, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let within = |&(start, size): &(u64, u64)| {
            address >= start && address.checked_add(bytes).is_some_and(|end| end - start <= size)
        };
        if self.known.iter().any(within) {
            return Ok(());
        }
        gpu.is_on_card(address)?;
        let found = gpu.allocation(address).filter(|found| within(found));
        // A range may be mapped piece by piece, as PyTorch's expandable segments are: then its end tells.
        if found.is_none()
            && gpu.is_on_card(address.saturating_add((bytes.max(1) - 1) / GRAIN * GRAIN)).is_err()
        {
            return Err(DeviceError::Misuse(format!(
                "{bytes} bytes at {address:#x} reach beyond memory of the card"
            )));
        }
        self.known.push(found.unwrap_or((address, bytes)));
        Ok(())
    }
}

impl Gpu {
    /// That an address is one of this card's memory, of whoever allocated it.
    fn is_on_card(&self, address: u64) -> Result<(), DeviceError> {
        let mut attributes = PointerAttributes {
            kind: -1,
            device: -1,
            device_pointer: null_mut(),
            host_pointer: null_mut(),
            managed: 0,
            flags: 0,
        };
        let misuse = |what: &str| Err(DeviceError::Misuse(format!("{address:#x} is {what}")));
        if address == 0 {
            return Err(DeviceError::Misuse("a null pointer where memory of the card is meant".into()));
        }
        // SAFETY: writes one struct of that size; the address is only looked up.
        let answer = unsafe { (self.api.pointer_attributes)(&mut attributes, address as *const _) };
        if self.failed(answer) {
            return misuse("no memory that the HIP runtime knows; pass memory of hipMalloc");
        }
        let is_device = match self.version >= ROCM_6 {
            true => attributes.kind == 2 || attributes.kind == 3,
            false => attributes.kind == 1,
        };
        if !is_device && attributes.managed == 0 {
            return misuse("host memory; pass memory of hipMalloc");
        }
        if attributes.device != self.adapter.index && attributes.managed == 0 {
            return misuse(&format!("memory of device {}, not of {}", attributes.device, self.adapter.index));
        }
        Ok(())
    }

    /// Start and bytes of the allocation that an address is in, if the runtime knows it.
    fn allocation(&self, address: u64) -> Option<(u64, u64)> {
        let (mut start, mut size): (Pointer, usize) = (null_mut(), 0);
        // SAFETY: writes an address and a size; the address is only looked up.
        let answer = unsafe { (self.api.address_range)(&mut start, &mut size, address as Pointer) };
        (!self.failed(answer)).then(|| (start as u64, (size as u64).next_multiple_of(GRAIN)))
    }

    /// True for a failure, which is then no longer the thread's last error: the caller did not make it.
    fn failed(&self, answer: Status) -> bool {
        if answer != 0 {
            // SAFETY: no arguments.
            unsafe { (self.api.last_error)() };
        }
        answer != 0
    }

    /// Puts work on this stream from now on, behind what is on `last`.
    ///
    /// # Errors
    /// `Unsupported` for a stream that is being captured by a runtime that cannot; `Lost`, `Driver`.
    pub(crate) fn turn_to(&mut self, stream: RawStream, last: Option<RawStream>) -> Result<(), DeviceError> {
        let mut state = 0;
        // SAFETY: writes one int; the stream is alive by the promise of `RawStream`.
        let answer = unsafe { (self.api.stream_capturing)(stream.0, &mut state) };
        // Asking about the null stream fails while another is captured.
        let capturing = !self.failed(answer) && state != 0;
        if capturing && self.version < CAPTURES {
            return Err(DeviceError::Unsupported(format!(
                "HIP {} runs kernels of modules at once instead of capturing them into a graph; ROCm 5.6 captures them",
                self.api.version()
            )));
        }
        if let Some(last) = last.filter(|last| last.0 != stream.0 && !capturing) {
            // A stream that is gone has nothing left to wait for.
            if let Ok(event) = self.record_on(last.0) {
                // SAFETY: stream and event are alive.
                let answer = unsafe { (self.api.stream_wait)(stream.0, event.0, 0) };
                self.recycle(event);
                self.check("hipStreamWaitEvent", answer)?;
            }
        }
        (self.stream, self.capturing) = (stream.0, capturing);
        Ok(())
    }

    /// This thread's manner of capturing, made to allow allocations until [`Gpu::capture_as_before`].
    pub(crate) fn capture_relaxed(&self) -> c_int {
        let mut mode = CAPTURE_RELAXED;
        // SAFETY: exchanges one int.
        let answer = unsafe { (self.api.capture_mode)(&mut mode) };
        if self.failed(answer) { CAPTURE_RELAXED } else { mode }
    }

    /// Puts it back.
    pub(crate) fn capture_as_before(&self, mut mode: c_int) {
        // SAFETY: exchanges one int.
        let answer = unsafe { (self.api.capture_mode)(&mut mode) };
        self.failed(answer);
    }
}
