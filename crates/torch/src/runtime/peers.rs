//! Tensors between the processes of one host: copies beside the queue's work on one side, rings of shared memory on the
//! other. `python/wave32/_distributed.py` makes collectives of them.

use super::state;
use crate::abi::error::Error;
use crate::dispatch::index_errors;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use wave32_device::{Deadline, DeviceError};
use wave32_peers::{Ring, Start};
use wave32_vulkan::{Copies, Direction};

const _: () = assert!(wave32_vulkan::PIECE == wave32_peers::PIECE);

/// How long giving up waits for copies in flight.
const GIVE_UP: Duration = Duration::from_secs(20);

/// Memory of the device, as the work launched before leaves it.
#[pyclass(frozen)]
pub struct Region(wave32_vulkan::Region);

/// What a rank takes of another: a message, or its length where it is of no use here.
#[derive(FromPyObject)]
pub enum Message {
    /// Into memory of the device.
    Into(Py<Region>),
    /// Bytes that are left out.
    Skip(u64),
}

/// The rings of all ranks of a group, and the copies between them and the device.
///
/// Operations have numbers, which rise; every rank calls `send` and `receive` for each, with nothing where it has nothing.
#[pyclass(frozen)]
pub struct Peers {
    start: Mutex<Option<Start>>,
    joined: OnceLock<(Ring, Arc<Copies>)>,
}

#[pymethods]
impl Peers {
    /// This process' memory; the others' comes with `join`.
    #[new]
    fn new() -> Result<Self, Error> {
        Ok(Self { start: Mutex::new(Some(Start::new()?)), joined: OnceLock::new() })
    }

    /// What the other ranks open this one's memory by.
    #[getter]
    fn address(&self) -> Result<String, Error> {
        self.start().as_ref().map(Start::address).ok_or_else(|| Error::Invalid("joined already".into()))
    }

    /// Opens the others' memory.
    fn join(&self, py: Python<'_>, rank: usize, addresses: Vec<String>) -> Result<(), Error> {
        py.detach(|| {
            let start = self.start();
            let start = start.as_ref().ok_or_else(|| Error::Invalid("joined already".into()))?;
            let (ring, copies) = (start.join(rank, &addresses)?, state::with(|queue| queue.copies())?);
            self.joined.set((ring, copies)).map_err(|_| Error::Invalid("joined already".into()))
        })
    }

    /// All ranks have joined: the address is of no use any more.
    fn all_joined(&self) {
        drop(self.start().take());
    }

    /// Memory of the device, as the work launched so far leaves it.
    fn locate(&self, py: Python<'_>, address: u64, bytes: u64) -> Result<Region, Error> {
        py.detach(|| {
            let (_, copies) = self.joined()?;
            state::with(|queue| Ok(Region(queue.locate(copies, address, bytes)?)))
        })
    }

    /// Tells the others that this rank has come to an operation.
    fn reach(&self, operation: u64) -> Result<(), Error> {
        self.joined()?.0.reach(operation);
        Ok(())
    }

    /// Waits until all ranks have come to an operation.
    fn all_reach(&self, py: Python<'_>, operation: u64, seconds: f64) -> Result<(), Error> {
        py.detach(|| Ok(self.joined()?.0.all_reach(operation, length(seconds)?)?))
    }

    /// Work launched from now on starts when an operation's copies are done.
    fn order(&self, py: Python<'_>, operation: u64) -> Result<(), Error> {
        py.detach(|| {
            let (_, copies) = self.joined()?;
            state::with(|queue| queue.wait_for_mark(copies, operation))
        })
    }

    /// Sends regions to all others.
    fn send(
        &self,
        py: Python<'_>,
        operation: u64,
        regions: Vec<Py<Region>>,
        seconds: f64,
    ) -> Result<(), Error> {
        py.detach(|| {
            let ((ring, copies), deadline) = (self.joined()?, Deadline::after(length(seconds)?));
            for region in regions.iter().map(Py::get) {
                let publish = |piece: &[u8]| Ok::<_, Error>(ring.publish(piece, deadline.left())?);
                copies.read(&region.0, deadline, publish)?;
            }
            Ok(copies.mark(Direction::Down, operation)?)
        })
    }

    /// Takes messages, each from a rank, in order.
    fn receive(
        &self,
        py: Python<'_>,
        operation: u64,
        messages: Vec<(usize, Message)>,
        seconds: f64,
    ) -> Result<(), Error> {
        py.detach(|| {
            let ((ring, copies), deadline) = (self.joined()?, Deadline::after(length(seconds)?));
            for (from, message) in &messages {
                match message {
                    Message::Into(region) => {
                        let take =
                            |piece: &mut [u8]| Ok::<_, Error>(ring.take(*from, piece, deadline.left())?);
                        copies.write(&region.get().0, deadline, take)?;
                    }
                    Message::Skip(bytes) => skip(ring, *from, *bytes, deadline)?,
                }
            }
            Ok(copies.mark(Direction::Up, operation)?)
        })
    }

    /// Tells the other ranks that this one goes no further, and lets kernels go that wait for an operation. What they compute
    /// is wrong: where some were launched, the next one who reads a result or waits for the device is told.
    fn give_up(&self, py: Python<'_>, operation: u64, were_launched: bool, why: String) -> Result<(), Error> {
        py.detach(|| {
            let (ring, copies) = self.joined()?;
            ring.fail();
            if were_launched {
                index_errors::set_broken(why);
            }
            Ok(copies.give_up(operation, Deadline::after(GIVE_UP))?)
        })
    }
}

impl Peers {
    fn start(&self) -> MutexGuard<'_, Option<Start>> {
        self.start.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn joined(&self) -> Result<&(Ring, Arc<Copies>), Error> {
        self.joined.get().ok_or_else(|| Error::Invalid("the other ranks' memory was not joined".into()))
    }
}

fn skip(ring: &Ring, from: usize, bytes: u64, deadline: Deadline) -> Result<(), Error> {
    let mut left = bytes as usize;
    while left > 0 {
        let piece = left.min(wave32_peers::PIECE);
        ring.skip(from, piece, deadline.left())?;
        left -= piece;
    }
    Ok(())
}

fn length(seconds: f64) -> Result<Duration, Error> {
    let length = Duration::try_from_secs_f64(seconds);
    Ok(length.map_err(|_| DeviceError::Misuse(format!("a timeout of {seconds} seconds")))?)
}
