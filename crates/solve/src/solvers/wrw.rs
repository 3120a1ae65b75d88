//! Implicit GEMM of backward-weights (`kernels/wrw.kern`): the plan of [`super::igemm::Igemm`] for that
//! direction. The reduction runs over all output pixels of the batch, so it is nearly always split.

use super::build::{Builder, Cheapest, NewLaunch, partial_stride, read, unused, usable, write};
use super::tensors::ConvShape;
use crate::model::{SPLITS, chunk};
use crate::{DeviceCaps, Model, Plan, Policy, Refusal, Role};
use wave32_params::variants::Variant;
use wave32_params::weights::{self, FLAG_PARTIAL};
use wave32_params::{Pair, wrw};
use wave32_problem::{ConvProblem, DType};

const GENERIC: i64 = 0;
const ROWS: i64 = 2;

/// Parameters of `wrw.kern` and `direct_wrw.kern` for the whole problem in one split.
pub fn params(p: &ConvShape) -> weights::Params {
    weights::Params {
        flags: 0,
        rows: p.kg,
        kc: p.cg,
        taps: [p.r, p.s].into(),
        imgs: p.n,
        oh: p.oh,
        ow: p.ow,
        y: p.y,
        x: p.x,
        h: p.h,
        w: p.w,
        str: p.stride.into(),
        org: Pair(p.pad.map(|v| -v)),
        dil: Pair(p.dilation),
        f: p.f,
        splits: 1,
        slices: 0,
        chunk: 0,
        partial: 0,
        blocks: 0,
        y_first: 0,
        groups: p.groups,
    }
}

/// What a store of a tile of matrix instructions into the filter's own order costs, as steps of the sum for each percent of the
/// variant's rate: neighbours lie a filter's taps apart, and each takes 2.4 clocks (measured on an H200).
const SCATTERED: i64 = 3;

struct Config {
    variant: &'static Variant,
    splits: u32,
}

impl Config {
    fn name(&self) -> String {
        format!("{}/{}", self.variant.tag, self.splits)
    }

    /// Workgroups along x, and column blocks of a tap.
    fn columns(&self, p: &ConvShape) -> (u32, u32) {
        let bn = self.variant.define("BN") as u32;
        if self.variant.define("MODE") != GENERIC {
            let blocks = p.cg.div_ceil(bn);
            (p.taps() * blocks, blocks)
        } else {
            ((p.cg * p.taps()).div_ceil(bn), 0)
        }
    }

    fn slices(&self, p: &ConvShape) -> u32 {
        (p.n * p.pixels()).div_ceil(self.variant.define("BK") as u32)
    }
}

/// Whether four neighbours along w lie side by side, at multiples of four, in x and y, and a filter moves by one.
fn has_rows_in_fours(p: &ConvShape) -> bool {
    let tensors = [&p.x, &p.y];
    let sizes = tensors.into_iter().flat_map(|t| [t.n.0, t.c.0, t.h.0]).chain([p.ow, p.w]);
    let is_dense = tensors.into_iter().all(|t| t.w.0 == 1) && p.stride[1] == 1;
    is_dense && sizes.into_iter().all(|size| size.is_multiple_of(4))
}

/// The cheapest configuration's plan.
pub fn plan(
    solver: &'static str,
    problem: &ConvProblem,
    caps: &DeviceCaps,
    policy: &Policy,
) -> Result<Plan, Refusal> {
    let p = ConvShape::new(problem, caps)?;
    let mut best = Cheapest::new(caps);
    // Where operands are kept in f16, rows are read in twos, and channels that make columns.
    let in_twos =
        |v: &&Variant| p.kg.is_multiple_of(2) && (p.cg.is_multiple_of(2) || v.define("MODE") == GENERIC);
    let in_fours = has_rows_in_fours(&p);
    let takes =
        |v: &&Variant| (!v.keeps_f16() || v.is_dot() || in_twos(v)) && (in_fours || v.define("MODE") != ROWS);
    for variant in usable("wrw", problem, caps, policy).filter(takes) {
        for splits in SPLITS {
            let config = Config { variant, splits };
            let fits = splits == 1 || splits * 2 <= config.slices(&p);
            if fits && policy.config.as_ref().is_none_or(|name| *name == config.name()) {
                best.offer(emit(solver, &config, &p, problem, caps, policy));
            }
        }
    }
    best.plan()
}

fn emit(
    solver: &'static str,
    config: &Config,
    p: &ConvShape,
    problem: &ConvProblem,
    caps: &DeviceCaps,
    policy: &Policy,
) -> Result<Plan, Refusal> {
    let mut builder = Builder::new(problem, caps);
    let v = config.variant;
    let slices = config.slices(p).div_ceil(config.splits);
    let (grid_x, blocks) = config.columns(p);
    let stride = partial_stride(problem.w_elements());
    let mut params = params(p);
    params.splits = config.splits;
    params.slices = slices;
    params.chunk = chunk(slices, v.define("BK") as u32, problem.spec().dtype == DType::F32);
    params.partial = stride;
    params.blocks = blocks;
    let partial = 4 * u64::from(config.splits) * u64::from(stride);
    let partials = (config.splits > 1).then(|| builder.reserve(partial));
    params.flags = if partials.is_some() { FLAG_PARTIAL } else { 0 };
    let (dw, sums) = match partials {
        Some(region) => (unused(Role::W), write(region)),
        None => (write(Role::W), unused(Role::W)),
    };
    let is_scattered = v.is_matrix() && partials.is_none() && p.taps() > 1;
    let stores = if is_scattered { SCATTERED * v.define("EFF") } else { 0 };
    builder.launch::<wrw::Kernel>(NewLaunch {
        variant: v,
        grid: [grid_x, p.kg.div_ceil(v.define("BM") as u32), p.groups * config.splits],
        params,
        buffers: wrw::Buffers { dy: read(Role::Y), src: read(Role::X), dst: dw, part: sums },
        flops: problem.flops(),
        bytes: problem.bytes() + partials.map_or(0, |_| partial),
        model: Model::Tiles { depth: u64::from(slices) * v.define("BK") as u64 + stores as u64 },
    });
    if let Some(partials) = partials {
        if v.define("MODE") != GENERIC {
            builder.reduce_weights(partials, (config.splits, stride, 2), p);
        } else {
            builder.reduce(partials, (config.splits, stride, 2), Role::W, p);
        }
    }
    builder.finish(solver, config.name(), policy.workspace_cap)
}
