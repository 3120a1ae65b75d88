//! Copies input pixels into the rows that a GEMM multiplies: one row for each (channel, tap), one
//! column for each pixel of a panel.

use crate::element::Element;
use crate::geometry::{Image, Phase};
use std::ops::Range;

/// A stretch of one row whose pixels are evenly spaced in the input.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// Column of the panel.
    column: usize,
    len: usize,
    /// Element of the input, counted from the channel's first.
    source: usize,
}

/// What to copy for each tap of one panel; the same for every channel.
#[derive(Debug, Default)]
pub struct Recipe {
    width: usize,
    runs: Vec<Run>,
    /// For each tap: its runs, and whether they leave columns to zero.
    taps: Vec<(Range<usize>, bool)>,
    /// Distance between neighbours of a run, in elements.
    step: usize,
}

impl Recipe {
    /// Columns `0..pixels.len()` are those pixels of the phase, the rest up to `width` zero.
    pub fn set(&mut self, phase: &Phase, image: &Image, pixels: Range<usize>, width: usize) {
        self.runs.clear();
        self.taps.clear();
        self.width = width;
        self.step = phase.step[1] * image.stride[3];
        let columns = phase.count[1];
        for tap in &phase.taps {
            let start = self.runs.len();
            let mut covered = 0;
            let mut pixel = pixels.start;
            let (low, high) = valid(columns, phase.step[1], tap.offset[1], image.w);
            while pixel < pixels.end {
                let (row, first) = (pixel / columns, pixel % columns);
                let last = columns.min(first + pixels.end - pixel);
                let h = (row * phase.step[0]) as isize + tap.offset[0];
                let (from, to) = (first.max(low), last.min(high));
                if h >= 0 && (h as usize) < image.h && from < to {
                    let w = ((from * phase.step[1]) as isize + tap.offset[1]) as usize;
                    let source = h as usize * image.stride[2] + w * image.stride[3];
                    let run = Run { column: pixel - pixels.start + from - first, len: to - from, source };
                    covered += run.len;
                    self.push(start, run);
                }
                pixel += last - first;
            }
            self.taps.push((start..self.runs.len(), covered < width));
        }
    }

    /// Adds a run of the current tap, grown onto the last one where they are one stretch.
    fn push(&mut self, start: usize, run: Run) {
        if let Some(last) = self.runs[start..].last_mut() {
            let joins =
                last.column + last.len == run.column && last.source + last.len * self.step == run.source;
            if joins {
                last.len += run.len;
                return;
            }
        }
        self.runs.push(run);
    }

    /// Where the only tap reads a whole contiguous row: its first element, from the channel's first.
    pub fn direct(&self) -> Option<usize> {
        match (self.taps.as_slice(), self.runs.as_slice()) {
            ([(_, false)], [run]) if self.step == 1 => Some(run.source),
            _ => None,
        }
    }

    /// Fills `rows` (each `width` long) of the channels that start at `input[base]`, `channel` apart;
    /// row `i` is tap `i % taps` of channel `i / taps`.
    pub fn fill<T: Element>(
        &self,
        to: &mut [f32],
        input: &[T],
        base: usize,
        channel: usize,
        rows: Range<usize>,
    ) {
        let taps = self.taps.len();
        if channel == 1
            && rows.len() >= 2 * taps
            && rows.start.is_multiple_of(taps)
            && rows.end.is_multiple_of(taps)
        {
            return self.fill_channels_last(to, input, base + rows.start / taps, rows.len() / taps);
        }
        let mut tap = rows.start % taps;
        let mut first = base + rows.start / taps * channel;
        for row in to.chunks_exact_mut(self.width).take(rows.len()) {
            let (runs, zero) = &self.taps[tap];
            if *zero {
                row.fill(0.0);
            }
            for run in &self.runs[runs.clone()] {
                let (to, at) = (&mut row[run.column..run.column + run.len], first + run.source);
                if self.step == 1 {
                    T::widen(&input[at..at + run.len], to);
                } else {
                    for (value, from) in to.iter_mut().zip(input[at..].iter().step_by(self.step)) {
                        *value = from.to_f32();
                    }
                }
            }
            tap += 1;
            if tap == taps {
                (tap, first) = (0, first + channel);
            }
        }
    }

    /// As `fill` for whole channels that lie side by side: reads them as they lie, writes down columns.
    fn fill_channels_last<T: Element>(&self, to: &mut [f32], input: &[T], base: usize, channels: usize) {
        let stride = self.taps.len() * self.width;
        for (tap, (runs, zero)) in self.taps.iter().enumerate() {
            if *zero {
                for channel in 0..channels {
                    to[channel * stride + tap * self.width..][..self.width].fill(0.0);
                }
            }
            for run in &self.runs[runs.clone()] {
                for pixel in 0..run.len {
                    let from = &input[base + run.source + pixel * self.step..][..channels];
                    let column = &mut to[tap * self.width + run.column + pixel..];
                    for (value, from) in column.iter_mut().step_by(stride).zip(from) {
                        *value = from.to_f32();
                    }
                }
            }
        }
    }
}

/// Columns `low..high` of `0..columns` whose input column, `column * step + offset`, is inside.
fn valid(columns: usize, step: usize, offset: isize, size: usize) -> (usize, usize) {
    let low = if offset < 0 { offset.unsigned_abs().div_ceil(step) } else { 0 };
    let room = size as isize - offset;
    let high = if room <= 0 { 0 } else { (room as usize).div_ceil(step) };
    (low.min(columns), high.min(columns))
}
