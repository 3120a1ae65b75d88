//! Buffers as descriptors (`PRIME_*`), for other processes and for other users of this one.
//!
//! The descriptor is the buffer's memory file, so that it can be mapped and asked for its size like a dma-buf, and lives as
//! long as anybody has it. The file's name says what `GEM_OP` tells of the buffer.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};

use super::fence::Changes;
use super::gem::{Create, GTT, Gem, Gems, VRAM};
use crate::device::identity;
use crate::errno::{Errno, Result};
use crate::memory::{Vm, memory_file_named, reopen};
use crate::request::{Argument, args, call};
use crate::user::{self, PAGE};

args! {
    /// Out of HANDLE_TO_FD, into FD_TO_HANDLE: the descriptor.
    Prime { handle: u32, flags: u32, fd: i32 }
}

/// The type of a descriptor's own requests.
pub const TYPE: u8 = b'b';
/// The processor begins or ends to access it: nothing is to be done.
pub const SYNC: u64 = 0x4008_6200;

const CLOSE_ON_EXEC: u32 = libc::O_CLOEXEC as u32;
const READ_WRITE: u32 = libc::O_RDWR as u32;
const PREFIX: &str = "wave32-buffer:";

/// Its file's name: without spaces, as lists of mappings show it.
fn name(create: &Create, vram: bool) -> String {
    let Create { alignment, domains, flags, .. } = create;
    format!("{PREFIX}{domains:x}:{flags:x}:{alignment:x}:{}", u8::from(vram))
}

/// What a buffer's descriptor says of it: how it was created, and whether it lies in the card's own memory.
fn described(fd: RawFd) -> Option<(Create, bool)> {
    let (name, bytes) = memory_file_named(fd, PREFIX)?;
    let fields: Vec<u64> = name
        .split(':')
        .map(|field| u64::from_str_radix(field, 16))
        .collect::<std::result::Result<_, _>>()
        .ok()?;
    let [domains, flags, alignment, vram] = fields[..] else { return None };
    let is_sound = bytes > 0 && bytes.is_multiple_of(PAGE) && domains & !(GTT | VRAM) == 0;
    is_sound.then_some((Create { bytes, alignment, domains, flags }, vram != 0))
}

/// Whether it is a buffer's, of any process.
pub fn is_buffer(fd: RawFd) -> bool {
    described(fd).is_some()
}

/// Does `SYNC`.
pub fn sync(argument: u64) -> Result<()> {
    // Read, write or both; the end of it.
    match user::read::<u64>(argument, 1)?[0] {
        1..=3 | 5..=7 => Ok(()),
        _ => Err(Errno::INVALID),
    }
}

impl Gems {
    /// Its file, which all descriptors of it lead to.
    fn file(&'static self, changes: &Changes, handle: u32) -> Result<OwnedFd> {
        let gem = self.get(handle)?;
        let backing = gem.shareable().ok_or(Errno(libc::EPERM))?;
        let place = |file: &OwnedFd| identity(file.as_raw_fd()).ok_or(Errno::BAD_FILE);
        if let Some(file) = gem.vm.file_of(backing) {
            return file;
        }
        let _still = self.still(changes, &gem);
        let file = gem.vm.give_file(backing, &name(&gem.create, backing.vram))?;
        self.table().files.insert(place(&file)?, Arc::downgrade(&gem));
        Ok(file)
    }

    fn export(&'static self, changes: &Changes, a: &mut Prime) -> Result<()> {
        if a.flags & !(CLOSE_ON_EXEC | READ_WRITE) != 0 {
            return Err(Errno::INVALID);
        }
        let mut file = self.file(changes, a.handle)?;
        if a.flags & READ_WRITE == 0 {
            file = reopen(file.as_raw_fd(), false)?;
        }
        if a.flags & CLOSE_ON_EXEC == 0 {
            // SAFETY: no memory is involved.
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
        }
        a.fd = file.into_raw_fd();
        Ok(())
    }

    /// The handle of the same buffer if the process has it, else a new one.
    fn import(&self, vm: &'static Vm, a: &mut Prime) -> Result<()> {
        let place = identity(a.fd).ok_or(Errno::BAD_FILE)?;
        let (create, vram) = described(a.fd).ok_or(Errno::INVALID)?;
        let mut table = self.table();
        let known = table.files.get(&place).and_then(Weak::upgrade);
        let gem = match known {
            Some(gem) => gem,
            None => {
                // Of its own, as locks and positions are; and to be written, whatever rights the other has.
                let backing = vm.take_file(reopen(a.fd, true)?, create.bytes, vram)?;
                let gem = Arc::new(Gem::new(vm, backing, create, table.last_job));
                table.files.retain(|_, gem| gem.strong_count() > 0);
                table.files.insert(place, Arc::downgrade(&gem));
                gem
            }
        };
        a.handle = table.handle_of(gem);
        Ok(())
    }

    /// Does a request about descriptors of buffers; none where it is about something else.
    ///
    /// # Safety
    /// What the request answers is written where the program said: nothing of ours lies there.
    pub unsafe fn prime(
        &'static self,
        vm: &'static Vm,
        changes: &Changes,
        number: u32,
        at: Argument,
    ) -> Option<Result<()>> {
        // SAFETY: the caller's promise, handed on.
        Some(unsafe {
            match number {
                // Names for all who ask are not for render nodes.
                0x0a | 0x0b => Err(Errno(libc::EACCES)),
                0x2d => call(at, |a| self.export(changes, a)),
                0x2e => call(at, |a| self.import(vm, a)),
                _ => return None,
            }
        })
    }
}
