//! Implicit GEMM, forward and backward-data, in three modes of `kernels/igemm.kern`; the generic mode's
//! solver takes backward-weights too (see [`super::wrw`]).

use super::build::{
    Builder, Cheapest, NewLaunch, Region, epilogue_flags, gather_flops, part, partial_stride, read,
    tagged_variant, unused, usable, write,
};
use super::gather::{self, FLAG_PARTIAL, FLAG_VEC, Gather, Gathering};
use super::tensors::ConvShape;
use super::{nt, wrw};
use crate::model::{SPLITS, chunk};
use crate::{DeviceCaps, Model, Plan, Policy, Refusal, Role, Solver};
use wave32_params::variants::Variant;
use wave32_params::{igemm, pack, pack_half};
use wave32_problem::{ConvProblem, ConvSpec, DType, Direction};

/// Most stride phases worth a launch each.
const MAX_PHASES: u64 = 64;

/// Partial results cost more than their bytes: scalar stores, and a pass that cannot overlap (measured).
const PARTIAL_WEIGHT: u64 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Generic = 0,
    Packed = 1,
    Pointwise = 2,
}

/// Filters read in place, any geometry; workspace only where the reduction is split.
pub struct Igemm;
/// Filters packed first: cheapest inner loop. Channels in multiples of 8.
pub struct IgemmPacked;
/// 1x1 with unit stride over contiguous pixels: a plain GEMM, packed filters, vector loads. For the filters' gradients see [`nt`].
pub struct Gemm1x1;

impl Solver for Igemm {
    fn name(&self) -> &'static str {
        "igemm"
    }

    fn applicable(&self, problem: &ConvProblem, caps: &DeviceCaps) -> Result<(), Refusal> {
        match problem.spec().direction {
            Direction::BackwardWeights => ConvShape::new(problem, caps).map(drop),
            _ => gathers(problem, caps, Mode::Generic).map(drop),
        }
    }

    fn plan(&self, problem: &ConvProblem, caps: &DeviceCaps, policy: &Policy) -> Result<Plan, Refusal> {
        match problem.spec().direction {
            Direction::BackwardWeights => wrw::plan(self.name(), problem, caps, policy),
            _ => best(self.name(), Mode::Generic, problem, caps, policy),
        }
    }
}

impl Solver for IgemmPacked {
    fn name(&self) -> &'static str {
        "igemm_packed"
    }

    fn applicable(&self, problem: &ConvProblem, caps: &DeviceCaps) -> Result<(), Refusal> {
        let (_, gathers) = gathers(problem, caps, Mode::Packed)?;
        if gathers.iter().all(Gathering::loads_vectors) {
            return Err(Refusal::new("pointwise", "gemm_1x1 does the same with vector loads"));
        }
        Ok(())
    }

    fn plan(&self, problem: &ConvProblem, caps: &DeviceCaps, policy: &Policy) -> Result<Plan, Refusal> {
        best(self.name(), Mode::Packed, problem, caps, policy)
    }
}

impl Solver for Gemm1x1 {
    fn name(&self) -> &'static str {
        "gemm_1x1"
    }

    fn applicable(&self, problem: &ConvProblem, caps: &DeviceCaps) -> Result<(), Refusal> {
        is_pointwise(problem.spec())?;
        match problem.spec().direction {
            Direction::BackwardWeights => nt::pointwise(problem, caps).map(drop),
            _ => gathers(problem, caps, Mode::Pointwise).map(drop),
        }
    }

    fn plan(&self, problem: &ConvProblem, caps: &DeviceCaps, policy: &Policy) -> Result<Plan, Refusal> {
        match problem.spec().direction {
            Direction::BackwardWeights => nt::plan(self.name(), problem, caps, policy),
            _ => best(self.name(), Mode::Pointwise, problem, caps, policy),
        }
    }
}

/// Refuses filters of several taps, and strides.
pub(super) fn is_pointwise(s: &ConvSpec) -> Result<(), Refusal> {
    // A strided gradient of x is that of stride 1 with zeros between.
    let is_dense = s.stride == [1, 1] || s.direction == Direction::BackwardData;
    if [s.r, s.s] != [1, 1] || !is_dense || s.pad != [0, 0] {
        let detail = "takes 1x1 filters without padding, and stride 1 but for backward-data";
        return Err(Refusal::new("not-pointwise", detail));
    }
    Ok(())
}

