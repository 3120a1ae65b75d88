//! Which launches must wait for which: the ranges that were touched since the last barrier.

use serde::{Deserialize, Serialize};

/// What a launch does with a range that it binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Access {
    /// Nothing: the kernel names it, and this launch's flags leave it alone.
    Unused,
    /// Reads.
    #[default]
    Read,
    /// Writes, and may read.
    Write,
    /// Writes elements that no other launch of the same number touches: those run side by side. Plans number
    /// theirs 0; who runs a plan gives each run a number of its own ([`Access::of_run`]).
    Part(u32),
}

impl Access {
    /// True where the range's content may change.
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Part(_))
    }

    /// The same in the run of that number.
    #[must_use]
    pub fn of_run(self, run: u32) -> Self {
        match self {
            Self::Part(_) => Self::Part(run),
            other => other,
        }
    }

    /// Must one wait for the other, where both touch a byte?
    fn conflicts(self, other: Self) -> bool {
        match (self, other) {
            (Self::Unused, _) | (_, Self::Unused) | (Self::Read, Self::Read) => false,
            (Self::Part(a), Self::Part(b)) => a != b,
            _ => true,
        }
    }
}

/// First byte and end of a range.
pub type Range = (u64, u64);

/// Ranges that were touched since the last barrier.
#[derive(Debug, Clone, Default)]
pub struct Hazards {
    touched: Vec<(Range, Access)>,
}

impl Hazards {
    /// More ranges than this and the next launch waits, so that looking stays cheap.
    pub const MAX_RANGES: usize = 48;

    /// Forgets everything: a barrier was recorded.
    pub fn clear(&mut self) {
        self.touched.clear();
    }

    /// Must a launch that touches these ranges wait for a barrier?
    pub fn conflict(&self, ranges: impl Iterator<Item = (Range, Access)>) -> bool {
        let mut count = 0;
        for ((start, end), access) in ranges {
            count += 1;
            let meets =
                |&((s, e), before): &(Range, Access)| start < e && s < end && access.conflicts(before);
            if self.touched.iter().any(meets) {
                return true;
            }
        }
        self.touched.len() + count > Self::MAX_RANGES
    }

    /// Notes that a launch touches these ranges.
    pub fn note(&mut self, ranges: impl Iterator<Item = (Range, Access)>) {
        self.touched.extend(ranges.filter(|(_, access)| *access != Access::Unused));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Access::{Part, Read, Unused, Write};

    #[test]
    fn only_real_hazards_wait() {
        let mut hazards = Hazards::default();
        hazards
            .note([((0, 10), Read), ((10, 20), Write), ((20, 30), Part(1)), ((30, 40), Unused)].into_iter());
        let conflict = |range, access| hazards.conflict([(range, access)].into_iter());
        assert!(!conflict((0, 10), Read), "read after read");
        assert!(conflict((9, 10), Write), "write after read");
        assert!(conflict((9, 10), Part(1)), "a part after read");
        assert!(conflict((19, 30), Read), "read after write");
        assert!(conflict((15, 16), Write), "write after write");
        assert!(!conflict((20, 30), Part(1)), "parts of one run");
        assert!(conflict((20, 30), Part(2)), "parts of two runs");
        assert!(conflict((20, 30), Write) && conflict((20, 30), Read), "all of it after a part");
        assert!(!conflict((10, 20), Unused) && !conflict((30, 40), Write), "what is not touched");
        assert!(!conflict((40, 50), Write), "apart");
    }

    #[test]
    fn too_many_to_look_through() {
        let mut many = Hazards::default();
        for i in 0..Hazards::MAX_RANGES as u64 {
            many.note([((i, i + 1), Read)].into_iter());
        }
        assert!(many.conflict([((1000, 1001), Read)].into_iter()));
        many.clear();
        assert!(!many.conflict([((1000, 1001), Read)].into_iter()));
    }
}
