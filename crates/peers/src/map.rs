//! Memory that several processes map.

use crate::Header;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

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
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)?
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
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.start.as_ptr().add(at), data.len()) };
    }

    /// Copies bytes out.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) {
        assert!(at >= size_of::<Header>() && at + into.len() <= self.bytes);
        // SAFETY: as in `write`; nobody writes this piece now.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(at), into.as_mut_ptr(), into.len()) };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with that length; nothing refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.bytes) };
    }
}
