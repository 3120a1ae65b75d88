//! Direct convolution where an output sums few products (the first layer of a network, small groups) or where few channels
//! come out (the first layer's gradient): `kernels/few.kern` for any geometry, one launch, no workspace; and for the filters and
//! strides of usual first layers the kernels of [`super::patch`] and [`super::taps`].

use super::build::{Builder, Cheapest, NewLaunch, epilogue_flags, gather_flops, part, read};
use super::gather::{self, Gather, Gathering};
use super::tensors::ConvShape;
use super::{patch, taps};
use crate::model::at_rate;
use crate::{DeviceCaps, Plan, Policy, Refusal, Role, Solver};
use wave32_params::few;
use wave32_params::variants::{self, Variant};
use wave32_problem::{ConvProblem, Direction};

/// Most stride phases worth a launch each.
const MAX_PHASES: u64 = 16;

/// The solver.
pub struct Few;

impl Solver for Few {
    fn name(&self) -> &'static str {
        "direct_few"
    }

    fn applicable(&self, problem: &ConvProblem, caps: &DeviceCaps) -> Result<(), Refusal> {
        let shape = ConvShape::new(problem, caps)?;
        let gathers = gather::of_pass(&shape, problem.spec().direction, MAX_PHASES)?;
        let fits = |v: &Variant| fits(v, &gathers);
        if variants::of("few", problem.spec().dtype).any(fits)
            || patch::variants(problem, &shape, caps, &Policy::default()).next().is_some()
        {
            return Ok(());
        }
        let depth = gathers.iter().map(Gathering::depth).max().unwrap_or(0);
        Err(Refusal::new(
            "too-deep",
            format!("{depth} products an output; no variant's filters take so many"),
        ))
    }

    fn plan(&self, problem: &ConvProblem, caps: &DeviceCaps, policy: &Policy) -> Result<Plan, Refusal> {
        let shape = ConvShape::new(problem, caps)?;
        let gathers = gather::of_pass(&shape, problem.spec().direction, MAX_PHASES)?;
        let mut best = Cheapest::new(caps);
        if problem.spec().direction == Direction::BackwardWeights {
            taps::offer((self.name(), "patch_wrw"), &mut best, problem, caps, policy, &shape);
            return best.plan();
        }
        patch::offer(self.name(), &mut best, problem, caps, policy, &shape);
        for variant in variants::of("few", problem.spec().dtype).filter(|v| fits(v, &gathers)) {
            if policy.config.as_ref().is_none_or(|name| *name == variant.tag) {
                let mut builder = Builder::new(problem, caps);
                emit(&mut builder, variant, &shape, &gathers, problem);
                best.offer(builder.finish(self.name(), variant.tag.clone(), policy.workspace_cap));
            }
        }
        best.plan()
    }
}

/// The filters of a workgroup fit its LDS, it is made for filters of this size, and its threads have work: channels to make
/// and channels to sum.
fn fits(variant: &Variant, gathers: &[Gather]) -> bool {
    let [oc, kt, ks, depth] = ["OC", "KT", "KS", "DEPTH"].map(|name| variant.define(name) as u32);
    gathers.iter().all(|g| {
        let size = kt == 0 || g.taps.0 == [kt as i32, kt as i32];
        g.depth() == 0 || (size && g.depth() <= depth && 2 * g.rows > oc && g.kc >= ks)
    })
}

fn emit(
    builder: &mut Builder<'_>,
    variant: &'static Variant,
    p: &ConvShape,
    gathers: &[Gather],
    problem: &ConvProblem,
) {
    let forward = problem.spec().direction == Direction::Forward;
    let (source, role) = if forward { (Role::X, Role::Y) } else { (Role::Y, Role::X) };
    let [oc, px, ks] = ["OC", "PX", "KS"].map(|d| variant.define(d) as u32);
    let pixels = variant.threads / ks * px;
    for g in gathers {
        let params = Gather { flags: gather::flags(epilogue_flags(problem), 1), ..*g };
        let padded = |size: u32, tile: u32| f64::from(size.next_multiple_of(tile)) / f64::from(size.max(1));
        let flops = gather_flops(g, p.groups);
        let macs = flops as f64 / 2.0 * padded(g.cols, pixels) * padded(g.rows, oc);
        builder.launch::<few::Kernel>(NewLaunch {
            variant,
            grid: [g.cols.div_ceil(pixels), g.rows.div_ceil(oc), p.groups],
            params,
            buffers: few::Buffers {
                src: read(source),
                wgt: read(Role::W),
                dst: part(role),
                bias: read(Role::Bias),
            },
            flops,
            bytes: problem.bytes() / gathers.len() as u64,
            model: at_rate(variant, macs),
        });
    }
}
