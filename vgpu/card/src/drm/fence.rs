//! Fences: what a job, or the host, will have done.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::shared::{Promise, Relays};
use crate::device::nanoseconds;

/// Done once, for good.
#[derive(Debug, Default)]
pub struct Fence {
    done: AtomicU8,
    /// What a syncobj says that other processes have too.
    promise: Option<Promise>,
}

/// Fences that count as one: all of them.
pub type Fences = Vec<Arc<Fence>>;

const PENDING: u8 = 0;

impl Fence {
    /// One that is done.
    pub fn done() -> Arc<Self> {
        Arc::new(Self { done: AtomicU8::new(1), promise: None })
    }

    /// One that is done when a promise is kept.
    pub fn promised(promise: Promise) -> Arc<Self> {
        Arc::new(Self { done: AtomicU8::new(PENDING), promise: Some(promise) })
    }

    /// The promise that it is, if it is one.
    pub fn promise(&self) -> Option<&Promise> {
        self.promise.as_ref()
    }

    /// Whether it is.
    pub fn is_done(&self) -> bool {
        if self.done.load(Ordering::Acquire) != PENDING {
            return true;
        }
        let kept = self.promise.as_ref().is_some_and(Promise::is_kept);
        if kept {
            self.done.store(1, Ordering::Release);
        }
        kept
    }
}

/// Wakes those that wait for fences, and for syncobjs to get some.
#[derive(Debug, Default)]
pub struct Changes {
    lock: Mutex<()>,
    changed: Condvar,
    /// Other processes may change something, and do not announce it.
    pub shared: AtomicBool,
    /// What other processes wait for.
    pub relays: Relays,
}

/// Looked at this often even if nothing was announced: the clock of a deadline may be set.
const LONGEST: Duration = Duration::from_millis(500);
/// And this often where other processes may have changed it.
const SHARED: Duration = Duration::from_micros(500);

impl Changes {
    /// Makes a fence done.
    pub fn complete(&self, fence: &Fence) {
        fence.done.store(1, Ordering::Release);
        // Before anybody here hears of it, who may end the process.
        self.relays.keep();
        self.announce();
    }

    /// Something changed that others may wait for.
    pub fn announce(&self) {
        // Whoever looked before the change has gone to sleep by now.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits until `done`, at most until `deadline` on the monotonic clock, in nanoseconds; whether it was done.
    pub fn wait(&self, deadline: i64, done: impl FnMut() -> bool) -> bool {
        self.wait_for(deadline, || self.shared.load(Ordering::Acquire), done)
    }

    /// The same, where `shared` says whether others may change it unannounced.
    pub fn wait_for(&self, deadline: i64, shared: impl Fn() -> bool, mut done: impl FnMut() -> bool) -> bool {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if done() {
                return true;
            }
            let now = i64::try_from(nanoseconds(libc::CLOCK_MONOTONIC)).unwrap_or(i64::MAX);
            let Some(left) = deadline.checked_sub(now).filter(|left| *left > 0) else { return false };
            let longest = if shared() { SHARED } else { LONGEST };
            let pause = Duration::from_nanos(left as u64).min(longest);
            held = self.changed.wait_timeout(held, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
