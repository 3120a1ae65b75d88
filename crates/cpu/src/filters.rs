//! Filters as the right operand of a GEMM: one row for each output channel, (channel, tap) along it.

use crate::arena::{Arena, Scratch, Team};
use crate::element::Element;
use crate::geometry::{Pass, Phase};
use crate::scatter::Shared;
use std::ops::Range;

/// True where the filters lie as the GEMM wants them, so that no copy is needed.
pub fn lie_ready<T: Element>(pass: &Pass, phase: &Phase, w: &[T]) -> bool {
    let taps = phase.taps.len();
    let in_order = phase.taps.iter().enumerate().all(|(i, tap)| tap.index == i);
    let contiguous = pass.filter.tap == 1 || taps == 1;
    T::as_f32(w).is_some()
        && in_order
        && contiguous
        && pass.filter.input == taps
        && pass.filter.out == pass.ic * taps
}

/// Rows `rows` (group * oc + output channel) widened and in order.
#[allow(unsafe_code)]
pub fn pack<'a, T: Element>(
    pass: &Pass,
    phase: &Phase,
    w: &[T],
    rows: Range<usize>,
    arena: &'a Arena,
    team: &Team,
) -> Scratch<'a, f32> {
    let taps = phase.taps.len();
    let len = pass.ic * taps;
    let mut packed = arena.alloc::<f32>(rows.len() * len);
    let shared = Shared::new(&mut packed);
    let f = pass.filter;
    // Blocks of rows, so that neighbouring output channels share the cache lines they are read from.
    const BLOCK: usize = 16;
    let blocks = rows.len().div_ceil(BLOCK);
    team.each(
        arena,
        0,
        blocks,
        || (),
        |block, ()| {
            let first = block * BLOCK;
            let count = BLOCK.min(rows.len() - first);
            // SAFETY: each block of rows is one task's.
            let to = unsafe { shared.part(first * len..(first + count) * len) };
            for input in 0..pass.ic {
                for row in 0..count {
                    let (group, out) =
                        ((rows.start + first + row) / pass.oc, (rows.start + first + row) % pass.oc);
                    let at = group * f.group + out * f.out + input * f.input;
                    let to = &mut to[row * len + input * taps..][..taps];
                    for (to, tap) in to.iter_mut().zip(&phase.taps) {
                        *to = w[at + tap.index * f.tap].to_f32();
                    }
                }
            }
        },
    );
    packed
}
