//! How much work fits into one submit.
//!
//! amdgpu resets a ring whose job runs for 2 s, Windows after 2 s as well. A submit is therefore cut so
//! that it should take [`Budget::TARGET`] at most. How long work takes is learnt from the device itself:
//! it starts from a pessimistic rate and follows what timestamps say.

use std::time::Duration;
use wave32_solve::{DeviceCaps, Launch};

/// Learns a device's lower-bound rate and cuts launches to fit the time target.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Work units per second that the device surely reaches.
    rate: f64,
    /// What the first submits assume, before anything was measured.
    floor: f64,
}

/// Work in FLOP-equivalents: bytes are weighted as 16 FLOP, the balance of the cards we model.
fn work(launch: &Launch) -> f64 {
    launch.flops as f64 + 16.0 * launch.bytes as f64 + 1e4
}

impl Budget {
    /// GPU time one submit should stay under.
    pub const TARGET: Duration = Duration::from_millis(100);

    /// Starts at one 64th of the modelled peak: cold kernels on odd shapes reach that.
    pub fn new(caps: &DeviceCaps) -> Self {
        let floor = caps.peak_flops() / 64.0;
        Self { rate: floor, floor }
    }

    /// Cuts `launches` into submits of `(index of the launch, part)`, in order.
    ///
    /// Every workgroup column is in exactly one part. A part is at least one column wide, so a column
    /// that alone exceeds the target is a submit of its own.
    pub fn submits(&self, launches: &[Launch]) -> Vec<Vec<(usize, Launch)>> {
        let capacity = self.rate * Self::TARGET.as_secs_f64();
        let (mut submits, mut current, mut used) = (Vec::new(), Vec::new(), 0.0);
        for (index, launch) in launches.iter().enumerate() {
            let columns = launch.grid[0].max(1);
            let per_column = work(launch) / f64::from(columns);
            let mut x = 0;
            while x < columns {
                let mut room = ((capacity - used) / per_column).floor();
                if room < 1.0 && !current.is_empty() {
                    submits.push(std::mem::take(&mut current));
                    used = 0.0;
                    room = (capacity / per_column).floor();
                }
                let count = (room.max(1.0) as u64).min(u64::from(columns - x)) as u32;
                current.push((index, if count == columns { launch.clone() } else { launch.cut(x, count) }));
                used += per_column * f64::from(count);
                x += count;
            }
        }
        if !current.is_empty() {
            submits.push(current);
        }
        submits
    }

    /// Learns from one submit: its launches took `elapsed` on the device's clock.
    pub fn learn<'a>(&mut self, parts: impl IntoIterator<Item = &'a Launch>, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        if seconds < 1e-4 {
            return; // too short: launch overhead would pass for a slow device
        }
        let seen = parts.into_iter().map(work).sum::<f64>() / seconds;
        // Down at once, up by a quarter of the way, to half of what was seen: the next kernel may be slower.
        let target = seen / 2.0;
        self.rate = if target < self.rate { target } else { self.rate + (target - self.rate) / 4.0 };
        self.rate = self.rate.max(self.floor / 1e6);
    }
}
