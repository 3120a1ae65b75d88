//! Times of single launches, while somebody asks for them.

use super::KernelId;
use crate::gpu::Gpu;
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
    /// Ticks from which times count.
    first: Option<u64>,
    /// Kernel, ticks before and after it. In no order: submits are looked at as their slots come.
    launches: Vec<(u32, u64, u64)>,
}

impl Profile {
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    pub(crate) fn len(&self) -> usize {
        self.launches.len()
    }

    pub(crate) fn add(&mut self, kernel: u32, from: u64, to: u64) {
        self.launches.push((kernel, from, to));
    }

    /// Starts, goes on or stops; what was timed since the last call. Times count from the start.
    pub(crate) fn switch(&mut self, gpu: &Gpu, on: bool, names: &HashMap<String, KernelId>) -> Vec<Profiled> {
        let taken = std::mem::take(&mut self.launches);
        // The earliest: nothing lies before it.
        let earliest = |found: Option<u64>, &(_, from, _): &(u32, u64, u64)| match found {
            Some(first) if gpu.elapsed(from, first).is_zero() => Some(first),
            _ => Some(from),
        };
        let first = self.first.or_else(|| taken.iter().fold(None, earliest));
        self.first = if self.on && on { first } else { None };
        self.on = on;
        let by_id: HashMap<u32, &String> = names.iter().map(|(name, id)| (id.0, name)).collect();
        let name = |id| by_id.get(&id).map_or_else(String::new, |name| (*name).clone());
        let profiled = |(id, from, to)| Profiled {
            kernel: name(id),
            start: first.map_or(Duration::ZERO, |first| gpu.elapsed(first, from)),
            length: gpu.elapsed(from, to),
        };
        let mut found: Vec<Profiled> = taken.into_iter().map(profiled).collect();
        found.sort_by_key(|launch| launch.start);
        found
    }
}
