//! Backward-weights as a GEMM over pixels: `dw[(channel, tap)][k] += im2col(x)[(channel, tap)][pixel] *
//! dy[pixel][k]`.
//!
//! The reduction runs over all pixels of all images. It is cut into chunks in a fixed order; f32 sums
//! of at most [`FOLD`] chunks are folded into f64 totals, so that the error does not grow with length.

use crate::arena::{Arena, Team};
use crate::element::Element;
use crate::geometry::Pass;
use crate::im2col::Recipe;
use crate::matmul::{LANES, PANEL, panel_times, panels};
use crate::scatter::Shared;
use crate::simd::Transpose;
use std::ops::Range;

/// Chunks summed in f32 before they are folded into f64.
const FOLD: usize = 64;

/// Sizes of the tiles, from the problem and the cap alone.
#[derive(Debug, Clone, Copy)]
struct Tiling {
    /// Pixels of a chunk.
    chunk: usize,
    /// Chunks transposed at a time.
    batch: usize,
    /// (group, channel, tap) rows whose sums are held at a time.
    rows: usize,
    /// Rows of one task.
    block: usize,
    /// Whether f64 totals are needed.
    fold: bool,
}

impl Tiling {
    fn choose(pass: &Pass, cap: u64) -> Option<Self> {
        let (depth, pixels) = (depth(pass), pass.phases[0].pixels());
        let k = pass.oc.next_multiple_of(LANES);
        let all = pass.groups * depth;
        let chunk = pixels.min(512);
        let block = (all / 16).next_multiple_of(8).clamp(8, 128);
        let batch = FOLD.min(pass.n * pixels.div_ceil(chunk));
        let mut t = Self { chunk, batch, rows: all, block, fold: false };
        loop {
            t.fold = pass.n * pixels.div_ceil(t.chunk) > FOLD;
            let sums = t.rows.saturating_mul(k * if t.fold { 3 } else { 1 });
            let groups = if t.rows <= depth { 1 } else { t.rows / depth };
            let turned = (t.batch * t.chunk * k).saturating_mul(groups);
            // Transposed dy beyond what caches hold only costs memory.
            let small = t.batch == 1 || turned <= 1 << 20;
            let bytes = sums.saturating_add(turned).saturating_add(t.block * t.chunk).saturating_mul(4);
            if small && bytes as u64 <= cap {
                return Some(t);
            }
            if t.batch > 1 {
                t.batch /= 2;
            } else if t.chunk > 128 {
                t.chunk /= 2;
            } else if t.rows > depth {
                t.rows = (t.rows / depth).div_ceil(2) * depth;
            } else if t.rows > 8 {
                t.rows /= 2;
                t.block = t.block.min(t.rows);
            } else if t.chunk > 8 {
                t.chunk /= 2;
            } else {
                return None;
            }
        }
    }
}

/// Rows of one group.
fn depth(pass: &Pass) -> usize {
    pass.ic * pass.phases[0].taps.len()
}

/// Computes dw for the forward `pass`. False, with nothing written, where the cap is too small.
pub fn run<T: Element>(pass: &Pass, [x, dy]: [&[T]; 2], dw: &mut [T], arena: &Arena, team: &Team) -> bool {
    let Some(t) = Tiling::choose(pass, arena.cap) else {
        return false;
    };
    let dw = Shared::new(dw);
    let (depth, all) = (depth(pass), pass.groups * depth(pass));
    let mut first = 0;
    while first < all {
        // Slabs do not cross a group's end unless they hold whole groups.
        let end = if t.rows >= depth { all } else { (first / depth + 1) * depth };
        let rows = first..end.min(first + t.rows);
        first = rows.end;
        slab(pass, t, [x, dy], &dw, rows, arena, team);
    }
    true
}

/// One chunk of the reduction.
#[derive(Debug, Clone)]
struct Chunk {
    n: usize,
    pixels: Range<usize>,
}

