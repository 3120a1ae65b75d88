//! 1x1 convolutions that read the filters where they lie (`nn` and `tn` of `kernels/gemm.kern`): a launch less than with packed ones, for
//! problems so small that it counts. Kernels of packed filters also add to a result and write its moments, so this is a solver of its own
//! beside `gemm_1x1`: who needs those takes that one's plan.

use super::build::{
    Builder, Cheapest, NewLaunch, activation_flags, gather_flops, part, partial_stride, read, unused, usable,
};
use super::gather::{Gather, Gathering};
use super::gemm::PARTIAL_WEIGHT;
use super::igemm;
use super::tensors::ConvShape;
use crate::model::{SPLITS, chunk};
use crate::{DeviceCaps, Model, Plan, Policy, Refusal, Role, Solver};
use wave32_params::gemm::{self, FLAG_ADD, FLAG_PARTIAL, FLAG_WIDE};
use wave32_params::variants::Variant;
use wave32_problem::{ConvProblem, DType, Direction};

/// Of larger problems the launch that packs is a small part.
const MAX_FLOPS: u64 = 1 << 30;

/// 1x1 with unit stride over contiguous pixels, one group; filters are not packed.
pub struct Gemm1x1Unpacked;

impl Solver for Gemm1x1Unpacked {
    fn name(&self) -> &'static str {
        "gemm_1x1_unpacked"
    }

    fn applicable(&self, problem: &ConvProblem, caps: &DeviceCaps) -> Result<(), Refusal> {
        product(problem, caps).map(drop)
    }

    fn plan(&self, problem: &ConvProblem, caps: &DeviceCaps, policy: &Policy) -> Result<Plan, Refusal> {
        let (shape, gather, along_k) = product(problem, caps)?;
        let mut best = Cheapest::new(caps);
        let takes = |v: &&Variant| {
            let is = |name, value| v.defines.get(name) == Some(&value);
            is("VEC", 1) && is("ALONG_K", i64::from(along_k)) && is("BLONG_K", 0) && !v.is_half()
        };
        for variant in usable("gemm", problem, caps, policy).filter(takes) {
            let slices = gather.kc.div_ceil(variant.define("BK") as u32);
            for splits in SPLITS.into_iter().filter(|&splits| splits == 1 || splits * 2 <= slices) {
                let config = format!("{}/{splits}", variant.tag);
                if policy.config.as_ref().is_none_or(|name| *name == config) {
                    let mut builder = Builder::new(problem, caps);
                    emit(&mut builder, variant, splits, (&shape, &gather), problem);
                    best.offer(builder.finish(self.name(), config, policy.workspace_cap));
                }
            }
        }
        best.plan()
    }
}

/// The one gathering convolution of the problem, and whether four neighbours of the filters lie along the sum.
fn product(problem: &ConvProblem, caps: &DeviceCaps) -> Result<(ConvShape, Gather, bool), Refusal> {
    igemm::is_pointwise(problem.spec())?;
    let (shape, mut gathers) = igemm::gathers(problem, caps, igemm::Mode::Pointwise)?;
    let (Some(gather), true) = (gathers.pop(), gathers.is_empty() && shape.groups == 1) else {
        return Err(Refusal::new("not-one-product", "takes one group, and no strides"));
    };
    let flops = gather_flops(&gather, 1);
    if flops > MAX_FLOPS {
        let detail = format!("{flops} operations, takes {MAX_FLOPS}: gemm_1x1 does it");
        return Err(Refusal::new("large", detail));
    }
    match filters_along_k(&gather) {
        Some(along_k) => Ok((shape, gather, along_k)),
        None => Err(Refusal::new("filters-apart", "four neighbours of the filters must lie side by side")),
    }
}

/// Whether four neighbours of the filters lie along the sum or along the result's channels; none where they lie apart.
fn filters_along_k(g: &Gather) -> Option<bool> {
    let is_whole = |stride: u32, size: u32, other: u32| {
        stride == 1 && size.is_multiple_of(4) && other.is_multiple_of(4) && g.a0.is_multiple_of(4)
    };
    if is_whole(g.ak, g.kc, g.am) { Some(true) } else { is_whole(g.am, g.rows, g.ak).then_some(false) }
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
    let (source, role) = match spec.direction {
        Direction::Forward => (Role::X, Role::Y),
        _ => (Role::Y, Role::X),
    };
    let slices = g.kc.div_ceil(bk).div_ceil(splits);
    let out = problem.output_elements();
    let stride = partial_stride(out);
    let partials = (splits > 1).then(|| builder.reserve(4 * u64::from(splits) * u64::from(stride)));
    let wide = if g.stores_vectors() { FLAG_WIDE } else { 0 };
    let (flags, dst, sums) = match partials {
        Some(region) => (wide | FLAG_PARTIAL, unused(role), part(region)),
        None => {
            let bias = if spec.epilogue.bias { FLAG_ADD } else { 0 };
            (wide | bias | activation_flags(spec.epilogue.activation), part(role), unused(role))
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
            rhs: read(source),
            dst,
            part: sums,
            added: read(Role::Bias),
        },
        flops: gather_flops(g, 1),
        bytes: problem.bytes() + partials.map_or(0, |_| 4 * out * u64::from(splits)),
        model: Model::Tiles { depth: u64::from(slices) * u64::from(bk) },
    });
    if let Some(partials) = partials {
        builder.reduce(partials, (splits, stride, PARTIAL_WEIGHT), role, shape);
    }
}
