//! A batch that no kernel addresses at once, in parts: the plans of a few images each, one after the other.
//!
//! Images are independent of each other in forward and backward-data. Backward-weights adds up what the parts give, in
//! order, in the storage type.

use super::build::{BufferSource, Builder, NewLaunch, Region, read, unused, variant, write};
use super::tensors::too_large;
use crate::{DeviceCaps, Model, Plan, Policy, Refusal, Role, Solver};
use wave32_params::{ew_fast, ew_ops};
use wave32_problem::{ConvProblem, ConvSpec, Direction};

/// How a batch is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// Images of a part; the last one may have fewer.
    images: i64,
}

/// A solver on a batch in parts.
pub struct InParts<'a> {
    pub solver: &'a dyn Solver,
    pub parts: Parts,
}

impl Parts {
    /// Of a plain problem; none where it need not be cut, or cannot.
    pub fn of(problem: &ConvProblem, caps: &DeviceCaps) -> Option<Self> {
        let n = problem.spec().n;
        too_large(problem, caps)?;
        // Each part begins where a binding may.
        let step = image_bytes(problem).map(|bytes| {
            let alignment = caps.offset_alignment.max(1);
            (1..=alignment).find(|images| (images * bytes).is_multiple_of(alignment)).unwrap_or(alignment)
        });
        // Both are powers of two where alignments are.
        let step = i64::try_from(step[0].max(step[1])).ok()?;
        let fits = |images: i64| part(problem, images).is_some_and(|part| too_large(&part, caps).is_none());
        let mut parts = 2;
        loop {
            let images = ((n + parts - 1) / parts + step - 1) / step * step;
            if images < n && fits(images) {
                return Some(Self { images });
            }
            // There are no shorter parts.
            if images == step {
                return None;
            }
            parts += 1 + parts / 16;
        }
    }
}

/// Bytes of an image of x, and of one of y.
fn image_bytes(problem: &ConvProblem) -> [u64; 2] {
    let (n, size) = (problem.spec().n.unsigned_abs(), problem.spec().dtype.size());
    [problem.x_elements(), problem.y_elements()].map(|elements| elements / n * size)
}

fn part(problem: &ConvProblem, n: i64) -> Option<ConvProblem> {
    ConvProblem::new(ConvSpec { n, ..problem.spec().clone() }).ok()
}

impl Solver for InParts<'_> {
    fn name(&self) -> &'static str {
        self.solver.name()
    }

    fn applicable(&self, problem: &ConvProblem, caps: &DeviceCaps) -> Result<(), Refusal> {
        part(problem, self.parts.images)
            .map_or_else(|| Err(no_part()), |part| self.solver.applicable(&part, caps))
    }

    fn plan(&self, problem: &ConvProblem, caps: &DeviceCaps, policy: &Policy) -> Result<Plan, Refusal> {
        let (n, images) = (problem.spec().n, self.parts.images);
        let mut builder = Builder::new(problem, caps);
        let is_weights = problem.spec().direction == Direction::BackwardWeights;
        let sum = is_weights.then(|| {
            let bytes = problem.w_elements() * problem.spec().dtype.size();
            builder.reserve(bytes)
        });
        let workspace = builder.workspace().next_multiple_of(caps.region_alignment());
        let cap = policy.workspace_cap.map(|cap| cap.saturating_sub(workspace));
        let plan_of = |n: i64, config: Option<String>| {
            let problem = part(problem, n).ok_or_else(no_part)?;
            let policy = Policy { workspace_cap: cap, config, ..policy.clone() };
            self.solver.plan(&problem, caps, &policy)
        };
        // As the plan's own `config` says it, or a solver's.
        let wanted =
            policy.config.as_deref().map(|config| config.split(" in ").next().unwrap_or(config).to_string());
        let whole = plan_of(images, wanted.clone())?;
        // The last part the same way if it can.
        let last = match n % images {
            0 => None,
            left => match plan_of(left, Some(whole.config.clone())) {
                Err(_) if wanted.is_none() => Some(plan_of(left, None)?),
                found => Some(found?),
            },
        };
        let count = (n + images - 1) / images;
        let config = format!("{} in {count} parts", whole.config);
        // Each part finds the filters as the first prepared them.
        let is_prepared_once =
            whole.prepared.is_some() && last.as_ref().is_none_or(|last| last.prepares_as(&whole));
        let share = last.iter().fold(whole.workspace_bytes, |most, plan| most.max(plan.workspace_bytes));
        if share > 0 {
            builder.reserve(share);
        }
        let [x, y] = image_bytes(problem);
        for (at, first) in (0..n).step_by(usize::try_from(images).unwrap_or(usize::MAX)).enumerate() {
            let mut plan = last.as_ref().filter(|_| n - first < images).unwrap_or(&whole).clone();
            if at > 0 && is_prepared_once {
                plan.launches.drain(..plan.preparing().len());
            }
            let from = |role, bytes: u64| {
                BufferSource::Range(role, Region { offset: first.unsigned_abs() * bytes, size: 0 })
            };
            // What parts write in parts of the workspace the same part reads, so that the next one waits.
            builder.append_on(plan, workspace, |role| match (role, sum) {
                (Role::X, _) => from(Role::X, x),
                (Role::Y, _) => from(Role::Y, y),
                (Role::W, Some(sum)) if at > 0 => sum.into(),
                (role, _) => role.into(),
            });
            if let Some(sum) = sum.filter(|_| at > 0) {
                add(&mut builder, sum, problem.w_elements());
            }
        }
        if let Some(prepared) = whole.prepared.filter(|_| is_prepared_once) {
            builder.prepared_first(prepared);
        }
        builder.finish(self.name(), config, policy.workspace_cap)
    }
}

fn no_part() -> Refusal {
    Refusal::new("tensor-too-large", "no part of the batch is a problem of its own")
}

/// `dw += part`.
fn add(builder: &mut Builder<'_>, part: Region, elements: u64) {
    let dtype = builder.dtype();
    let variant = variant(ew_fast::HOT[dtype as usize]);
    let bytes = 3 * elements * dtype.size();
    builder.launch::<ew_fast::Kernel>(NewLaunch {
        variant,
        grid: [(elements as u32).div_ceil(4 * ew_fast::HOT_VECTORS * variant.threads), 1, 1],
        params: ew_fast::Params {
            count: elements as u32,
            op: ew_ops::OP_ADD,
            modes: ew_fast::FULL | ew_fast::FULL << 2 | ew_fast::SAME << 4,
            o_at: 0,
            a_at: 0,
            b_at: 0,
            c_at: 0,
            a_div: 1,
            a_mod: 1,
            b_div: 1,
            b_mod: 1,
            c_div: 1,
            c_mod: 1,
            s: 0.0,
            t: 0.0,
        },
        buffers: ew_fast::Buffers {
            dst: write(Role::W),
            a: read(Role::W),
            b: read(part),
            c: unused(Role::W),
        },
        flops: elements,
        bytes,
        model: Model::Stream { bytes },
    });
}
