//! Sync files (`drivers/dma-buf/sync_file.c` of Linux): fences as descriptors, for who merges or waits for them outside
//! syncobjs. RADV takes them for a submission without command buffers.
//!
//! Each is a socket that a byte comes out of when the fences are done, so that `poll` tells.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Drm;
use super::fence::{Changes, Fences};
use crate::device::identity;
use crate::errno::{Errno, Result};
use crate::request::{Argument, args, call};

/// The type of the files' own requests.
pub const TYPE: u8 = b'>';

args! {
    /// Out of HANDLE_TO_FD, into FD_TO_HANDLE: the descriptor.
    Handle { handle: u32, flags: u32, fd: i32, pad: u32 }
    Merge { name: [u32; 8], other: i32, merged: i32, flags: u32, pad: u32 }
}

/// A file of fences. Without it the syncobj itself is shared (`shared`).
const SYNC_FILE: u32 = 1;

struct SyncFile {
    fences: Fences,
    /// Our end.
    end: File,
    number: u64,
}

/// The last number that was given, and files by device and inode of the program's end.
type Files = (u64, BTreeMap<(u64, u64), SyncFile>);

/// Sync files.
#[derive(Default)]
pub struct SyncFiles {
    table: Mutex<Files>,
    /// Nobody closes what a fuzzer was given.
    #[cfg(any(test, feature = "fuzz"))]
    given: Mutex<Vec<OwnedFd>>,
}

/// Whether the program has closed its end.
fn is_closed(end: &File) -> bool {
    let mut poll = libc::pollfd { fd: end.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one entry, which is written.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 && poll.revents & (libc::POLLERR | libc::POLLHUP) != 0 }
}

impl SyncFiles {
    fn table(&self) -> MutexGuard<'_, Files> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many the program has open.
    pub fn left(&self) -> u64 {
        self.table().1.values().filter(|file| !is_closed(&file.end)).count() as u64
    }

    /// Forgets all that there is.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn clear(&self) {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.table().1.clear();
    }

    /// Whether `fd` is one.
    pub fn owns(&self, fd: RawFd) -> bool {
        identity(fd).is_some_and(|file| self.table().1.contains_key(&file))
    }

    fn find(&self, fd: RawFd) -> Result<Fences> {
        let file = identity(fd).ok_or(Errno::BAD_FILE)?;
        self.table().1.get(&file).map(|file| file.fences.clone()).ok_or(Errno::INVALID)
    }

    /// A new one, the program's to close.
    fn create(&'static self, changes: &'static Changes, fences: Fences) -> Result<RawFd> {
        let mut ends = [0; 2];
        // Sockets, because a byte to a pipe that nobody reads any more would end the program with SIGPIPE.
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: there is room for two descriptors.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
            return Err(Errno::last());
        }
        // SAFETY: they are new, and nobody else's.
        let [given, end] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        let place = identity(given.as_raw_fd()).ok_or(Errno::BAD_FILE)?;
        let mut table = self.table();
        let (last, files) = &mut *table;
        files.retain(|_, file| !is_closed(&file.end));
        *last += 1;
        let number = *last;
        files.insert(place, SyncFile { fences: fences.clone(), end: File::from(end), number });
        drop(table);
        let tell = move || {
            changes.wait(i64::MAX, || fences.iter().all(|fence| fence.is_done()));
            let table = self.table();
            let file = table.1.get(&place).filter(|file| file.number == number);
            // Nobody has the other end any more where this fails.
            if let Some(file) = file {
                // SAFETY: one byte, of ours.
                unsafe { libc::send(file.end.as_raw_fd(), [1u8].as_ptr().cast(), 1, libc::MSG_NOSIGNAL) };
            }
        };
        std::thread::Builder::new()
            .name("vgpu-sync-file".into())
            .spawn(tell)
            .map_err(|_| Errno::NO_MEMORY)?;
        #[cfg(any(test, feature = "fuzz"))]
        if let Ok(copy) = given.try_clone() {
            let mut kept = self.given.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push(given);
            return Ok(copy.into_raw_fd());
        }
        Ok(given.into_raw_fd())
    }
}

