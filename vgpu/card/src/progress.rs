//! How a queue waits for what another queue, or the host, writes to memory.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Counts what queues completed.
#[derive(Debug, Default)]
pub struct Progress {
    count: Mutex<u64>,
    more: Condvar,
}

/// The host's writes are seen this late at most, as nothing announces them.
const LONGEST: Duration = Duration::from_millis(1);

impl Progress {
    /// Something was completed: who waits looks again.
    pub fn advance(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.more.notify_all();
    }

    /// Returns when `done` holds, looking at first often, then every millisecond; false if `give_up` held first.
    pub fn wait(&self, done: impl Fn() -> bool, give_up: impl Fn() -> bool) -> bool {
        let mut pause = Duration::from_micros(10);
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if done() {
                return true;
            }
            if give_up() {
                return false;
            }
            let seen = *count;
            count = self
                .more
                .wait_timeout_while(count, pause, |count| *count == seen)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            pause = (pause * 2).min(LONGEST);
        }
    }
}
