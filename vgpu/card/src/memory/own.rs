//! Buffers in memory files of their own: those that were exported, and those that were imported.
//!
//! A buffer moves into one when it is exported first: most never are, and a descriptor for each would soon be too many.
//! The program goes on to map it from its render node, at the offset that it has there: `preload` asks here.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::{PoisonError, RwLockReadGuard};

use super::{Backing, Vm, count, lock};
use crate::errno::{Errno, Result};
use crate::user::PAGE;

/// A buffer's file; by the offset that it has in the card's.
#[derive(Debug)]
pub struct Own {
    bytes: u64,
    file: OwnedFd,
}

impl Own {
    fn descriptor(&self) -> Result<OwnedFd> {
        self.file.try_clone().map_err(|_| Errno(libc::EMFILE))
    }
}

/// All of them.
pub type Owns = BTreeMap<u64, Own>;

/// Copied at once.
const CHUNK: usize = 1 << 20;

/// A new memory file that cannot change its size.
pub fn memory_file(name: &str, bytes: u64) -> Result<OwnedFd> {
    let name = CString::new(name).map_err(|_| Errno::INVALID)?;
    // SAFETY: the name is a C string.
    let file = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if file < 0 {
        return Err(Errno::last());
    }
    // SAFETY: it is new, and nobody else's.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: no memory is involved.
    let sized = unsafe {
        libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t) == 0
            && libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) == 0
    };
    if sized { Ok(file) } else { Err(Errno::last()) }
}

/// What the name of a memory file of ours says behind `prefix`, and its size; none of other descriptors, and of files that
/// could be cut short under their mappings.
pub fn memory_file_named(fd: RawFd, prefix: &str) -> Option<(String, u64)> {
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    let name = link.to_str()?.strip_prefix("/memfd:")?.strip_prefix(prefix)?;
    let name = name.strip_suffix(" (deleted)").unwrap_or(name).to_owned();
    // SAFETY: no memory is involved.
    let seals = unsafe { libc::fcntl(fd, libc::F_GET_SEALS) };
    let bytes = borrowed(fd).metadata().ok()?.len();
    (seals >= 0 && seals & libc::F_SEAL_SHRINK != 0).then_some((name, bytes))
}

/// A descriptor of the same file that shares nothing else with this one: neither locks nor rights.
pub fn reopen(fd: RawFd, write: bool) -> Result<OwnedFd> {
    let opened = File::options().read(true).write(write).open(format!("/proc/self/fd/{fd}"));
    opened.map(OwnedFd::from).map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EACCES)))
}

fn borrowed(fd: RawFd) -> ManuallyDrop<File> {
    // SAFETY: not closed here; what is not open is refused.
    ManuallyDrop::new(unsafe { File::from_raw_fd(fd) })
}

/// `mmap` itself, not this library's own.
///
/// # Safety
/// As of `mmap`.
pub unsafe fn map_raw(at: u64, bytes: u64, rights: i32, kind: i32, file: RawFd, offset: u64) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_mmap, at, bytes, rights, kind, file, offset) }
}

/// A mapping of the card's file in this process.
struct View {
    from: u64,
    to: u64,
    rights: i32,
    offset: u64,
}

/// The shared mappings of the file with this inode.
fn views(inode: u64) -> Result<Vec<View>> {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|_| Errno(libc::EACCES))?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let view = |line: &str| {
        // Addresses, rights, offset, device, inode.
        let mut fields = line.split_ascii_whitespace();
        let (from, to) = fields.next()?.split_once('-')?;
        let (letters, offset) = (fields.next()?, hex(fields.next()?)?);
        let there = fields.nth(1)?.parse::<u64>().ok()? == inode && letters.ends_with('s');
        let right = |letter, right| if letters.contains(letter) { right } else { 0 };
        let rights = right('r', libc::PROT_READ) | right('w', libc::PROT_WRITE) | right('x', libc::PROT_EXEC);
        there.then_some(View { from: hex(from)?, to: hex(to)?, rights, offset })
    };
    Ok(maps.lines().filter_map(view).collect())
}

