//! Fences: what a job, or the host, will have done.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::device::nanoseconds;

/// Done once, for good.
#[derive(Debug, Default)]
pub struct Fence(AtomicU8);

/// Fences that count as one: all of them.
pub type Fences = Vec<Arc<Fence>>;

const PENDING: u8 = 0;

impl Fence {
    /// One that is done.
    pub fn done() -> Arc<Self> {
        Arc::new(Self(AtomicU8::new(1)))
    }

    /// Whether it is.
    pub fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire) != PENDING
    }
}

/// Wakes those that wait for fences, and for syncobjs to get some.
#[derive(Debug, Default)]
pub struct Changes {
    lock: Mutex<()>,
    changed: Condvar,
}

/// Looked at this often even if nothing was announced: the clock of a deadline may be set.
const LONGEST: Duration = Duration::from_millis(500);

impl Changes {
    /// Makes a fence done.
    pub fn complete(&self, fence: &Fence) {
        fence.0.store(1, Ordering::Release);
        self.announce();
    }

    /// Something changed that others may wait for.
    pub fn announce(&self) {
        // Whoever looked before the change has gone to sleep by now.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits until `done`, at most until `deadline` on the monotonic clock, in nanoseconds; whether it was done.
    pub fn wait(&self, deadline: i64, mut done: impl FnMut() -> bool) -> bool {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if done() {
                return true;
            }
            let now = i64::try_from(nanoseconds(libc::CLOCK_MONOTONIC)).unwrap_or(i64::MAX);
            let Some(left) = deadline.checked_sub(now).filter(|left| *left > 0) else { return false };
            let pause = Duration::from_nanos(left as u64).min(LONGEST);
            held = self.changed.wait_timeout(held, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
