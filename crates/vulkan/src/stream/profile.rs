//! Times of single launches, while somebody asks for them.

use super::KernelId;
use crate::gpu::Gpu;
use crate::ring::elapsed;
use std::collections::HashMap;
use std::time::Duration;

/// One launch that was timed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profiled {
    /// The kernel's name in the variants table.
    pub kernel: String,
    /// Device time from the first launch's start to this one's.
    pub start: Duration,
    /// What it took.
    pub length: Duration,
}

/// Launches timed so far.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    on: bool,
    first: Option<u64>,
    launches: Vec<(u32, Duration, Duration)>,
}

impl Profile {
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    pub(crate) fn len(&self) -> usize {
        self.launches.len()
    }

    pub(crate) fn add(&mut self, gpu: &Gpu, kernel: u32, from: u64, to: u64) {
        let first = *self.first.get_or_insert(from);
        self.launches.push((kernel, elapsed(gpu, first, from), elapsed(gpu, from, to)));
    }

    /// Starts, goes on or stops; what was timed since the last call. Times count from the start.
    pub(crate) fn switch(&mut self, on: bool, names: &HashMap<String, KernelId>) -> Vec<Profiled> {
        if !(self.on && on) {
            self.first = None;
        }
        self.on = on;
        let by_id: HashMap<u32, &String> = names.iter().map(|(name, id)| (id.0, name)).collect();
        let name = |id| by_id.get(&id).map_or_else(String::new, |name| (*name).clone());
        let mut found: Vec<Profiled> = std::mem::take(&mut self.launches)
            .into_iter()
            .map(|(id, start, length)| Profiled { kernel: name(id), start, length })
            .collect();
        found.sort_by_key(|launch| launch.start);
        found
    }
}
