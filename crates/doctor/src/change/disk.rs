//! The operations that change a disk, each small enough to have happened or not.

use rustix::fs::{RenameFlags, XattrFlags};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;

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

impl From<&std::fs::Metadata> for Meta {
    fn from(found: &std::fs::Metadata) -> Self {
        Self { mode: found.mode() & 0o7777, uid: found.uid(), gid: found.gid() }
    }
}

/// What changes a disk. Tests put one in between that fails at any operation.
pub trait Disk {
    /// Makes one folder.
    ///
    /// # Errors
    /// What the system says.
    fn make_folder(&self, path: &Path, meta: Meta) -> io::Result<()>;

    /// Writes a file that is not there yet, down to the platter. Extended attributes (access lists, labels)
    /// come from `like`, if that exists.
    ///
    /// # Errors
    /// What the system says.
    fn write(&self, path: &Path, bytes: &[u8], meta: Meta, like: Option<&Path>) -> io::Result<()>;

    /// Puts `from` in the place of `to`, at once.
    ///
    /// # Errors
    /// What the system says.
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Moves `from` to `to`, which must not be there.
    ///
    /// # Errors
    /// What the system says.
    fn move_to(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives the file `from` a second name, `to`, which must not be there.
    ///
    /// # Errors
    /// What the system says; some file systems have no such names.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file or link.
    ///
    /// # Errors
    /// What the system says.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder.
    ///
    /// # Errors
    /// What the system says.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;
}

/// The disk of this machine.
#[derive(Debug, Clone, Copy)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn make_folder(&self, path: &Path, meta: Meta) -> io::Result<()> {
        DirBuilder::new().mode(meta.mode).create(path)?;
        dress(path, meta)?;
        sync_parent(path)
    }

    fn write(&self, path: &Path, bytes: &[u8], meta: Meta, like: Option<&Path>) -> io::Result<()> {
        // Private until it has its owner: the old file may have been secret.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        if let Some(like) = like {
            copy_attributes(like, path);
        }
        dress(path, meta)?;
        file.sync_all()
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)?;
        sync_parent(to)
    }

    fn move_to(&self, from: &Path, to: &Path) -> io::Result<()> {
        use rustix::fs::CWD;
        use rustix::io::Errno;
        match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Not every file system can refuse to replace (NFS): look first, there.
            Err(Errno::INVAL | Errno::NOSYS) if to.symlink_metadata().is_err() => std::fs::rename(from, to)?,
            other => other?,
        }
        sync_parent(to)?;
        sync_parent(from)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::hard_link(from, to)?;
        sync_parent(to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)?;
        sync_parent(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)?;
        sync_parent(path)
    }
}

/// Owner first: a change of owner clears some permission bits.
fn dress(path: &Path, meta: Meta) -> io::Result<()> {
    let now = Meta::from(&path.symlink_metadata()?);
    if (now.uid, now.gid) != (meta.uid, meta.gid) {
        chown(path, Some(meta.uid), Some(meta.gid))?;
    }
    std::fs::set_permissions(path, Permissions::from_mode(meta.mode))
}

/// A name is on the platter only when its folder is.
fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Access lists and labels, as far as the system lets us: contents and permissions matter more.
fn copy_attributes(from: &Path, to: &Path) {
    let mut names = vec![0; 64 << 10];
    let Ok(length) = rustix::fs::listxattr(from, &mut names[..]) else { return };
    for name in names[..length].split(|&b| b == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        if let Ok(length) = rustix::fs::getxattr(from, name, &mut value[..]) {
            let _ = rustix::fs::setxattr(to, name, &value[..length], XattrFlags::empty());
        }
    }
}
