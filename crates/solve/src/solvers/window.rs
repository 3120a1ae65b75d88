//! Configurations of [`super::direct::Direct`] for depthwise convolutions, forward and backward-data: `kernels/window.kern`.
//! One launch, no workspace.

use super::build::{Builder, Cheapest, NewLaunch, epilogue_flags, part, read};
use super::gather::{self, FLAG_VEC, Gather};
use super::tensors::{ConvShape, has_rows_of_vectors};
use crate::model::at_rate;
use crate::{DeviceCaps, Policy, Role};
use wave32_params::Pair;
use wave32_params::variants::{self, Variant};
use wave32_params::window;
use wave32_params::window_tile::FLAG_LINES;
use wave32_problem::{ConvProblem, Direction};

/// Offers a plan of the variant for this problem, if there is one.
pub fn offer(
    best: &mut Cheapest<'_>,
    problem: &ConvProblem,
    caps: &DeviceCaps,
    policy: &Policy,
    p: &ConvShape,
) {
    let forward = problem.spec().direction == Direction::Forward;
    let is_depthwise = p.cg == 1 && (forward || p.kg == 1);
    let same = p.pad == [p.r as i32 / 2, p.s as i32 / 2];
    if !is_depthwise || p.r != p.s || p.stride[0] != p.stride[1] || p.dilation != [1, 1] {
        return;
    }
    // Backward-data at stride 1 is a forward pass over dy with the filter turned.
    let back = !forward && p.stride[0] > 1;
    let known = |v: &&Variant| {
        let [kt, s, is_back] = ["KT", "S", "BACK"].map(|name| v.define(name) as u32);
        p.r == kt && p.stride[0] == s && (is_back == 1) == back && (!back || same)
    };
    for variant in variants::of("window", problem.spec().dtype).filter(known) {
        if policy.config.as_ref().is_none_or(|name| *name == variant.tag) {
            let mut builder = Builder::new(problem, caps);
            emit(&mut builder, variant, p, problem);
            best.offer(builder.finish("direct", variant.tag.clone(), policy.workspace_cap));
        }
    }
}

/// The flags of a kernel that reads windows (`kernels/window_tile.h`): `starts_in_place`, those of whole vectors begin a half
/// filter before the tile.
pub fn tile_flags(problem: &ConvProblem, g: &Gather, ow: u32, starts_in_place: bool) -> u32 {
    let lines = starts_in_place && has_rows_of_vectors(&g.src, [g.w]);
    let vectors = has_rows_of_vectors(&g.dst, [ow]);
    epilogue_flags(problem) | if vectors { FLAG_VEC } else { 0 } | if lines { FLAG_LINES } else { 0 }
}

fn emit(builder: &mut Builder<'_>, variant: &'static Variant, p: &ConvShape, problem: &ConvProblem) {
    let [kt, back, nx, ny] = ["KT", "BACK", "NX", "NY"].map(|name| variant.define(name) as u32);
    let forward = problem.spec().direction == Direction::Forward;
    let g = if forward { gather::forward(p) } else { gather::turned(p) };
    let (source, role, oh, ow) =
        if forward { (Role::X, Role::Y, p.oh, p.ow) } else { (Role::Y, Role::X, p.h, p.w) };
    let half = kt as i32 / 2;
    let flags = tile_flags(problem, &g, ow, back == 1 || g.org == Pair([-half, -half]));
    // Where the window starts beside the tile; the kernel computes the same.
    let first = -((kt as i32 - 1 - half) / 2);
    let (across, down, channels) = (ow.div_ceil(nx), oh.div_ceil(ny), p.groups * g.rows);
    let total = across * down * channels * p.n;
    // A thread's work is its loads and selections more than its sums.
    let pixels = f64::from(total) * f64::from(nx * ny);
    let macs = pixels * f64::from(p.taps());
    // Where rows are no vectors, pixels are stored one by one, and mostly loaded so.
    let beside = match (flags & FLAG_VEC != 0, flags & FLAG_LINES != 0) {
        (true, _) => 0.0,
        (false, true) => 8.0,
        (false, false) => 24.0,
    } * pixels;
    builder.launch::<window::Kernel>(NewLaunch {
        variant,
        grid: [total.div_ceil(variant.threads), 1, 1],
        params: window::Params {
            flags,
            rows: g.rows,
            channels,
            across,
            down,
            total,
            src: g.src,
            h: g.h,
            w: g.w,
            org: if back == 1 { Pair([first, first]) } else { g.org },
            am: g.am,
            ag: g.ag,
            at: g.at,
            au: g.au,
            a0: g.a0,
            dst: g.dst,
            oh,
            ow,
            src0: 0,
            o0: 0,
        },
        buffers: window::Buffers {
            src: read(source),
            wgt: read(Role::W),
            dst: part(role),
            bias: read(Role::Bias),
        },
        flops: problem.flops(),
        bytes: problem.bytes(),
        model: at_rate(variant, macs).beside(beside),
    });
}
