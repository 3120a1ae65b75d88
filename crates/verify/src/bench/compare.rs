//! One report beside another.

use super::stats::geometric_mean;
use super::{Report, Row};
use std::collections::HashMap;

/// The same problem in both reports.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// From the first report.
    pub a: Row,
    /// From the second.
    pub b: Row,
}

impl Pair {
    /// How many times as fast the second is.
    pub fn speedup(&self) -> Option<f64> {
        Some(self.a.median_ms()? / self.b.median_ms()?)
    }
}

/// What two reports have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// In the first report's order.
    pub pairs: Vec<Pair>,
    /// Timed rows that only one of them has.
    pub unmatched: usize,
}

impl Comparison {
    /// Geometric mean of the speedups of one pass and storage type.
    pub fn mean(&self, direction: &str, dtype: &str) -> Option<f64> {
        let of = |pair: &&Pair| pair.a.direction == direction && pair.a.dtype == dtype;
        geometric_mean(self.pairs.iter().filter(of).filter_map(Pair::speedup))
    }
}

/// Pairs timed rows of equal line. Where both reports timed the same solver on it, those are paired;
/// chosen rows are paired in any case, so that two devices or versions that choose differently compare.
pub fn compare(a: &Report, b: &Report) -> Comparison {
    let timed =
        |report: &Report| report.rows.iter().filter(|r| r.time.is_some()).cloned().collect::<Vec<_>>();
    let (left, right) = (timed(a), timed(b));
    let mut chosen = HashMap::new();
    let mut by_solver = HashMap::new();
    for (index, row) in right.iter().enumerate() {
        if row.chosen {
            chosen.insert(row.line.as_str(), index);
        }
        by_solver.insert((row.line.as_str(), row.solver.as_str()), index);
    }
    let mut used = vec![false; right.len()];
    let (mut pairs, mut alone) = (Vec::new(), 0);
    for row in &left {
        let same = || by_solver.get(&(row.line.as_str(), row.solver.as_str())).copied();
        let index = if row.chosen { chosen.get(row.line.as_str()).copied() } else { same() };
        match index {
            Some(index) => {
                used[index] = true;
                pairs.push(Pair { a: row.clone(), b: right[index].clone() });
            }
            None => alone += 1,
        }
    }
    let unmatched = alone + used.iter().filter(|used| !**used).count();
    Comparison { pairs, unmatched }
}
