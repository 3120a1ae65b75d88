//! Graphs of the stream: captured, replayed, dropped.

use super::state;
use crate::abi::error::Error;
use crate::dispatch::index_errors;
use wave32_device::{DeviceError, Queue};
use wave32_vulkan::GraphId;

/// From now on work becomes part of a graph instead of running.
///
/// # Errors
/// `Device` during another capture; the stream's.
pub fn begin() -> Result<(), Error> {
    state::with(|queue| queue.synchronize())?;
    index_errors::start()?;
    state::with(|queue| queue.begin_capture())
}

/// Ends the capture: the graph's number, and whether its kernels may tell of wrong contents ([`index_errors`]).
///
/// # Errors
/// `Device` where nothing is captured; the stream's.
pub fn end() -> Result<(u64, bool), Error> {
    let graph = state::with(|queue| queue.end_capture())?;
    Ok((graph.0, index_errors::are_expected()))
}

/// Runs a graph.
///
/// # Errors
/// `Device` for a graph that is gone; the stream's.
pub fn replay(graph: u64, may_tell: bool) -> Result<(), Error> {
    if may_tell {
        index_errors::expect();
    }
    state::with(|queue| queue.replay(GraphId(graph)))
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
