//! Memory on the device, and the clock there.

use crate::ffi::Pointer;
use crate::protocol::{Finding, SolverVerdict};
use crate::vendor::Vendor;
use std::ffi::c_int;
use std::ptr::null_mut;
use wave32_verify::bands::{GUARD, fill_guard, guard_damage};

/// `hipMemcpyHostToDevice` and `hipMemcpyDeviceToHost`.
const TO_DEVICE: c_int = 1;
const TO_HOST: c_int = 2;

/// A buffer on the device with guard bands around it. Freed when dropped.
pub struct Memory<'v> {
    vendor: &'v Vendor,
    base: Pointer,
    bytes: usize,
}

impl<'v> Memory<'v> {
    /// A buffer that holds `data`.
    ///
    /// # Errors
    /// Out of memory, or what else HIP says.
    pub fn new(vendor: &'v Vendor, data: &[u8]) -> Result<Self, Finding> {
        let lead = GUARD as usize;
        let mut image = vec![0; data.len() + 2 * lead];
        fill_guard(&mut image[..lead]);
        image[lead..lead + data.len()].copy_from_slice(data);
        fill_guard(&mut image[lead + data.len()..]);
        let mut base = null_mut();
        // SAFETY: writes one pointer.
        vendor.hip("hipMalloc", unsafe { (vendor.libraries.hip.malloc)(&mut base, image.len()) })?;
        let memory = Self { vendor, base, bytes: data.len() };
        // SAFETY: both sides have `image.len()` bytes.
        let status =
            unsafe { (vendor.libraries.hip.memcpy)(base, image.as_ptr().cast(), image.len(), TO_DEVICE) };
        vendor.hip("hipMemcpy", status)?;
        Ok(memory)
    }

    pub(crate) fn address(&self) -> Pointer {
        self.base.wrapping_byte_add(GUARD as usize)
    }

    /// What it holds now.
    ///
    /// # Errors
    /// `Wrong` where a guard band was written, or what HIP says.
    pub fn read(&self, what: &str) -> Result<Vec<u8>, Finding> {
        let lead = GUARD as usize;
        let mut image = vec![0u8; self.bytes + 2 * lead];
        let hip = &self.vendor.libraries.hip;
        // SAFETY: both sides have `image.len()` bytes.
        let status = unsafe { (hip.memcpy)(image.as_mut_ptr().cast(), self.base, image.len(), TO_HOST) };
        self.vendor.hip("hipMemcpy", status)?;
        let (before, after) = (&image[..lead], &image[lead + self.bytes..]);
        let damage = guard_damage(before, what, "before").or_else(|| guard_damage(after, what, "after"));
        if let Some(text) = damage {
            return Err(Finding::of(SolverVerdict::Wrong, text));
        }
        image.truncate(lead + self.bytes);
        image.drain(..lead);
        Ok(image)
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: `base` came from hipMalloc and is freed once.
        unsafe { (self.vendor.libraries.hip.free)(self.base) };
    }
}

/// Two events around a launch on the default stream, which is MIOpen's.
pub(crate) struct Timer<'v> {
    vendor: &'v Vendor,
    events: [Pointer; 2],
}

impl<'v> Timer<'v> {
    pub(crate) fn start(vendor: &'v Vendor) -> Result<Self, Finding> {
        let hip = &vendor.libraries.hip;
        let mut timer = Self { vendor, events: [null_mut(); 2] };
        for event in &mut timer.events {
            // SAFETY: writes one pointer.
            vendor.hip("hipEventCreate", unsafe { (hip.event_create)(event) })?;
        }
        // SAFETY: a live event; null is the default stream.
        vendor.hip("hipEventRecord", unsafe { (hip.event_record)(timer.events[0], null_mut()) })?;
        Ok(timer)
    }

    pub(crate) fn stop(self) -> Result<f64, Finding> {
        let (hip, [start, end]) = (&self.vendor.libraries.hip, self.events);
        let mut ms = 0f32;
        // SAFETY: live events; null is the default stream.
        self.vendor.hip("hipEventRecord", unsafe { (hip.event_record)(end, null_mut()) })?;
        // SAFETY: a live event.
        self.vendor.hip("waiting for it", unsafe { (hip.event_synchronize)(end) })?;
        // SAFETY: live events that have happened; writes one number.
        self.vendor.hip("hipEventElapsedTime", unsafe { (hip.event_elapsed)(&mut ms, start, end) })?;
        Ok(f64::from(ms))
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        for event in self.events.into_iter().filter(|e| !e.is_null()) {
            // SAFETY: made by hipEventCreate, destroyed once.
            unsafe { (self.vendor.libraries.hip.event_destroy)(event) };
        }
    }
}
