//! The program's memory where its calls point to: copied by the kernel, so that a wild pointer is an errno and no signal.

use std::ffi::{c_char, c_ulong, c_void};

use crate::errno::{Errno, Result};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Bytes of a path, its end included (`PATH_MAX`).
pub const LONGEST_PATH: usize = 4096;

/// Structures that any bytes make.
///
/// # Safety
/// Plain integers and arrays of them only, without padding.
pub unsafe trait Plain: Copy {}

// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}

type Transfer = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    c_ulong,
    *const libc::iovec,
    c_ulong,
    c_ulong,
) -> isize;

/// Whether the kernel copied all; none where it does not do so here, as some sandboxes forbid it.
///
/// # Safety
/// `ours` points to `bytes`, to be written if `call` reads.
unsafe fn transfer(call: Transfer, ours: *mut u8, theirs: u64, bytes: usize) -> Option<bool> {
    let local = libc::iovec { iov_base: ours.cast(), iov_len: bytes };
    let remote = libc::iovec { iov_base: theirs as *mut c_void, iov_len: bytes };
    // SAFETY: one entry each; the kernel checks the program's side.
    let copied = unsafe { call(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    if copied < 0 && matches!(Errno::last().0, libc::ENOSYS | libc::EPERM) {
        return None;
    }
    Some(copied == bytes as isize)
}

/// Copies bytes in.
pub fn read_bytes(from: u64, to: &mut [u8]) -> Result<()> {
    if to.is_empty() {
        return Ok(());
    }
    // SAFETY: `to` is ours and as long as is said.
    let copied = unsafe { transfer(libc::process_vm_readv, to.as_mut_ptr(), from, to.len()) };
    let copied = copied.unwrap_or_else(|| {
        let mapped = is_mapped(from, to.len() as u64);
        if mapped {
            // SAFETY: something is there; that it may be read is the program's to see to where the kernel does not.
            unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) };
        }
        mapped
    });
    if copied { Ok(()) } else { Err(Errno::FAULT) }
}

/// Copies bytes out.
///
/// # Safety
/// The program said that they are to be written there; nothing of ours lies there.
pub unsafe fn write_bytes(to: u64, from: &[u8]) -> Result<()> {
    if from.is_empty() {
        return Ok(());
    }
    // SAFETY: `from` is as long as is said, and only read.
    let copied = unsafe { transfer(libc::process_vm_writev, from.as_ptr().cast_mut(), to, from.len()) };
    let copied = copied.unwrap_or_else(|| {
        let mapped = is_mapped(to, from.len() as u64);
        if mapped {
            // SAFETY: as in `read_bytes`, and the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, from.len()) };
        }
        mapped
    });
    if copied { Ok(()) } else { Err(Errno::FAULT) }
}

/// Copies `count` structures in.
pub fn read<T: Plain>(from: u64, count: usize) -> Result<Vec<T>> {
    let bytes = count.checked_mul(size_of::<T>()).ok_or(Errno::INVALID)?;
    // SAFETY: any bytes make a `T`, zeros too.
    let mut list = vec![unsafe { std::mem::zeroed::<T>() }; count];
    // SAFETY: `count` of them are so many bytes, and stay valid whatever is written.
    read_bytes(from, unsafe { std::slice::from_raw_parts_mut(list.as_mut_ptr().cast(), bytes) })?;
    Ok(list)
}

/// The bytes of structures.
pub fn bytes_of<T: Plain>(list: &[T]) -> &[u8] {
    // SAFETY: without padding, so that every byte has a value.
    unsafe { std::slice::from_raw_parts(list.as_ptr().cast(), size_of_val(list)) }
}

/// Whether there is memory, or a file, behind all of these addresses.
pub fn is_mapped(address: u64, bytes: u64) -> bool {
    let Some(end) = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(PAGE)) else {
        return false;
    };
    let start = address & !(PAGE - 1);
    // SAFETY: starts to write files' pages back, which changes no memory; the kernel looks whether all is there.
    bytes == 0 || unsafe { libc::msync(start as *mut c_void, (end - start) as usize, libc::MS_ASYNC) } == 0
}

