//! The render node: what RADV and libdrm ask of the amdgpu kernel driver (`include/uapi/drm/drm.h` and `amdgpu_drm.h`).
//!
//! ```text
//! ioctl -> info             what card it is
//!       -> gem              buffers, and the addresses that the card sees them at; prime: as descriptors
//!       -> syncobj, fence   who waits for what; sync_file, shared: as descriptors
//!       -> submit -> pm4    command buffers, a thread for each ring of a context -> execute
//! ```

mod fence;
mod gem;
mod handles;
mod info;
mod jobs;
mod pm4;
pub mod prime;
mod shared;
mod submit;
pub mod sync_file;
mod syncobj;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU32;

use crate::device::Device;
use crate::errno::{Errno, Result};
use crate::request::{Argument, args, call};
use crate::user;

use fence::Changes;
use gem::Gems;
use submit::Contexts;
use sync_file::SyncFiles;
use syncobj::Syncobjs;

/// The type of DRM's requests.
pub const TYPE: u8 = b'd';

args! {
    Version {
        major: i32, minor: i32, patch: i32, pad: u32, name_bytes: u64, name: u64, date_bytes: u64, date: u64,
        description_bytes: u64, description: u64,
    }
    Capability { capability: u64, value: u64 }
}

/// 3.61: Linux 6.13. Mesa 26 wants 3.54 at least.
const VERSION: [i32; 3] = [3, 61, 0];
const NAME: &str = "amdgpu";
const DATE: &str = "20150101";
const DESCRIPTION: &str = "AMD GPU";

/// What a process has on the render node.
#[derive(Default)]
pub struct Drm {
    /// Buffers.
    gems: Gems,
    syncobjs: Syncobjs,
    sync_files: SyncFiles,
    contexts: Contexts,
    changes: Changes,
    /// Contexts that were lost.
    resets: AtomicU32,
}

#[cfg(any(test, feature = "fuzz"))]
impl Drm {
    /// As for a process that has just started.
    pub fn clear(&self, device: &Device) {
        self.contexts.clear();
        self.gems.clear(&device.vm);
        self.syncobjs.clear();
        self.sync_files.clear();
    }
}

impl Drm {
    /// What the program has not given back, by kind.
    pub fn left(&self) -> BTreeMap<&'static str, u64> {
        let (buffers, bytes) = self.gems.left();
        let all = [
            ("buffers", buffers),
            ("bytes", bytes),
            ("syncobjs", self.syncobjs.left()),
            ("sync files", self.sync_files.left()),
            ("contexts", self.contexts.left()),
        ];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Whether `fd` is a sync file.
    pub fn owns(&self, fd: std::os::fd::RawFd) -> bool {
        self.sync_files.owns(fd)
    }
}

/// Runs bytes of a card's memory as a command buffer.
#[cfg(any(test, feature = "fuzz"))]
pub fn command_buffer(device: &'static Device, graphics: bool, address: u64, dwords: u32) {
    let ring = if graphics { pm4::Ring::Graphics } else { pm4::Ring::Compute };
    // What is refused is told on stderr.
    let _ = pm4::Engine::new(device, ring).run(address, dwords);
}

/// Does the ioctl `number` with `bytes` of arguments at `argument`.
///
/// # Safety
/// What the ioctl answers is written where the program said: nothing of ours lies there.
pub unsafe fn ioctl(device: &'static Device, number: u32, argument: u64, bytes: usize) -> Result<()> {
    let at = Argument { at: argument, bytes, answered: true };
    let drm = &device.drm;
    // SAFETY: the caller's promise, handed on.
    unsafe {
        match number {
            0x00 => call(at, |a: &mut Version| {
                [a.major, a.minor, a.patch] = VERSION;
                // As much as there is room for, and how much there is.
                let text = |to: u64, room: &mut u64, text: &str| {
                    let bytes = &text.as_bytes()[..text.len().min(*room as usize)];
                    *room = text.len() as u64;
                    if to == 0 { Ok(()) } else { user::write_bytes(to, bytes) }
                };
                text(a.name, &mut a.name_bytes, NAME)?;
                text(a.date, &mut a.date_bytes, DATE)?;
                text(a.description, &mut a.description_bytes, DESCRIPTION)
            }),
            0x0c => call(at, |a: &mut Capability| {
                a.value = match a.capability {
                    // Syncobjs, with timelines.
                    0x13 | 0x14 => 1,
                    // PRIME, in and out.
                    0x05 => 3,
                    0x10 => 0,
                    _ => return Err(Errno(libc::EOPNOTSUPP)),
                };
                Ok(())
            }),
            0x45 => info::ioctl(device, at),
            _ => drm
                .gems
                .ioctl(&device.vm, &drm.changes, number, at)
                .or_else(|| drm.gems.prime(&device.vm, &drm.changes, number, at))
                .or_else(|| drm.syncobjs.ioctl(&drm.changes, number, at))
                .or_else(|| sync_file::ioctl(drm, number, at))
                .or_else(|| drm.contexts.ioctl(device, number, at))
                .unwrap_or(Err(Errno::INVALID)),
        }
    }
}
