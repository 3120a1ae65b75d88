//! Times of single launches, while somebody asks for them.

use crate::gpu::Gpu;
use std::collections::BTreeMap;
use std::time::Duration;

/// One launch that was timed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profiled {
    /// The kernel's name in the variants table.
    pub kernel: String,
    /// Device time from the first launch's start to this one's.
    pub start: Duration,
    /// What it took; the sum of its parts where it was cut.
    pub length: Duration,
}

/// A part of a launch, or the whole of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    launch: u64,
    /// The kernel's place.
    kernel: usize,
}

/// Launches timed so far.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    on: bool,
    /// Ticks from which times count.
    first: Option<u64>,
    /// Launches that began.
    begun: u64,
    /// Ticks before and after each part. In no order: submits are looked at as their slots come.
    parts: Vec<(Part, u64, u64)>,
}

impl Profile {
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// What follows is a launch of its own.
    pub(crate) fn begin(&mut self) {
        self.begun += 1;
    }

    /// A part of the launch that began last.
    pub(crate) fn part(&self, kernel: usize) -> Part {
        Part { launch: self.begun, kernel }
    }

    pub(crate) fn add(&mut self, part: Part, from: u64, to: u64) {
        self.parts.push((part, from, to));
    }

    /// Starts, goes on or stops; what was timed since the last call. Times count from the start.
    pub(crate) fn switch(&mut self, gpu: &Gpu, on: bool, name: impl Fn(usize) -> String) -> Vec<Profiled> {
        let taken = std::mem::take(&mut self.parts);
        // The earliest: nothing lies before it.
        let earliest = |found: Option<u64>, &(_, from, _): &(Part, u64, u64)| match found {
            Some(first) if gpu.elapsed(from, first).is_zero() => Some(first),
            _ => Some(from),
        };
        let first = self.first.or_else(|| taken.iter().fold(None, earliest));
        self.first = if self.on && on { first } else { None };
        self.on = on;
        let mut launches: BTreeMap<u64, Profiled> = BTreeMap::new();
        for (part, from, to) in taken {
            let start = first.map_or(Duration::ZERO, |first| gpu.elapsed(first, from));
            let launch = launches.entry(part.launch).or_insert_with(|| Profiled {
                kernel: name(part.kernel),
                start,
                length: Duration::ZERO,
            });
            launch.start = launch.start.min(start);
            launch.length += gpu.elapsed(from, to);
        }
        let mut found: Vec<Profiled> = launches.into_values().collect();
        found.sort_by_key(|launch| launch.start);
        found
    }
}
