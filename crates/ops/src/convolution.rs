//! Convolutions and matrix products: plans of the solver table, launched on a queue.

use crate::skinny::{Skinny, Sum};
use crate::{ConvChain, ConvOperands, ElementType, OpError, Queue, View, copy};
use std::collections::HashMap;
use std::sync::Arc;
use wave32_problem::{ConvProblem, ConvSpec, Direction};
use wave32_solve::{DeviceCaps, Plan, Policy};

/// Problems with more are all forgotten: a program with that many shapes repeats none.
const MAX_PROBLEMS: usize = 4096;

/// A way to do a problem, with its price.
#[derive(Debug, Clone)]
pub struct PricedPlan {
    /// What runs.
    pub plan: Arc<Plan>,
    /// Modelled seconds.
    pub seconds: f64,
}

/// All ways to do a problem, fastest first; or every solver's reason.
type Ranked = Result<Arc<[PricedPlan]>, String>;

/// Makes plans and keeps them: choosing costs far more than launching.
#[derive(Debug, Default)]
pub struct Planner {
    policy: Policy,
    /// Whose plans these are.
    caps: Option<DeviceCaps>,
    /// Within the policy's workspace, and without any.
    plans: HashMap<ConvProblem, [Option<Ranked>; 2]>,
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

    /// Every solver's best plan for a device of these capabilities, fastest first; `frugal`: of those without workspace.
    ///
    /// # Errors
    /// `no-plan` with every solver's reason.
    pub fn ranked(
        &mut self,
        caps: &DeviceCaps,
        problem: &ConvProblem,
        frugal: bool,
    ) -> Result<Arc<[PricedPlan]>, OpError> {
        if self.caps.as_ref() != Some(caps) {
            self.plans.clear();
            self.caps = Some(caps.clone());
        }
        let known = self.plans.get(problem).and_then(|both| both[usize::from(frugal)].clone());
        let ranked = known.unwrap_or_else(|| {
            let workspace_cap = if frugal { Some(0) } else { self.policy.workspace_cap };
            let policy = Policy { workspace_cap, ..self.policy.clone() };
            let made = match wave32_solve::ranked(problem, caps, &policy) {
                found if found.is_empty() => {
                    let refused = wave32_solve::plan(problem, caps, &policy).err();
                    Err(refused.map_or_else(|| problem.to_string(), |error| error.to_string()))
                }
                found => Ok(found
                    .into_iter()
                    .map(|found| PricedPlan { plan: Arc::new(found.plan), seconds: found.cost })
                    .collect()),
            };
            if self.plans.len() >= MAX_PROBLEMS {
                self.plans.clear();
            }
            self.plans.entry(problem.clone()).or_default()[usize::from(frugal)] = Some(made.clone());
            made
        });
        ranked.map_err(|why| OpError::refused("no-plan", why))
    }

    /// Runs a chain by the fastest plan. The result operand (by the direction) is overwritten.
    ///
    /// # Errors
    /// `no-plan` with every solver's reason; as [`ConvChain::run`].
    pub fn convolve(
        &mut self,
        queue: &mut dyn Queue,
        chain: &ConvChain,
        operands: ConvOperands<'_>,
    ) -> Result<(), OpError> {
        let ranked = self.ranked(queue.caps(), chain.problem(), false)?;
        chain.run(queue, &ranked[0].plan, operands, None)
    }

    /// A product of matrices as a pass of a 1x1 convolution.
    fn product(
        &mut self,
        queue: &mut dyn Queue,
        spec: ConvSpec,
        operands: ConvOperands<'_>,
    ) -> Result<(), OpError> {
        let problem =
            ConvProblem::new(spec).map_err(|error| OpError::refused("no-plan", error.to_string()))?;
        self.convolve(queue, &ConvChain::new(problem, Vec::new()), operands)
    }

