//! Implicit GEMM, forward and backward-data, in three modes of `kernels/igemm.kern`; the generic mode's
//! solver takes backward-weights too (see [`super::wrw`]).

use super::build::{
    Builder, NewLaunch, epilogue_flags, gather_flops, part, partial_stride, pass, read, unused, write,
};
use super::gather::{self, FLAG_PARTIAL, FLAG_VEC, Gather, Gathering};
use super::tensors::{Shape, fits};
use super::wrw;
use crate::model::{SPLITS, TileWork, chunk, launch_seconds, stream_seconds, tile_seconds};
use crate::{Candidate, DeviceCaps, Policy, Refusal, Role, Solver};
use wave32_params::variants::{self, Variant};
use wave32_params::{igemm, pack};
use wave32_problem::{ConvProblem, DType, Direction};

/// Most stride phases worth a launch each.
const MAX_PHASES: u64 = 64;

/// Partial results cost more than their bytes: scalar stores, and a pass that cannot overlap (measured).
const PARTIAL_WEIGHT: u64 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Generic = 0,
    Packed = 1,
    Pointwise = 2,
}

/// Filters read in place, any geometry; workspace only where the reduction is split.
pub struct Igemm;
/// Filters packed first: cheapest inner loop. Channels in multiples of 8.
pub struct IgemmPacked;
/// 1x1 with unit stride over contiguous pixels: a plain GEMM on packed filters, vector loads.
pub struct Gemm1x1;

impl Solver for Igemm {
    fn name(&self) -> &'static str {
        "igemm"
    }

    fn applicable(&self, problem: &ConvProblem, caps: &DeviceCaps) -> Result<(), Refusal> {
        fits(problem, caps)?;
        match problem.spec().direction {
            Direction::BackwardWeights => Ok(()),
            _ => gathers(problem, Mode::Generic).map(|_| ()),
        }
    }

    fn plan(&self, problem: &ConvProblem, caps: &DeviceCaps, policy: &Policy) -> Result<Candidate, Refusal> {
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
        fits(problem, caps)?;
        gathers(problem, Mode::Packed).map(|_| ())
    }

    fn plan(&self, problem: &ConvProblem, caps: &DeviceCaps, policy: &Policy) -> Result<Candidate, Refusal> {
        best(self.name(), Mode::Packed, problem, caps, policy)
    }
}

impl Solver for Gemm1x1 {
    fn name(&self) -> &'static str {
        "gemm_1x1"
    }

    fn applicable(&self, problem: &ConvProblem, caps: &DeviceCaps) -> Result<(), Refusal> {
        let s = problem.spec();
        if [s.r, s.s] != [1, 1] || s.stride != [1, 1] || s.pad != [0, 0] {
            return Err(Refusal::new("not-pointwise", "takes 1x1 filters with stride 1 and no padding"));
        }
        fits(problem, caps)?;
        gathers(problem, Mode::Pointwise).map(|_| ())
    }

    fn plan(&self, problem: &ConvProblem, caps: &DeviceCaps, policy: &Policy) -> Result<Candidate, Refusal> {
        best(self.name(), Mode::Pointwise, problem, caps, policy)
    }
}

/// The gathering convolutions of the problem, or why this mode cannot do them.
fn gathers(problem: &ConvProblem, mode: Mode) -> Result<(Shape, Vec<Gather>), Refusal> {
    let shape = Shape::of(problem);
    let all = match problem.spec().direction {
        Direction::Forward => vec![gather::forward(&shape)],
        Direction::BackwardData => {
            let phases = gather::phase_count(&shape);
            if phases > MAX_PHASES {
                let detail = format!("{phases} stride phases, takes {MAX_PHASES}");
                return Err(Refusal::new("too-many-phases", detail));
            }
            gather::backward_data(&shape)
        }
        Direction::BackwardWeights => {
            return Err(Refusal::new("direction", "backward-weights is done by igemm and direct"));
        }
    };
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
) -> Result<Candidate, Refusal> {
    let (shape, gathers) = gathers(problem, mode)?;
    let mut best: Option<(Config, f64)> = None;
    let mut refusal = Refusal::new("no-config", "no tile configuration fits this problem");
    for variant in variants::of("igemm", problem.spec().dtype).filter(|v| v.define("MODE") == mode as i64) {
        let bk = variant.define("BK") as u32;
        if mode != Mode::Generic && gathers.iter().any(|g| !g.kc.is_multiple_of(bk)) {
            continue;
        }
        let slices = gathers.iter().map(|g| g.depth().div_ceil(bk)).max().unwrap_or(0);
        for splits in SPLITS.into_iter().filter(|&s| s == 1 || s * 2 <= slices) {
            let config = Config { variant, splits };
            if policy.config.as_ref().is_some_and(|name| *name != config.name()) {
                continue;
            }
            let Some(cost) = price(&config, mode, &shape, &gathers, problem, caps, policy) else {
                refusal =
                    Refusal::new("workspace-cap", "every configuration needs more workspace than the cap");
                continue;
            };
            if best.as_ref().is_none_or(|(_, least)| cost < *least) {
                best = Some((config, cost));
            }
        }
    }
    let (config, cost) = best.ok_or(refusal)?;
    let mut builder = Builder::new(problem, caps);
    emit(&mut builder, &config, mode, &shape, &gathers, problem);
    let plan = builder.finish(solver, config.name(), policy.workspace_cap)?;
    Ok(Candidate { plan, cost })
}