impl Vm {
    fn owns(&self) -> RwLockReadGuard<'_, Owns> {
        self.own.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps the card's file for the program.
    ///
    /// # Safety
    /// As of `mmap`.
    pub unsafe fn map_for_program(&self, at: u64, bytes: u64, rights: i32, kind: i32, offset: u64) -> i64 {
        // Held meanwhile: nothing moves.
        let owns = self.owns();
        let own = owns.range(..=offset).next_back().filter(|(from, own)| offset - **from < own.bytes);
        let (file, inside) = match own {
            None => (self.file, offset),
            Some((from, own)) if bytes <= own.bytes - (offset - from) => {
                (own.file.as_raw_fd(), offset - from)
            }
            // Behind its end there is no memory.
            Some(_) => {
                // SAFETY: the calling thread's errno.
                unsafe { *libc::__errno_location() = libc::EINVAL };
                return -1;
            }
        };
        // SAFETY: the caller's promise.
        unsafe { map_raw(at, bytes, rights, kind, file, inside) }
    }

    /// The file of a buffer that has one: another descriptor of it.
    pub fn file_of(&self, backing: &Backing) -> Option<Result<OwnedFd>> {
        self.owns().get(&backing.offset).map(Own::descriptor)
    }

    /// The file of a buffer, which moves there if it has none yet. No kernel that may use it runs meanwhile. What the
    /// program itself writes meanwhile may be lost.
    pub fn give_file(&self, backing: &Backing, name: &str) -> Result<OwnedFd> {
        let mut owns = self.own.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = owns.get(&backing.offset) {
            return own.descriptor();
        }
        let &Backing { offset, bytes, .. } = backing;
        let own = Own { bytes, file: memory_file(name, bytes)? };
        let (file, given) = (own.file.as_raw_fd(), own.descriptor()?);
        let all = borrowed(self.file);
        let to = borrowed(file);
        let mut chunk = vec![0; CHUNK.min(bytes as usize)];
        for from in (0..bytes).step_by(CHUNK) {
            let part = &mut chunk[..(bytes - from).min(CHUNK as u64) as usize];
            let copied = all.read_exact_at(part, offset + from).and_then(|()| {
                // Zeros are there already, and cost nothing.
                if part.iter().all(|byte| *byte == 0) { Ok(()) } else { to.write_all_at(part, from) }
            });
            copied.map_err(|_| Errno::NO_MEMORY)?;
        }
        // The card's own mapping is one of these.
        let inode = crate::device::identity(self.file).ok_or(Errno::BAD_FILE)?.1;
        for view in views(inode)? {
            let (begin, end) =
                (view.offset.max(offset), (view.offset + (view.to - view.from)).min(offset + bytes));
            if begin >= end {
                continue;
            }
            let at = view.from + (begin - view.offset);
            let kind = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
            // SAFETY: takes the place of the same bytes of the same buffer.
            let mapped = unsafe { map_raw(at, end - begin, view.rights, kind, file, begin - offset) };
            if mapped == -1 {
                log!("a buffer could not be moved: {}", std::io::Error::last_os_error());
                return Err(Errno::NO_MEMORY);
            }
            if (backing.host..backing.host + bytes).contains(&at) {
                // SAFETY: our own mapping, just made; as in `map`.
                unsafe {
                    libc::madvise(at as *mut libc::c_void, (end - begin) as usize, libc::MADV_DONTFORK)
                };
            }
        }
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: touches the file only; nobody maps this part of it any more.
        unsafe { libc::fallocate(self.file, mode, offset as i64, bytes as i64) };
        owns.insert(offset, own);
        Ok(given)
    }

    /// Memory of another buffer's file, which counts here too.
    pub fn take_file(&self, file: OwnedFd, bytes: u64, vram: bool) -> Result<Backing> {
        debug_assert!(bytes.is_multiple_of(PAGE));
        let offset = self.reserve(bytes, vram)?;
        let host = super::map(file.as_raw_fd(), 0, bytes)
            .inspect_err(|_| count(&mut lock(&self.table), vram, bytes, false))?;
        self.own.write().unwrap_or_else(PoisonError::into_inner).insert(offset, Own { bytes, file });
        Ok(Backing { offset, host, bytes, vram })
    }

    /// Closes a buffer's file, if it has one; mappings stay.
    pub fn close_file(&self, offset: u64) {
        self.own.write().unwrap_or_else(PoisonError::into_inner).remove(&offset);
    }
}
