//! Depthwise and small groups: loops over padded rows that vectorise along the width.
//!
//! Input rows are copied once into a band: padded, widened to f32, and with a stride's columns sorted by
//! remainder, so that every tap of neighbouring pixels is one contiguous load.

use crate::arena::{Arena, Team};
use crate::element::Element;
use crate::geometry::{Image, Pass, Phase};
use crate::scatter::{Finish, Shared, Target, store};
use crate::simd::{Correlate, Dot, TAPS, VECTOR};
use std::ops::Range;

/// Bytes of a band: a fraction of an L2 cache.
const BAND: u64 = 256 << 10;

/// Longest sum this adds up in one chain of f32.
const CHAIN: usize = 1024;

/// Products that one dot sums in f32 (a chain in each lane) before they join f64 totals.
const DOT: usize = 4096;

/// True where a GEMM would be mostly padding.
pub fn suits(pass: &Pass) -> bool {
    pass.groups > 1 && pass.ic <= 8 && pass.oc <= 8
}

/// True where im2col would copy much for few output channels.
pub fn suits_gather(pass: &Pass) -> bool {
    let most = pass.phases.iter().map(|phase| pass.ic * phase.taps.len()).max();
    pass.oc <= 4 && most.is_some_and(|most| most <= CHAIN) && pass.output.w >= VECTOR || suits(pass)
}

/// Layout of a band of input rows that `rows` rows of output pixels read.
#[derive(Debug, Clone, Copy)]
struct Band {
    /// Lowest row and column offset of any tap.
    low: [isize; 2],
    /// Input rows.
    rows: usize,
    /// Columns of one remainder.
    columns: usize,
    /// Elements of a row: all remainders.
    row: usize,
    /// Elements of a channel.
    channel: usize,
}

impl Band {
    fn new(phase: &Phase, rows: usize) -> Self {
        let extreme = |axis: usize, least: bool| {
            let offsets = phase.taps.iter().map(|tap| tap.offset[axis]);
            (if least { offsets.min() } else { offsets.max() }).unwrap_or(0)
        };
        let low = [extreme(0, true), extreme(1, true)];
        let span = [extreme(0, false).abs_diff(low[0]), extreme(1, false).abs_diff(low[1])];
        let in_rows = (rows - 1).saturating_mul(phase.step[0]).saturating_add(span[0] + 1);
        let columns = phase.count[1].next_multiple_of(VECTOR) + span[1] / phase.step[1] + VECTOR;
        let row = columns.saturating_mul(phase.step[1].min(span[1] + 1));
        Self { low, rows: in_rows, columns, row, channel: in_rows.saturating_mul(row) }
    }

    /// The most rows of output pixels whose band, with `fixed` f32 more for each, stays under the limit.
    fn fit(phase: &Phase, channels: usize, cap: u64, fixed: usize) -> Option<(usize, Self)> {
        let elements = |rows: usize| {
            Self::new(phase, rows).channel.saturating_mul(channels).saturating_add(rows * fixed)
        };
        let fits = |rows: usize, limit: u64| elements(rows).saturating_mul(4) as u64 <= limit;
        if !fits(1, cap) {
            return None;
        }
        let mut rows = 1;
        while rows < phase.count[0] && fits(rows + 1, cap.min(BAND)) {
            rows += 1;
        }
        Some((rows, Self::new(phase, rows)))
    }

    /// Where each tap of the first pixel lies, from the channel's first element.
    fn offsets(&self, phase: &Phase) -> Vec<usize> {
        let at = |offset: [isize; 2]| {
            let (h, w) = (offset[0].abs_diff(self.low[0]), offset[1].abs_diff(self.low[1]));
            h * self.row + w % phase.step[1] * self.columns + w / phase.step[1]
        };
        phase.taps.iter().map(|tap| at(tap.offset)).collect()
    }

