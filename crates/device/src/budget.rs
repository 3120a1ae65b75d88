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
    /// GPU time one submit should stay under.
    target: Duration,
    /// Most workgroups along x that the device launches at once.
    max_columns: u32,
}

/// How far a sequence of launches has been submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    /// The launch to go on with; the number of launches once all are submitted.
    launch: usize,
    /// Its first workgroup column that was not submitted yet.
    column: u32,
}

impl Cursor {
    /// True where every one of `launches` has been submitted.
    pub fn is_done(&self, launches: &[Launch]) -> bool {
        self.launch >= launches.len()
    }
}

fn work(launch: &Launch) -> f64 {
    Budget::work(launch.flops, launch.bytes)
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

    /// The next submit as `(index of the launch, part)`, at most `max_parts` of them, and moves
    /// `cursor` past it. Empty once all is submitted.
    ///
    /// Every workgroup column is in exactly one part. A part is at least one column wide, so a column
    /// that alone exceeds the target is a submit of its own, and no wider than the device launches.
    pub fn next(&self, launches: &[Launch], cursor: &mut Cursor, max_parts: usize) -> Vec<(usize, Launch)> {
        let capacity = self.capacity();
        let (mut parts, mut used) = (Vec::new(), 0.0);
        while let Some(launch) = launches.get(cursor.launch) {
            if parts.len() >= max_parts.max(1) {
                break;
            }
            let columns = launch.grid[0].max(1);
            let per_column = work(launch) / f64::from(columns);
            let room = ((capacity - used) / per_column).floor();
            if room < 1.0 && !parts.is_empty() {
                break;
            }
            let left = columns - cursor.column;
            let count = (room.max(1.0) as u64).min(u64::from(left.min(self.max_columns))) as u32;
            let whole = count == columns;
            let part = if whole { launch.clone() } else { launch.cut(cursor.column, count) };
            parts.push((cursor.launch, part));
            used += per_column * f64::from(count);
            *cursor = if count == left {
                Cursor { launch: cursor.launch + 1, column: 0 }
            } else {
                Cursor { column: cursor.column + count, ..*cursor }
            };
        }
        parts
    }

    /// All submits of `launches` at the rate known now; see [`Budget::next`].
    pub fn submits(&self, launches: &[Launch]) -> Vec<Vec<(usize, Launch)>> {
        let mut cursor = Cursor::default();
        let next = || Some(self.next(launches, &mut cursor, usize::MAX)).filter(|parts| !parts.is_empty());
        std::iter::from_fn(next).collect()
    }

    /// Learns from one submit: its launches took `elapsed` on the device's clock.
    pub fn learn<'a>(&mut self, parts: impl IntoIterator<Item = &'a Launch>, elapsed: Duration) {
        self.learn_total(parts.into_iter().map(work).sum(), elapsed);
    }

    /// As [`Budget::learn`], from the submit's [`Budget::work`].
    pub fn learn_total(&mut self, total: f64, elapsed: Duration) {
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
    use wave32_solve::CARDS;

    fn launch(columns: u32, flops: u64, depends: bool) -> Launch {
        Launch {
            kernel: "k".into(),
            grid: [columns, 2, 1],
            params: vec![0, 7],
            bindings: vec![],
            flops,
            bytes: 0,
            depends,
        }
    }

    /// Every column of every launch once, in order, `depends` on the first part only.
    fn assert_covers(launches: &[Launch], submits: &[Vec<(usize, Launch)>]) {
        let mut seen = vec![0u32; launches.len()];
        let mut last = 0;
        for (index, part) in submits.iter().flatten() {
            assert!(*index >= last, "launch {index} after launch {last}");
            last = *index;
            assert_eq!(part.params[0], seen[*index], "launch {index} skips or repeats columns");
            assert_eq!(part.depends, launches[*index].depends && part.params[0] == 0);
            assert_eq!(&part.grid[1..], &launches[*index].grid[1..]);
            seen[*index] += part.grid[0];
        }
        assert_eq!(seen, launches.iter().map(|l| l.grid[0]).collect::<Vec<_>>());
    }

    #[test]
    fn small_work_is_one_submit() {
        let budget = Budget::new(&CARDS[0].caps());
        let launches = [launch(10, 1000, false), launch(3, 1000, true)];
        let submits = budget.submits(&launches);
        assert_eq!(submits.len(), 1);
        assert_covers(&launches, &submits);
    }

    #[test]
    fn big_work_is_cut_to_the_target() {
        let caps = CARDS[0].caps();
        let budget = Budget::new(&caps);
        let capacity = caps.peak_flops() / 64.0 * 0.1;
        let flops = (capacity * 10.0) as u64;
        let launches = [launch(1000, flops, false), launch(1, flops, true), launch(7, 10, true)];
        let submits = budget.submits(&launches);
        assert!((12..=13).contains(&submits.len()), "{} submits", submits.len());
        assert_covers(&launches, &submits);
    }

    #[test]
    fn wide_grids_are_cut_to_the_devices_limit() {
        let caps = DeviceCaps { max_groups: [100, 100, 100], ..CARDS[0].caps() };
        let budget = Budget::new(&caps);
        let launches = [launch(250, 1, false)];
        let submits = budget.submits(&launches);
        assert_covers(&launches, &submits);
        assert!(submits.iter().flatten().all(|(_, part)| part.grid[0] <= 100));
        let mut cursor = Cursor::default();
        assert_eq!(budget.next(&launches, &mut cursor, 2).len(), 2, "at most two parts were asked for");
        assert!(!cursor.is_done(&launches));
        assert_eq!(budget.next(&launches, &mut cursor, 2).len(), 1);
        assert!(cursor.is_done(&launches));
    }

    #[test]
    fn learns_down_at_once_and_up_slowly() {
        let caps = CARDS[0].caps();
        let mut budget = Budget::new(&caps);
        let launches = [launch(1000, (caps.peak_flops() / 64.0 * 0.1) as u64 / 2, false)];
        assert_eq!(budget.submits(&launches).len(), 1);
        budget.learn(&launches, Duration::from_secs(1)); // a twentieth of the assumed rate
        let slow = budget.submits(&launches).len();
        assert!((20..=21).contains(&slow), "{slow} submits at a twentieth of the rate");
        budget.learn(&launches, Duration::from_millis(1));
        let faster = budget.submits(&launches).len();
        assert!(faster < slow, "{faster} submits after a fast one");
        budget.learn(&launches, Duration::ZERO);
        assert_eq!(budget.submits(&launches).len(), faster, "too short to learn from");
    }
}