/// The gathering convolutions of the problem, or why this mode cannot do them.
pub(super) fn gathers(
    problem: &ConvProblem,
    caps: &DeviceCaps,
    mode: Mode,
) -> Result<(ConvShape, Vec<Gather>), Refusal> {
    let shape = ConvShape::new(problem, caps)?;
    if problem.spec().direction == Direction::BackwardWeights {
        return Err(Refusal::new("direction", "backward-weights is done by igemm, gemm_1x1 and direct"));
    }
    let all = gather::of_pass(&shape, problem.spec().direction, MAX_PHASES)?;
    let channels = all[0].kc.max(all.last().map_or(0, |g| g.kc));
    if mode != Mode::Generic && !all.iter().all(|g| g.kc.is_multiple_of(8)) {
        let detail = format!("{channels} channels to sum over, takes multiples of 8");
        return Err(Refusal::new("odd-channels", detail));
    }
    if mode == Mode::Pointwise && !all.iter().all(Gathering::loads_vectors) {
        let detail = "pixels of a channel must be contiguous, in multiples of 4";
        return Err(Refusal::new("no-vector-loads", detail));
    }
    Ok((shape, all))
}

/// One way to run the mode.
struct Config {
    variant: &'static Variant,
    splits: u32,
}

impl Config {
    fn name(&self) -> String {
        format!("{}/{}", self.variant.tag, self.splits)
    }
}

fn best(
    solver: &'static str,
    mode: Mode,
    problem: &ConvProblem,
    caps: &DeviceCaps,
    policy: &Policy,
) -> Result<Plan, Refusal> {
    let (shape, gathers) = gathers(problem, caps, mode)?;
    let mut best = Cheapest::new(caps);
    let takes = |v: &&Variant| v.define("MODE") == mode as i64 && !v.is_of_planes();
    for variant in usable("igemm", problem, caps, policy).filter(takes) {
        let bk = variant.define("BK") as u32;
        if mode != Mode::Generic && gathers.iter().any(|g| !g.kc.is_multiple_of(bk)) {
            continue;
        }
        let slices = gathers.iter().map(|g| g.depth().div_ceil(bk)).max().unwrap_or(0);
        for splits in SPLITS.into_iter().filter(|&s| s == 1 || s * 2 <= slices) {
            let config = Config { variant, splits };
            if policy.config.as_ref().is_none_or(|name| *name == config.name()) {
                let mut builder = Builder::new(problem, caps);
                emit(&mut builder, &config, mode, &shape, &gathers, problem);
                best.offer(builder.finish(solver, config.name(), policy.workspace_cap));
            }
        }
    }
    best.plan()
}

/// Elements of a group's packed filters of one phase, and bytes of one. With sums in f16, a row of scales is behind each slice. For dot
/// products, an element is a pair.
fn packed_elements(g: &Gather, variant: &Variant) -> (u32, u64) {
    let [bm, bk] = ["BM", "BK"].map(|name| variant.define(name) as u32);
    if variant.is_dot() {
        return (g.depth() / 2 * g.rows.next_multiple_of(bm), 4);
    }
    let rows = if variant.is_half() { g.depth() / bk * (bk + 1) } else { g.depth() };
    (rows * g.rows.next_multiple_of(bm), if variant.keeps_f16() { 2 } else { 4 })
}

