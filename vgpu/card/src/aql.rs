//! AQL packets ("HSA Platform System Architecture Specification" 2.9; AMD's own in `hsa_ext_amd.h`).

use std::sync::atomic::Ordering;

use crate::device::Device;
use crate::queue::{Failure, Queue};
use crate::signal;

const BYTES: u64 = 64;
const INVALID: u16 = 1;
/// From the write index, whose address a program gives, to `queue_inactive_signal` in `amd_queue_t`.
const WRITE_INDEX: u64 = 56;
const READ_INDEX: u64 = 128;
const INACTIVE_SIGNAL: u64 = 192;

/// Codes of the runtime's handler for queue errors.
pub mod error {
    pub const CODE: u64 = 8;
    pub const FORMAT: u64 = 32;
    pub const VENDOR_FORMAT: u64 = 256;
    pub const ILLEGAL_INSTRUCTION: u64 = 0x4000_0000;
    pub const TRAP: u64 = 0x8000_0000;
}

/// A kernel dispatch packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dispatch {
    /// Where the packet lies; a kernel may ask for it.
    pub packet: u64,
    /// Work-items of a workgroup.
    pub workgroup: [u16; 3],
    /// Work-items of the grid.
    pub grid: [u32; 3],
    /// Scratch of a work-item in bytes.
    pub private_bytes: u32,
    /// LDS of a workgroup in bytes, static and dynamic.
    pub group_bytes: u32,
    /// Address of the kernel's descriptor.
    pub kernel_object: u64,
    /// Address of its arguments.
    pub kernarg: u64,
    /// Number of the packet in its queue.
    pub dispatch_id: u64,
    /// Address of the queue's `amd_queue_t`.
    pub queue: u64,
}

struct Packet([u8; BYTES as usize]);

impl Packet {
    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }
    fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) | u32::from(self.u16(at + 2)) << 16
    }
    fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) | u64::from(self.u32(at + 4)) << 32
    }

    fn dispatch(&self, packet: u64, dispatch_id: u64, queue: u64) -> Dispatch {
        let dimensions = self.u16(2) & 3;
        Dispatch {
            packet,
            workgroup: [0, 1, 2]
                .map(|axis| if axis < dimensions { self.u16(4 + 2 * usize::from(axis)) } else { 1 }),
            grid: [0, 1, 2]
                .map(|axis| if axis < dimensions { self.u32(12 + 4 * usize::from(axis)) } else { 1 }),
            private_bytes: self.u32(24),
            group_bytes: self.u32(28),
            kernel_object: self.u64(32),
            kernarg: self.u64(40),
            dispatch_id,
            queue,
        }
    }
}

/// Does one packet; false if there is none.
pub fn step(device: &'static Device, queue: &Queue) -> Result<bool, Failure> {
    let at = &queue.description;
    let read = queue.index(device, at.read_index)?;
    let number = read.load(Ordering::Acquire);
    if number >= queue.index(device, at.write_index)?.load(Ordering::Acquire) {
        return Ok(false);
    }
    let address = at.ring.wrapping_add(number.wrapping_mul(BYTES) % at.bytes);
    let head = device.vm.word32(address).ok_or(Failure::absent(address))?;
    if head.load(Ordering::Acquire) as u16 & 0xff == INVALID {
        return Ok(false);
    }
    let mut packet = Packet([0; BYTES as usize]);
    device.vm.get(address, &mut packet.0).ok_or(Failure::absent(address))?;
    if device.settings.trace {
        log!("queue {} packet {number}: {:x?}", queue.slot, packet.0);
    }
    let start = device.ticks();
    if !execute(device, queue, &packet, address, number)? {
        return Ok(false);
    }
    let done = packet.u64(56);
    head.store(u32::from(INVALID), Ordering::Release);
    read.store(number.wrapping_add(1), Ordering::Release);
    if done != 0 {
        signal::complete(device, done, start, device.ticks().max(start + 1))?;
    }
    Ok(true)
}

