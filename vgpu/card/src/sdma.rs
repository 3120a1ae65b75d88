//! Packets of the copy engine (SDMA 5.0; `navi10_sdma_pkt_open.h` of Linux has the layouts).

use std::sync::atomic::Ordering;

use crate::device::Device;
use crate::queue::{Failure, Queue};

const NOP: u32 = 0;
const COPY: u32 = 1;
const WRITE: u32 = 2;
const FENCE: u32 = 5;
const TRAP: u32 = 6;
/// Waits.
pub const POLL_REGMEM: u32 = 8;
const ATOMIC: u32 = 10;
const CONST_FILL: u32 = 11;
const TIMESTAMP: u32 = 13;
const GCR: u32 = 17;

/// Copies a rectangle: operation and sub-operation.
#[cfg(any(test, feature = "fuzz"))]
pub const RECT: u32 = COPY | COPY_RECT << 8;

const COPY_LINEAR: u32 = 0;
const COPY_RECT: u32 = 4;
const ADD64: u32 = 47;
const MAX_DWORDS: usize = 16;
/// Of a plane: 16 bytes, as a power of two.
const LARGEST_ELEMENT: u32 = 4;

/// Does one packet; false if there is none.
pub fn step(device: &'static Device, queue: &Queue) -> Result<bool, Failure> {
    let at = &queue.description;
    let read = queue.index(device, at.read_index)?;
    let position = read.load(Ordering::Acquire);
    let left = queue.index(device, at.write_index)?.load(Ordering::Acquire).saturating_sub(position);
    if left < 4 {
        return Ok(false);
    }
    let mut packet = [0u32; MAX_DWORDS];
    for (i, dword) in packet.iter_mut().enumerate().take((left / 4).min(MAX_DWORDS as u64) as usize) {
        let address = at.ring.wrapping_add(position.wrapping_add(4 * i as u64) % at.bytes);
        *dword = device.vm.word32(address).ok_or(Failure::absent(address))?.load(Ordering::Acquire);
    }
    if device.settings.trace && packet[0] != 0 {
        log!("queue {} at {position:#x}: {packet:x?}", queue.slot);
    }
    let dwords = dwords(&packet).filter(|dwords| 4 * dwords <= left).ok_or_else(|| malformed(&packet))?;
    if !execute(device, queue, &packet)? {
        return Ok(false);
    }
    read.store(position.wrapping_add(4 * dwords), Ordering::Release);
    Ok(true)
}

/// A packet's size; none of one that is not known.
fn dwords(packet: &[u32; MAX_DWORDS]) -> Option<u64> {
    Some(match (packet[0] & 0xff, packet[0] >> 8 & 0xff) {
        (NOP, _) => 1 + u64::from(packet[0] >> 16 & 0x3fff),
        (COPY, COPY_LINEAR) => 7,
        (COPY, COPY_RECT) if packet[0] >> 29 <= LARGEST_ELEMENT => 13,
        // Longer ones would not fit what was fetched; the runtime writes none.
        (WRITE, 0) => Some(4 + written(packet)).filter(|dwords| *dwords <= MAX_DWORDS as u64)?,
        (FENCE, _) => 4,
        (TRAP, _) => 2,
        (POLL_REGMEM, _) => 6,
        (ATOMIC, _) if packet[0] >> 25 == ADD64 => 8,
        (CONST_FILL, _) if packet[0] >> 30 == 2 => 5,
        (TIMESTAMP, _) => 3,
        (GCR, _) => 5,
        _ => return None,
    })
}

/// The dwords that a WRITE carries.
fn written(packet: &[u32; MAX_DWORDS]) -> u64 {
    u64::from(packet[3] & 0xf_ffff) + 1
}

fn malformed(packet: &[u32]) -> Failure {
    log!("the copy engine does not know the packet {packet:08x?}");
    Failure::Queue(crate::aql::error::FORMAT)
}

fn address(packet: &[u32], at: usize) -> u64 {
    u64::from(packet[at]) | u64::from(packet[at + 1]) << 32
}

