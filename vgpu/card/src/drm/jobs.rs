//! Jobs that were submitted, and the buffers that they may use: what they see stays as it was.

use std::sync::Arc;

use super::fence::Changes;
use super::gem::{Gem, Gems, Table};
use crate::memory::Vm;

/// A job that was submitted and has not ended: nothing that it may use goes away.
pub struct JobGuard {
    gems: &'static Gems,
    vm: &'static Vm,
    number: u64,
}

impl Drop for JobGuard {
    fn drop(&mut self) {
        let mut table = self.gems.table();
        table.jobs.remove(&self.number);
        table.running.remove(&self.number);
        let oldest = table.jobs.first().copied().unwrap_or(u64::MAX);
        table.change(self.vm, oldest);
    }
}

impl JobGuard {
    /// Whether it sees all that was mapped before it was submitted.
    fn is_shown(&self, table: &Table) -> bool {
        !table.changes.iter().any(|change| change.shown.is_some() && change.before < self.number)
    }

    /// Whether it may be executed from now on; later, when there are changes, where not.
    pub fn start(&self) -> bool {
        let mut table = self.gems.table();
        let may = self.is_shown(&table) && table.moving.is_none_or(|born| self.number <= born);
        if may {
            table.running.insert(self.number);
        }
        may
    }
}

/// A buffer that no job touches as long as this is held.
pub struct Still<'a> {
    gems: &'static Gems,
    changes: &'a Changes,
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        self.gems.table().moving = None;
        self.changes.announce();
    }
}

impl Gems {
    /// Whether no job is under way.
    pub fn is_idle(&self) -> bool {
        self.table().jobs.is_empty()
    }

    /// A new job.
    pub fn begin(&'static self, vm: &'static Vm) -> JobGuard {
        let mut table = self.table();
        table.last_job += 1;
        let number = table.last_job;
        table.jobs.insert(number);
        JobGuard { gems: self, vm, number }
    }

    /// Waits for the jobs that are being executed and may use a buffer: those that were submitted since it was there. Others
    /// of them wait in turn.
    pub fn still<'a>(&'static self, changes: &'a Changes, gem: &Arc<Gem>) -> Still<'a> {
        // One buffer at a time. Each job ends by its own deadline.
        changes.wait(i64::MAX, || {
            let mut table = self.table();
            let free = table.moving.is_none();
            table.moving = table.moving.or(Some(gem.born));
            free
        });
        let still = Still { gems: self, changes };
        changes.wait(i64::MAX, || self.table().running.range(gem.born + 1..).next().is_none());
        still
    }
}