/// Floats of the packed filters of one phase.
fn packed_floats(g: &Gather, groups: u32, bm: u32) -> u64 {
    u64::from(groups) * u64::from(g.depth()) * u64::from(g.rows.next_multiple_of(bm))
}

/// Modelled seconds, `None` where the workspace cap is broken.
fn price(
    config: &Config,
    mode: Mode,
    shape: &Shape,
    gathers: &[Gather],
    problem: &ConvProblem,
    caps: &DeviceCaps,
    policy: &Policy,
) -> Option<f64> {
    let v = config.variant;
    let [bm, bn, bk] = ["BM", "BN", "BK"].map(|d| v.define(d) as u32);
    let out = problem.output_elements();
    let size = problem.spec().dtype.size();
    let mut workspace = 0;
    let mut seconds = 0.0;
    if mode != Mode::Generic {
        let packed: u64 = gathers.iter().map(|g| 4 * packed_floats(g, shape.groups, bm)).sum();
        workspace += packed;
        seconds += launch_seconds(caps) + stream_seconds(packed + problem.w_elements() * size, caps);
    }
    let partial = 4 * u64::from(config.splits) * u64::from(partial_stride(out));
    if config.splits > 1 {
        workspace += partial;
        seconds += launch_seconds(caps) + stream_seconds(PARTIAL_WEIGHT * partial + out * size, caps);
    }
    // One binding holds all partial results.
    let too_wide = config.splits > 1 && partial > caps.max_range;
    if too_wide || policy.workspace_cap.is_some_and(|cap| workspace > cap) {
        return None;
    }
    // The phases run side by side: their workgroups add up.
    let groups: u64 =
        gathers.iter().map(|g| u64::from(g.cols.div_ceil(bn)) * u64::from(g.rows.div_ceil(bm))).sum::<u64>()
            * u64::from(shape.groups)
            * u64::from(config.splits);
    let slices = gathers.iter().map(|g| g.depth().div_ceil(bk)).max().unwrap_or(0);
    let depth = u64::from(slices.div_ceil(config.splits).max(1)) * u64::from(bk);
    let efficiency = v.define("EFF") as f64 / 100.0;
    let bytes = problem.bytes() + if config.splits > 1 { partial } else { 0 };
    seconds += tile_seconds(v, &TileWork { groups, depth, efficiency, bytes }, caps);
    Some(seconds + gathers.len() as f64 * 0.25 * launch_seconds(caps) + 0.75 * launch_seconds(caps))
}

fn emit(
    builder: &mut Builder<'_>,
    config: &Config,
    mode: Mode,
    shape: &Shape,
    gathers: &[Gather],
    problem: &ConvProblem,
) {
    let (spec, v) = (problem.spec(), config.variant);
    let [bm, bn, bk] = ["BM", "BN", "BK"].map(|d| v.define(d) as u32);
    let role = if spec.direction == Direction::Forward { Role::Y } else { Role::X };
    let source = if spec.direction == Direction::Forward { Role::X } else { Role::Y };
    let out = problem.output_elements();
    let mut packed = Vec::new();
    if mode != Mode::Generic {
        for g in gathers {
            // A phase without taps packs nothing but still binds a region.
            let region = builder.reserve(4 * packed_floats(g, shape.groups, bm).max(4));
            packed.push(region);
            if g.depth() > 0 {
                pack(builder, g, shape, bm, bk, region, spec.dtype);
            }
        }
    }
    let stride = partial_stride(out);
    let partials =
        (config.splits > 1).then(|| builder.reserve(4 * u64::from(config.splits) * u64::from(stride)));
    for (index, g) in gathers.iter().enumerate() {
        let slices = g.depth().div_ceil(bk).div_ceil(config.splits);
        let mut params = *g;
        params.slices = slices.max(1);
        params.chunk = chunk(slices, bk, spec.dtype == DType::F32);
        params.partial = stride;
        if mode != Mode::Generic {
            params.am = g.rows.next_multiple_of(bm);
            params.ag = g.depth() * params.am;
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
        });
    }
    if let Some(partials) = partials {
        builder.reduce(partials, config.splits, stride, role, shape);
    }
}

fn pack(
    builder: &mut Builder<'_>,
    g: &Gather,
    shape: &Shape,
    bm: u32,
    bk: u32,
    region: super::build::Region,
    dtype: DType,
) {
    let m4 = g.rows.next_multiple_of(bm);
    let &Gather { rows, kc, taps, am, ak, at, au, a0, ag, .. } = g;
    builder.launch::<pack::Kernel>(NewLaunch {
        variant: pass("pack", dtype),
        grid: [g.depth().div_ceil(64), m4.div_ceil(32), shape.groups],
        params: pack::Params { rows, m4, bk, kc, taps, am, ak, at, au, a0, ag },
        buffers: pack::Buffers { wgt: read(Role::W), packed: write(region) },
        flops: 0,
        bytes: region.size * 2,
    });
}
