//! Tensors between the processes of one host: copies beside the queue's work on one side, rings of shared memory on the
//! other. `python/wave32/_distributed.py` makes collectives of them.

use super::state;
use crate::abi::error::Error;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use wave32_device::{Deadline, DeviceError};
use wave32_peers::{Ring, Start};
use wave32_vulkan::{Copied, Copies};

const _: () = assert!(wave32_vulkan::PIECE == wave32_peers::PIECE);

/// Memory of the device, as the work launched before leaves it.
#[pyclass(frozen)]
#[derive(Clone)]
pub struct Region {
    region: wave32_vulkan::Region,
    copies: Arc<Copies>,
}

/// A copy to the device that later work has to wait for.
#[pyclass(frozen)]
pub struct Copy(Copied);

/// The region of these bytes.
///
/// # Errors
/// The stream's.
pub fn locate(address: u64, bytes: u64) -> Result<Region, Error> {
    state::with(|queue| Ok(Region { region: queue.locate(address, bytes)?, copies: queue.copies()? }))
}

/// Work launched from now on starts when the copy is done.
///
/// # Errors
/// The stream's.
pub fn wait_for(copy: &Copy) -> Result<(), Error> {
    state::with(|queue| queue.wait_for_copy(copy.0))
}

/// What a rank takes of another: a message, or its length where it is of no use here.
#[derive(FromPyObject)]
pub enum Message {
    /// Into memory of the device.
    Into(Py<Region>),
    /// Bytes that are left out.
    Skip(u64),
}

/// The rings of all ranks of a group.
#[pyclass(frozen)]
pub struct Peers {
    start: Mutex<Option<Start>>,
    ring: OnceLock<Ring>,
}

#[pymethods]
impl Peers {
    /// This process' memory; the others come with `join`.
    #[new]
    fn new() -> Result<Self, Error> {
        Ok(Self { start: Mutex::new(Some(Start::new()?)), ring: OnceLock::new() })
    }

    /// What the other ranks open this one's memory by.
    #[getter]
    fn address(&self) -> Result<String, Error> {
        self.start().as_ref().map(Start::address).ok_or_else(|| Error::Invalid("joined already".into()))
    }

    /// Opens the others' memory.
    fn join(&self, rank: usize, addresses: Vec<String>) -> Result<(), Error> {
        let start = self.start();
        let start = start.as_ref().ok_or_else(|| Error::Invalid("joined already".into()))?;
        let ring = start.join(rank, &addresses)?;
        self.ring.set(ring).map_err(|_| Error::Invalid("joined already".into()))
    }

    /// All ranks have joined: the address is of no use any more.
    fn joined(&self) {
        drop(self.start().take());
    }

    /// Sends regions to all others.
    fn send(&self, py: Python<'_>, regions: Vec<Py<Region>>, seconds: f64) -> Result<(), Error> {
        py.detach(|| {
            let (ring, deadline) = (self.ring()?, deadline(seconds)?);
            for region in regions.iter().map(Py::get) {
                let publish = |piece: &[u8]| Ok::<_, Error>(ring.publish(piece, deadline.left())?);
                region.copies.read(&region.region, deadline, publish)?;
            }
            Ok(())
        })
    }

    /// Takes messages, each from a rank, in order. What later work has to wait for, where anything was written.
    fn receive(
        &self,
        py: Python<'_>,
        messages: Vec<(usize, Message)>,
        seconds: f64,
    ) -> Result<Option<Copy>, Error> {
        py.detach(|| {
            let (ring, deadline) = (self.ring()?, deadline(seconds)?);
            let mut last = None;
            for (from, message) in &messages {
                match message {
                    Message::Into(region) => {
                        let region = region.get();
                        let take =
                            |piece: &mut [u8]| Ok::<_, Error>(ring.take(*from, piece, deadline.left())?);
                        last = Some(Copy(region.copies.write(&region.region, deadline, take)?));
                    }
                    Message::Skip(bytes) => skip(ring, *from, *bytes, deadline)?,
                }
            }
            Ok(last)
        })
    }

    /// Tells the other ranks that this one goes no further.
    fn fail(&self) {
        if let Some(ring) = self.ring.get() {
            ring.fail();
        }
    }
}

impl Peers {
    fn start(&self) -> MutexGuard<'_, Option<Start>> {
        self.start.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) -> Result<&Ring, Error> {
        self.ring.get().ok_or_else(|| Error::Invalid("the other ranks' memory was not joined".into()))
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

fn deadline(seconds: f64) -> Result<Deadline, Error> {
    let length = Duration::try_from_secs_f64(seconds);
    let length = length.map_err(|_| DeviceError::Misuse(format!("a timeout of {seconds} seconds")))?;
    Ok(Deadline::after(length))
}
