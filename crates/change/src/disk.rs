//! The operations that change a disk, each small enough to have happened or not. All by handles: what was opened or
//! made is what is written to and gets its owner and permissions, whoever exchanges names meanwhile.

use crate::calls;
use crate::root::Spot;
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::io;

/// Permissions and owner of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Permission bits.
    pub mode: u32,
    /// Owning user.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
}

impl From<&Stat> for Meta {
    fn from(found: &Stat) -> Self {
        Self { mode: found.st_mode & 0o7777, uid: found.st_uid, gid: found.st_gid }
    }
}

/// Which file it is, under whatever name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity(u64, u64);

impl From<&Stat> for Identity {
    fn from(found: &Stat) -> Self {
        Self(found.st_dev, found.st_ino)
    }
}

/// Makes one folder.
pub(super) fn make_folder(spot: &Spot, meta: Meta) -> io::Result<()> {
    calls::make_folder(&spot.folder, &spot.name, 0o700)?;
    let made = spot.open(OFlags::DIRECTORY)?;
    dress(&made, meta)?;
    spot.flush()
}

/// Writes a file that is not there yet, down to the platter. Extended attributes (access lists, labels) come from
/// `like`, if that exists.
pub(super) fn write(spot: &Spot, bytes: &[u8], meta: Meta, like: Option<&Spot>) -> io::Result<Identity> {
    let file = calls::create(&spot.folder, &spot.name)?;
    calls::write(&file, bytes)?;
    if let Some(like) = like {
        copy_attributes(like, &file);
    }
    dress(&file, meta)?;
    calls::flush(&file)?;
    Ok(Identity::from(&calls::look_at(&file)?))
}

/// Puts the file that was written at `from` in the place of `to`, at once.
pub(super) fn replace(from: &Spot, to: &Spot, written: Identity) -> io::Result<()> {
    let is_it =
        |spot: &Spot| Ok::<_, io::Error>(spot.look()?.is_some_and(|found| Identity::from(&found) == written));
    let exchanged = || Err(io::Error::other("somebody exchanged it meanwhile"));
    if !is_it(from)? {
        return exchanged();
    }
    calls::rename((&from.folder, &from.name), (&to.folder, &to.name))?;
    if !is_it(to)? {
        return exchanged();
    }
    to.flush()
}

/// Puts `from`, whatever it is, in the place of `to`, at once.
pub(super) fn move_over(from: &Spot, to: &Spot) -> io::Result<()> {
    calls::rename((&from.folder, &from.name), (&to.folder, &to.name))?;
    to.flush()
}

/// Moves `from` to `to`, which must not be there.
pub(super) fn move_to(from: &Spot, to: &Spot) -> io::Result<()> {
    let (old, new) = ((&from.folder, from.name.as_os_str()), (&to.folder, to.name.as_os_str()));
    match calls::move_to(old, new) {
        // Not every file system can refuse to replace (NFS): look first, there.
        Err(Errno::INVAL | Errno::NOSYS) if to.look()?.is_none() => calls::rename(old, new)?,
        other => other?,
    }
    to.flush()?;
    from.flush()
}

/// Gives the file `from` a second name, `to`, which must not be there. Some file systems have no such names.
pub(super) fn link(from: &Spot, to: &Spot) -> io::Result<()> {
    calls::link((&from.folder, &from.name), (&to.folder, &to.name))?;
    to.flush()
}

/// Removes a file or link.
pub(super) fn remove_file(spot: &Spot) -> io::Result<()> {
    calls::remove(&spot.folder, &spot.name)?;
    spot.flush()
}

/// Removes an empty folder.
pub(super) fn remove_folder(spot: &Spot) -> io::Result<()> {
    calls::remove_folder(&spot.folder, &spot.name)?;
    spot.flush()
}

/// Owner first: a change of owner clears some permission bits.
fn dress(file: &OwnedFd, meta: Meta) -> io::Result<()> {
    let now = Meta::from(&calls::look_at(file)?);
    if (now.uid, now.gid) != (meta.uid, meta.gid) {
        calls::give(file, meta.uid, meta.gid)?;
    }
    Ok(calls::permit(file, meta.mode)?)
}

/// Access lists and labels, as far as the system lets us: contents and permissions matter more.
fn copy_attributes(from: &Spot, to: &OwnedFd) {
    let Ok(found) = from.open(OFlags::empty()).and_then(|old| Ok(calls::attributes(&old)?)) else { return };
    for (name, value) in found {
        let _ = calls::set_attribute(to, &name, &value);
    }
}
