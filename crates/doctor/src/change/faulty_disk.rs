//! A disk that fails, for the tests.

use super::disk::{Disk, Meta, RealDisk};
use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;

/// What happens at the chosen operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fault {
    /// The process dies before it.
    DiesBefore,
    /// The process dies after it.
    DiesAfter,
    /// The process dies in the middle; of a write, half the bytes are there.
    DiesWithin,
    /// It fails, and the process goes on.
    Fails(io::ErrorKind),
    /// It and all later writes fail: the disk is full.
    Full,
}

/// Every one.
pub(super) const FAULTS: [Fault; 7] = [
    Fault::DiesBefore,
    Fault::DiesAfter,
    Fault::DiesWithin,
    Fault::Fails(io::ErrorKind::Other),
    Fault::Fails(io::ErrorKind::PermissionDenied),
    Fault::Fails(io::ErrorKind::ReadOnlyFilesystem),
    Fault::Full,
];

/// A disk that works until operation `at`.
pub(super) struct FaultyDisk {
    pub at: usize,
    pub fault: Fault,
    pub done: Rc<Cell<usize>>,
    pub dead: Cell<bool>,
}

impl FaultyDisk {
    fn operation(&self, run: impl Fn() -> io::Result<()>, half: impl Fn(), writes: bool) -> io::Result<()> {
        let now = self.done.replace(self.done.get() + 1);
        if self.dead.get() {
            return Err(io::Error::other("dead"));
        }
        if self.fault == Fault::Full {
            return if now >= self.at && writes { Err(io::ErrorKind::StorageFull.into()) } else { run() };
        }
        if now != self.at {
            return run();
        }
        match self.fault {
            Fault::DiesBefore => {}
            Fault::DiesAfter => run()?,
            Fault::DiesWithin => half(),
            Fault::Fails(kind) => return Err(kind.into()),
            Fault::Full => unreachable!("seen to above"),
        }
        self.dead.set(true);
        Err(io::Error::other("dies"))
    }
}

impl Disk for FaultyDisk {
    fn make_folder(&self, path: &Path, meta: Meta) -> io::Result<()> {
        self.operation(|| RealDisk.make_folder(path, meta), || (), true)
    }

    fn write(&self, path: &Path, bytes: &[u8], meta: Meta, like: Option<&Path>) -> io::Result<()> {
        let half = || std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        self.operation(|| RealDisk.write(path, bytes, meta, like), half, true)
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operation(|| RealDisk.replace(from, to), || (), false)
    }

    fn move_to(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operation(|| RealDisk.move_to(from, to), || (), false)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operation(|| RealDisk.link(from, to), || (), true)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.operation(|| RealDisk.remove_file(path), || (), false)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.operation(|| RealDisk.remove_folder(path), || (), false)
    }
}
