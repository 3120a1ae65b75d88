//! Memory that several processes map.

use crate::Header;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// Fewer bytes are copied by one thread.
const ALONE: usize = 256 << 10;

/// A shared mapping of a whole file, whose size is sealed.
pub(crate) struct Map {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; its bytes are only copied in and out, and the counters in its
// header are atomics.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the file, which has at least that many bytes and keeps them.
    pub(crate) fn new(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        assert!(bytes >= size_of::<Header>());
        // SAFETY: a new mapping at an address of the system's choice.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                file,
                0,
            )?
        };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes })
    }

    /// The counters at its start.
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the mapping is of whole pages, longer than a header and alive as long as `self`; a header is atomics
        // alone, so any bytes are one and others may change them.
        unsafe { self.start.cast::<Header>().as_ref() }
    }

    /// Copies bytes in.
    pub(crate) fn write(&self, at: usize, data: &[u8]) {
        assert!(at >= size_of::<Header>() && at + data.len() <= self.bytes);
        // SAFETY: within the mapping, behind the header, and `data` is not of it. By the ring's protocol nobody reads this
        // piece now; a process that breaks it reads wrong bytes.
        unsafe { copy(data.as_ptr(), self.start.as_ptr().add(at), data.len()) };
    }

    /// Copies bytes out.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) {
        assert!(at >= size_of::<Header>() && at + into.len() <= self.bytes);
        // SAFETY: as in `write`; nobody writes this piece now.
        unsafe { copy(self.start.as_ptr().add(at), into.as_mut_ptr(), into.len()) };
    }
}

/// Copies bytes, many by several threads: one alone does not come to the memory's speed.
///
/// # Safety
/// As of [`std::ptr::copy_nonoverlapping`].
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    if bytes <= ALONE {
        // SAFETY: the caller's.
        return unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }
    let half = bytes / 2;
    let (from, to) = (from as usize, to as usize);
    // SAFETY: two halves of what the caller gives, each of one thread.
    let part = |at: usize, bytes| unsafe { copy((from + at) as *const u8, (to + at) as *mut u8, bytes) };
    rayon::join(|| part(0, half), || part(half, bytes - half));
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with that length; nothing refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.bytes) };
    }
}