/// A path, without its end, in `room`; none if it cannot be read or does not end. Allocates nothing: signal handlers open
/// files too.
pub fn path(at: *const c_char, room: &mut [u8; LONGEST_PATH]) -> Option<&[u8]> {
    let mut length = 0;
    while length < LONGEST_PATH {
        let from = (at as u64).checked_add(length as u64)?;
        // What lies behind the page need not be there.
        let end = LONGEST_PATH.min(length + (PAGE - from % PAGE).min(256) as usize);
        read_bytes(from, &mut room[length..end]).ok()?;
        if let Some(last) = room[length..end].iter().position(|byte| *byte == 0) {
            return Some(&room[..length + last]);
        }
        length = end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page with nothing behind it, at an address of its own, which the kernel gives nobody else.
    struct Edge(u64);

    impl Edge {
        fn new(at: u64) -> Self {
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: a new mapping where none was.
            let found = unsafe {
                libc::mmap(at as *mut c_void, PAGE as usize, libc::PROT_READ | libc::PROT_WRITE, kind, -1, 0)
            };
            assert_eq!(found as u64, at);
            Self(at)
        }
    }

    impl Drop for Edge {
        fn drop(&mut self) {
            // SAFETY: mapped above.
            unsafe { libc::munmap(self.0 as *mut c_void, 4096) };
        }
    }

    #[test]
    fn what_is_not_there_is_refused_to_the_byte() {
        let edge = Edge::new(0x1234_5000_0000);
        let mut out = [1; 16];
        assert_eq!(read_bytes(edge.0 + 4080, &mut out), Ok(()));
        assert_eq!(out, [0; 16]);
        for from in [0, 1, edge.0 + 4081, edge.0 + 4096, 1 << 47, u64::MAX - 7, u64::MAX] {
            assert_eq!(read_bytes(from, &mut out), Err(Errno::FAULT), "{from:#x}");
            // SAFETY: nothing is there, or the mapping is ours to write.
            assert_eq!(unsafe { write_bytes(from, &out) }, Err(Errno::FAULT), "{from:#x}");
        }
        // SAFETY: the mapping is ours.
        assert_eq!(unsafe { write_bytes(edge.0 + 4092, &[5, 6, 7, 8]) }, Ok(()));
        assert_eq!(read::<u32>(edge.0 + 4092, 1), Ok(vec![0x0807_0605]));
        assert_eq!(read::<u32>(edge.0 + 4092, 2), Err(Errno::FAULT));
        assert_eq!(read::<u32>(edge.0, usize::MAX / 2), Err(Errno::INVALID));
    }

    #[test]
    fn memory_that_may_not_be_written_is_not() {
        // SAFETY: a constant, which the kernel does not write.
        assert_eq!(unsafe { write_bytes(c"constant".as_ptr() as u64, b"x") }, Err(Errno::FAULT));
        let mut room = [0; LONGEST_PATH];
        assert_eq!(path(c"constant".as_ptr(), &mut room), Some(b"constant".as_slice()));
    }

    #[test]
    fn mapped_means_all_of_it() {
        let edge = Edge::new(0x1234_5100_0000);
        assert!(is_mapped(edge.0, 4096) && is_mapped(edge.0 + 4095, 1) && is_mapped(0, 0));
        assert!(!is_mapped(edge.0, 4097) && !is_mapped(edge.0 + 4096, 1) && !is_mapped(0, 1));
        assert!(!is_mapped(edge.0, u64::MAX) && !is_mapped(u64::MAX - 4096, 4096) && !is_mapped(1 << 47, 1));
    }

    #[test]
    fn paths_end_before_their_page_or_are_none() {
        let edge = Edge::new(0x1234_5200_0000);
        let long = [b'a'; 300];
        // SAFETY: the mapping is ours.
        unsafe { write_bytes(edge.0 + 4096 - 300, &long) }.unwrap();
        let read = |at: u64| path(at as *const c_char, &mut [0; LONGEST_PATH]).map(<[u8]>::to_vec);
        let at = |offset: u64| read(edge.0 + offset);
        assert_eq!(at(4096 - 300), None, "it does not end");
        // SAFETY: as above.
        unsafe { write_bytes(edge.0 + 4095, &[0]) }.unwrap();
        assert_eq!(at(4096 - 300), Some(long[..299].to_vec()));
        assert_eq!((at(4095), at(4096), read(0)), (Some(Vec::new()), None, None));
    }
}