/// Does a request of the render node about syncobjs as descriptors; none where it is about something else.
///
/// # Safety
/// What the request answers is written where the program said: nothing of ours lies there.
pub unsafe fn ioctl(drm: &'static Drm, number: u32, at: Argument) -> Option<Result<()>> {
    let Drm { sync_files, syncobjs, changes, .. } = drm;
    // SAFETY: the caller's promise, handed on.
    Some(unsafe {
        match number {
            0xc1 => call(at, |a: &mut Handle| {
                a.fd = match a.flags {
                    _ if a.pad != 0 => return Err(Errno::INVALID),
                    0 => syncobjs.share(changes, a.handle)?.into_raw_fd(),
                    SYNC_FILE => sync_files.create(changes, syncobjs.fences(changes, a.handle, 0, 0)?)?,
                    _ => return Err(Errno::INVALID),
                };
                Ok(())
            }),
            0xc2 => call(at, |a: &mut Handle| {
                match a.flags {
                    _ if a.pad != 0 => return Err(Errno::INVALID),
                    0 => a.handle = syncobjs.open(changes, a.fd)?,
                    SYNC_FILE => {
                        syncobjs.get(a.handle)?.put(changes, 0, sync_files.find(a.fd)?);
                        changes.announce();
                    }
                    _ => return Err(Errno::INVALID),
                }
                Ok(())
            }),
            _ => return None,
        }
    })
}

/// Does a request of a sync file's own.
///
/// # Safety
/// As for [`ioctl`].
pub unsafe fn own_ioctl(drm: &'static Drm, fd: RawFd, number: u32, at: Argument) -> Result<()> {
    let Drm { sync_files, changes, .. } = drm;
    match number {
        // SAFETY: the caller's promise, handed on.
        3 => unsafe {
            call(at, |a: &mut Merge| {
                if a.flags != 0 || a.pad != 0 {
                    return Err(Errno::INVALID);
                }
                let mut fences = sync_files.find(fd)?;
                fences.extend(sync_files.find(a.other)?);
                fences.retain(|fence| !fence.is_done());
                a.merged = sync_files.create(changes, fences)?;
                Ok(())
            })
        },
        _ => Err(Errno(libc::ENOTTY)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::drm::fence::Fence;

    fn is_readable(fd: RawFd, milliseconds: i32) -> bool {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which is written.
        unsafe { libc::poll(&raw mut poll, 1, milliseconds) == 1 && poll.revents & libc::POLLIN != 0 }
    }

    #[test]
    fn a_file_tells_when_its_fences_are_done() {
        let drm: &'static Drm = Box::leak(Box::default());
        let (files, changes) = (&drm.sync_files, &drm.changes);
        let fences = [Arc::new(Fence::default()), Arc::new(Fence::default())];
        let [first, second] = fences.clone().map(|fence| files.create(changes, vec![fence]).unwrap());
        let mut merge = Merge { name: [0; 8], other: second, merged: -1, flags: 0, pad: 0 };
        let at = Argument { at: &raw mut merge as u64, bytes: size_of::<Merge>(), answered: true };
        // SAFETY: it is answered there.
        unsafe { own_ioctl(drm, first, 3, at) }.unwrap();
        assert_eq!(files.find(merge.merged).unwrap().len(), 2);
        changes.complete(&fences[0]);
        assert!(is_readable(first, 10_000));
        assert!(!is_readable(merge.merged, 20) && !is_readable(second, 0));
        changes.complete(&fences[1]);
        assert!(is_readable(merge.merged, 10_000) && is_readable(second, 10_000));
        let stdin = files.find(0).err().map(|errno| errno.0);
        assert_eq!(stdin, Some(libc::EINVAL), "no sync file");
        assert!(!files.owns(0) && files.owns(first));
        files.clear();
        assert!(!files.owns(first));
        // SAFETY: ours, and used no more.
        unsafe {
            libc::close(first);
            libc::close(second);
            libc::close(merge.merged);
        }
    }

    #[test]
    fn closed_files_are_forgotten() {
        let drm: &'static Drm = Box::leak(Box::default());
        let fd = drm.sync_files.create(&drm.changes, Vec::new()).unwrap();
        drm.sync_files.given.lock().unwrap().clear();
        // SAFETY: ours, and used no more.
        unsafe { libc::close(fd) };
        let next = drm.sync_files.create(&drm.changes, Vec::new()).unwrap();
        assert_eq!(drm.sync_files.table().1.len(), 1);
        drm.sync_files.clear();
        // SAFETY: as above.
        unsafe { libc::close(next) };
    }
}
