//! Graphs of the stream: captured, replayed, dropped.

use super::{rng, state};
use crate::abi::error::Error;
use crate::dispatch::index_errors;
use std::sync::atomic::{AtomicU64, Ordering};
use wave32_device::{DeviceError, Queue};
use wave32_ops::random::{PhiloxState, renumber};
use wave32_vulkan::GraphId;

/// Random numbers of the graph that is being captured: counters so far. A replay adds the generator's own.
static COUNTERS: AtomicU64 = AtomicU64::new(0);

/// The first of so many counters of the graph that is being captured.
pub fn reserve(counters: u64) -> u64 {
    COUNTERS.fetch_add(counters, Ordering::Relaxed)
}

/// A captured graph.
#[derive(Debug, Clone, Copy)]
pub struct Captured {
    /// Its number.
    pub id: u64,
    /// Whether its kernels may tell of wrong contents ([`index_errors`]).
    pub may_tell: bool,
    /// Random numbers that each replay takes.
    pub counters: u64,
}

/// From now on work becomes part of a graph instead of running.
///
/// # Errors
/// `Device` during another capture; the stream's.
pub fn begin() -> Result<(), Error> {
    state::with(|queue| queue.synchronize())?;
    index_errors::start()?;
    COUNTERS.store(0, Ordering::Relaxed);
    state::with(|queue| queue.begin_capture())
}

/// Ends the capture.
///
/// # Errors
/// `Device` where nothing is captured; the stream's.
pub fn end() -> Result<Captured, Error> {
    let graph = state::with(|queue| queue.end_capture())?;
    let counters = COUNTERS.load(Ordering::Relaxed);
    Ok(Captured { id: graph.0, may_tell: index_errors::are_expected(), counters })
}

/// Runs a graph, with random numbers that nothing else gets.
///
/// # Errors
/// `Device` for a graph that is gone; the stream's.
pub fn replay(graph: Captured) -> Result<(), Error> {
    if graph.may_tell {
        index_errors::expect();
    }
    let (seed, offset) = rng::reserve(graph.counters);
    let renew = |params: &mut [u32]| renumber(params, PhiloxState { seed, offset });
    state::with(|queue| queue.replay(GraphId(graph.id), renew))
}

/// Forgets a graph. One of a stream that is gone went with it.
///
/// # Errors
/// The stream's.
pub fn drop(graph: u64) -> Result<(), Error> {
    if !state::is_open() {
        return Ok(());
    }
    state::with(|queue| queue.drop_graph(GraphId(graph)))
}

/// Whether a graph is being captured.
///
/// # Errors
/// The stream's.
pub fn is_capturing() -> Result<bool, Error> {
    if !state::is_open() {
        return Ok(false);
    }
    state::with(|queue| Ok(queue.is_capturing()))
}

/// That nothing is captured: `what` would be the same at every replay.
///
/// # Errors
/// `Device` during a capture; the stream's.
pub fn refuse(what: &str, instead: &str) -> Result<(), Error> {
    if !is_capturing()? {
        return Ok(());
    }
    let text = format!("{what} cannot be captured: it would be the same at every replay. {instead}");
    Err(DeviceError::Misuse(text).into())
}
