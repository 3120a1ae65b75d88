//! Memory that several processes map.

use crate::Header;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// Fewer bytes are copied by one thread.
const ALONE: usize = 512 << 10;

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
        let copy = |from: &[u8], at: usize| unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), self.start.as_ptr().add(at), from.len());
        };
        let (first, second) = data.split_at(half(data.len()));
        both(second.is_empty(), || copy(first, at), || copy(second, at + first.len()));
    }

    /// Copies bytes out.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) {
        assert!(at >= size_of::<Header>() && at + into.len() <= self.bytes);
        // SAFETY: as in `write`; nobody writes this piece now.
        let copy = |into: &mut [u8], at: usize| unsafe {
            std::ptr::copy_nonoverlapping(self.start.as_ptr().add(at), into.as_mut_ptr(), into.len());
        };
        let (first, second) = into.split_at_mut(half(into.len()));
        let (is_short, middle) = (second.is_empty(), at + first.len());
        both(is_short, || copy(first, at), || copy(second, middle));
    }
}

/// How much of so many bytes one thread copies: one alone does not come to the memory's speed.
fn half(bytes: usize) -> usize {
    if bytes < ALONE { bytes } else { bytes / 2 }
}

/// Runs both, the second in another thread, or the first alone.
fn both(is_short: bool, first: impl FnOnce(), second: impl FnOnce() + Send) {
    if is_short {
        return first();
    }
    std::thread::scope(|scope| {
        scope.spawn(second);
        first();
    });
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with that length; nothing refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.bytes) };
    }
}
