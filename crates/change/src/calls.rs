//! The system calls by which files are looked at and changed: each by a folder's handle and one name, none through a
//! symbolic link. Before each is a gate, at which a test lets it fail or the process die.

#[cfg(any(test, feature = "fault-injection"))]
pub mod faults;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FlockOperation, Gid, Mode, OFlags, RenameFlags, Stat, Uid, XattrFlags};
use rustix::io::{Errno, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Kinds of calls, as far as they fail differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Opens, looks at, reads.
    Reads,
    /// Needs space: writes, makes a name.
    Writes,
    /// Changes names or attributes.
    Changes,
}

#[cfg(not(any(test, feature = "fault-injection")))]
fn gate(_: Kind) -> Result<()> {
    Ok(())
}

#[cfg(any(test, feature = "fault-injection"))]
use faults::gate;

/// Does the call, again where a signal came in between.
fn call<T>(kind: Kind, mut run: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match gate(kind).and_then(|()| run()) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Opens something: tests look what.
fn open(kind: Kind, run: impl FnMut() -> Result<OwnedFd>) -> Result<OwnedFd> {
    let opened = call(kind, run)?;
    #[cfg(any(test, feature = "fault-injection"))]
    faults::opened(&opened);
    Ok(opened)
}

/// Opens a handle that only names a file or folder: nothing of it is read, no driver is called.
pub(crate) fn open_path(at: impl AsFd, path: &Path, more: OFlags) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW | more;
    open(Kind::Reads, || rustix::fs::openat(&at, path, flags, Mode::empty()))
}

/// The same from a root, by the kernel's own walk: within it, and through no link unless `follow`.
#[cfg(target_os = "linux")]
pub(crate) fn open_within(root: impl AsFd, path: &Path, more: OFlags, follow: bool) -> Result<OwnedFd> {
    use rustix::fs::ResolveFlags;
    #[cfg(any(test, feature = "fault-injection"))]
    if faults::OldKernel::is() {
        return Err(Errno::NOSYS);
    }
    let resolve = match follow {
        true => ResolveFlags::IN_ROOT,
        false => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    };
    let resolve = resolve | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::CLOEXEC | more;
    open(Kind::Reads, || rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve))
}

/// Other kernels have no such walk.
#[cfg(not(target_os = "linux"))]
pub(crate) fn open_within(_: impl AsFd, _: &Path, _: OFlags, _: bool) -> Result<OwnedFd> {
    Err(Errno::NOSYS)
}

/// Opens the file `name` of a folder to be read. A FIFO or a device neither blocks nor becomes the terminal.
pub(crate) fn open_to_read(at: impl AsFd, name: &OsStr, more: OFlags) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    open(Kind::Reads, || rustix::fs::openat(&at, name, flags | more, Mode::empty()))
}

/// Opens a file to be locked, and makes it where it is not there.
pub(crate) fn open_lock(at: impl AsFd, name: &OsStr) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    open(Kind::Writes, || rustix::fs::openat(&at, name, flags, Mode::RUSR | Mode::WUSR))
}

/// Makes a file that is not there yet. Private until it has its owner: what goes into it may be secret.
pub(crate) fn create(at: impl AsFd, name: &OsStr) -> Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    open(Kind::Writes, || rustix::fs::openat(&at, name, flags, Mode::RUSR | Mode::WUSR))
}

/// What is under a name, a link for itself.
pub(crate) fn look(at: impl AsFd, name: &OsStr) -> Result<Stat> {
    call(Kind::Reads, || rustix::fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW))
}

/// What a handle is of.
pub(crate) fn look_at(handle: impl AsFd) -> Result<Stat> {
    call(Kind::Reads, || rustix::fs::fstat(&handle))
}

/// The text of a link of which there is a handle.
pub(crate) fn link_text(handle: impl AsFd) -> Result<OsString> {
    let text = call(Kind::Reads, || rustix::fs::readlinkat(&handle, "", Vec::new()))?;
    Ok(OsString::from_vec(text.into_bytes()))
}

/// The names in a folder that is open to be read.
pub(crate) fn names(folder: impl AsFd) -> Result<Vec<OsString>> {
    let entries = call(Kind::Reads, || Dir::read_from(&folder))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = call(Kind::Reads, || Ok(())).and(entry)?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_os_string());
        }
    }
    Ok(names)
}