    /// Copies the rows below output row `first` of the channel that starts at `base`.
    fn fill<T: Element>(
        &self,
        to: &mut [f32],
        phase: &Phase,
        image: &Image,
        input: &[T],
        base: usize,
        first: usize,
    ) {
        let top = (first * phase.step[0]) as isize + self.low[0];
        let [_, _, sh, sw] = image.stride;
        for (i, row) in to.chunks_exact_mut(self.row).take(self.rows).enumerate() {
            row.fill(0.0);
            let h = top + i as isize;
            if h < 0 || h as usize >= image.h {
                continue;
            }
            let from = &input[base + h as usize * sh..][..(image.w - 1) * sw + 1];
            for (remainder, row) in row.chunks_exact_mut(self.columns).enumerate() {
                // Column j of this remainder is input column j * step + shift.
                let (step, shift) = (phase.step[1], self.low[1] + remainder as isize);
                let start = if shift < 0 { shift.unsigned_abs().div_ceil(step) } else { 0 };
                let w = (start * step) as isize + shift;
                if start >= row.len() || w as usize >= image.w {
                    continue;
                }
                let w = w as usize;
                let row = &mut row[start..];
                if step * sw == 1 {
                    let len = row.len().min(image.w - w);
                    T::widen(&from[w..w + len], &mut row[..len]);
                } else {
                    for (to, from) in row.iter_mut().zip(from[w * sw..].iter().step_by(step * sw)) {
                        *to = from.to_f32();
                    }
                }
            }
        }
    }
}

/// Forward and backward-data. False, with nothing written, where the cap is too small.
#[allow(unsafe_code)]
pub fn gather<T: Element>(
    pass: &Pass,
    [input, w]: [&[T]; 2],
    out: &mut [T],
    finish: Finish<T>,
    arena: &Arena,
    team: &Team,
) -> bool {
    let f = pass.filter;
    let bands = pass.phases.iter().map(|phase| {
        let own = pass.ic * phase.taps.len() + phase.count[1];
        let cap = arena.cap.checked_sub(own as u64 * 4)?;
        Some((own, Band::fit(phase, pass.ic, cap, 0)?))
    });
    let Some(bands) = bands.collect::<Option<Vec<_>>>() else {
        return false;
    };
    let out = Shared::new(out);
    for (phase, (own, (rows, band))) in pass.phases.iter().zip(bands) {
        let taps = phase.taps.len();
        let per_image = phase.count[0].div_ceil(rows);
        let of_band = band.offsets(phase);
        let offsets: Vec<usize> =
            (0..pass.ic).flat_map(|c| of_band.iter().map(move |at| c * band.channel + at)).collect();
        let len = own + pass.ic * band.channel;
        let make = || (arena.alloc::<f32>(len), vec![0usize; offsets.len()]);
        team.each(
            arena,
            len as u64 * 4,
            pass.n * pass.groups * per_image,
            make,
            |index, (scratch, moved)| {
                let (n, group) = (index / per_image / pass.groups, index / per_image % pass.groups);
                let first = index % per_image * rows;
                let (weights, rest) = scratch.split_at_mut(pass.ic * taps);
                let (tile, data) = rest.split_at_mut(phase.count[1]);
                for c in 0..pass.ic {
                    let base = n * pass.input.stride[0] + (group * pass.ic + c) * pass.input.stride[1];
                    let to = &mut data[c * band.channel..][..band.channel];
                    band.fill(to, phase, &pass.input, input, base, first);
                }
                for channel in 0..pass.oc {
                    for (i, to) in weights.iter_mut().enumerate() {
                        let (c, tap) = (i / taps, phase.taps[i % taps].index);
                        let at = group * f.group + channel * f.out + c * f.input + tap * f.tap;
                        *to = w[at].to_f32();
                    }
                    for row in first..phase.count[0].min(first + rows) {
                        for (to, from) in moved.iter_mut().zip(&offsets) {
                            *to = from + (row - first) * phase.step[0] * band.row;
                        }
                        Correlate { out: tile, data, offsets: moved, weights }.run();
                        let pixels = row * phase.count[1]..(row + 1) * phase.count[1];
                        let channel = group * pass.oc + channel;
                        let target = Target { phase, image: &pass.output, n, channel, pixels, finish };
                        // SAFETY: each task has its own (image, group, rows); phases run one after another.
                        unsafe { store(&out, &target, tile, phase.count[1]) };
                    }
                }
            },
        );
    }
    true
}

