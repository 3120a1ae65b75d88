//! KFD's events: what a thread sleeps on until the card raises it.
//!
//! As `kfd_events.c`: raising wakes all waiters; an event that resets itself stays raised only if nobody waited.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::errno::{Errno, Result};

/// Most events of a process (`KFD_SIGNAL_EVENT_LIMIT`).
pub const LIMIT: u32 = 4096;
/// `KFD_IOC_EVENT_MEMORY`.
const KIND_MEMORY: u32 = 8;

/// An access that the card could not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The page's address.
    pub address: u64,
    /// There is something, but not to be written.
    pub readonly: bool,
}

#[derive(Debug)]
struct Event {
    kind: u32,
    auto_reset: bool,
    raised: bool,
    /// How often it was raised: a waiter sees by it what happened while it slept.
    age: u64,
    waiters: u32,
    fault: Option<Fault>,
}

impl Event {
    fn raise(&mut self) {
        self.age += 1;
        self.raised = !self.auto_reset || self.waiters == 0;
    }
}

/// What a wait ended with.
#[derive(Debug, PartialEq, Eq)]
pub enum Wait {
    /// All, or one, as asked.
    Done,
    /// Time is up.
    Timeout,
    /// One of them is gone.
    Gone,
}

/// All events of the process.
#[derive(Debug, Default)]
pub struct Events {
    table: Mutex<BTreeMap<u32, Event>>,
    raised: Condvar,
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Event>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new event's id, from 1 on.
    pub fn create(&self, kind: u32, auto_reset: bool) -> Result<u32> {
        let mut table = self.lock();
        let id = (1..LIMIT).find(|id| !table.contains_key(id)).ok_or(Errno::NO_SPACE)?;
        table.insert(id, Event { kind, auto_reset, raised: false, age: 0, waiters: 0, fault: None });
        Ok(id)
    }

    /// Takes it away; its waiters see [`Wait::Gone`].
    pub fn destroy(&self, id: u32) -> Result<()> {
        let gone = self.lock().remove(&id).map(drop).ok_or(Errno::INVALID);
        self.raised.notify_all();
        gone
    }

    /// Raises it.
    pub fn set(&self, id: u32) -> Result<()> {
        self.lock().get_mut(&id).ok_or(Errno::INVALID)?.raise();
        self.raised.notify_all();
        Ok(())
    }

    /// Lowers it.
    pub fn reset(&self, id: u32) -> Result<()> {
        self.lock().get_mut(&id).ok_or(Errno::INVALID)?.raised = false;
        Ok(())
    }

    /// Raises every event for memory faults.
    pub fn raise_fault(&self, fault: Fault) {
        for event in self.lock().values_mut().filter(|event| event.kind == KIND_MEMORY) {
            event.fault = Some(fault);
            event.raise();
        }
        self.raised.notify_all();
    }

    /// Sleeps until all or one of `ids` was raised; faults of those that were, in the order of `ids`.
    pub fn wait(
        &self,
        ids: &[u32],
        all: bool,
        timeout: Option<Duration>,
    ) -> Result<(Wait, Vec<Option<Fault>>)> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut table = self.lock();
        if ids.iter().any(|id| !table.contains_key(id)) {
            return Err(Errno::INVALID);
        }
        let mut waits = Vec::with_capacity(ids.len());
        for id in ids {
            let event = table.get_mut(id).ok_or(Errno::INVALID)?;
            waits.push((*id, event.raised, event.age));
            event.raised &= !event.auto_reset;
            event.waiters += 1;
        }
        let outcome = loop {
            let mut gone = false;
            for (id, done, age) in &mut waits {
                match table.get(id) {
                    Some(event) => *done |= event.age != *age,
                    None => gone = true,
                }
            }
            let done = waits.iter().filter(|wait| wait.1).count();
            if gone {
                break Wait::Gone;
            }
            if done == ids.len() || (!all && done > 0) {
                break Wait::Done;
            }
            table = match deadline {
                None => self.raised.wait(table).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break Wait::Timeout;
                    }
                    self.raised.wait_timeout(table, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        };
        let mut faults = Vec::with_capacity(ids.len());
        for (id, done, _) in waits {
            let event = table.get_mut(&id);
            faults.push(event.as_ref().and_then(|event| event.fault).filter(|_| done));
            if let Some(event) = event {
                event.waiters = event.waiters.saturating_sub(1);
            }
        }
        Ok((outcome, faults))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const SHORT: Option<Duration> = Some(Duration::from_millis(20));
    const LONG: Option<Duration> = Some(Duration::from_secs(20));

    #[test]
    fn what_was_raised_before_is_not_missed_and_resets() {
        let events = Events::default();
        let (auto, manual) = (events.create(0, true).unwrap(), events.create(0, false).unwrap());
        events.set(auto).unwrap();
        events.set(manual).unwrap();
        assert_eq!(events.wait(&[auto, manual], true, SHORT).unwrap().0, Wait::Done);
        assert_eq!(events.wait(&[auto], true, SHORT).unwrap().0, Wait::Timeout);
        assert_eq!(events.wait(&[manual], true, SHORT).unwrap().0, Wait::Done);
        assert_eq!(events.wait(&[auto, manual], true, SHORT).unwrap().0, Wait::Timeout);
        assert_eq!(events.wait(&[auto, manual], false, SHORT).unwrap().0, Wait::Done);
    }

    #[test]
    fn raising_wakes_every_waiter() {
        let events = Arc::new(Events::default());
        let id = events.create(0, true).unwrap();
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let events = Arc::clone(&events);
                std::thread::spawn(move || events.wait(&[id], true, LONG).unwrap().0)
            })
            .collect();
        while events.lock()[&id].waiters < 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        events.set(id).unwrap();
        assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap() == Wait::Done));
        assert_eq!(events.wait(&[id], true, SHORT).unwrap().0, Wait::Timeout, "nobody is left to be woken");
    }

    #[test]
    fn a_fault_reaches_the_memory_event() {
        let events = Events::default();
        let (signal, memory) = (events.create(0, true).unwrap(), events.create(KIND_MEMORY, false).unwrap());
        let fault = Fault { address: 0x7000, readonly: true };
        events.raise_fault(fault);
        assert_eq!(
            events.wait(&[signal, memory], false, SHORT).unwrap(),
            (Wait::Done, vec![None, Some(fault)])
        );
    }

    #[test]
    fn destroyed_events_end_their_waits() {
        let events = Arc::new(Events::default());
        let id = events.create(0, true).unwrap();
        let waiter = {
            let events = Arc::clone(&events);
            std::thread::spawn(move || events.wait(&[id], true, LONG).unwrap().0)
        };
        while events.lock()[&id].waiters < 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        events.destroy(id).unwrap();
        assert_eq!(waiter.join().unwrap(), Wait::Gone);
        assert_eq!(events.wait(&[id], true, SHORT), Err(Errno::INVALID));
    }
}
