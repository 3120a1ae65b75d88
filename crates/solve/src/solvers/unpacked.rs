//! Configurations of `gemm_1x1` that read the filters where they lie (`tn` of `kernels/gemm.kern`): a launch less than with
//! packed ones, for problems so small that it counts. Of backward-data: forward, kernels of packed filters also add to a result and write
//! its moments, and filters may be prepared already.

use super::build::{
    Builder, Cheapest, NewLaunch, activation_flags, gather_flops, part, partial_stride, read, unused,
};
use super::gather::{Gather, Gathering};
use super::gemm::PARTIAL_WEIGHT;
use super::tensors::ConvShape;
use crate::model::{SPLITS, chunk};
use crate::{DeviceCaps, Model, Policy, Role};
use wave32_params::gemm::{self, FLAG_ADD, FLAG_PARTIAL, FLAG_WIDE};
use wave32_params::variants::{self, Variant};
use wave32_problem::{ConvProblem, DType, Direction};

/// Of larger problems the launch that packs is a hundredth.
const MAX_FLOPS: u64 = 1 << 30;

/// Offers each variant that reads such filters, whole and split; `g` has one tap, unit strides and pixels in vectors.
pub fn offer(
    solver: &'static str,
    best: &mut Cheapest<'_>,
    problem: &ConvProblem,
    (caps, policy): (&DeviceCaps, &Policy),
    (shape, g): (&ConvShape, &Gather),
) {
    let is_backward = problem.spec().direction == Direction::BackwardData;
    if !is_backward || !has_vectors_of_rows(g) || shape.groups != 1 || gather_flops(g, 1) > MAX_FLOPS {
        return;
    }
    let takes = |v: &&Variant| {
        let is = |name, value| v.defines.get(name) == Some(&value);
        is("VEC", 1) && is("ALONG_K", 0) && is("BLONG_K", 0) && !v.is_half()
    };
    for variant in variants::of("gemm", problem.spec().dtype).filter(takes) {
        let slices = g.kc.div_ceil(variant.define("BK") as u32);
        for splits in SPLITS.into_iter().filter(|&splits| splits == 1 || splits * 2 <= slices) {
            let config = format!("{}/{splits}", variant.tag);
            if policy.config.as_ref().is_none_or(|name| *name == config) {
                let mut builder = Builder::new(problem, caps);
                emit(&mut builder, variant, splits, (shape, g), problem);
                best.offer(builder.finish(solver, config, policy.workspace_cap));
            }
        }
    }
}

/// Four neighbours of the filters lie along the result's channels.
fn has_vectors_of_rows(g: &Gather) -> bool {
    g.am == 1 && [g.rows, g.ak, g.a0].iter().all(|size| size.is_multiple_of(4))
}

fn emit(
    builder: &mut Builder<'_>,
    variant: &'static Variant,
    splits: u32,
    (shape, g): (&ConvShape, &Gather),
    problem: &ConvProblem,
) {
    let spec = problem.spec();
    let [bm, bn, bk] = ["BM", "BN", "BK"].map(|d| variant.define(d) as u32);
    let slices = g.kc.div_ceil(bk).div_ceil(splits);
    let out = problem.output_elements();
    let stride = partial_stride(out);
    let partials = (splits > 1).then(|| builder.reserve(4 * u64::from(splits) * u64::from(stride)));
    let wide = if g.stores_vectors() { FLAG_WIDE } else { 0 };
    let (flags, dst, sums) = match partials {
        Some(region) => (wide | FLAG_PARTIAL, unused(Role::X), part(region)),
        None => {
            let bias = if spec.epilogue.bias { FLAG_ADD } else { 0 };
            (wide | bias | activation_flags(spec.epilogue.activation), part(Role::X), unused(Role::X))
        }
    };
    builder.launch::<gemm::Kernel>(NewLaunch {
        variant,
        // An image is a product of the same filters.
        grid: [g.pixels.div_ceil(bn), g.rows.div_ceil(bm), shape.n * splits],
        params: gemm::Params {
            rows: g.rows,
            cols: g.pixels,
            depth: g.kc,
            slices,
            chunk: chunk(slices, bk, spec.dtype == DType::F32),
            splits,
            partial: stride,
            flags,
            lhs_at: g.a0,
            lhs_m: g.am,
            lhs_k: g.ak,
            lhs_g: 0,
            rhs_at: g.src0,
            rhs_k: g.src.c.0,
            rhs_n: 1,
            rhs_g: g.src.n.0,
            out_at: g.o0,
            out_m: g.dst.c.0,
            out_g: g.dst.n.0,
            add_at: 0,
            add_m: 1,
            add_n: 0,
            add_g: 0,
            run: 0,
            lhs_run: 0,
            rhs_run: 0,
            alpha: 1.0,
            beta: 1.0,
            up: 1.0,
        },
        buffers: gemm::Buffers {
            lhs: read(Role::W),
            rhs: read(Role::Y),
            dst,
            part: sums,
            added: read(Role::Bias),
        },
        flops: gather_flops(g, 1),
        bytes: problem.bytes() + partials.map_or(0, |_| 4 * out * u64::from(splits)),
        model: Model::Tiles { depth: u64::from(slices) * u64::from(bk) },
    });
    if let Some(partials) = partials {
        builder.reduce(partials, (splits, stride, PARTIAL_WEIGHT), Role::X, shape);
    }
}