#[allow(unsafe_code)]
fn slab<T: Element>(
    pass: &Pass,
    t: Tiling,
    [x, dy]: [&[T]; 2],
    dw: &Shared<T>,
    rows: Range<usize>,
    arena: &Arena,
    team: &Team,
) {
    let (phase, depth) = (&pass.phases[0], depth(pass));
    let k = pass.oc.next_multiple_of(LANES);
    let panels = panels(pass.oc, PANEL);
    let groups = rows.start / depth..(rows.end - 1) / depth + 1;
    let mut sums = arena.alloc::<f32>(rows.len() * k);
    let mut totals = arena.alloc::<f64>(if t.fold { rows.len() * k } else { 0 });
    let mut turned = arena.alloc::<f32>(t.batch * t.chunk * k * groups.len());
    let of_image = |n| {
        let starts = (0..phase.pixels()).step_by(t.chunk);
        starts.map(move |start| Chunk { n, pixels: start..(start + t.chunk).min(phase.pixels()) })
    };
    let chunks: Vec<Chunk> = (0..pass.n).flat_map(of_image).collect();
    let mut blocks = Vec::new();
    for group in groups.clone() {
        let end = rows.end.min((group + 1) * depth);
        let starts = (rows.start.max(group * depth)..end).step_by(t.block);
        blocks.extend(starts.map(|start| start..end.min(start + t.block)));
    }
    for batch in chunks.chunks(t.batch) {
        let shared = Shared::new(&mut turned);
        team.each(
            arena,
            0,
            batch.len() * groups.len() * panels.len(),
            || (),
            |index, ()| {
                let (panel, rest) = (panels[index % panels.len()], index / panels.len());
                let (group, chunk) = (rest % groups.len(), &batch[rest / groups.len()]);
                let start = rest * t.chunk * k + t.chunk * panel.0;
                // SAFETY: panels of all chunks and groups lie one after another, one a task.
                let to = unsafe { shared.part(start..start + chunk.pixels.len() * panel.1) };
                turn(pass, dy, chunk, (groups.start + group) * pass.oc, panel, to);
            },
        );
        let (sums, totals) = (Shared::new(&mut sums), Shared::new(&mut totals));
        let make = || (arena.alloc::<f32>(t.block * t.chunk), Recipe::default());
        team.each(arena, (t.block * t.chunk * 4) as u64, blocks.len(), make, |index, (columns, recipe)| {
            let block = &blocks[index];
            let range = (block.start - rows.start) * k..(block.end - rows.start) * k;
            // SAFETY: each block of rows is one task's.
            let sums = unsafe { sums.part(range.clone()) };
            let group = block.start / depth;
            for (i, chunk) in batch.iter().enumerate() {
                let width = chunk.pixels.len();
                recipe.set(phase, &pass.input, chunk.pixels.clone(), width);
                let channel = pass.input.stride[1];
                let base = chunk.n * pass.input.stride[0] + group * pass.ic * channel;
                let of_group = block.start - group * depth..block.end - group * depth;
                recipe.fill(columns, x, base, channel, of_group);
                for &(start, height) in &panels {
                    let at = (i * groups.len() + group - groups.start) * t.chunk * k + t.chunk * start;
                    let size = [height, block.len(), width];
                    panel_times(size, &mut sums[start..], k, true, &turned[at..], height, columns, width);
                }
            }
            if t.fold {
                // SAFETY: as for the sums.
                let totals = unsafe { totals.part(range) };
                for (total, sum) in totals.iter_mut().zip(sums.iter_mut()) {
                    *total += f64::from(std::mem::take(sum));
                }
            }
        });
    }
    let value = |at: usize| if t.fold { totals[at] as f32 } else { sums[at] };
    let (taps, f) = (phase.taps.len(), pass.filter);
    team.each(
        arena,
        0,
        groups.len() * pass.oc.div_ceil(LANES),
        || (),
        |index, ()| {
            let (group, first) = (groups.start + index % groups.len(), index / groups.len() * LANES);
            let last = pass.oc.min(first + LANES);
            let mut row = rows.start.max(group * depth);
            let end = rows.end.min((group + 1) * depth);
            // Squares where a filter's rows lie in order and nothing has to be folded.
            if !t.fold && f.tap == 1 && f.input == taps && last - first == LANES {
                let mut square = [0.0f32; LANES * LANES];
                while row + LANES <= end {
                    let from = &sums[(row - rows.start) * k + first..];
                    Transpose { to: &mut square, to_row: LANES, from, from_row: k }.run();
                    for (i, from) in square.chunks_exact(LANES).enumerate() {
                        let at = group * f.group + (first + i) * f.out + row - group * depth;
                        // SAFETY: each task has its own output channels.
                        T::narrow(from, unsafe { dw.part(at..at + LANES) });
                    }
                    row += LANES;
                }
            }
            for row in row..end {
                let (input, tap) = ((row - group * depth) / taps, (row - group * depth) % taps);
                let at = group * f.group + input * f.input + tap * f.tap;
                for out in first..last {
                    // SAFETY: as above.
                    unsafe { dw.set(at + out * f.out, T::from_f32(value((row - rows.start) * k + out))) };
                }
            }
        },
    );
}

/// Output channels `channel + panel` of dy at the chunk's pixels, pixel by pixel; zero past the group.
fn turn<T: Element>(
    pass: &Pass,
    dy: &[T],
    chunk: &Chunk,
    channel: usize,
    (start, height): (usize, usize),
    to: &mut [f32],
) {
    let [sn, sc, _, pixel] = pass.output.stride;
    let base = chunk.n * sn + (channel + start) * sc + chunk.pixels.start * pixel;
    let inside = height.min(pass.oc - start);
    for row in to.chunks_exact_mut(height) {
        row[inside..].fill(0.0);
    }
    if sc == 1 {
        for (i, row) in to.chunks_exact_mut(height).enumerate() {
            T::widen(&dy[base + i * pixel..][..inside], &mut row[..inside]);
        }
        return;
    }
    // Squares, so that both sides stay in the nearest cache.
    for first in (0..inside).step_by(LANES) {
        let count = LANES.min(inside - first);
        for (square, rows) in to.chunks_mut(LANES * height).enumerate() {
            let at = base + first * sc + square * LANES;
            match T::as_f32(dy) {
                Some(dy) if count == LANES && rows.len() == LANES * height => {
                    Transpose { to: &mut rows[first..], to_row: height, from: &dy[at..], from_row: sc }.run();
                    continue;
                }
                _ => {}
            }
            for c in 0..count {
                let from = &dy[at + c * sc..][..rows.len() / height];
                for (row, from) in rows.chunks_exact_mut(height).zip(from) {
                    row[first + c] = from.to_f32();
                }
            }
        }
    }
}