/// Does a packet that [`dwords`] knows; false if the queue was told to end before it was done.
fn execute(device: &'static Device, queue: &Queue, packet: &[u32; MAX_DWORDS]) -> Result<bool, Failure> {
    let vm = &device.vm;
    let target = |address| vm.target32(address).map_err(Failure::Memory);
    let target64 = |address| vm.target64(address).map_err(Failure::Memory);
    match (packet[0] & 0xff, packet[0] >> 8 & 0xff) {
        (COPY, COPY_LINEAR) => {
            let bytes = u64::from(packet[1] & 0x3f_ffff) + 1;
            vm.copy(address(packet, 5), address(packet, 3), bytes).map_err(Failure::Memory)?;
        }
        (COPY, COPY_RECT) => return copy_rect(device, queue, packet),
        (WRITE, 0) => {
            let data = packet.iter().skip(4).take(written(packet) as usize);
            for (i, dword) in (0..).zip(data) {
                target(address(packet, 1).wrapping_add(4 * i))?.store(*dword, Ordering::Release);
            }
        }
        (FENCE, _) => target(address(packet, 1))?.store(packet[3], Ordering::Release),
        (TRAP, _) => {
            // An event that is gone has no waiters.
            let _ = device.events.set(packet[1] & 0x0fff_ffff);
        }
        (POLL_REGMEM, _) if packet[0] >> 31 == 1 && packet[0] >> 26 & 1 == 0 => {
            let at = address(packet, 1);
            let word = vm.word32(at).ok_or(Failure::absent(at))?;
            let (wanted, mask) = (packet[3], packet[4]);
            let function = packet[0] >> 28 & 7;
            let holds = || compare(function, word.load(Ordering::Acquire) & mask, wanted);
            return Ok(device.progress.wait(holds, || queue.stopping()));
        }
        // Without `mem_poll` it is the flush of the host data path: nothing to do here.
        (POLL_REGMEM, _) => {}
        (ATOMIC, _) => {
            target64(address(packet, 1))?.fetch_add(address(packet, 3), Ordering::AcqRel);
        }
        (CONST_FILL, _) => {
            let bytes = (u64::from(packet[4] & 0x3f_ffff) & !3) + 4;
            vm.fill(address(packet, 1), packet[3], bytes).map_err(Failure::Memory)?;
        }
        (TIMESTAMP, _) => target64(address(packet, 1))?.store(device.ticks(), Ordering::Release),
        // Padding; caches of the card, of which there are none here.
        _ => {}
    }
    Ok(true)
}

/// How a wait for a word of memory compares it; packets of command buffers number it alike.
pub fn compare(function: u32, value: u32, wanted: u32) -> bool {
    match function {
        1 => value < wanted,
        2 => value <= wanted,
        3 => value == wanted,
        4 => value != wanted,
        5 => value >= wanted,
        6 => value > wanted,
        _ => true,
    }
}

/// Address of a plane, and what one row and one slice are apart, in bytes.
struct Plane {
    base: u64,
    pitch: u64,
    slice: u64,
}

impl Plane {
    fn read(packet: &[u32], at: usize, element: u32) -> Self {
        let (pitch, slice) =
            (u64::from(packet[at + 3] >> 13) + 1, u64::from(packet[at + 4] & 0xfff_ffff) + 1);
        let [x, y] = [packet[at + 2] & 0x3fff, packet[at + 2] >> 16 & 0x3fff].map(u64::from);
        let z = u64::from(packet[at + 3] & 0x7ff);
        let base = address(packet, at).wrapping_add((x + y * pitch + z * slice) << element);
        Self { base, pitch: pitch << element, slice: slice << element }
    }
}

/// False if the queue was told to end before it was done: planes may be as large as memory is not.
fn copy_rect(device: &Device, queue: &Queue, packet: &[u32]) -> Result<bool, Failure> {
    let element = packet[0] >> 29;
    let (from, to) = (Plane::read(packet, 1, element), Plane::read(packet, 6, element));
    let [width, height] = [packet[11] & 0x3fff, packet[11] >> 16 & 0x3fff].map(|size| u64::from(size) + 1);
    let depth = u64::from(packet[12] & 0x7ff) + 1;
    for z in 0..depth {
        for y in 0..height {
            if queue.stopping() {
                return Ok(false);
            }
            let row = |plane: &Plane| plane.base.wrapping_add(z * plane.slice + y * plane.pitch);
            device.vm.copy(row(&to), row(&from), width << element).map_err(Failure::Memory)?;
        }
    }
    Ok(true)
}
