//! Forward and backward-data as im2col panels times filters.

use crate::arena::{Arena, Team};
use crate::element::Element;
use crate::filters;
use crate::geometry::{Pass, Phase};
use crate::im2col::Recipe;
use crate::matmul::{LANES, PANEL, panel_times, panels};
use crate::scatter::{Finish, Shared, Target, store};
use std::ops::Range;

/// Rows of a panel (reduction steps) filled and multiplied at a time: half an L2 cache at most.
const DEPTH: usize = 512;

/// Multiply-adds worth handing to another thread.
const TASK: usize = 1 << 20;

/// Sizes of the tiles, from the problem and the cap alone.
#[derive(Debug, Clone, Copy)]
struct Tiling {
    /// Output channels of all groups that are packed and computed at a time.
    rows: usize,
    /// Output channels of one group in a tile.
    columns: usize,
    /// Input channels in a panel at a time.
    channels: usize,
    /// Widest panel.
    width: usize,
}

impl Tiling {
    fn scratch(&self, taps: usize) -> usize {
        self.width * (self.channels * taps + self.columns)
    }

    /// The fastest tiling under `cap` bytes; none where not even the smallest fits.
    fn choose(pass: &Pass, taps: usize, ready: bool, cap: u64) -> Option<Self> {
        let channels = (DEPTH / taps).clamp(1, pass.ic);
        let mut t = Self { rows: pass.groups * pass.oc, columns: pass.oc, channels, width: PANEL };
        loop {
            let filters = if ready { 0 } else { t.rows.saturating_mul(pass.ic * taps) };
            if filters.saturating_add(t.scratch(taps)).saturating_mul(size_of::<f32>()) as u64 <= cap {
                return Some(t);
            }
            if !ready && t.rows > pass.oc {
                // Whole groups, as long as there are several.
                t.rows = (t.rows / pass.oc).div_ceil(2) * pass.oc;
            } else if t.columns > 8 {
                t.columns = (t.columns / 2).next_multiple_of(8);
                t.rows = if ready { t.rows } else { t.columns };
            } else if t.channels > 1 {
                t.channels /= 2;
            } else if t.width > LANES {
                t.width -= LANES;
            } else {
                return None;
            }
        }
    }
}

/// Runs the pass. False, with nothing written, where the cap is too small for any tile.
pub fn run<T: Element>(
    pass: &Pass,
    [input, w]: [&[T]; 2],
    out: &mut [T],
    finish: Finish<T>,
    arena: &Arena,
    team: &Team,
) -> bool {
    let tilings = pass.phases.iter().map(|phase| {
        Tiling::choose(pass, phase.taps.len().max(1), filters::lie_ready(pass, phase, w), arena.cap)
    });
    let Some(tilings) = tilings.collect::<Option<Vec<_>>>() else {
        return false;
    };
    let out = Shared::new(out);
    for (phase, tiling) in pass.phases.iter().zip(tilings) {
        let call = Call { pass, phase, tiling, input, out: &out, finish, arena, team };
        let all = pass.groups * pass.oc;
        if filters::lie_ready(pass, phase, w) {
            // lie_ready says they are f32.
            call.rows(0..all, T::as_f32(w).unwrap_or(&[]));
            continue;
        }
        // Slabs do not cross a group's end unless they hold whole groups.
        let mut first = 0;
        while first < all {
            let end = if tiling.rows >= pass.oc { all } else { (first / pass.oc + 1) * pass.oc };
            let rows = first..end.min(first + tiling.rows);
            first = rows.end;
            let packed = filters::pack(pass, phase, w, rows.clone(), arena, team);
            call.rows(rows, &packed);
        }
    }
    true
}

struct Call<'a, T> {
    pass: &'a Pass,
    phase: &'a Phase,
    tiling: Tiling,
    input: &'a [T],
    out: &'a Shared<'a, T>,
    finish: Finish<'a, T>,
    arena: &'a Arena,
    team: &'a Team,
}

impl<T: Element> Call<'_, T> {
    /// Computes output channels `rows` (over all groups) of every image; `filters` starts at the first.
    #[allow(unsafe_code)]
    fn rows(&self, rows: Range<usize>, filters: &[f32]) {
        let (pass, phase, t) = (self.pass, self.phase, self.tiling);
        let (taps, oc) = (phase.taps.len(), pass.oc);
        let depth = pass.ic * taps;
        // (channels of one tile, first of them) x images x panels.
        let mut columns = Vec::new();
        let mut first = rows.start;
        while first < rows.end {
            let end = rows.end.min((first / oc + 1) * oc).min(first + t.columns);
            columns.push(first..end);
            first = end;
        }
        let panels = panels(phase.pixels(), t.width);
        let work = PANEL * depth * t.columns;
        let batch = (TASK / work.max(1)).clamp(1, panels.len());
        let batches = panels.len().div_ceil(batch);
        let scratch_bytes = (t.scratch(taps.max(1)) * size_of::<f32>()) as u64;
        let make = || (self.arena.alloc::<f32>(t.scratch(taps.max(1))), Recipe::default());
        self.team.each(
            self.arena,
            scratch_bytes,
            columns.len() * pass.n * batches,
            make,
            |index, (scratch, recipe)| {
                let (columns, rest) = (&columns[index / (pass.n * batches)], index % (pass.n * batches));
                let (n, first) = (rest / batches, rest % batches * batch);
                let (tile, panel) = scratch.split_at_mut(t.width * t.columns);
                for &(start, width) in &panels[first..panels.len().min(first + batch)] {
                    let pixels = start..phase.pixels().min(start + width);
                    let tile = &mut tile[..columns.len() * width];
                    recipe.set(phase, &pass.input, pixels.clone(), width);
                    let filters = &filters[(columns.start - rows.start) * depth..][..columns.len() * depth];
                    self.tile(tile, panel, recipe, [n, columns.start / oc, width], filters);
                    let (channel, finish, image) = (columns.start, self.finish, &pass.output);
                    let target = Target { phase, image, n, channel, pixels, finish };
                    // SAFETY: each task has its own (channels, image, panel); phases run one after another.
                    unsafe { store(self.out, &target, tile, width) };
                }
            },
        );
    }

    /// The sums of one tile.
    fn tile(&self, tile: &mut [f32], panel: &mut [f32], recipe: &Recipe, at: [usize; 3], filters: &[f32]) {
        let (pass, taps, [n, group, width]) = (self.pass, self.phase.taps.len(), at);
        let depth = pass.ic * taps;
        if depth == 0 {
            tile.fill(0.0); // a phase that no tap reaches
            return;
        }
        let channel = pass.input.stride[1];
        let columns = filters.len() / depth;
        let base = n * pass.input.stride[0] + group * pass.ic * channel;
        // Without im2col where the panel lies in the input as it is.
        let direct = recipe.direct().zip(T::as_f32(self.input)).filter(|_| channel >= width);
        for first in (0..pass.ic).step_by(self.tiling.channels) {
            let rows = first * taps..(first + self.tiling.channels).min(pass.ic) * taps;
            let size = [width, columns, rows.len()];
            let filters = &filters[rows.start..];
            if let Some((source, input)) = direct {
                let lhs = &input[base + source + first * channel..];
                panel_times(size, tile, width, first > 0, lhs, channel, filters, depth);
            } else {
                recipe.fill(panel, self.input, base, channel, rows);
                panel_times(size, tile, width, first > 0, panel, width, filters, depth);
            }
        }
    }
}
