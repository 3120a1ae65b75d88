//! [`Lanes`]: how workgroups that reduce are laid out (`kernels/group.h`).

use crate::call::flag;
use wave32_params::group::LANES_ALONG;

const THREADS: u64 = 256;
/// Workgroups that keep a large device busy.
const GROUPS: u64 = 1024;
/// Elements that a thread reduces at least before the work is split further.
const PER_THREAD: u64 = 32;

/// A grid for `outs` outputs of `count` reduced elements each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lanes {
    /// The kernel's `lanes`.
    pub word: u32,
    /// Workgroups along x.
    pub groups: u64,
    /// Workgroups along y, each with a part of the reduced elements.
    pub splits: u64,
    /// Reduced elements of such a part.
    pub chunk: u64,
}

impl Lanes {
    /// `along`: neighbouring lanes read neighbouring reduced elements, not neighbouring outputs.
    pub fn new(outs: u64, count: u64, along: bool) -> Self {
        let most = |wanted: u64, limit: u64| wanted.clamp(1, limit).next_power_of_two();
        let (across, down) = if along {
            let mut down = most(count, THREADS);
            // Many short rows: a lane that reads more of one leaves less to join. More than 32 lanes read no faster.
            let is_short = |down: u64| count < if down > 32 { 16 } else { 4 } * down;
            while down > 8 && is_short(down) && outs / (2 * THREADS / down) >= GROUPS {
                down /= 2;
            }
            (THREADS / down, down)
        } else {
            let down = most(count, THREADS / most(outs, 64));
            (THREADS / down, down)
        };
        let groups = outs.div_ceil(across);
        let splits = (GROUPS / groups.max(1)).min(count / (down * PER_THREAD)).max(1);
        let chunk = count.div_ceil(splits).max(1);
        let word = across.ilog2() | flag(along, LANES_ALONG);
        Self { word, groups, splits: count.div_ceil(chunk).max(1), chunk }
    }

    /// As one part, however much that is.
    pub fn whole(outs: u64, count: u64, along: bool) -> Self {
        Self { splits: 1, chunk: count.max(1), ..Self::new(outs, count, along) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything() {
        for (outs, count) in [(1, 1), (1, 0), (1, 10_000_000), (64, 401_408), (1_000_000, 7), (3, 100_000)] {
            for along in [false, true] {
                let lanes = Lanes::new(outs, count, along);
                assert!(
                    lanes.chunk * lanes.splits >= count && lanes.chunk * (lanes.splits - 1) < count.max(1)
                );
                assert!(lanes.groups << (lanes.word & 255) >= outs, "{lanes:?}");
                assert!(lanes.word & 255 <= 8);
            }
        }
    }
}
