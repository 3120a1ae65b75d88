//! Which launches must wait for which: ranges touched since the last barrier.

/// More ranges than this and the next launch waits, so that looking stays cheap.
const MOST: usize = 48;

/// First byte and end of a range of the heap's addresses.
type Range = (u64, u64);

/// Ranges that were read and written since the last barrier.
#[derive(Debug, Default)]
pub(crate) struct Hazards {
    reads: Vec<Range>,
    writes: Vec<Range>,
}

fn overlap(ranges: &[Range], (start, end): Range) -> bool {
    ranges.iter().any(|&(s, e)| start < e && s < end)
}

impl Hazards {
    /// Forgets everything: a barrier was recorded.
    pub(crate) fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
    }

    /// Must work that touches these ranges (true: writes) wait for a barrier?
    pub(crate) fn conflict(&self, ranges: impl Iterator<Item = (Range, bool)>) -> bool {
        let mut count = 0;
        for (range, writes) in ranges {
            count += 1;
            if overlap(&self.writes, range) || (writes && overlap(&self.reads, range)) {
                return true;
            }
        }
        self.reads.len() + self.writes.len() + count > MOST
    }

    /// Notes that work touches these ranges.
    pub(crate) fn note(&mut self, ranges: impl Iterator<Item = (Range, bool)>) {
        for (range, writes) in ranges {
            if writes { self.writes.push(range) } else { self.reads.push(range) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_real_hazards_wait() {
        let mut hazards = Hazards::default();
        hazards.note([((0, 10), false), ((10, 20), true)].into_iter());
        let conflict = |range, writes| hazards.conflict([(range, writes)].into_iter());
        assert!(!conflict((0, 10), false), "read after read");
        assert!(conflict((9, 10), true), "write after read");
        assert!(conflict((19, 30), false), "read after write");
        assert!(conflict((0, 30), true), "write after write");
        assert!(!conflict((20, 30), true), "apart");
        let mut many = Hazards::default();
        for i in 0..MOST as u64 {
            many.note([((i, i + 1), false)].into_iter());
        }
        assert!(many.conflict([((1000, 1001), false)].into_iter()), "too many to look through");
    }
}