/// Reads on, `limit` bytes at most.
pub(crate) fn read(file: impl AsFd, limit: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; 256 << 10];
    while (bytes.len() as u64) < limit {
        let room =
            usize::try_from(limit - bytes.len() as u64).map_or(piece.len(), |left| left.min(piece.len()));
        match call(Kind::Reads, || rustix::io::read(&file, &mut piece[..room]))? {
            0 => break,
            length => bytes.extend_from_slice(&piece[..length]),
        }
    }
    Ok(bytes)
}

/// Writes all of it.
pub(crate) fn write(file: impl AsFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        let written = call(Kind::Writes, || rustix::io::write(&file, bytes));
        // A process that dies in the midst leaves a part.
        #[cfg(any(test, feature = "fault-injection"))]
        faults::tear(|| {
            let _ = rustix::io::write(&file, &bytes[..bytes.len() / 2]);
        });
        match written? {
            0 => return Err(Errno::IO),
            length => bytes = &bytes[length..],
        }
    }
    Ok(())
}

/// Makes a file empty.
pub(crate) fn cut(file: impl AsFd) -> Result<()> {
    call(Kind::Changes, || rustix::fs::ftruncate(&file, 0))
}

/// Down to the platter.
pub(crate) fn flush(file: impl AsFd) -> Result<()> {
    call(Kind::Changes, || rustix::fs::fsync(&file))
}

/// Sets the owner of an open file.
pub(crate) fn give(file: impl AsFd, uid: u32, gid: u32) -> Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    call(Kind::Changes, || rustix::fs::fchown(&file, Some(uid), Some(gid)))
}

/// Sets the permissions of an open file.
pub(crate) fn permit(file: impl AsFd, mode: u32) -> Result<()> {
    call(Kind::Changes, || rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)))
}

/// The extended attributes of an open file: names and values.
pub(crate) fn attributes(file: impl AsFd) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; 64 << 10];
    let length = call(Kind::Reads, || rustix::fs::flistxattr(&file, &mut names[..]))?;
    let mut found = Vec::new();
    for name in names[..length].split(|&b| b == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        if let Ok(length) = call(Kind::Reads, || rustix::fs::fgetxattr(&file, name, &mut value[..])) {
            value.truncate(length);
            found.push((name.to_vec(), value));
        }
    }
    Ok(found)
}

/// Sets an extended attribute of an open file.
pub(crate) fn set_attribute(file: impl AsFd, name: &[u8], value: &[u8]) -> Result<()> {
    call(Kind::Changes, || rustix::fs::fsetxattr(&file, name, value, XattrFlags::empty()))
}

/// Makes a folder, private until it has its owner.
pub(crate) fn make_folder(at: impl AsFd, name: &OsStr, mode: u32) -> Result<()> {
    call(Kind::Writes, || rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(mode)))
}

/// Removes a file or link.
pub(crate) fn remove(at: impl AsFd, name: &OsStr) -> Result<()> {
    call(Kind::Changes, || rustix::fs::unlinkat(&at, name, AtFlags::empty()))
}

/// Removes an empty folder.
pub(crate) fn remove_folder(at: impl AsFd, name: &OsStr) -> Result<()> {
    call(Kind::Changes, || rustix::fs::unlinkat(&at, name, AtFlags::REMOVEDIR))
}

/// Puts `from` in the place of `to`, at once.
pub(crate) fn rename(from: (impl AsFd, &OsStr), to: (impl AsFd, &OsStr)) -> Result<()> {
    call(Kind::Changes, || rustix::fs::renameat(&from.0, from.1, &to.0, to.1))
}

/// Moves `from` to `to`, which must not be there.
pub(crate) fn move_to(from: (impl AsFd, &OsStr), to: (impl AsFd, &OsStr)) -> Result<()> {
    call(Kind::Changes, || rustix::fs::renameat_with(&from.0, from.1, &to.0, to.1, RenameFlags::NOREPLACE))
}

/// Gives a file a second name, which must not be there.
pub(crate) fn link(from: (impl AsFd, &OsStr), to: (impl AsFd, &OsStr)) -> Result<()> {
    call(Kind::Writes, || rustix::fs::linkat(&from.0, from.1, &to.0, to.1, AtFlags::empty()))
}

/// Takes the lock on an open file, if nobody has it.
pub(crate) fn lock(file: impl AsFd) -> Result<()> {
    call(Kind::Changes, || rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive))
}