fn emit(
    builder: &mut Builder<'_>,
    config: &Config,
    mode: Mode,
    shape: &ConvShape,
    gathers: &[Gather],
    problem: &ConvProblem,
) {
    let (spec, v) = (problem.spec(), config.variant);
    let [bm, bn, bk] = ["BM", "BN", "BK"].map(|d| v.define(d) as u32);
    let role = if spec.direction == Direction::Forward { Role::Y } else { Role::X };
    let source = if spec.direction == Direction::Forward { Role::X } else { Role::Y };
    let out = problem.output_elements();
    // What no tap reaches is 0 and is filled in. Partial results of it are summed like others; with the bias of a transposed
    // convolution it is computed like others.
    let fills = config.splits == 1 && role == Role::X && !spec.epilogue.bias;
    let unreached = if fills { gather::unreached(shape, gathers) } else { Vec::new() };
    let gathers: Vec<&Gather> = gathers.iter().filter(|g| g.depth() > 0 || !fills).collect();
    let mut packed = Vec::new();
    if mode != Mode::Generic {
        for g in &gathers {
            // A phase without taps packs nothing but still binds a region.
            let (elements, size) = packed_elements(g, v);
            let region = builder.reserve(size * (u64::from(shape.groups) * u64::from(elements)).max(8));
            packed.push(region);
            if g.depth() > 0 {
                let read_bytes = problem.w_elements() * spec.dtype.size() / gathers.len() as u64;
                pack(builder, g, shape, v, (region, read_bytes), spec);
            }
        }
        builder.filters_are_prepared();
    }
    let stride = partial_stride(out);
    let partials =
        (config.splits > 1).then(|| builder.reserve(4 * u64::from(config.splits) * u64::from(stride)));
    for (index, g) in gathers.iter().enumerate() {
        let slices = g.depth().div_ceil(bk).div_ceil(config.splits);
        let mut params = **g;
        params.slices = slices.max(1);
        params.chunk = chunk(slices, bk, spec.dtype == DType::F32);
        params.partial = stride;
        if mode != Mode::Generic {
            params.am = g.rows.next_multiple_of(bm);
            params.ag = packed_elements(g, v).0;
        }
        let flags = match partials {
            Some(_) => FLAG_PARTIAL,
            None => epilogue_flags(problem) | if g.stores_vectors() { FLAG_VEC } else { 0 },
        };
        params.flags = gather::flags(flags, config.splits);
        let filters = match mode {
            Mode::Generic => read(Role::W),
            _ => read(packed[index]),
        };
        // Each phase of a strided gradient writes pixels of its own.
        let (dst, sums) = match partials {
            Some(region) => (unused(role), part(region)),
            None => (part(role), unused(role)),
        };
        builder.launch::<igemm::Kernel>(NewLaunch {
            variant: v,
            grid: [g.cols.div_ceil(bn), g.rows.div_ceil(bm), shape.groups * config.splits],
            params,
            buffers: igemm::Buffers {
                src: read(source),
                wgt: filters,
                dst,
                bias: read(Role::Bias),
                part: sums,
            },
            flops: gather_flops(g, shape.groups),
            bytes: problem.bytes() / gathers.len() as u64
                + partials.map_or(0, |_| 4 * out * u64::from(config.splits) / gathers.len() as u64),
            model: Model::Tiles { depth: u64::from(slices.max(1)) * u64::from(bk) },
        });
    }
    if let Some(partials) = partials {
        builder.reduce(partials, (config.splits, stride, PARTIAL_WEIGHT), role, shape);
    }
    for zeros in unreached {
        builder.zero(role, &zeros);
    }
}

/// Where the filters of a slice are scaled to, in f16: the power of two of their largest. Gradients are small numbers.
fn top(direction: Direction) -> i32 {
    if direction == Direction::Forward { 0 } else { 4 }
}

fn pack(
    builder: &mut Builder<'_>,
    g: &Gather,
    shape: &ConvShape,
    variant: &Variant,
    (region, read_bytes): (Region, u64),
    spec: &ConvSpec,
) {
    let [bm, bk] = ["BM", "BK"].map(|name| variant.define(name) as u32);
    let m4 = g.rows.next_multiple_of(bm);
    let &Gather { rows, kc, taps, am, ak, at, au, a0, ag, .. } = g;
    let (bytes, model) = (region.size * 2, Model::Stream { bytes: region.size + read_bytes });
    if variant.is_half() {
        let top = top(spec.direction);
        return builder.launch::<pack_half::Kernel>(NewLaunch {
            variant: tagged_variant("pack_half", &format!("k{bk}"), spec.dtype),
            grid: [(kc / bk).div_ceil(8), m4.div_ceil(32), shape.groups],
            params: pack_half::Params { rows, m4, kc, taps, am, ak, at, au, a0, ag, top },
            buffers: pack_half::Buffers { wgt: read(Role::W), packed: write(region) },
            flops: 0,
            bytes,
            model,
        });
    }
    let tag = match variant {
        v if v.is_dot() => "d256",
        v if v.is_matrix() => "m256",
        _ => "t256",
    };
    builder.launch::<pack::Kernel>(NewLaunch {
        variant: tagged_variant("pack", tag, spec.dtype),
        grid: [g.depth().div_ceil(64), m4.div_ceil(32), shape.groups],
        params: pack::Params { rows, m4, bk, kc, taps, am, ak, at, au, a0, ag },
        buffers: pack::Buffers { wgt: read(Role::W), packed: write(region) },
        flops: 0,
        bytes,
        model,
    });
}
