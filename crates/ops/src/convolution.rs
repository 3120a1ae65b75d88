//! Convolutions and matrix products: plans of the solver table, launched on a queue.

use crate::skinny::{Skinny, Sum};
use crate::{DType, OpError, Queue, View, copy};
use std::collections::HashMap;
use std::sync::Arc;
use wave32_problem::{Activation, ConvProblem, ConvSpec, Direction, Epilogue};
use wave32_solve::{Plan, Policy, Role, SolveError};

/// More cached plans than this are all dropped: a program with that many shapes repeats none.
const MOST: usize = 4096;

/// Makes plans and keeps them: choosing costs far more than launching.
#[derive(Debug, Default)]
pub struct Planner {
    policy: Policy,
    plans: HashMap<ConvSpec, Result<Arc<Plan>, String>>,
}

/// The operands of a convolution, in the caller's terms; all contiguous in the problem's layout.
#[derive(Debug, Clone, Copy)]
pub struct ConvOperands<'a> {
    /// x or dx.
    pub x: &'a View,
    /// w or dw.
    pub w: &'a View,
    /// y or dy.
    pub y: &'a View,
    /// Bias of a forward pass.
    pub bias: Option<&'a View>,
}

/// The problem's storage type.
///
/// # Errors
/// `element-type` for what is not f32, f16 or bf16.
pub fn storage(dtype: DType) -> Result<wave32_problem::DType, OpError> {
    match dtype {
        DType::F32 => Ok(wave32_problem::DType::F32),
        DType::F16 => Ok(wave32_problem::DType::F16),
        DType::BF16 => Ok(wave32_problem::DType::BF16),
        other => Err(OpError::refused("element-type", format!("{other:?} is not f32, f16 or bf16"))),
    }
}

impl Planner {
    /// Plans within `policy`.
    pub fn new(policy: Policy) -> Self {
        Self { policy, plans: HashMap::new() }
    }

    fn plan(&mut self, queue: &dyn Queue, spec: &ConvSpec) -> Result<Arc<Plan>, OpError> {
        if let Some(found) = self.plans.get(spec) {
            return found.clone().map_err(|why| OpError::refused("no-plan", why));
        }
        if self.plans.len() >= MOST {
            self.plans.clear();
        }
        let made = ConvProblem::new(spec.clone()).map_err(|e| e.to_string()).and_then(|problem| {
            wave32_solve::plan(&problem, queue.caps(), &self.policy)
                .map(Arc::new)
                .map_err(|e: SolveError| e.to_string())
        });
        self.plans.insert(spec.clone(), made.clone());
        made.map_err(|why| OpError::refused("no-plan", why))
    }

    /// Runs one convolution. The result operand (by `spec.direction`) is overwritten.
    ///
    /// # Errors
    /// `no-plan` with every solver's reason; `not-contiguous`; `wrong-size`; the device's.
    pub fn convolve(
        &mut self,
        queue: &mut dyn Queue,
        spec: &ConvSpec,
        operands: ConvOperands<'_>,
    ) -> Result<(), OpError> {
        let plan = self.plan(queue, spec)?;
        execute(queue, &plan, operands, None)
    }

    /// `out[g] = a[g] * b[g]` for each of a batch of matrices (`[G, M, K]`, `[G, K, N]`, `[G, M, N]`), of one type of
    /// f32, f16 or bf16. `out` is contiguous; `a` and `b` may be transposed and have any strides.
    ///
    /// With a small side it is bound by memory and has a kernel of its own.
    /// Else a product is a 1x1 convolution: of K channels and N pixels with M filters; its two backward passes
    /// are the products with one side transposed. The batch is the convolution's groups.
    ///
    /// # Errors
    /// `element-type`, `wrong-size`, `no-plan`, the device's.
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
                return self.convolve(queue, &spec, ConvOperands { x: &b, w: out, y: a, bias: None });
            }
            let b = &if plain_b { *b } else { ordered(queue, b)? };
            if let (false, Some(a)) = (plain_a, turned_a) {
                let spec = ConvSpec { direction: Direction::BackwardData, c: gm, k: gk, w: n as i64, ..base };
                return self.convolve(queue, &spec, ConvOperands { x: out, w: &a, y: b, bias: None });
            }
            let a = &if plain_a { *a } else { ordered(queue, a)? };
            let spec = ConvSpec { c: gk, k: gm, w: n as i64, ..base };
            self.convolve(queue, &spec, ConvOperands { x: b, w: a, y: out, bias: None })
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

/// A forward problem's epilogue.
pub fn epilogue(bias: bool, relu: bool) -> Epilogue {
    Epilogue { bias, activation: if relu { Activation::Relu } else { Activation::default() } }
}

/// Runs a plan. `workspace` is memory for it, at a multiple of 256, where the caller has some.
///
/// # Errors
/// `wrong-size`, the device's.
pub fn execute(
    queue: &mut dyn Queue,
    plan: &Plan,
    operands: ConvOperands<'_>,
    workspace: Option<u64>,
) -> Result<(), OpError> {
    let result = match plan.problem.spec().direction {
        Direction::Forward => Role::Y,
        Direction::BackwardData => Role::X,
        Direction::BackwardWeights => Role::W,
    };
    let given = [
        (Role::X, Some(operands.x)),
        (Role::W, Some(operands.w)),
        (Role::Y, Some(operands.y)),
        (Role::Bias, operands.bias),
    ];
    let alignment = queue.caps().offset_alignment.max(16);
    let mut addresses = [0u64; 5];
    let mut scratch = Vec::new();
    let run = (|| {
        for (role, view) in given {
            let Some(view) = view else { continue };
            let bytes = view.elements() * view.dtype.size();
            if !view.is_contiguous() || bytes != plan.role_bytes(role) {
                let detail = format!("{role:?} {:?} with strides {:?}", view.sizes(), view.strides());
                return Err(OpError::refused("wrong-size", detail));
            }
            addresses[role as usize] = view.address;
            if !view.address.is_multiple_of(alignment) {
                let moved = queue.alloc(bytes)?;
                scratch.push(moved);
                addresses[role as usize] = moved;
                if role != result {
                    queue.copy(view.address, moved, bytes)?;
                }
            }
        }
        if let Some(workspace) = workspace {
            addresses[Role::Workspace as usize] = workspace;
        } else if plan.workspace_bytes > 0 {
            addresses[Role::Workspace as usize] = queue.alloc(plan.workspace_bytes)?;
            scratch.push(addresses[Role::Workspace as usize]);
        }
        wave32_device::execute(queue, plan, &addresses)?;
        let target = match result {
            Role::X => operands.x,
            Role::W => operands.w,
            _ => operands.y,
        };
        let made = addresses[result as usize];
        if made != target.address {
            queue.copy(made, target.address, target.elements() * target.dtype.size())?;
        }
        Ok(())
    })();
    scratch.into_iter().for_each(|address| queue.free(address));
    run
}