/// Backward-weights. False, with nothing written, where the cap is too small.
#[allow(unsafe_code)]
pub fn weights<T: Element>(
    pass: &Pass,
    [x, dy]: [&[T]; 2],
    dw: &mut [T],
    arena: &Arena,
    team: &Team,
) -> bool {
    let (phase, f) = (&pass.phases[0], pass.filter);
    let taps = phase.taps.len();
    let len = phase.count[1].next_multiple_of(VECTOR);
    // f64 sums of one (output channel, input channel) pair, counted as two f32 each.
    let pairs = pass.ic * pass.oc;
    let sums_bytes = (pairs * taps * 8) as u64;
    let Some(cap) = arena.cap.checked_sub(sums_bytes) else {
        return false;
    };
    let Some((rows, band)) = Band::fit(phase, pass.ic, cap, len) else {
        return false;
    };
    let dw = Shared::new(dw);
    let offsets = band.offsets(phase);
    let dot_rows = (DOT / len).max(1);
    let size = pass.ic * band.channel + rows * len;
    let make = || (arena.alloc::<f32>(size), arena.alloc::<f64>(pairs * taps));
    team.each(arena, size as u64 * 4 + sums_bytes, pass.groups, make, |group, (scratch, sums)| {
        sums.fill(0.0);
        let (data, ys) = scratch.split_at_mut(pass.ic * band.channel);
        for (n, first) in (0..pass.n).flat_map(|n| (0..phase.count[0]).step_by(rows).map(move |row| (n, row)))
        {
            let band_rows = rows.min(phase.count[0] - first);
            for c in 0..pass.ic {
                let base = n * pass.input.stride[0] + (group * pass.ic + c) * pass.input.stride[1];
                let to = &mut data[c * band.channel..][..band.channel];
                band.fill(to, phase, &pass.input, x, base, first);
            }
            for k in 0..pass.oc {
                let base = n * pass.output.stride[0] + (group * pass.oc + k) * pass.output.stride[1];
                copy_rows(&mut ys[..band_rows * len], len, pass, dy, base, first..first + band_rows);
                for c in 0..pass.ic {
                    let sums = &mut sums[(k * pass.ic + c) * taps..][..taps];
                    for (sums, at) in sums.chunks_mut(TAPS).zip(offsets.chunks(TAPS)) {
                        let offsets =
                            std::array::from_fn(|i| c * band.channel + at.get(i).copied().unwrap_or(at[0]));
                        let row = phase.step[0] * band.row;
                        let dy = &ys[..band_rows * len];
                        for (part, dy) in dy.chunks(dot_rows * len).enumerate() {
                            let offsets = offsets.map(|at| at + part * dot_rows * row);
                            let dots = Dot { dy, len, data, row, offsets }.run();
                            sums.iter_mut().zip(dots).for_each(|(sum, dot)| *sum += f64::from(dot));
                        }
                    }
                }
            }
        }
        for (i, sum) in sums.iter().enumerate() {
            let (k, c, tap) = (i / taps / pass.ic, i / taps % pass.ic, phase.taps[i % taps].index);
            let at = group * f.group + k * f.out + c * f.input + tap * f.tap;
            // SAFETY: each group's filters are one task's.
            unsafe { dw.set(at, T::from_f32(*sum as f32)) };
        }
    });
    true
}

/// Output rows `rows` of the channel that starts at `base`, `len` apart, zero past the image's width.
fn copy_rows<T: Element>(to: &mut [f32], len: usize, pass: &Pass, dy: &[T], base: usize, rows: Range<usize>) {
    let [_, _, sh, sw] = pass.output.stride;
    let width = pass.output.w;
    for (to, row) in to.chunks_exact_mut(len).zip(rows) {
        to[width..].fill(0.0);
        let from = &dy[base + row * sh..][..(width - 1) * sw + 1];
        if sw == 1 {
            T::widen(from, &mut to[..width]);
        } else {
            to.iter_mut().zip(from.iter().step_by(sw)).for_each(|(to, from)| *to = from.to_f32());
        }
    }
}
