//! KFD's ioctls (`include/uapi/linux/kfd_ioctl.h` of Linux): the structures, and what each does here.

use std::time::Duration;

use crate::device::Device;
use crate::errno::{Errno, Result};
use crate::events::Wait;
use crate::memory::{END_OF_ADDRESSES, FIRST_ADDRESS};
use crate::queue::{Description, Kind, Queue};
use crate::request::{Argument, args, call};
use crate::topology::GPU_ID;
use crate::user;

/// 1.13: memory that is left can be asked for (from 1.9); events have no ages (from 1.14).
const VERSION: [u32; 2] = [1, 13];

args! {
    GetVersion { major: u32, minor: u32 }
    CreateQueue {
        ring: u64, write_pointer: u64, read_pointer: u64, doorbell_offset: u64,
        ring_size: u32, gpu_id: u32, kind: u32, percentage: u32, priority: u32, queue_id: u32,
        eop: u64, eop_size: u64, context: u64, context_size: u32, control_stack_size: u32,
    }
    DestroyQueue { queue_id: u32, pad: u32 }
    UpdateQueue { ring: u64, queue_id: u32, ring_size: u32, percentage: u32, priority: u32 }
    GetClockCounters { gpu: u64, cpu: u64, system: u64, frequency: u64, gpu_id: u32, pad: u32 }
    Apertures {
        lds_base: u64, lds_limit: u64, scratch_base: u64, scratch_limit: u64, gpuvm_base: u64, gpuvm_limit: u64,
        gpu_id: u32, pad: u32,
    }
    GetApertures { list: u64, nodes: u32, pad: u32 }
    CreateEvent {
        page_offset: u64, trigger_data: u32, kind: u32, auto_reset: u32, node: u32, event_id: u32, slot: u32,
    }
    EventId { event_id: u32, pad: u32 }
    EventData {
        not_present: u32, read_only: u32, no_execute: u32, imprecise: u32, address: u64, gpu_id: u32, error: u32,
        extension: u64, event_id: u32, pad: u32,
    }
    WaitEvents { events: u64, count: u32, all: u32, timeout: u32, result: u32 }
    AcquireVm { drm_fd: u32, gpu_id: u32 }
    AllocMemory { address: u64, bytes: u64, handle: u64, mmap_offset: u64, gpu_id: u32, flags: u32 }
    FreeMemory { handle: u64 }
    MapMemory { handle: u64, ids: u64, count: u32, success: u32 }
    TileConfig {
        tiles: u64, macro_tiles: u64, tile_count: u32, macro_tile_count: u32, gpu_id: u32,
        gb_addr_config: u32, banks: u32, ranks: u32,
    }
    AvailableMemory { available: u64, gpu_id: u32, pad: u32 }
    XnackMode { enabled: i32 }
    Ignored { words: [u32; 8] }
}

/// LDS and scratch as flat addresses: apertures that no buffer's address can fall into (`kfd_flat_memory.c`).
pub const LDS_APERTURE: u64 = 1 << 48;
/// See [`LDS_APERTURE`].
pub const SCRATCH_APERTURE: u64 = 2 << 48;
const APERTURE_BYTES: u64 = 1 << 32;

/// More cards than any process has.
const MAX_GPUS: u32 = 64;

/// Does the ioctl `number` with `bytes` of arguments at `argument`. Pointers of the program's may be wild: that is an
/// errno.
///
/// # Safety
/// What the ioctl answers is written where the program said: nothing of ours lies there.
pub unsafe fn ioctl(device: &'static Device, number: u32, argument: u64, bytes: usize) -> Result<()> {
    // Requests that only tell: the kernel does not write to them either.
    let tells = matches!(number, 0x04 | 0x07 | 0x09..=0x0b | 0x13 | 0x15 | 0x17 | 0x1a);
    let at = Argument { at: argument, bytes, answered: !tells };
    // SAFETY: the caller's promise, handed on.
    unsafe {
        match number {
            0x01 => call(at, |a: &mut GetVersion| {
                [a.major, a.minor] = VERSION;
                Ok(())
            }),
            0x02 => call(at, |a| create_queue(device, a)),
            0x03 => call(at, |a: &mut DestroyQueue| {
                let queue = device.queues().remove(&a.queue_id).ok_or(Errno::INVALID)?;
                queue.destroy();
                Ok(())
            }),
            // Caching policy: one policy here.
            0x04 => call(at, |_: &mut Ignored| Ok(())),
            0x05 => call(at, |a: &mut GetClockCounters| {
                a.gpu = device.ticks();
                a.cpu = device.nanoseconds(libc::CLOCK_MONOTONIC_RAW);
                a.system = device.nanoseconds(libc::CLOCK_BOOTTIME);
                a.frequency = 1_000_000_000;
                Ok(())
            }),
            0x07 => call(at, |a: &mut UpdateQueue| {
                let queue = device.queues().get(&a.queue_id).cloned().ok_or(Errno::INVALID)?;
                queue.suspend(a.percentage == 0 || a.ring == 0);
                Ok(())
            }),
            0x08 => call(at, |a| create_event(device, a)),
            0x09 => call(at, |a: &mut EventId| device.events.destroy(a.event_id)),
            0x0a => call(at, |a: &mut EventId| device.events.set(a.event_id)),
            0x0b => call(at, |a: &mut EventId| device.events.reset(a.event_id)),
            0x0c => call(at, |a| wait_events(device, a)),
            // Scratch is private to a wave here, there is no trap handler, and all compute units are used.
            0x11 | 0x13 | 0x1a => call(at, |_: &mut Ignored| Ok(())),
            0x12 => call(at, |a: &mut TileConfig| {
                (a.tile_count, a.macro_tile_count) = (0, 0);
                (a.gb_addr_config, a.banks, a.ranks) = (0x44, 0, 0);
                Ok(())
            }),
            0x14 => call(at, |a| get_apertures(a)),
            0x15 => call(
                at,
                |a: &mut AcquireVm| {
                    if device.owns(a.drm_fd as libc::c_int) { Ok(()) } else { Err(Errno::INVALID) }
                },
            ),
            0x16 => call(at, |a: &mut AllocMemory| {
                check_gpu(a.gpu_id)?;
                (a.handle, a.mmap_offset) = device.vm.allocate(a.address, a.bytes, a.mmap_offset, a.flags)?;
                Ok(())
            }),
            0x17 => call(at, |a: &mut FreeMemory| device.vm.free(a.handle)),
            0x18 => call(at, |a: &mut MapMemory| {
                check_gpus(a)?;
                if let Some(doorbells) = device.vm.map_for_card(a.handle)? {
                    device.bell.mapped(doorbells);
                }
                a.success = a.count;
                Ok(())
            }),
            0x19 => call(at, |a: &mut MapMemory| {
                check_gpus(a)?;
                device.vm.unmap_from_card(a.handle)?;
                a.success = a.count;
                Ok(())
            }),
            // Retry after page faults, which these cards cannot: may be asked for (negative), and turned off.
            0x21 => call(at, |a: &mut XnackMode| {
                if a.enabled > 0 {
                    return Err(Errno(libc::EPERM));
                }
                a.enabled = 0;
                Ok(())
            }),
            0x23 => call(at, |a: &mut AvailableMemory| {
                check_gpu(a.gpu_id)?;
                a.available = device.vm.available();
                Ok(())
            }),
            // Sharing between processes, profiling, debugging, global wave sync: as a kernel without them.
            _ => Err(Errno::UNKNOWN),
        }
    }
}

