//! Configurations of [`super::direct::Direct`] for groups of few channels, forward and backward-data: `kernels/grouped.kern`.
//! One launch, no workspace.

use super::build::{Builder, Cheapest, NewLaunch, part, read};
use super::gather::{self, Gather};
use super::tensors::ConvShape;
use super::window::tile_flags;
use crate::model::at_rate;
use crate::{DeviceCaps, Policy, Role};
use wave32_params::Pair;
use wave32_params::grouped;
use wave32_params::variants::{self, Variant};
use wave32_problem::{ConvProblem, Direction};

/// Offers the variants' plans for this problem, if there are some.
pub fn offer(
    best: &mut Cheapest<'_>,
    problem: &ConvProblem,
    caps: &DeviceCaps,
    policy: &Policy,
    p: &ConvShape,
) {
    let forward = problem.spec().direction == Direction::Forward;
    // Backward-data at stride 1 is a forward pass over dy with the filter turned.
    let is_gather = forward || p.stride == [1, 1];
    if p.groups == 1 || !is_gather || p.stride[0] != p.stride[1] || p.dilation != [1, 1] {
        return;
    }
    let g = if forward { gather::forward(p) } else { gather::turned(p) };
    let takes = |v: &&Variant| {
        let [kt, s, depth] = ["KT", "S", "DEPTH"].map(|name| v.define(name) as u32);
        [p.r, p.s] == [kt, kt] && p.stride[0] == s && g.kc > 1 && g.kc <= depth && g.src.w.0 == 1
    };
    for variant in variants::of("grouped", problem.spec().dtype).filter(takes) {
        if policy.config.as_ref().is_none_or(|name| *name == variant.tag) {
            let mut builder = Builder::new(problem, caps);
            emit(&mut builder, variant, p, &g, problem);
            best.offer(builder.finish("direct", variant.tag.clone(), policy.workspace_cap));
        }
    }
}

fn emit(
    builder: &mut Builder<'_>,
    variant: &'static Variant,
    p: &ConvShape,
    g: &Gather,
    problem: &ConvProblem,
) {
    let [kt, kb, nx, ny] = ["KT", "KB", "NX", "NY"].map(|name| variant.define(name) as u32);
    let forward = problem.spec().direction == Direction::Forward;
    let (source, role) = if forward { (Role::X, Role::Y) } else { (Role::Y, Role::X) };
    let (oh, ow) = (g.pixels / g.jw, g.jw);
    let half = kt as i32 / 2;
    let flags = tile_flags(problem, g, ow, g.org == Pair([-half, -half]));
    let (across, down, blocks) = (ow.div_ceil(nx), oh.div_ceil(ny), g.rows.div_ceil(kb));
    let total = across * down * p.n;
    let grid = [total.div_ceil(variant.threads), blocks, p.groups];
    let threads = grid.iter().map(|&groups| f64::from(groups)).product::<f64>() * f64::from(variant.threads);
    let macs = threads * f64::from(nx * ny * kb * g.kc * kt * kt);
    builder.launch::<grouped::Kernel>(NewLaunch {
        variant,
        grid,
        params: grouped::Params {
            flags,
            rows: g.rows,
            kc: g.kc,
            across,
            down,
            total,
            src: g.src,
            h: g.h,
            w: g.w,
            org: g.org,
            am: g.am,
            ak: g.ak,
            ag: g.ag,
            at: g.at,
            au: g.au,
            a0: g.a0,
            dst: g.dst,
            oh,
            ow,
        },
        buffers: grouped::Buffers {
            src: read(source),
            wgt: read(Role::W),
            dst: part(role),
            bias: read(Role::Bias),
        },
        flops: problem.flops(),
        bytes: problem.bytes(),
        model: at_rate(variant, macs),
    });
}
