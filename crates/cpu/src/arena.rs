//! Scratch memory that is counted, and the threads that share it.

use rayon::ThreadPool;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Counts the scratch bytes of one call. Sizes are decided against [`Arena::cap`] before allocating,
/// from the problem and the cap alone; the number of workers follows from what is left.
#[derive(Debug)]
pub struct Arena {
    pub cap: u64,
    used: AtomicU64,
    peak: AtomicU64,
}

/// A zeroed scratch buffer; its bytes are given back on drop.
pub struct Scratch<'a, T> {
    data: Vec<T>,
    arena: &'a Arena,
}

impl Arena {
    pub fn new(cap: u64) -> Self {
        Self { cap, used: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    pub fn alloc<T: Copy + Default>(&self, len: usize) -> Scratch<'_, T> {
        let bytes = (len * size_of::<T>()) as u64;
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(used, Ordering::Relaxed);
        Scratch { data: vec![T::default(); len], arena: self }
    }

    /// Bytes still free under the cap.
    pub fn free(&self) -> u64 {
        self.cap.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// Most bytes in use at once so far.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

impl<T> Drop for Scratch<'_, T> {
    fn drop(&mut self) {
        self.arena.used.fetch_sub((self.data.len() * size_of::<T>()) as u64, Ordering::Relaxed);
    }
}

impl<T> std::ops::Deref for Scratch<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.data
    }
}

impl<T> std::ops::DerefMut for Scratch<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.data
    }
}

/// The calling thread and `threads - 1` helpers, which are kept between calls.
#[derive(Debug)]
pub struct Team {
    threads: usize,
    helpers: Option<Arc<ThreadPool>>,
}

impl Team {
    /// 0 is every core. The error is the system's, where it has no more threads.
    pub fn new(threads: usize) -> Result<Self, rayon::ThreadPoolBuildError> {
        static POOLS: OnceLock<Mutex<HashMap<usize, Arc<ThreadPool>>>> = OnceLock::new();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { cores } else { threads.min(1024) };
        if threads == 1 {
            return Ok(Self { threads, helpers: None });
        }
        // Poisoned only by a panic between two map operations, none of which leaves it half-done.
        let mut pools = POOLS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        let pool = match pools.get(&threads) {
            Some(pool) => pool.clone(),
            None => {
                let builder = rayon::ThreadPoolBuilder::new().num_threads(threads - 1);
                let pool = Arc::new(builder.thread_name(|i| format!("wave32-cpu-{i}")).build()?);
                pools.insert(threads, pool.clone());
                pool
            }
        };
        Ok(Self { threads, helpers: Some(pool) })
    }

    /// Runs `work(index, scratch)` for every index below `count`, on as many threads as have room for
    /// `make`'s `bytes` under the arena's cap (at least one: the caller has made sure of that).
    ///
    /// Which thread takes which index is open; results must not depend on it.
    pub fn each<S>(
        &self,
        arena: &Arena,
        bytes: u64,
        count: usize,
        make: impl Fn() -> S + Sync,
        work: impl Fn(usize, &mut S) + Sync,
    ) {
        let room = arena.free().checked_div(bytes).unwrap_or(u64::MAX);
        let workers = self.threads.min(count).min(usize::try_from(room).unwrap_or(usize::MAX)).max(1);
        let next = AtomicUsize::new(0);
        let worker = || {
            let mut index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let mut scratch = make();
            while index < count {
                work(index, &mut scratch);
                index = next.fetch_add(1, Ordering::Relaxed);
            }
        };
        match &self.helpers {
            Some(pool) if workers > 1 => pool.in_place_scope(|scope| {
                for _ in 1..workers {
                    scope.spawn(|_| worker());
                }
                worker();
            }),
            _ => worker(),
        }
    }
}
