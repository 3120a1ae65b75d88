//! Writes finished tiles into the output: bias, activation, rounding, layout.
#![allow(unsafe_code)]

use crate::element::Element;
use crate::geometry::{Image, Phase};
use std::marker::PhantomData;
use std::ops::Range;
use wave32_problem::Activation;

/// An output slice that threads fill together, each its own elements.
pub struct Shared<'a, T> {
    data: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: it hands out nothing but disjoint parts (the contract of `Shared::part`), as split borrows of
// the slice would, and T is Send.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { data: slice.as_mut_ptr(), len: slice.len(), life: PhantomData }
    }

    /// The elements `range`.
    ///
    /// # Safety
    /// No element of the range is in another part that is alive.
    #[allow(clippy::mut_from_ref)] // that is what the contract is for
    pub unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: inside the slice (asserted); not aliased, by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(range.start), range.len()) }
    }
}

impl<T> Shared<'_, T> {
    /// Writes one element.
    ///
    /// # Safety
    /// As [`Shared::part`] of that element.
    pub unsafe fn set(&self, at: usize, value: T) {
        // SAFETY: the caller's promise.
        let part = unsafe { self.part(at..at + 1) };
        part[0] = value;
    }
}

/// Bias and activation of a forward pass.
#[derive(Clone, Copy)]
pub struct Finish<'a, T> {
    pub bias: Option<&'a [T]>,
    pub activation: Activation,
}

impl<T: Element> Finish<'_, T> {
    /// Applies to one value of output channel `channel`.
    pub fn one(&self, value: f32, channel: usize) -> f32 {
        let value = self.bias.map_or(value, |bias| value + bias[channel].to_f32());
        self.activation.apply(f64::from(value)) as f32
    }

    /// Applies to values of output channel `channel`.
    pub fn row(&self, values: &mut [f32], channel: usize) {
        if self.bias.is_some() || self.activation != Activation::None {
            values.iter_mut().for_each(|value| *value = self.one(*value, channel));
        }
    }
}

/// Where a tile goes.
pub struct Target<'a, T> {
    pub phase: &'a Phase,
    pub image: &'a Image,
    pub n: usize,
    /// First of the tile's output channels, over all groups.
    pub channel: usize,
    /// Pixels of the phase.
    pub pixels: Range<usize>,
    pub finish: Finish<'a, T>,
}

/// Stores `tile`, whose rows are output channels `width` apart.
///
/// # Safety
/// No other thread writes, or holds a part of, these pixels and channels of `out`.
pub unsafe fn store<T: Element>(out: &Shared<T>, to: &Target<T>, tile: &mut [f32], width: usize) {
    let channels = tile.len() / width;
    for (i, row) in tile.chunks_exact_mut(width).enumerate() {
        to.finish.row(row, to.channel + i);
    }
    let (phase, [sn, sc, sh, sw]) = (to.phase, to.image.stride);
    let columns = phase.count[1];
    let mut pixel = to.pixels.start;
    while pixel < to.pixels.end {
        let (row, first) = (pixel / columns, pixel % columns);
        // Whole rows of a dense phase that lie one after the other are one stretch.
        let dense = phase.every == [1, 1] && sw == 1 && sh == columns;
        let len = if dense { to.pixels.end - pixel } else { (columns - first).min(to.pixels.end - pixel) };
        let step = phase.every[1] * sw;
        let corner = to.n * sn
            + to.channel * sc
            + (phase.first[0] + row * phase.every[0]) * sh
            + (phase.first[1] + first * phase.every[1]) * sw;
        let column = pixel - to.pixels.start;
        if sc == 1 && channels > 1 {
            for j in 0..len {
                let at = corner + j * step;
                // SAFETY: channels of one pixel of this tile; the caller's promise.
                let part = unsafe { out.part(at..at + channels) };
                for (to, from) in part.iter_mut().zip(tile[column + j..].iter().step_by(width)) {
                    *to = T::from_f32(*from);
                }
            }
        } else {
            for (i, from) in tile.chunks_exact(width).enumerate() {
                let (from, at) = (&from[column..column + len], corner + i * sc);
                if step == 1 {
                    // SAFETY: pixels of one channel of this tile; the caller's promise.
                    T::narrow(from, unsafe { out.part(at..at + len) });
                    continue;
                }
                for (j, from) in from.iter().enumerate() {
                    // SAFETY: one pixel of this tile; the caller's promise. (A part from here to the
                    // last pixel would hold other threads' pixels in its gaps.)
                    unsafe { out.set(at + j * step, T::from_f32(*from)) };
                }
            }
        }
        pixel += len;
    }
}
