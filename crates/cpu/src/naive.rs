//! One output element at a time, with no scratch memory: what is left when the workspace cap fits no tile.

use crate::arena::{Arena, Team};
use crate::element::Element;
use crate::geometry::{Image, Pass, Phase, Tap};
use crate::scatter::{Finish, Shared};

/// Where `tap` of pixel `(row, column)` of the phase reads, from the channel's first element.
fn source(phase: &Phase, image: &Image, tap: &Tap, row: usize, column: usize) -> Option<usize> {
    let h = (row * phase.step[0]) as isize + tap.offset[0];
    let w = (column * phase.step[1]) as isize + tap.offset[1];
    let inside = h >= 0 && (h as usize) < image.h && w >= 0 && (w as usize) < image.w;
    inside.then(|| h as usize * image.stride[2] + w as usize * image.stride[3])
}

/// Forward and backward-data.
#[allow(unsafe_code)]
pub fn gather<T: Element>(
    pass: &Pass,
    [input, w]: [&[T]; 2],
    out: &mut [T],
    finish: Finish<T>,
    arena: &Arena,
    team: &Team,
) {
    let (out, [sn, sc, sh, sw]) = (Shared::new(out), pass.output.stride);
    let channels = pass.groups * pass.oc;
    team.each(
        arena,
        0,
        pass.n * channels,
        || (),
        |index, ()| {
            let (n, channel) = (index / channels, index % channels);
            let group = channel / pass.oc;
            let f = pass.filter;
            let filter = group * f.group + channel % pass.oc * f.out;
            let base = n * pass.input.stride[0] + group * pass.ic * pass.input.stride[1];
            for phase in &pass.phases {
                for pixel in 0..phase.pixels() {
                    let (row, column) = (pixel / phase.count[1], pixel % phase.count[1]);
                    let mut sum = 0.0f64;
                    for tap in &phase.taps {
                        let Some(at) = source(phase, &pass.input, tap, row, column) else { continue };
                        for c in 0..pass.ic {
                            let x = input[base + at + c * pass.input.stride[1]].to_f32();
                            sum += f64::from(x)
                                * f64::from(w[filter + tap.index * f.tap + c * f.input].to_f32());
                        }
                    }
                    let (h, w) =
                        (phase.first[0] + row * phase.every[0], phase.first[1] + column * phase.every[1]);
                    let at = n * sn + channel * sc + h * sh + w * sw;
                    // SAFETY: each image's channel is one task's.
                    unsafe { out.set(at, T::from_f32(finish.one(sum as f32, channel))) };
                }
            }
        },
    );
}

/// Backward-weights.
#[allow(unsafe_code)]
pub fn weights<T: Element>(pass: &Pass, [x, dy]: [&[T]; 2], dw: &mut [T], arena: &Arena, team: &Team) {
    let (dw, phase, f) = (Shared::new(dw), &pass.phases[0], pass.filter);
    let [sn, sc, _, pixel_stride] = pass.output.stride;
    let channels = pass.groups * pass.oc;
    team.each(
        arena,
        0,
        channels * pass.ic,
        || (),
        |index, ()| {
            let (channel, c) = (index / pass.ic, index % pass.ic);
            let group = channel / pass.oc;
            for tap in &phase.taps {
                let mut sum = 0.0f64;
                for n in 0..pass.n {
                    let base = n * pass.input.stride[0] + (group * pass.ic + c) * pass.input.stride[1];
                    for pixel in 0..phase.pixels() {
                        let (row, column) = (pixel / phase.count[1], pixel % phase.count[1]);
                        let Some(at) = source(phase, &pass.input, tap, row, column) else { continue };
                        let dy = dy[n * sn + channel * sc + pixel * pixel_stride].to_f32();
                        sum += f64::from(x[base + at].to_f32()) * f64::from(dy);
                    }
                }
                let at = group * f.group + channel % pass.oc * f.out + c * f.input + tap.index * f.tap;
                // SAFETY: each (output channel, input channel) is one task's.
                unsafe { dw.set(at, T::from_f32(sum as f32)) };
            }
        },
    );
}
