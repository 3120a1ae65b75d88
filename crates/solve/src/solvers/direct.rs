//! Direct convolution: the choice for few channels a group, and the last row of the table.

use super::build::{
    Builder, Cheapest, NewLaunch, epilogue_flags, gather_flops, part, partial_stride, read, single_variant,
    unused, write,
};
use super::gather::{self, Gather};
use super::tensors::ConvShape;
use super::{grouped, taps, window, wrw};
use crate::{DeviceCaps, Model, Plan, Policy, Refusal, Role, Solver};
use wave32_params::variants::{self, Variant};
use wave32_params::weights::FLAG_PARTIAL;
use wave32_params::{direct, direct_wrw};
use wave32_problem::{ConvProblem, Direction};

/// Most launches worth making for the stride phases of backward-data.
const MAX_PHASES: u64 = 4096;
/// One thread an output pixel (backward-weights: one workgroup a few filter elements).
pub struct Direct;

impl Solver for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn applicable(&self, problem: &ConvProblem, caps: &DeviceCaps) -> Result<(), Refusal> {
        let shape = ConvShape::new(problem, caps)?;
        match problem.spec().direction {
            Direction::BackwardData => gather::check_phases(&shape, MAX_PHASES),
            Direction::Forward | Direction::BackwardWeights => Ok(()),
        }
    }

    fn plan(&self, problem: &ConvProblem, caps: &DeviceCaps, policy: &Policy) -> Result<Plan, Refusal> {
        let shape = ConvShape::new(problem, caps)?;
        let direction = problem.spec().direction;
        if direction == Direction::BackwardWeights {
            let mut best = Cheapest::new(caps);
            taps::offer((self.name(), "taps_wrw"), &mut best, problem, caps, policy, &shape);
            best.offer(weights(&shape, problem, caps, policy));
            return best.plan();
        }
        let gathers = gather::of_pass(&shape, direction, MAX_PHASES)?;
        let mut best = Cheapest::new(caps);
        window::offer(&mut best, problem, caps, policy, &shape);
        grouped::offer(&mut best, problem, caps, policy, &shape);
        best.offer(gathering(&shape, &gathers, problem, caps, policy));
        best.plan()
    }
}

fn gathering(
    p: &ConvShape,
    gathers: &[Gather],
    problem: &ConvProblem,
    caps: &DeviceCaps,
    policy: &Policy,
) -> Result<Plan, Refusal> {
    let mut builder = Builder::new(problem, caps);
    let forward = problem.spec().direction == Direction::Forward;
    let (source, role) = if forward { (Role::X, Role::Y) } else { (Role::Y, Role::X) };
    let mut config = String::new();
    for g in gathers {
        let variant = choose(g, problem, policy)?;
        let oc = variant.define("OC") as u32;
        let params = Gather { flags: gather::flags(epilogue_flags(problem), 1), ..*g };
        let grid = [g.cols.div_ceil(variant.threads), g.rows.div_ceil(oc), p.groups];
        let bytes = problem.bytes() / gathers.len() as u64;
        let flops = gather_flops(g, p.groups);
        // A thread's loads are shared by its OC channels; one channel alone is bound by them.
        let unrolled = variant.define("KT") > 0;
        // The last workgroup of a row has threads without a column, and the last channels may be none.
        let padded = |size: u32, tile: u32| f64::from(size.next_multiple_of(tile)) / f64::from(size.max(1));
        let padding = padded(g.cols, variant.threads) * padded(g.rows, oc);
        let weight = if oc == 1 { 2.4 } else { 1.1 } * if unrolled { 1.0 } else { 2.0 };
        let macs = flops as f64 / 2.0 * weight * padding;
        // Of one channel's results, each is placed and stored alone.
        let each = if oc > 1 {
            0.0
        } else if unrolled {
            9.0
        } else {
            15.0
        };
        let beside = f64::from(g.cols) * f64::from(g.rows * p.groups) * each * padding;
        builder.launch::<direct::Kernel>(NewLaunch {
            variant,
            grid,
            params,
            buffers: direct::Buffers {
                src: read(source),
                wgt: read(Role::W),
                dst: part(role),
                bias: read(Role::Bias),
            },
            flops,
            bytes,
            model: Model::Scalar { multiply_adds: macs as u64, beside: beside as u64 },
        });
        config.clone_from(&variant.tag);
    }
    builder.finish("direct", config, policy.workspace_cap)
}

