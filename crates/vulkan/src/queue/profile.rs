//! Times of single launches, while somebody asks for them.

use crate::gpu::Gpu;
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
    /// The kernel's place, ticks before and after it. In no order: submits are looked at as their slots come.
    launches: Vec<(usize, u64, u64)>,
}

impl Profile {
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    pub(crate) fn len(&self) -> usize {
        self.launches.len()
    }

    pub(crate) fn add(&mut self, kernel: usize, from: u64, to: u64) {
        self.launches.push((kernel, from, to));
    }

    /// Starts, goes on or stops; what was timed since the last call. Times count from the start.
    pub(crate) fn switch(&mut self, gpu: &Gpu, on: bool, name: impl Fn(usize) -> String) -> Vec<Profiled> {
        let taken = std::mem::take(&mut self.launches);
        // The earliest: nothing lies before it.
        let earliest = |found: Option<u64>, &(_, from, _): &(usize, u64, u64)| match found {
            Some(first) if gpu.elapsed(from, first).is_zero() => Some(first),
            _ => Some(from),
        };
        let first = self.first.or_else(|| taken.iter().fold(None, earliest));
        self.first = if self.on && on { first } else { None };
        self.on = on;
        let profiled = |(kernel, from, to)| Profiled {
            kernel: name(kernel),
            start: first.map_or(Duration::ZERO, |first| gpu.elapsed(first, from)),
            length: gpu.elapsed(from, to),
        };
        let mut found: Vec<Profiled> = taken.into_iter().map(profiled).collect();
        found.sort_by_key(|launch| launch.start);
        found
    }
}