    /// `out[g] = a[g] * b[g]` for each of a batch of matrices (`[G, M, K]`, `[G, K, N]`, `[G, M, N]`), of one type of
    /// f32, f16 or bf16. `out` is contiguous; `a` and `b` may be transposed and have any strides.
    ///
    /// With a small side it is bound by memory and has a kernel of its own.
    /// Else a product is a 1x1 convolution: of K channels and N pixels with M filters; its two backward passes
    /// are the products with one side transposed. The batch is the convolution's groups.
    ///
    /// # Errors
    /// `element-type`, `wrong-size`, `no-plan`; [`OpError::Device`] where the device fails.
    pub fn matmul(&mut self, queue: &mut dyn Queue, a: &View, b: &View, out: &View) -> Result<(), OpError> {
        let [g, m, k, n] = product_sizes(a, b, out)?;
        let dtype = storage(a.dtype)?;
        if out.elements() == 0 {
            return Ok(());
        }
        if k == 0 {
            let bytes = out.elements() * out.dtype.size();
            return if bytes.is_multiple_of(4) && out.address.is_multiple_of(4) {
                Ok(queue.fill(out.address, bytes, 0)?)
            } else {
                Err(OpError::refused("misaligned", "an empty product of odd size"))
            };
        }
        if let Some(skinny) = Skinny::choose(queue.caps(), a, b, out, None) {
            return skinny.run(queue);
        }
        if let Some(halves) = self.in_halves(queue, a, b, out) {
            return halves;
        }
        // Stored in order, stored transposed, or to be copied into order.
        let (plain_a, plain_b) = (a.is_contiguous(), b.is_contiguous());
        let turned = |v: &View| Some(v.transposed()).filter(View::is_contiguous);
        let (turned_a, turned_b) = (turned(a), turned(b));
        let mut scratch = Vec::new();
        let run = (|| {
            let mut ordered = |queue: &mut dyn Queue, v: &View| -> Result<View, OpError> {
                let address = queue.alloc(v.elements() * v.dtype.size())?;
                scratch.push(address);
                let made = View::contiguous(address, v.dtype, v.sizes())?;
                copy(queue, v, &made)?;
                Ok(made)
            };
            let base = ConvSpec { dtype, groups: g as i64, ..ConvSpec::default() };
            let [gm, gk, gn] = [g * m, g * k, g * n].map(|v| v as i64);
            // A is in order: forward where B is too, else B turned is the input of backward-weights.
            if let (false, true, Some(b)) = (plain_b, plain_a, turned_b) {
                let spec =
                    ConvSpec { direction: Direction::BackwardWeights, c: gn, k: gm, w: k as i64, ..base };
                return self.product(queue, spec, ConvOperands { x: &b, w: out, y: a });
            }
            let b = &if plain_b { *b } else { ordered(queue, b)? };
            if let (false, Some(a)) = (plain_a, turned_a) {
                let spec = ConvSpec { direction: Direction::BackwardData, c: gm, k: gk, w: n as i64, ..base };
                return self.product(queue, spec, ConvOperands { x: out, w: &a, y: b });
            }
            let a = &if plain_a { *a } else { ordered(queue, a)? };
            let spec = ConvSpec { c: gk, k: gm, w: n as i64, ..base };
            self.product(queue, spec, ConvOperands { x: b, w: a, y: out })
        })();
        scratch.into_iter().for_each(|address| queue.free(address));
        run
    }

    /// `out = alpha * (a * b) + beta * added`, as [`Planner::matmul`].
    ///
    /// # Errors
    /// As [`Planner::matmul`]; `no-broadcast`.
    pub fn addmm(
        &mut self,
        queue: &mut dyn Queue,
        sum: &Sum,
        a: &View,
        b: &View,
        out: &View,
    ) -> Result<(), OpError> {
        let sizes = product_sizes(a, b, out)?;
        let sum = Sum { added: sum.added.broadcast(out.sizes())?, ..*sum };
        let is_plain = storage(a.dtype).is_ok() && sum.added.dtype == a.dtype && !sizes.contains(&0);
        if let Some(skinny) = is_plain.then(|| Skinny::choose(queue.caps(), a, b, out, Some(&sum))).flatten()
        {
            return skinny.run(queue);
        }
        self.matmul(queue, a, b, out)?;
        sum.finish(queue, out)
    }

    /// A product of matrices of which one is too large to bind, as two: half the rows of `a` each, else half the
    /// columns of `b`.
    fn in_halves(
        &mut self,
        queue: &mut dyn Queue,
        a: &View,
        b: &View,
        out: &View,
    ) -> Option<Result<(), OpError>> {
        let most = queue.caps().max_range;
        let is_large = |view: &View| view.extent() * view.dtype.size() > most;
        let (m, n) = (out.sizes()[1], out.sizes()[2]);
        if out.sizes()[0] != 1 {
            return None;
        }
        if (is_large(a) || is_large(out)) && m > 1 {
            let halves = [(0, m / 2), (m / 2, m - m / 2)];
            return Some(halves.into_iter().try_for_each(|(start, length)| {
                self.matmul(queue, &a.narrow(1, start, length), b, &out.narrow(1, start, length))
            }));
        }
        if is_large(b) && n > 1 {
            let halves = [(0, n / 2), (n / 2, n - n / 2)];
            return Some(halves.into_iter().try_for_each(|(start, length)| {
                let scratch = queue.alloc(m * length * out.dtype.size())?;
                let run = View::contiguous(scratch, out.dtype, &[1, m, length]).and_then(|part| {
                    self.matmul(queue, a, &b.narrow(2, start, length), &part)?;
                    copy(queue, &part, &out.narrow(2, start, length))
                });
                queue.free(scratch);
                run
            }));
        }
        None
    }
}

/// `[g, m, k, n]` of a product.
fn product_sizes(a: &View, b: &View, out: &View) -> Result<[u64; 4], OpError> {
    if let (&[g, m, k], &[g2, k2, n], &[g3, m3, n3]) = (a.sizes(), b.sizes(), out.sizes())
        && (g, k) == (g2, k2)
        && (g, m, n) == (g3, m3, n3)
        && a.dtype == b.dtype
        && a.dtype == out.dtype
    {
        return Ok([g, m, k, n]);
    }
    let detail = format!("{:?} x {:?} to {:?}", a.sizes(), b.sizes(), out.sizes());
    Err(OpError::refused("wrong-size", detail))
}
