//! How much of what workgroups touch has to come from DRAM: estimated from a sample of neighbours.

use crate::hierarchy::Tensor;
use crate::stream::GroupStream;
use std::collections::BTreeMap;

/// The whole launch, as far as it matters here.
pub(crate) struct Extent {
    /// Workgroups in x, y, z.
    pub(crate) grid: [u32; 3],
    /// Workgroups that run at once on the whole card.
    pub(crate) at_once: u64,
    pub(crate) l2_lines: f64,
}

/// Each tensor's part, from the lines it has (`first..end`), and the lines that go to DRAM in all.
///
/// A tensor's lines are counted once where all tensors together fit into L2, or it alone takes less than half of it.
/// Of a larger one, each round of workgroups that run at once fetches its lines afresh: as many as a block of neighbours
/// touches, given how much a workgroup shares with the next in x and in y. Never fewer than once, never more than each
/// workgroup by itself.
pub(crate) fn estimate(groups: &[GroupStream], ranges: &[(u32, u32)], extent: &Extent) -> (Vec<Tensor>, f64) {
    let total: f64 = extent.grid.iter().map(|&g| f64::from(g)).product();
    let touched: BTreeMap<[u32; 3], Vec<u32>> = groups
        .iter()
        .map(|g| {
            let mut lines: Vec<u32> = g.touched().collect();
            lines.sort_unstable();
            ([g.id[2], g.id[1], g.id[0]], lines)
        })
        .collect();
    let uses: Vec<Use> = ranges.iter().map(|&range| Use::of(range, &touched, total)).collect();
    let all: f64 = uses.iter().map(|u| u.lines).sum();
    let at_once = (extent.at_once as f64).min(total).max(1.0);
    let across = f64::from(extent.grid[0]).min(at_once);
    let down = (at_once / across).ceil();
    let rounds = (total / at_once).max(1.0);
    let mut from_dram = 0.0;
    let tensors = ranges.iter().zip(&uses).map(|(&(first, end), u)| {
        let each = u.each * total;
        let fetched = if all <= extent.l2_lines || u.lines <= extent.l2_lines / 2.0 {
            u.lines
        } else {
            let block = u.each
                * (1.0 + (across - 1.0) * (1.0 - u.along_x))
                * (1.0 + (down - 1.0) * (1.0 - u.along_y));
            (block.min(u.lines) * rounds).max(u.lines)
        };
        let fetched = fetched.min(each);
        from_dram += fetched;
        let share = if each > 0.0 { fetched / each } else { 0.0 };
        Tensor { first, end, from_dram: share, shared: u.along_x.min(u.along_y) > 0.9 }
    });
    (tensors.collect(), from_dram)
}

/// How workgroups use one tensor.
struct Use {
    /// Lines that a workgroup touches, on average.
    each: f64,
    /// Lines that the launch touches, at most: what the tensor has, or what all workgroups touch.
    lines: f64,
    /// The share of a workgroup's lines that its neighbour touches too; 1 where there is no neighbour.
    along_x: f64,
    along_y: f64,
}

impl Use {
    fn of((first, end): (u32, u32), touched: &BTreeMap<[u32; 3], Vec<u32>>, total: f64) -> Self {
        let part = |lines: &Vec<u32>| -> Vec<u32> {
            let from = lines.partition_point(|l| *l < first);
            let to = lines.partition_point(|l| *l < end);
            lines[from..to].to_vec()
        };
        let parts: BTreeMap<[u32; 3], Vec<u32>> =
            touched.iter().map(|(id, lines)| (*id, part(lines))).collect();
        let each = parts.values().map(|p| p.len() as f64).sum::<f64>() / parts.len().max(1) as f64;
        let common = |axis: usize| {
            let (mut both, mut all) = (0usize, 0usize);
            for (id, mine) in &parts {
                let mut next = *id;
                next[axis] += 1;
                if let Some(theirs) = parts.get(&next) {
                    both += mine.iter().filter(|l| theirs.binary_search(l).is_ok()).count();
                    all += mine.len();
                }
            }
            if all == 0 { 1.0 } else { both as f64 / all as f64 }
        };
        Self { each, lines: f64::from(end - first).min(each * total), along_x: common(2), along_y: common(1) }
    }
}