/// The variant for this gather: four channels a thread where there are that many, filter size known if 3 or 5.
fn choose(g: &Gather, problem: &ConvProblem, policy: &Policy) -> Result<&'static Variant, Refusal> {
    let fits = |v: &&Variant| {
        let (oc, kt) = (v.define("OC"), v.define("KT"));
        let size_fits = kt == 0 || g.taps.0 == [kt as i32, kt as i32];
        let forced = policy.config.as_ref().is_none_or(|name| *name == v.tag);
        size_fits && forced && (oc == 1 || g.rows >= 4)
    };
    let all = variants::of("direct", problem.spec().dtype).filter(fits);
    all.max_by_key(|v| (v.define("OC"), v.define("KT")))
        .ok_or_else(|| Refusal::new("no-config", "the configuration asked for does not fit"))
}

fn weights(
    p: &ConvShape,
    problem: &ConvProblem,
    caps: &DeviceCaps,
    policy: &Policy,
) -> Result<Plan, Refusal> {
    let variant = single_variant("direct_wrw", problem.spec().dtype);
    let cb = variant.define("CB") as u32;
    let columns = (p.cg * p.taps()).div_ceil(cb);
    let channels = p.groups * p.kg;
    let depth = p.n * p.pixels();
    let stride = partial_stride(problem.w_elements());
    // Enough workgroups for eight on every compute unit, at least four pixels a thread, short f32 chains.
    let want = (8 * caps.compute_units).div_ceil(columns * channels);
    let most = depth.div_ceil(4 * variant.threads);
    let mut splits = want.clamp(1, most.max(1));
    let partial = |splits: u32| 4 * u64::from(splits) * u64::from(stride);
    let bytes = policy.workspace_cap.unwrap_or(u64::MAX).min(caps.max_range);
    while splits > 1 && partial(splits) > bytes {
        splits /= 2;
    }
    let mut builder = Builder::new(problem, caps);
    let partials = (splits > 1).then(|| builder.reserve(partial(splits)));
    let mut params = wrw::params(p);
    params.splits = splits;
    params.slices = depth.div_ceil(splits);
    params.partial = stride;
    params.flags = if partials.is_some() { FLAG_PARTIAL } else { 0 };
    let grid = [splits, columns, channels];
    let (dw, sums) = match partials {
        Some(region) => (unused(Role::W), write(region)),
        None => (write(Role::W), unused(Role::W)),
    };
    builder.launch::<direct_wrw::Kernel>(NewLaunch {
        variant,
        grid,
        params,
        buffers: direct_wrw::Buffers { dy: read(Role::Y), src: read(Role::X), dst: dw, part: sums },
        flops: problem.flops(),
        bytes: problem.bytes() + partials.map_or(0, |_| partial(splits)),
        // The threads that a short sum leaves idle count, and the tree that adds all of them as one more step.
        model: Model::Scalar {
            multiply_adds: 3
                * u64::from(columns * cb)
                * u64::from(channels)
                * u64::from(splits * variant.threads)
                * u64::from(depth.div_ceil(splits).div_ceil(variant.threads) + 1),
            beside: 0,
        },
    });
    if let Some(partials) = partials {
        builder.reduce(partials, (splits, stride, 1), Role::W, p);
    }
    let name = format!("{}/{splits}", variant.tag);
    // A variant's name alone leaves the number of parts open.
    if policy.config.as_ref().is_some_and(|wanted| ![&name, &variant.tag].contains(&wanted)) {
        return Err(Refusal::new("no-config", "the configuration asked for does not fit"));
    }
    builder.finish("direct", name, policy.workspace_cap)
}
