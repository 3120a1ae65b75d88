//! A point in time until which to wait.

use std::time::{Duration, Instant};

/// A point in time until which to wait, and how to word it when it passes.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    until: Option<Instant>,
    length: Duration,
}

impl Deadline {
    /// From now on; one that the clock cannot hold never passes.
    pub fn after(length: Duration) -> Self {
        Self { until: Instant::now().checked_add(length), length }
    }

    /// The time that it was set to.
    pub fn length(self) -> Duration {
        self.length
    }

    /// The time left, capped far below what drivers mistake for "for ever".
    pub fn left(self) -> Duration {
        const YEAR: Duration = Duration::from_secs(365 * 86400);
        let left = self.until.map_or(YEAR, |until| until.saturating_duration_since(Instant::now()));
        left.min(YEAR)
    }
}
