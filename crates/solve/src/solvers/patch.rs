//! Configurations of [`super::few::Few`] for first layers: `kernels/patch.kern` forward, `kernels/phases.kern` backward-data.
//! Filter and stride are known when the kernels are compiled; one launch, no workspace.

use super::build::{Builder, Cheapest, NewLaunch, epilogue_flags, gather_flops, part, read, usable};
use super::gather::{self, FLAG_VEC, Gather, Gathering};
use super::tensors::{ConvShape, has_rows_of_vectors};
use crate::model::{LONGEST_CHAIN, at_rate};
use crate::{DeviceCaps, Policy, Role};
use wave32_params::variants::Variant;
use wave32_params::{Pair, patch, phases};
use wave32_problem::{ConvProblem, Direction};

/// Pixels of a row of `patch.kern`'s tile.
const TILE: u32 = 32;

/// The variants for this problem's filter, stride and pass that this device and this policy allow.
pub fn variants(
    problem: &ConvProblem,
    p: &ConvShape,
    caps: &DeviceCaps,
    policy: &Policy,
) -> impl Iterator<Item = &'static Variant> {
    let source = match problem.spec().direction {
        Direction::Forward => "patch",
        Direction::BackwardData => "phases",
        Direction::BackwardWeights => "",
    };
    // One f32 chain sums all products of an output.
    let forward = problem.spec().direction == Direction::Forward;
    let (sums, rows) = if forward { (p.cg, p.kg) } else { (p.kg, p.cg) };
    let taps = if source == "patch" { p.taps() } else { p.taps() / p.stride[0].pow(2) };
    let takes = u64::from(sums) * u64::from(taps) <= u64::from(LONGEST_CHAIN) && p.dilation == [1, 1];
    let (filter, stride) = ([p.r, p.s], p.stride);
    let known = move |v: &&'static Variant| {
        let [kt, s] = ["KT", "S"].map(|name| v.define(name) as u32);
        // A thread's channels are not most of them padding.
        let channels = v.define(if source == "patch" { "OC" } else { "CB" }) as u32;
        let in_twos = !v.is_half() || sums.is_multiple_of(2);
        takes && in_twos && 2 * rows > channels && filter == [kt, kt] && stride == [s, s]
    };
    usable(source, problem, caps, policy).filter(known)
}

/// Offers a plan of each variant.
pub fn offer(
    solver: &'static str,
    best: &mut Cheapest<'_>,
    problem: &ConvProblem,
    caps: &DeviceCaps,
    policy: &Policy,
    p: &ConvShape,
) {
    for variant in variants(problem, p, caps, policy) {
        if policy.config.as_ref().is_none_or(|name| *name == variant.tag) {
            let mut builder = Builder::new(problem, caps);
            if variant.source == "patch" {
                forward(&mut builder, variant, p, problem);
            } else {
                backward_data(&mut builder, variant, p, problem);
            }
            best.offer(builder.finish(solver, variant.tag.clone(), policy.workspace_cap));
        }
    }
}

fn forward(builder: &mut Builder<'_>, variant: &'static Variant, p: &ConvShape, problem: &ConvProblem) {
    let g = gather::forward(p);
    let [oc, mg, th] = ["OC", "MG", "TH"].map(|name| variant.define(name) as u32);
    let vectors = has_rows_of_vectors(&g.dst, [g.jw, g.o0]);
    let bits = epilogue_flags(problem) | if vectors { FLAG_VEC } else { 0 };
    let grid =
        [g.jw.div_ceil(TILE) * (g.pixels / g.jw).div_ceil(th) * p.n, g.rows.div_ceil(oc * mg), p.groups];
    let outputs: f64 = grid.iter().map(|&n| f64::from(n)).product::<f64>() * f64::from(TILE * th * oc * mg);
    builder.launch::<patch::Kernel>(NewLaunch {
        variant,
        grid,
        params: Gather { flags: gather::flags(bits, 1), ..g },
        buffers: patch::Buffers {
            src: read(Role::X),
            wgt: read(Role::W),
            dst: part(Role::Y),
            bias: read(Role::Bias),
        },
        flops: gather_flops(&g, p.groups),
        bytes: problem.bytes(),
        model: at_rate(variant, outputs * f64::from(g.depth())),
    });
}

fn backward_data(builder: &mut Builder<'_>, variant: &'static Variant, p: &ConvShape, problem: &ConvProblem) {
    let [kt, s, nr, nb, cb, ks] = ["KT", "S", "NR", "NB", "CB", "KS"].map(|name| variant.define(name) as u32);
    // Blocks of s pixels of the padded image, from the first to the last that has a pixel of dx.
    let blocks = |size: u32, pad: i32| (size - 1 + pad as u32) / s - pad as u32 / s + 1;
    let (across, down) = (blocks(p.w, p.pad[1]).div_ceil(nb), blocks(p.h, p.pad[0]).div_ceil(nr));
    let total = across * down * p.n;
    let lanes = variant.threads / ks;
    let grid = [total.div_ceil(lanes), p.cg.div_ceil(cb), p.groups];
    let threads: f64 = grid.iter().map(|&n| f64::from(n)).product::<f64>() * f64::from(lanes);
    builder.launch::<phases::Kernel>(NewLaunch {
        variant,
        grid,
        params: phases::Params {
            flags: epilogue_flags(problem),
            rows: p.cg,
            kc: p.kg,
            src: p.y,
            h: p.oh,
            w: p.ow,
            am: p.f.c.0,
            ak: p.f.n.0,
            at: p.f.h.0,
            au: p.f.w.0,
            ag: p.kg * p.f.n.0,
            dst: p.x,
            dh: p.h,
            dw: p.w,
            pad: Pair(p.pad),
            across,
            down,
            total,
        },
        buffers: phases::Buffers {
            src: read(Role::Y),
            wgt: read(Role::W),
            dst: part(Role::X),
            bias: read(Role::Bias),
        },
        flops: problem.flops(),
        bytes: problem.bytes(),
        model: at_rate(variant, threads * f64::from(cb * nr * nb * kt * kt) * f64::from(p.kg)),
    });
}
