//! Plans of the solver tables, kept, and convolutions launched on a queue.

use crate::{ConvChain, ConvOperands, ElementType, OpError, Queue};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};
use wave32_device::DeviceError;
use wave32_problem::{ConvProblem, MatmulProblem};
use wave32_solve::{DeviceCaps, Fp16Accumulation, Plan, Policy, Solvable};

/// Problems with more are all forgotten: a program with that many shapes repeats none.
const MAX_PROBLEMS: usize = 4096;

/// A way to do a problem, with its price.
#[derive(Debug, Clone)]
pub struct PricedPlan {
    /// What runs.
    pub plan: Arc<Plan>,
    /// Modelled seconds.
    pub seconds: f64,
    summing: OnceLock<Option<Arc<Plan>>>,
    with_statistics: OnceLock<Option<Arc<Plan>>>,
}

impl PricedPlan {
    /// As [`Plan::summing`].
    fn summing(&self) -> Option<&Arc<Plan>> {
        self.summing.get_or_init(|| self.plan.summing().map(Arc::new)).as_ref()
    }

    /// As [`Plan::with_statistics`].
    fn with_statistics(&self) -> Option<&Arc<Plan>> {
        self.with_statistics.get_or_init(|| self.plan.with_statistics().map(Arc::new)).as_ref()
    }
}

/// All ways to do a problem, fastest first; or every solver's reason.
pub type Ranked = Result<Arc<[PricedPlan]>, String>;

/// Plans of problems of one kind: within the policy's workspace, and without any.
type Plans<P> = HashMap<P, [Option<Ranked>; 2]>;

/// A problem whose plans are kept.
pub trait Planned: Solvable + Clone + Eq + Hash {
    /// Where.
    fn plans(planner: &mut Planner) -> &mut HashMap<Self, [Option<Ranked>; 2]>;
}

impl Planned for ConvProblem {
    fn plans(planner: &mut Planner) -> &mut Plans<Self> {
        &mut planner.convs
    }
}

impl Planned for MatmulProblem {
    fn plans(planner: &mut Planner) -> &mut Plans<Self> {
        &mut planner.matmuls
    }
}

/// Makes plans and keeps them: choosing costs far more than launching.
#[derive(Debug, Default)]
pub struct Planner {
    policy: Policy,
    /// Whose plans these are.
    caps: Option<DeviceCaps>,
    convs: Plans<ConvProblem>,
    matmuls: Plans<MatmulProblem>,
}

/// The problem's storage type.
///
/// # Errors
/// `element-type` for what is not f32, f16 or bf16.
pub fn storage(dtype: ElementType) -> Result<wave32_problem::DType, OpError> {
    match dtype {
        ElementType::F32 => Ok(wave32_problem::DType::F32),
        ElementType::F16 => Ok(wave32_problem::DType::F16),
        ElementType::BF16 => Ok(wave32_problem::DType::BF16),
        other => Err(OpError::refused("element-type", format!("{other:?} is not f32, f16 or bf16"))),
    }
}

