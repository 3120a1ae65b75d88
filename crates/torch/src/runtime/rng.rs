//! The state of the device's random numbers: a seed, and how many of its numbers were given out.
//! Counter-based (Philox): a kernel takes a range of counters and needs nothing else.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// As PyTorch's default seed.
static STATE: Mutex<(u64, u64)> = Mutex::new((67_280_421_310_721, 0));

fn lock() -> MutexGuard<'static, (u64, u64)> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the sequence of `seed`.
pub fn seed(seed: u64) {
    *lock() = (seed, 0);
}

/// Seed and offset.
pub fn state() -> (u64, u64) {
    *lock()
}

/// Continues where [`state`] was taken.
pub fn set_state(seed: u64, offset: u64) {
    *lock() = (seed, offset);
}

/// Seed and first counter of `counters` that nothing else gets.
pub fn reserve(counters: u64) -> (u64, u64) {
    let mut state = lock();
    let first = *state;
    state.1 = state.1.wrapping_add(counters);
    first
}
