//! Which accesses are ordered already: what a barrier, an event or a semaphore is still needed for.

use crate::program::{HOST, MAX_QUEUES, QUEUE, Range};
use crate::shaders::Use;

/// What a command does with a range.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    pub range: Range,
    pub what: Use,
    /// One bit of a scope.
    pub stage: u8,
}

/// An access that was made.
#[derive(Debug, Clone)]
pub struct Record {
    pub access: Access,
    pub action: usize,
    /// None: the host's.
    pub queue: Option<usize>,
    /// Of the action, and the command in it.
    pub buffer: usize,
    pub at: usize,
    /// By queue: the stages of later commands that it happened before, by barriers.
    seen: [u8; MAX_QUEUES],
}

/// See the module.
#[derive(Default)]
pub struct Tracker {
    pub records: Vec<Record>,
    /// Atomics of one kind are no hazard.
    pub atomics_meet: bool,
    /// For each action, as bits: the actions that semaphores order before its start.
    pub before: Vec<u64>,
    /// For each action, as bits: the actions that have ended when its signal is seen.
    pub done: Vec<u64>,
}

impl Tracker {
    fn conflict(&self, a: &Access, b: &Access) -> bool {
        let harmless = match (a.what, b.what) {
            (Use::Read, Use::Read) => true,
            (Use::Atomic(a), Use::Atomic(b)) => a == b && self.atomics_meet,
            _ => false,
        };
        !harmless && a.range.meets(&b.range)
    }

    /// Earlier accesses that these must not meet.
    fn conflicts<'a>(&'a self, with: &'a [Access]) -> impl Iterator<Item = (&'a Record, u8)> {
        self.records.iter().filter_map(move |record| {
            let stages = with.iter().filter(|access| self.conflict(&record.access, access));
            let stages = stages.fold(0, |all, access| all | access.stage);
            (stages != 0).then_some((record, stages))
        })
    }

    /// Actions whose end a new access in `action` of `queue` (none: the host) needs, and does not have yet.
    pub fn missing(&self, action: usize, queue: Option<usize>, with: &[Access]) -> Option<usize> {
        let before = self.before[action];
        self.conflicts(with)
            .filter(|(record, _)| record.queue.is_none() || record.queue != queue)
            .map(|(record, _)| record.action)
            .find(|on| before >> on & 1 == 0)
    }

    /// Device's accesses that the host is about to meet.
    pub fn of_queues(&self, with: &[Access]) -> Vec<usize> {
        let of_queues = self.conflicts(with).filter(|(record, _)| record.queue.is_some());
        of_queues.map(|(record, _)| record.action).collect()
    }

    /// Accesses that a barrier in front of these must wait for.
    pub fn hazards(&self, action: usize, queue: usize, with: &[Access]) -> Vec<usize> {
        let before = self.before[action];
        (0..self.records.len())
            .filter(|i| {
                let record = &self.records[*i];
                let Some((_, stages)) = self.conflicts_of(record, with) else { return false };
                let unseen = stages & !record.seen[queue] != 0;
                match record.queue {
                    None => unseen && record.access.what != Use::Read,
                    Some(other) => unseen && other == queue && before >> record.action & 1 == 0,
                }
            })
            .collect()
    }

    fn conflicts_of<'a>(&self, record: &'a Record, with: &[Access]) -> Option<(&'a Record, u8)> {
        let stages = with.iter().filter(|access| self.conflict(&record.access, access));
        let stages = stages.fold(0, |all, access| all | access.stage);
        (stages != 0).then_some((record, stages))
    }

    pub fn record(&self, i: usize) -> &Record {
        &self.records[i]
    }

    /// A barrier in `action` of `queue`, behind all there is.
    pub fn barrier(&mut self, action: usize, queue: usize, from: u8, to: u8, ranges: &[Range]) {
        let before = self.before[action];
        for record in &mut self.records {
            let reached = match record.queue {
                None => from & HOST != 0 && before >> record.action & 1 == 1,
                Some(other) => other == queue && from & record.access.stage != 0,
            };
            if reached && (ranges.is_empty() || ranges.iter().any(|range| range.holds(&record.access.range)))
            {
                record.seen[queue] |= to;
            }
        }
    }

    /// An event, or a barrier that is known to cover these alone.
    pub fn ordered(&mut self, which: &[usize], queue: usize, to: u8) {
        which.iter().for_each(|i| self.records[*i].seen[queue] |= to);
    }

    pub fn add(&mut self, access: Access, action: usize, queue: Option<usize>, (buffer, at): (usize, usize)) {
        self.records.push(Record { access, action, queue, buffer, at, seen: [0; MAX_QUEUES] });
    }

    /// A command came in between.
    pub fn shift(&mut self, action: usize, buffer: usize, from: usize) {
        for record in &mut self.records {
            if record.action == action && record.buffer == buffer && record.at >= from {
                record.at += 1;
            }
        }
    }
}

/// As many stages as one likes count as all.
pub fn widened(scope: u8, wide: bool) -> u8 {
    if wide && scope & HOST == 0 { scope | QUEUE } else { scope }
}