/// False if the queue was told to end while it waited.
fn execute(
    device: &'static Device,
    queue: &Queue,
    packet: &Packet,
    address: u64,
    number: u64,
) -> Result<bool, Failure> {
    let stop = || queue.stopping();
    match packet.u16(0) & 0xff {
        0 => match packet.0[2] {
            // PM4: the runtime flushes the instruction cache with it.
            1 => device.executor.forget_code(),
            2 => return wait(device, stop, || condition(device, packet)),
            _ => return Err(Failure::Queue(error::VENDOR_FORMAT)),
        },
        2 => {
            let dispatch =
                packet.dispatch(address, number, queue.description.write_index.wrapping_sub(WRITE_INDEX));
            device.executor.run(device, &dispatch)?;
        }
        kind @ (3 | 5) => return wait(device, stop, || barrier(device, packet, kind == 3)),
        _ => return Err(Failure::Queue(error::FORMAT)),
    }
    Ok(true)
}

fn wait(
    device: &Device,
    stop: impl Fn() -> bool,
    holds: impl Fn() -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    if !device.progress.wait(|| !matches!(holds(), Ok(false)), stop) {
        return Ok(false);
    }
    holds()?;
    Ok(true)
}

/// Whether all, or any, of a barrier packet's signals are zero; without signals there is nothing to wait for.
fn barrier(device: &Device, packet: &Packet, all: bool) -> Result<bool, Failure> {
    let (mut zero, mut count) = (0, 0);
    for handle in (0..5).map(|i| packet.u64(8 + 8 * i)).filter(|handle| *handle != 0) {
        count += 1;
        zero += usize::from(signal::value(device, handle)? == 0);
    }
    Ok(count == 0 || zero == count || (!all && zero > 0))
}

/// Whether a barrier-value packet's condition holds.
fn condition(device: &Device, packet: &Packet) -> Result<bool, Failure> {
    let handle = packet.u64(8);
    if handle == 0 {
        return Ok(true);
    }
    let value = signal::value(device, handle)? & packet.u64(24) as i64;
    let wanted = packet.u64(16) as i64;
    match packet.u32(32) {
        0 => Ok(value == wanted),
        1 => Ok(value != wanted),
        2 => Ok(value < wanted),
        3 => Ok(value >= wanted),
        _ => Err(Failure::Queue(error::VENDOR_FORMAT)),
    }
}

/// Tells the runtime's handler, as the firmware and the trap handler do.
pub fn raise_queue_error(device: &Device, queue: &Queue, code: u64) {
    let base = queue.description.write_index.wrapping_sub(WRITE_INDEX);
    if queue.description.read_index != base.wrapping_add(READ_INDEX) {
        log!("queue {}: error {code:#x}, and nobody to tell", queue.slot);
        return;
    }
    if let Some(handle) = device.vm.word64(base.wrapping_add(INACTIVE_SIGNAL)) {
        let _ = signal::store(device, handle.load(Ordering::Acquire), code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dispatch_is_read_as_the_standard_lays_it_out() {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&[
            2, 0, 2, 0, 64, 0, 2, 0, 9, 0, 0, 0, 0, 1, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 16, 0, 0, 0, 0, 4, 0, 0,
        ]);
        bytes[32..48].copy_from_slice(&[0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0]);
        let dispatch = Packet(bytes).dispatch(0x9000, 3, 0x8000);
        let wanted = Dispatch {
            packet: 0x9000,
            workgroup: [64, 2, 1],
            grid: [256, 8, 1],
            private_bytes: 16,
            group_bytes: 1024,
            kernel_object: 0x10000,
            kernarg: 0x20000,
            dispatch_id: 3,
            queue: 0x8000,
        };
        assert_eq!(dispatch, wanted, "a third dimension counts only if there are three");
    }
}
