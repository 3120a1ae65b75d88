//! How much work fits into one submit.
//!
//! amdgpu resets a ring whose job runs for 2 s, Windows after 2 s as well. A submit is therefore cut so
//! that it should take [`Budget::TARGET`] at most. How long work takes is learnt from the device itself:
//! it starts from a pessimistic rate and follows what timestamps say.

use std::time::Duration;
use wave32_solve::DeviceCaps;

/// Learns a device's lower-bound rate and cuts launches to fit the time target.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Work units per second that the device surely reaches.
    rate: f64,
    /// What the first submits assume, before anything was measured.
    floor: f64,
    /// GPU time one submit should stay under.
    target: Duration,
    /// Most workgroups along x that the device launches at once.
    max_columns: u32,
}

impl Budget {
    /// GPU time one submit should stay under.
    pub const TARGET: Duration = Duration::from_millis(100);

    /// Starts at one 64th of the modelled peak: cold kernels on odd shapes reach that.
    pub fn new(caps: &DeviceCaps) -> Self {
        let floor = (caps.peak_flops() / 64.0).max(1e6);
        Self { rate: floor, floor, target: Self::TARGET, max_columns: caps.max_groups[0].max(1) }
    }

    /// The same with another target, which is at least a microsecond.
    #[must_use]
    pub fn with_target(mut self, target: Duration) -> Self {
        self.target = target.max(Duration::from_micros(1));
        self
    }

    /// Work in FLOP-equivalents: bytes are weighted as 16 FLOP, the balance of the cards we model.
    pub fn work(flops: u64, bytes: u64) -> f64 {
        flops as f64 + 16.0 * bytes as f64 + 1e4
    }

    /// The work that one submit should stay under, at the rate known now.
    pub fn capacity(&self) -> f64 {
        self.rate * self.target.as_secs_f64()
    }

    /// The time one submit should stay under.
    pub fn target(&self) -> Duration {
        self.target
    }

    /// How many of `columns` workgroup columns, `work` in all, the next submit takes beside the work `used` that it has
    /// already: at least one, so that a column that alone exceeds the target is a submit of its own, and no more than
    /// the device launches at once.
    pub fn columns(&self, columns: u32, work_per_column: f64, used: f64) -> u32 {
        let room = ((self.capacity() - used) / work_per_column).max(1.0) as u64;
        room.min(u64::from(columns.min(self.max_columns))) as u32
    }

    /// Learns from one submit: `total` [`Budget::work`] took `elapsed` on the device's clock.
    pub fn learn(&mut self, total: f64, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        if seconds < 1e-4 || total <= 0.0 {
            return; // too short: launch overhead would pass for a slow device
        }
        let seen = total / seconds;
        // Down at once, up by a quarter of the way, to half of what was seen: the next kernel may be slower.
        let target = seen / 2.0;
        // A short submit of many small launches tells of their overhead, not of the rate of a large one.
        if target < self.rate && elapsed < self.target / 16 {
            return;
        }
        self.rate = if target < self.rate { target } else { self.rate + (target - self.rate) / 4.0 };
        self.rate = self.rate.max(self.floor / 1e6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wave32_solve::usual_boards;

    /// The parts that `columns` columns of `flops` in all are cut into, each in a submit of its own.
    fn parts(budget: &Budget, columns: u32, flops: u64) -> Vec<u32> {
        let per_column = Budget::work(flops, 0) / f64::from(columns);
        let (mut parts, mut left) = (Vec::new(), columns);
        while left > 0 {
            parts.push(budget.columns(left, per_column, 0.0));
            left -= parts[parts.len() - 1];
        }
        parts
    }

    #[test]
    fn small_work_is_one_submit() {
        assert_eq!(parts(&Budget::new(&DeviceCaps::of(usual_boards()[0])), 10, 1000), [10]);
    }

    #[test]
    fn big_work_is_cut_to_the_target() {
        let caps = DeviceCaps::of(usual_boards()[0]);
        let budget = Budget::new(&caps);
        let capacity = caps.peak_flops() / 64.0 * 0.1;
        let flops = (capacity * 10.0) as u64;
        let cut = parts(&budget, 1000, flops);
        assert!((10..=11).contains(&cut.len()), "{} submits", cut.len());
        assert_eq!(parts(&budget, 1, flops), [1], "a column alone is not cut");
        // Beside other work there is less room, and one column's at least.
        let per_column = Budget::work(flops, 0) / 1000.0;
        assert!((49..=50).contains(&budget.columns(1000, per_column, capacity / 2.0)));
        assert_eq!(budget.columns(1000, per_column, 2.0 * capacity), 1);
    }

    #[test]
    fn wide_grids_are_cut_to_the_devices_limit() {
        let caps = DeviceCaps { max_groups: [100, 100, 100], ..DeviceCaps::of(usual_boards()[0]) };
        assert_eq!(parts(&Budget::new(&caps), 250, 1), [100, 100, 50]);
    }

    #[test]
    fn learns_down_at_once_and_up_slowly() {
        let caps = DeviceCaps::of(usual_boards()[0]);
        let mut budget = Budget::new(&caps);
        let flops = (caps.peak_flops() / 64.0 * 0.1) as u64 / 2;
        let work = Budget::work(flops, 0);
        assert_eq!(parts(&budget, 1000, flops).len(), 1);
        budget.learn(work, Duration::from_secs(1)); // a twentieth of the assumed rate
        let slow = parts(&budget, 1000, flops).len();
        assert!((20..=21).contains(&slow), "{slow} submits at a twentieth of the rate");
        budget.learn(work, Duration::from_millis(1));
        let faster = parts(&budget, 1000, flops).len();
        assert!(faster < slow, "{faster} submits after a fast one");
        budget.learn(work, Duration::ZERO);
        assert_eq!(parts(&budget, 1000, flops).len(), faster, "too short to learn from");
    }
}