impl Planner {
    /// Plans within `policy`.
    pub fn new(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Whether the solver of that name may be chosen from now on; whether it could be.
    pub fn allow(&mut self, solver: &str, is_allowed: bool) -> bool {
        let could = self.allows(solver);
        if could != is_allowed {
            self.policy.skip.retain(|name| name != solver);
            if !is_allowed {
                self.policy.skip.push(solver.to_string());
            }
            (self.convs, self.matmuls) = Default::default();
        }
        could
    }

    /// Whether the solver of that name may be chosen.
    pub fn allows(&self, solver: &str) -> bool {
        !self.policy.skip.iter().any(|name| name == solver)
    }

    /// Whether nothing takes the device's matrix instructions.
    pub fn no_matrix(&self) -> bool {
        self.policy.no_matrix
    }

    /// Which passes may sum in f16 from now on, where that is said; which could.
    pub fn fp16_accumulation(&mut self, which: Option<Fp16Accumulation>) -> Fp16Accumulation {
        let before = self.policy.fp16_accumulation;
        if let Some(which) = which.filter(|&which| which != before) {
            self.policy.fp16_accumulation = which;
            (self.convs, self.matmuls) = Default::default();
        }
        before
    }

    /// Every solver's best plan for a device of these capabilities, fastest first; `frugal`: of those without workspace.
    ///
    /// # Errors
    /// `no-plan` with every solver's reason.
    pub fn ranked<P: Planned>(
        &mut self,
        caps: &DeviceCaps,
        problem: &P,
        frugal: bool,
    ) -> Result<Arc<[PricedPlan]>, OpError> {
        if self.caps.as_ref() != Some(caps) {
            (self.convs, self.matmuls) = Default::default();
            self.caps = Some(caps.clone());
        }
        let known = P::plans(self).get(problem).and_then(|both| both[usize::from(frugal)].clone());
        let ranked = known.unwrap_or_else(|| {
            let made = self.rank(caps, problem, frugal);
            let plans = P::plans(self);
            if plans.len() >= MAX_PROBLEMS {
                plans.clear();
            }
            plans.entry(problem.clone()).or_default()[usize::from(frugal)] = Some(made.clone());
            made
        });
        ranked.map_err(|why| OpError::refused("no-plan", why))
    }

    fn rank<P: Planned>(&self, caps: &DeviceCaps, problem: &P, frugal: bool) -> Ranked {
        let workspace_cap = if frugal { Some(0) } else { self.policy.workspace_cap };
        let policy = Policy { workspace_cap, ..self.policy.clone() };
        match wave32_solve::ranked(problem, caps, &policy) {
            found if found.is_empty() => {
                let refused = wave32_solve::plan(problem, caps, &policy).err();
                Err(refused.map_or_else(|| problem.problem().to_string(), |error| error.to_string()))
            }
            found => Ok(found
                .into_iter()
                .map(|found| PricedPlan {
                    plan: Arc::new(found.plan),
                    seconds: found.cost,
                    summing: OnceLock::new(),
                    with_statistics: OnceLock::new(),
                })
                .collect()),
        }
    }

    /// Runs a chain by the fastest plan; where memory runs out, by the fastest that needs less of it. The result operand (by the
    /// direction) is overwritten.
    ///
    /// # Errors
    /// `no-plan` with every solver's reason; as [`ConvChain::run`].
    pub fn convolve(
        &mut self,
        queue: &mut dyn Queue,
        chain: &ConvChain,
        operands: ConvOperands<'_>,
    ) -> Result<(), OpError> {
        let caps = queue.caps().clone();
        if let Some(done) = self.convolve_summing(queue, &caps, chain, operands) {
            return done;
        }
        let mut least = u64::MAX;
        let mut ran_out = None;
        for frugal in [false, true] {
            let ranked = match self.ranked(&caps, chain.problem(), frugal) {
                Err(refused) if ran_out.is_none() => {
                    return self.convolve_in_bands(queue, chain, operands).unwrap_or(Err(refused));
                }
                ranked => ranked?,
            };
            for PricedPlan { plan, .. } in ranked.iter() {
                if plan.workspace_bytes >= least {
                    continue;
                }
                match chain.run_keeping(queue, plan, operands) {
                    Err(OpError::Device(error @ DeviceError::OutOfMemory { .. })) => {
                        (least, ran_out) = (plan.workspace_bytes, Some(error));
                    }
                    done => return done,
                }
            }
        }
        Err(ran_out.map_or_else(|| OpError::refused("no-plan", "no solver takes it"), OpError::Device))
    }

    /// Runs a chain that adds its result to what lies in the result's place by kernels that do so where they store; none, and
    /// nothing was written, where that is not what it does, or costs more than it saves.
    fn convolve_summing(
        &mut self,
        queue: &mut dyn Queue,
        caps: &DeviceCaps,
        chain: &ConvChain,
        operands: ConvOperands<'_>,
    ) -> Option<Result<(), OpError>> {
        let chain = chain.summing(&operands, caps)?;
        // A pass of its own would read the result and write the sum.
        let plan = self.saving(caps, chain.problem(), 2, PricedPlan::summing)?;
        match chain.run_keeping(queue, &plan, operands) {
            Err(OpError::Device(DeviceError::OutOfMemory { .. })) => None,
            done => Some(done),
        }
    }

    /// The plan by which a chain also writes the moments of its result's channels ([`ConvChain::with_statistics`]); none where it
    /// does more than kernels absorb, or that costs more than it saves.
    pub fn with_statistics(&mut self, caps: &DeviceCaps, chain: &ConvChain) -> Option<Arc<Plan>> {
        if chain.fused() < chain.post_ops().len() {
            return None;
        }
        // A pass of its own would read the result.
        self.saving(caps, chain.problem(), 1, PricedPlan::with_statistics)
    }

    /// The best plan that saves a launch and so many passes over the result, where it does not cost more than those.
    fn saving(
        &mut self,
        caps: &DeviceCaps,
        problem: &ConvProblem,
        passes: u64,
        form: fn(&PricedPlan) -> Option<&Arc<Plan>>,
    ) -> Option<Arc<Plan>> {
        let ranked = self.ranked(caps, problem, false).ok()?;
        let saved = caps.floors(0, passes * problem.y_elements() * problem.spec().dtype.size()).1;
        let most = ranked.first()?.seconds + saved + 1e-6 * caps.launch_us;
        ranked.iter().take_while(|priced| priced.seconds <= most).find_map(form).cloned()
    }
}
