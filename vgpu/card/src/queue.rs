//! User-mode queues: a thread each, asleep while there is nothing to do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::errno::{Errno, Result};
use crate::events::Fault;
use crate::{aql, sdma};

/// What a queue's packets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 64-byte packets of the HSA standard.
    Aql,
    /// Copies and what belongs to them.
    Sdma,
}

/// How a program wants one.
#[derive(Debug, Clone, Copy)]
pub struct Description {
    /// Packets.
    pub kind: Kind,
    /// Address of the ring.
    pub ring: u64,
    /// Its bytes, a power of two.
    pub bytes: u64,
    /// Addresses of the 64-bit indices.
    pub read_index: u64,
    /// See `read_index`.
    pub write_index: u64,
}

/// Why a queue stopped for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The card could not reach memory.
    Memory(Fault),
    /// A code of the runtime's queue error handler.
    Queue(u64),
}

/// A queue.
#[derive(Debug)]
pub struct Queue {
    /// Index of its doorbell, and its id.
    pub slot: usize,
    /// See there.
    pub description: Description,
    last_doorbell: AtomicU64,
    rung: Mutex<bool>,
    changed: Condvar,
    suspended: AtomicBool,
    stop: AtomicBool,
    finished: AtomicBool,
}

/// A doorbell that nobody rang yet; a ring of packet 0 differs from it.
const SILENT: u64 = u64::MAX;
/// How long a queue looks for its next packet before it sleeps: a program that waits for one kernel and launches the next
/// is quicker than a wake-up.
const LINGER: Duration = Duration::from_micros(20);
const MAX_QUEUES: usize = 128;

impl Queue {
    /// A new queue, with its thread.
    pub fn create(device: &'static Device, description: Description) -> Result<Arc<Self>> {
        if !description.bytes.is_power_of_two() || description.bytes < 1024 {
            return Err(Errno::INVALID);
        }
        let in_use = device.vm.in_use();
        for address in [description.ring, description.read_index, description.write_index] {
            device.vm.word64(address).ok_or(Errno::FAULT)?;
        }
        drop(in_use);
        let mut queues = device.queues();
        let slot =
            (0..MAX_QUEUES).find(|slot| !queues.contains_key(&(*slot as u32))).ok_or(Errno::NO_MEMORY)?;
        device.vm.doorbell(slot).store(SILENT, Ordering::Release);
        let queue = Arc::new(Self::idle(slot, description));
        let for_thread = Arc::clone(&queue);
        std::thread::Builder::new()
            .name(format!("vgpu-queue-{slot}"))
            .spawn(move || for_thread.serve(device))
            .map_err(|_| Errno::NO_MEMORY)?;
        queues.insert(slot as u32, Arc::clone(&queue));
        drop(queues);
        device.bell.start(device);
        Ok(queue)
    }

    /// A queue that nobody serves.
    pub fn idle(slot: usize, description: Description) -> Self {
        Self {
            slot,
            description,
            last_doorbell: AtomicU64::new(SILENT),
            rung: Mutex::new(false),
            changed: Condvar::new(),
            suspended: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            finished: AtomicBool::new(false),
        }
    }

    /// Takes note of the doorbell; whether it was rung.
    pub fn look_at_doorbell(&self, doorbell: &AtomicU64) -> bool {
        let value = doorbell.load(Ordering::Acquire);
        let rung = self.last_doorbell.swap(value, Ordering::Relaxed) != value;
        if rung {
            self.wake();
        }
        rung
    }

    fn wake(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Takes no further packets, until resumed.
    pub fn suspend(&self, on: bool) {
        self.suspended.store(on, Ordering::Release);
        self.wake();
    }

    /// Tells it to end: it takes no further packets, and what waits does not.
    pub fn end(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Ends it. What it executes is broken off; waits for that a short while.
    pub fn destroy(&self) {
        self.end();
        let deadline = Instant::now() + Duration::from_secs(2);
        while !self.finished.load(Ordering::Acquire) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Whether it is to end.
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn serve(&self, device: &'static Device) {
        while !self.stopping() {
            *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = false;
            // A bug of ours, of which the panic's message tells, is a fault of the card's: the program hears of it.
            let drained = catch_unwind(AssertUnwindSafe(|| self.drain(device)))
                .unwrap_or(Err(Failure::Queue(aql::error::TRAP)));
            if let Err(failure) = drained {
                self.report(device, failure);
                break;
            }
            let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
            while !*rung && !self.stopping() {
                rung = self.changed.wait(rung).unwrap_or_else(PoisonError::into_inner);
            }
        }
        self.finished.store(true, Ordering::Release);
    }

    /// Does what is there.
    fn drain(&self, device: &'static Device) -> std::result::Result<(), Failure> {
        let _in_use = device.vm.in_use();
        let mut idle_since = Instant::now();
        while !self.stopping() && !self.suspended.load(Ordering::Acquire) {
            let did = match self.description.kind {
                Kind::Aql => aql::step(device, self)?,
                Kind::Sdma => sdma::step(device, self)?,
            };
            if did {
                device.progress.advance();
                idle_since = Instant::now();
            } else if idle_since.elapsed() > LINGER {
                break;
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    /// A word of the queue's own, which was there when it was created.
    pub fn index(
        &self,
        device: &'static Device,
        address: u64,
    ) -> std::result::Result<&'static AtomicU64, Failure> {
        device.vm.word64(address).ok_or(Failure::absent(address))
    }

    /// Tells the program why the queue stopped.
    pub fn report(&self, device: &'static Device, failure: Failure) {
        let _in_use = device.vm.in_use();
        device.executor.write_report(device);
        match failure {
            Failure::Memory(fault) => {
                log!("queue {}: no access to {:#x}", self.slot, fault.address);
                device.events.raise_fault(Fault { address: fault.address & !0xfff, ..fault });
            }
            Failure::Queue(code) => aql::raise_queue_error(device, self, code),
        }
    }
}

impl Failure {
    /// Nothing is mapped there.
    pub fn absent(address: u64) -> Self {
        Self::Memory(Fault { address, readonly: false })
    }
}
