//! A set-associative cache that remembers when each of its lines arrives.

const WAYS: usize = 8;

/// Least recently used goes first. Tags are line numbers.
pub(crate) struct Cache {
    /// Tag and arrival of each way, most recently used first.
    sets: Vec<[(u64, f64); WAYS]>,
}

impl Cache {
    /// A cache of so many lines.
    pub(crate) fn new(lines: u64) -> Self {
        let sets = (lines as usize / WAYS).max(1);
        Self { sets: vec![[(u64::MAX, 0.0); WAYS]; sets] }
    }

    /// When the line is there, if it was asked for before and is still kept.
    pub(crate) fn find(&mut self, tag: u64) -> Option<f64> {
        let set = self.set(tag);
        let way = set.iter().position(|(t, _)| *t == tag)?;
        set[..=way].rotate_right(1);
        Some(set[0].1)
    }

    /// Keeps a line that arrives then.
    pub(crate) fn keep(&mut self, tag: u64, arrives: f64) {
        let set = self.set(tag);
        set.rotate_right(1);
        set[0] = (tag, arrives);
    }

    fn set(&mut self, tag: u64) -> &mut [(u64, f64); WAYS] {
        let count = self.sets.len() as u64;
        // Neighbouring lines in neighbouring sets; strides of powers of two do not all fall into one.
        &mut self.sets[((tag ^ (tag >> 7) ^ (tag >> 15)) % count) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::Cache;

    #[test]
    fn keeps_what_was_used_last() {
        let mut cache = Cache::new(8);
        (0..8).for_each(|tag| cache.keep(tag, tag as f64));
        assert_eq!(cache.find(0), Some(0.0));
        cache.keep(8, 8.0); // 1 was used longest ago
        assert_eq!((cache.find(1), cache.find(0), cache.find(8)), (None, Some(0.0), Some(8.0)));
    }
}
