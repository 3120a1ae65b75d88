//! The small problems.

use wave32_params::variants::Variant;
use wave32_problem::{Activation, ConvProblem, ConvSpec, Direction, Epilogue, Layout};

/// Shapes picked so that each reaches a branch: see the comment of each.
pub fn shapes() -> Vec<ConvSpec> {
    let base = ConvSpec { n: 2, c: 16, h: 9, w: 10, k: 24, r: 3, s: 3, pad: [1, 1], ..ConvSpec::default() };
    vec![
        base.clone(),
        // more rows than a tile, channels no multiple of anything
        ConvSpec { c: 19, k: 67, ..base.clone() },
        // stride and dilation with phases that have no taps
        ConvSpec { stride: [2, 3], dilation: [2, 1], pad: [2, 0], h: 13, w: 11, ..base.clone() },
        ConvSpec { stride: [4, 4], r: 2, s: 2, pad: [0, 0], h: 14, w: 15, ..base.clone() },
        // tiles of Winograd at every border, beyond the image on one side
        ConvSpec { n: 3, h: 11, w: 6, pad: [0, 3], ..base.clone() },
        // 1x1: vector loads (4 | pixels), and without
        ConvSpec { r: 1, s: 1, pad: [0, 0], h: 8, w: 6, k: 70, ..base.clone() },
        ConvSpec { r: 1, s: 1, pad: [0, 0], h: 7, w: 7, c: 40, ..base.clone() },
        ConvSpec { r: 1, s: 1, pad: [0, 0], stride: [2, 2], ..base.clone() },
        // groups, depthwise, depthwise with multiplier
        ConvSpec { groups: 4, c: 32, k: 24, ..base.clone() },
        ConvSpec { groups: 16, k: 16, ..base.clone() },
        ConvSpec { groups: 16, k: 32, r: 5, s: 5, pad: [2, 2], ..base.clone() },
        // 1-D
        ConvSpec { h: 1, w: 57, r: 1, s: 7, pad: [0, 3], ..base.clone() },
        // long reduction: chunks and splits
        ConvSpec { n: 1, c: 600, h: 6, w: 6, k: 9, ..base.clone() },
        ConvSpec { n: 3, c: 3, h: 40, w: 44, k: 5, ..base.clone() },
        // whole slices of 32 in every pass, more than one tile
        ConvSpec { n: 1, c: 64, k: 96, h: 12, w: 12, ..base.clone() },
        ConvSpec { n: 3, c: 64, k: 96, h: 8, w: 6, r: 1, s: 1, pad: [0, 0], ..base.clone() },
        // a single pixel
        ConvSpec { n: 1, c: 1, h: 1, w: 1, k: 1, r: 1, s: 1, pad: [0, 0], ..base.clone() },
        // transposed, with output padding; with outputs that are their bias alone
        ConvSpec { transposed: true, stride: [2, 2], output_pad: [1, 0], c: 24, k: 8, ..base.clone() },
        ConvSpec { transposed: true, stride: [3, 2], r: 1, s: 1, pad: [0, 1], c: 24, k: 8, ..base.clone() },
        ConvSpec { transposed: true, stride: [2, 2], r: 1, s: 1, pad: [0, 0], h: 8, w: 6, ..base },
    ]
}

/// The place in [`shapes`] of one whose solvers write statistics of their own choice.
pub const WITH_STATISTICS: usize = 5;

/// Where the kernel may run: shapes of its filter and stride, few channels and depthwise, if it is compiled for these.
pub fn shapes_for(variant: &Variant) -> Vec<ConvSpec> {
    let known = ["KT", "S"].map(|name| variant.defines.contains_key(name));
    if known != [true, true] {
        return shapes();
    }
    let [kt, stride] = ["KT", "S"].map(|name| variant.define(name));
    let few = ConvSpec {
        n: 2,
        c: 3,
        h: 21,
        w: 24,
        k: 24,
        r: kt,
        s: kt,
        stride: [stride; 2],
        pad: [kt / 2; 2],
        ..ConvSpec::default()
    };
    let depthwise = ConvSpec { groups: 8, c: 8, k: 8, ..few.clone() };
    let several = ConvSpec { k: 32, ..depthwise.clone() };
    let narrow = ConvSpec { w: 9, ..depthwise.clone() };
    let grouped = ConvSpec { groups: 3, c: 12, k: 30, ..few.clone() };
    vec![few, depthwise, several, narrow, grouped]
}

pub fn problems(spec: &ConvSpec) -> Vec<ConvProblem> {
    let mut all = Vec::new();
    for layout in [Layout::Nchw, Layout::Nhwc] {
        for direction in Direction::ALL {
            let epilogue = match direction {
                Direction::Forward => Epilogue { bias: true, activation: Activation::Relu },
                _ => Epilogue::default(),
            };
            let spec = ConvSpec { layout, direction, epilogue, ..spec.clone() };
            all.push(ConvProblem::new(spec).expect("valid by hand"));
        }
    }
    all
}
