//! Ctrl-C and termination signals: stop in order on the first, at once on a second.

use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Sets the flag on Ctrl-C or a termination signal; leaves at once, without a report, on a second one.
///
/// Shells and `timeout` may send one signal twice in a row (to the process and to its group): within a
/// second that counts once.
///
/// # Errors
/// The system refuses to set a signal handler.
pub fn watch(stop: &Arc<AtomicBool>) -> Result<()> {
    let flag = Arc::clone(stop);
    let mut first: Option<Instant> = None;
    ctrlc::set_handler(move || {
        flag.store(true, Ordering::SeqCst);
        if first.get_or_insert_with(Instant::now).elapsed() > Duration::from_secs(1) {
            std::process::exit(1);
        }
    })
    .context("cannot watch for Ctrl-C")
}