fn check_gpu(id: u32) -> Result<()> {
    if id == GPU_ID { Ok(()) } else { Err(Errno::INVALID) }
}

/// Whether a list of cards holds only this one.
fn check_gpus(a: &MapMemory) -> Result<()> {
    if a.count == 0 || a.count > MAX_GPUS || a.success > a.count {
        return Err(Errno::INVALID);
    }
    user::read::<u32>(a.ids, a.count as usize)?.into_iter().try_for_each(check_gpu)
}

fn create_queue(device: &'static Device, a: &mut CreateQueue) -> Result<()> {
    check_gpu(a.gpu_id)?;
    let kind = match a.kind {
        1 | 3 => Kind::Sdma,
        2 => Kind::Aql,
        _ => return Err(Errno::INVALID),
    };
    let queue = Queue::create(
        device,
        Description {
            kind,
            ring: a.ring,
            bytes: a.ring_size.into(),
            read_index: a.read_pointer,
            write_index: a.write_pointer,
        },
    )?;
    a.queue_id = queue.slot as u32;
    a.doorbell_offset = crate::memory::DOORBELL_OFFSET + 8 * queue.slot as u64;
    Ok(())
}

fn create_event(device: &Device, a: &mut CreateEvent) -> Result<()> {
    a.event_id = device.events.create(a.kind, a.auto_reset != 0)?;
    (a.trigger_data, a.slot) = (a.event_id, a.event_id);
    // Not zero, or the runtime gives the event no mailbox.
    a.page_offset = a.page_offset.max(1);
    Ok(())
}

/// # Safety
/// As of [`ioctl`].
unsafe fn wait_events(device: &Device, a: &mut WaitEvents) -> Result<()> {
    if a.count > crate::events::LIMIT {
        return Err(Errno::INVALID);
    }
    let mut list = user::read::<EventData>(a.events, a.count as usize)?;
    let ids: Vec<u32> = list.iter().map(|event| event.event_id).collect();
    let timeout = (a.timeout != u32::MAX).then(|| Duration::from_millis(a.timeout.into()));
    let (outcome, faults) = device.events.wait(&ids, a.all != 0, timeout)?;
    if outcome == Wait::Done && faults.iter().any(Option::is_some) {
        for (event, fault) in list.iter_mut().zip(faults) {
            if let Some(fault) = fault {
                (event.not_present, event.read_only) =
                    (u32::from(!fault.readonly), u32::from(fault.readonly));
                (event.no_execute, event.imprecise, event.error) = (0, 0, 0);
                (event.address, event.gpu_id) = (fault.address, GPU_ID);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { user::write_bytes(a.events, user::bytes_of(&list)) }?;
    }
    a.result = match outcome {
        Wait::Done => 0,
        Wait::Timeout => 1,
        Wait::Gone => 2,
    };
    Ok(())
}

/// # Safety
/// As of [`ioctl`].
unsafe fn get_apertures(a: &mut GetApertures) -> Result<()> {
    if a.list != 0 {
        if a.nodes == 0 {
            return Err(Errno::INVALID);
        }
        let apertures = Apertures {
            lds_base: LDS_APERTURE,
            lds_limit: LDS_APERTURE + APERTURE_BYTES - 1,
            scratch_base: SCRATCH_APERTURE,
            scratch_limit: SCRATCH_APERTURE + APERTURE_BYTES - 1,
            gpuvm_base: FIRST_ADDRESS,
            gpuvm_limit: END_OF_ADDRESSES - 1,
            gpu_id: GPU_ID,
            pad: 0,
        };
        // SAFETY: the caller's promise; there is room for one at least.
        unsafe { user::write_bytes(a.list, user::bytes_of(&[apertures])) }?;
    }
    a.nodes = 1;
    Ok(())
}
