//! What befalls the system calls of a thread, for the tests.

use super::Kind;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;

/// What happens at the chosen call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing; calls are counted.
    None,
    /// The process dies before it: it and all later ones do nothing. Of a write, half the bytes are there.
    Dies,
    /// It fails, and the process goes on.
    Fails(Errno),
    /// It and all later ones that need space fail.
    Full(Errno),
}

thread_local! {
    static PLAN: Cell<(Fault, usize)> = const { Cell::new((Fault::None, 0)) };
    static DONE: Cell<usize> = const { Cell::new(0) };
    static ACT: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    static OPENED: RefCell<Option<Vec<PathBuf>>> = const { RefCell::new(None) };
    static OLD_KERNEL: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, call number `at` of this thread meets the fault.
pub struct FaultPlan(());

impl FaultPlan {
    /// Call number `at`, from 0, meets `fault`.
    pub fn new(fault: Fault, at: usize) -> Self {
        PLAN.set((fault, at));
        DONE.set(0);
        Self(())
    }

    /// Call number `at` finds that `act` was done just before it.
    pub fn interfere(at: usize, act: impl FnOnce() + 'static) -> Self {
        ACT.set(Some(Box::new(act)));
        Self::new(Fault::None, at)
    }

    /// Calls so far.
    pub fn done(&self) -> usize {
        DONE.get()
    }
}

impl Drop for FaultPlan {
    fn drop(&mut self) {
        PLAN.set((Fault::None, 0));
        ACT.set(None);
    }
}

/// While it lives, the real names of all that this thread opens are written down.
pub struct Record(());

impl Record {
    /// From now on.
    pub fn begin() -> Self {
        OPENED.set(Some(Vec::new()));
        Self(())
    }

    /// What was opened so far.
    pub fn opened(&self) -> Vec<PathBuf> {
        OPENED.with_borrow(|opened| opened.clone().unwrap_or_default())
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        OPENED.set(None);
    }
}

pub(super) fn opened(handle: &OwnedFd) {
    OPENED.with_borrow_mut(|opened| {
        if let Some(opened) = opened {
            opened.push(std::fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd())).unwrap());
        }
    });
}

/// While it lives, the kernel knows no openat2.
pub struct OldKernel(());

impl OldKernel {
    /// From now on.
    pub fn begin() -> Self {
        OLD_KERNEL.set(true);
        Self(())
    }

    pub(super) fn is() -> bool {
        OLD_KERNEL.get()
    }
}

impl Drop for OldKernel {
    fn drop(&mut self) {
        OLD_KERNEL.set(false);
    }
}

/// Passed before each call.
pub(super) fn gate(kind: Kind) -> Result<(), Errno> {
    let now = DONE.replace(DONE.get() + 1);
    let (fault, at) = PLAN.get();
    if now == at
        && let Some(act) = ACT.take()
    {
        act();
    }
    match fault {
        Fault::Dies if now >= at => Err(Errno::IO),
        Fault::Fails(errno) if now == at => Err(errno),
        Fault::Full(errno) if now >= at && kind == Kind::Writes => Err(errno),
        _ => Ok(()),
    }
}

/// Does what a dying process leaves of a write.
pub(super) fn tear(half: impl FnOnce()) {
    let (fault, at) = PLAN.get();
    if fault == Fault::Dies && DONE.get() == at + 1 {
        half();
    }
}
