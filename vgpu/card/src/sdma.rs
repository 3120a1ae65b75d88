//! Packets of the copy engine (SDMA 5.0; `navi10_sdma_pkt_open.h` of Linux has the layouts).

use std::sync::atomic::Ordering;

use crate::device::{Device, ticks};
use crate::queue::{Failure, Queue};

const NOP: u32 = 0;
const COPY: u32 = 1;
const WRITE: u32 = 2;
const FENCE: u32 = 5;
const TRAP: u32 = 6;
const POLL_REGMEM: u32 = 8;
const ATOMIC: u32 = 10;
const CONST_FILL: u32 = 11;
const TIMESTAMP: u32 = 13;
const GCR: u32 = 17;

const COPY_LINEAR: u32 = 0;
const COPY_RECT: u32 = 4;
const ADD64: u32 = 47;
const MOST_DWORDS: usize = 16;

/// Does one packet; false if there is none.
pub fn step(device: &'static Device, queue: &Queue) -> Result<bool, Failure> {
    let at = &queue.description;
    let read = queue.index(device, at.read_index)?;
    let position = read.load(Ordering::Acquire);
    let left = queue.index(device, at.write_index)?.load(Ordering::Acquire).saturating_sub(position);
    if left < 4 {
        return Ok(false);
    }
    let mut packet = [0u32; MOST_DWORDS];
    for (i, dword) in packet.iter_mut().enumerate().take((left / 4).min(MOST_DWORDS as u64) as usize) {
        let address = at.ring + (position + 4 * i as u64) % at.bytes;
        *dword = device.vm.word32(address).ok_or(Failure::absent(address))?.load(Ordering::Acquire);
    }
    if device.settings.trace && packet[0] != 0 {
        eprintln!("wave32-vgpu: queue {} at {position:#x}: {packet:x?}", queue.slot);
    }
    let Some(dwords) = execute(device, queue, &packet)? else { return Ok(false) };
    if 4 * dwords > left {
        return Err(malformed(&packet));
    }
    read.store(position + 4 * dwords, Ordering::Release);
    Ok(true)
}

fn malformed(packet: &[u32]) -> Failure {
    eprintln!("wave32-vgpu: the copy engine does not know the packet {packet:08x?}");
    Failure::Queue(crate::aql::error::FORMAT)
}

fn address(packet: &[u32], at: usize) -> u64 {
    u64::from(packet[at]) | u64::from(packet[at + 1]) << 32
}

/// The packet's size in dwords; none if the queue was told to end while it waited.
fn execute(
    device: &'static Device,
    queue: &Queue,
    packet: &[u32; MOST_DWORDS],
) -> Result<Option<u64>, Failure> {
    let vm = &device.vm;
    let word32 = |address| vm.word32(address).ok_or(Failure::absent(address));
    let word64 = |address| vm.word64(address).ok_or(Failure::absent(address));
    let (op, sub_op) = (packet[0] & 0xff, packet[0] >> 8 & 0xff);
    Ok(Some(match (op, sub_op) {
        (NOP, _) => 1 + u64::from(packet[0] >> 16 & 0x3fff),
        (COPY, COPY_LINEAR) => {
            let bytes = u64::from(packet[1] & 0x3f_ffff) + 1;
            vm.copy(address(packet, 5), address(packet, 3), bytes).map_err(Failure::absent)?;
            7
        }
        (COPY, COPY_RECT) => {
            copy_rect(device, packet)?;
            13
        }
        (WRITE, 0) => {
            let count = u64::from(packet[3] & 0xf_ffff) + 1;
            // Longer ones would not fit what was fetched; the runtime writes none.
            let data = packet.get(4..4 + count as usize).ok_or_else(|| malformed(packet))?;
            for (i, dword) in data.iter().enumerate() {
                word32(address(packet, 1) + 4 * i as u64)?.store(*dword, Ordering::Release);
            }
            4 + count
        }
        (FENCE, _) => {
            word32(address(packet, 1))?.store(packet[3], Ordering::Release);
            4
        }
        (TRAP, _) => {
            // An event that is gone has no waiters.
            let _ = device.events.set(packet[1] & 0x0fff_ffff);
            2
        }
        (POLL_REGMEM, _) => {
            // Without `mem_poll` it is the flush of the host data path: nothing to do here.
            if packet[0] >> 31 == 1 && packet[0] >> 26 & 1 == 0 {
                let word = word32(address(packet, 1))?;
                let (wanted, mask) = (packet[3], packet[4]);
                let function = packet[0] >> 28 & 7;
                let holds = || compare(function, word.load(Ordering::Acquire) & mask, wanted);
                if !device.progress.wait(holds, || queue.stopping()) {
                    return Ok(None);
                }
            }
            6
        }
        (ATOMIC, _) if packet[0] >> 25 == ADD64 => {
            word64(address(packet, 1))?.fetch_add(address(packet, 3), Ordering::AcqRel);
            8
        }
        (CONST_FILL, _) if packet[0] >> 30 == 2 => {
            let bytes = (u64::from(packet[4] & 0x3f_ffff) & !3) + 4;
            vm.fill(address(packet, 1), packet[3], bytes).map_err(Failure::absent)?;
            5
        }
        (TIMESTAMP, _) => {
            word64(address(packet, 1))?.store(ticks(), Ordering::Release);
            3
        }
        // Caches of the card: there are none here.
        (GCR, _) => 5,
        _ => return Err(malformed(packet)),
    }))
}

fn compare(function: u32, value: u32, wanted: u32) -> bool {
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
        let base = address(packet, at) + ((x + y * pitch + z * slice) << element);
        Self { base, pitch: pitch << element, slice: slice << element }
    }
}

fn copy_rect(device: &Device, packet: &[u32]) -> Result<(), Failure> {
    let element = packet[0] >> 29;
    let (from, to) = (Plane::read(packet, 1, element), Plane::read(packet, 6, element));
    let [width, height] = [packet[11] & 0x3fff, packet[11] >> 16 & 0x3fff].map(|size| u64::from(size) + 1);
    let depth = u64::from(packet[12] & 0x7ff) + 1;
    for z in 0..depth {
        for y in 0..height {
            let row = |plane: &Plane| plane.base + z * plane.slice + y * plane.pitch;
            device.vm.copy(row(&to), row(&from), width << element).map_err(Failure::absent)?;
        }
    }
    Ok(())
}
