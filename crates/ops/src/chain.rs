//! A convolution and what is done to its result before anybody reads it: post-ops, as oneDNN calls them. What of
//! them a kernel does before it stores is decided here; the rest is launched behind it.

use crate::activation::Activation;
use crate::convolution::storage;
use crate::steps::Steps;
use crate::{ElementType, Op, OpError, Queue, View, copy};
use std::sync::Arc;
use wave32_device::{Addresses, Known, Made, PreparedAt};
use wave32_problem::{ConvProblem, Direction, Epilogue, Layout};
use wave32_solve::{DeviceCaps, Plan, Role};

/// One step behind a convolution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PostOp {
    /// `result[n, c, ...] + bias[c]`; the bias has one dimension.
    Bias(View),
    /// Of each element.
    Activation(Activation),
    /// `alpha * result + beta * other`, which has the result's sizes. Where `other` is the very view that the chain
    /// writes, what lay there before is read.
    Add {
        /// Factor of the result.
        alpha: f64,
        /// Factor of the other; where it is 0, that is never read.
        beta: f64,
        /// Such as the residual of a ResNet's block.
        other: View,
    },
}

impl PostOp {
    /// `alpha * result + beta * other`, if that is not the result itself.
    pub fn blend(alpha: f64, beta: f64, other: View) -> Option<Self> {
        ((alpha, beta) != (1.0, 0.0)).then_some(Self::Add { alpha, beta, other })
    }

    /// `to = post-op(from)`; both have the same sizes, and may be one view.
    ///
    /// # Errors
    /// As [`crate::Elementwise::run`].
    pub fn run(&self, steps: &mut Steps, from: &View, to: &View) -> Result<(), OpError> {
        match self {
            Self::Bias(bias) => {
                let inner = to.rank().saturating_sub(2);
                let sizes = [bias.sizes(), &vec![1; inner]].concat();
                let strides = [bias.strides(), &vec![0; inner]].concat();
                let bias = View::new(bias.address, bias.dtype, &sizes, &strides)?;
                steps.run(Op::Add, &[from.into(), (&bias).into()], [0.0; 2], to)
            }
            Self::Activation(activation) => activation.forward(steps, from, to),
            &Self::Add { alpha: 1.0, beta: 0.0, .. } => steps.copy(from, to),
            &Self::Add { alpha, beta: 0.0, .. } => {
                steps.run(Op::Mul, &[from.into(), alpha.into()], [0.0; 2], to)
            }
            Self::Add { alpha: 1.0, beta, other } => {
                steps.run(Op::AddScaled, &[from.into(), other.into()], [*beta, 0.0], to)
            }
            Self::Add { alpha, beta: 1.0, other } => {
                steps.run(Op::AddScaled, &[other.into(), from.into()], [*alpha, 0.0], to)
            }
            &Self::Add { alpha, beta, ref other } => {
                let scaled = steps.make(crate::steps::wide(to.dtype), to.sizes())?;
                steps.run(Op::Mul, &[other.into(), beta.into()], [0.0; 2], &scaled)?;
                steps.run(Op::AddScaled, &[(&scaled).into(), from.into()], [alpha, 0.0], to)
            }
        }
    }

    /// True where it reads memory that `to` covers.
    pub(crate) fn reads(&self, to: &View) -> bool {
        let end = |view: &View| view.address + view.extent() * view.dtype.size();
        matches!(self, Self::Add { beta, other, .. }
            if *beta != 0.0 && other.address < end(to) && to.address < end(other))
    }

    fn check(&self, to: &View) -> Result<(), OpError> {
        let (fits, view) = match self {
            Self::Bias(bias) => (bias.rank() == 1 && to.sizes().get(1) == bias.sizes().first(), bias),
            Self::Add { other, .. } => (other.sizes() == to.sizes(), other),
            Self::Activation(_) => return Ok(()),
        };
        let detail = || format!("a post-op's {:?} for a result of {:?}", view.sizes(), to.sizes());
        if fits { Ok(()) } else { Err(OpError::refused("wrong-size", detail())) }
    }
}

/// The operands of a convolution, in the caller's terms: N C H W or N C L, of any strides. What does not lie as the
/// problem's layout says is copied.
#[derive(Debug, Clone, Copy)]
pub struct ConvOperands<'a> {
    /// x or dx.
    pub x: &'a View,
    /// w or dw.
    pub w: &'a View,
    /// y or dy.
    pub y: &'a View,
}

/// True where kernels take an operand, viewed in the order of memory, where it lies.
fn is_bound_there(lies: &View, caps: &DeviceCaps) -> bool {
    lies.is_contiguous() && lies.address.is_multiple_of(caps.offset_alignment.max(16))
}

/// What kernels of a forward pass absorb.
struct Absorbed {
    epilogue: Epilogue,
    /// So many of the post-ops, from the first on.
    count: usize,
    /// One of them is the sum with what lies in the result's place.
    sums: bool,
}

/// A bias of the problem's type and then an activation that they know; with `into`, the view that the chain writes, a sum with what
/// lies there too, after the bias and before the activation.
fn absorbed(dtype: wave32_problem::DType, post_ops: &[PostOp], into: Option<&View>) -> Absorbed {
    let (mut epilogue, mut sums) = (Epilogue::default(), false);
    let mut absorb = |post_op: &PostOp| match post_op {
        PostOp::Bias(bias)
            if epilogue.is_none() && !sums && storage(bias.dtype).is_ok_and(|of| of == dtype) =>
        {
            epilogue.bias = true;
            true
        }
        _ if epilogue.activation != wave32_problem::Activation::None => false,
        PostOp::Activation(activation) => activation.of_kernels().is_some_and(|activation| {
            epilogue.activation = activation;
            true
        }),
        PostOp::Add { alpha: 1.0, beta: 1.0, other } if into == Some(other) && !sums => {
            sums = true;
            true
        }
        _ => false,
    };
    let count = post_ops.iter().take_while(|post_op| absorb(post_op)).count();
    Absorbed { epilogue, count, sums }
}

/// A convolution and its post-ops, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvChain {
    problem: ConvProblem,
    post_ops: Vec<PostOp>,
    /// So many of the post-ops are the epilogue of the problem.
    fused: usize,
    /// Gets the moments of the result's channels.
    statistics: Option<View>,
}

impl ConvChain {
    /// A problem without an epilogue, and what follows it.
    ///
    /// Kernels absorb a bias of the problem's type and then an activation that they know, in that order, of a forward pass.
    pub fn new(problem: ConvProblem, post_ops: Vec<PostOp>) -> Self {
        let Absorbed { epilogue, count, .. } = absorbed(problem.spec().dtype, &post_ops, None);
        match problem.with_epilogue(epilogue) {
            Ok(problem) => Self { problem, post_ops, fused: count, statistics: None },
            // A gradient has none.
            Err(_) => Self { problem, post_ops, fused: 0, statistics: None },
        }
    }

    /// The same that also writes the moments of the result's channels, for plans of [`Plan::with_statistics`]: f32,
    /// \[channel\]\[part\]\[4\], where a range can begin.
    #[must_use]
    pub fn with_statistics(self, statistics: View) -> Self {
        Self { statistics: Some(statistics), ..self }
    }

    /// What is to be planned: its epilogue is what the kernels absorb.
    pub fn problem(&self) -> &ConvProblem {
        &self.problem
    }

    /// What follows it, in order.
    pub(crate) fn post_ops(&self) -> &[PostOp] {
        &self.post_ops
    }

    /// So many of the post-ops, from the first on, need no launch of their own.
    pub fn fused(&self) -> usize {
        self.fused
    }

    /// The chain for [`Plan::summing`]: a sum with what lies in the result's place is absorbed too. None where there is none.
    pub(crate) fn summing(&self, operands: &ConvOperands<'_>, caps: &DeviceCaps) -> Option<Self> {
        let is_forward = self.problem.spec().direction == Direction::Forward;
        if self.fused == self.post_ops.len()
            || !is_forward
            || !is_bound_there(&self.ordered(operands.y), caps)
        {
            return None;
        }
        let Absorbed { epilogue, count, sums } =
            absorbed(self.problem.spec().dtype, &self.post_ops, Some(operands.y));
        let problem = self.problem.with_epilogue(epilogue).ok().filter(|_| sums)?;
        Some(Self { problem, post_ops: self.post_ops.clone(), fused: count, statistics: None })
    }

    /// An image's view in the order of memory.
    fn ordered(&self, view: &View) -> View {
        if self.problem.spec().layout == Layout::Nhwc { view.channels_last() } else { *view }
    }

    /// Runs a plan of [`ConvChain::problem`] and the post-ops that it leaves. The result operand (by the direction) is
    /// overwritten. `workspace` is memory for the plan, at a multiple of 256, where the caller has some.
    ///
    /// # Errors
    /// `wrong-size`, before anything was launched; the device's.
    pub fn run(
        &self,
        queue: &mut dyn Queue,
        plan: &Plan,
        operands: ConvOperands<'_>,
        workspace: Option<u64>,
    ) -> Result<(), OpError> {
        self.run_on(queue, plan, operands, |steps, addresses, _| {
            if let Some(workspace) = workspace {
                addresses[Role::Workspace as usize] = workspace;
            } else if plan.workspace_bytes > 0 {
                let made = steps.make(ElementType::U8, &[plan.workspace_bytes])?;
                addresses[Role::Workspace as usize] = made.address;
            }
            Ok(wave32_device::execute(steps.queue, plan, addresses)?)
        })
    }

    /// As [`ConvChain::run`], with filters that are prepared once where they stay as they are and the queue knows that.
    ///
    /// # Errors
    /// As [`ConvChain::run`].
    pub fn run_keeping(
        &self,
        queue: &mut dyn Queue,
        plan: &Arc<Plan>,
        operands: ConvOperands<'_>,
    ) -> Result<(), OpError> {
        let Some(prepared) = plan.prepared.filter(|prepared| prepared.launches > 0) else {
            return self.run(queue, plan, operands, None);
        };
        self.run_on(queue, plan, operands, |steps, addresses, filters_are_copied| {
            let filters = addresses[Role::W as usize];
            let source = (filters, filters + plan.role_bytes(Role::W));
            let made = Made::Filters(plan.clone());
            let kept = steps.queue.kept().filter(|_| !filters_are_copied);
            let at = match kept.map_or(Known::New, |kept| kept.ask(source, &made)) {
                Known::At(address) => Some(PreparedAt { address, is_made: true }),
                // Where memory is short nothing is kept.
                Known::Again => {
                    let address = steps.queue.alloc(prepared.bytes).ok();
                    address.map(|address| PreparedAt { address, is_made: false })
                }
                Known::New | Known::NoRoom => None,
            };
            let room = plan.workspace_bytes.saturating_sub(at.map_or(0, |_| prepared.bytes));
            let workspace =
                if room > 0 { steps.make(ElementType::U8, &[room]).map(|view| view.address) } else { Ok(0) };
            let done = workspace.and_then(|workspace| {
                addresses[Role::Workspace as usize] = workspace;
                Ok(match at {
                    Some(at) => wave32_device::execute_prepared(steps.queue, plan, addresses, at),
                    None => wave32_device::execute(steps.queue, plan, addresses),
                }?)
            });
            if let Some(PreparedAt { address, is_made: false }) = at {
                match steps.queue.kept().filter(|_| done.is_ok()) {
                    Some(kept) => kept.keep(source, &made, address),
                    None => steps.queue.free(address),
                }
            }
            done
        })
    }

    /// Places the operands, executes the plan by `execute`, which gets the addresses by role and whether the filters are a
    /// copy, and launches the post-ops that are left.
    fn run_on(
        &self,
        queue: &mut dyn Queue,
        plan: &Plan,
        operands: ConvOperands<'_>,
        execute: impl FnOnce(&mut Steps<'_>, &mut Addresses, bool) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let spec = self.problem.spec();
        let (result, target) = match spec.direction {
            Direction::Forward => (Role::Y, operands.y),
            Direction::BackwardData => (Role::X, operands.x),
            Direction::BackwardWeights => (Role::W, operands.w),
        };
        let (fused, rest) = self.post_ops.split_at(self.fused);
        let bias = fused.iter().find_map(|post_op| match post_op {
            PostOp::Bias(bias) => Some(bias),
            _ => None,
        });
        let given = [
            (Role::X, Some(operands.x)),
            (Role::W, Some(operands.w)),
            (Role::Y, Some(operands.y)),
            (Role::Bias, bias),
            (Role::Statistics, self.statistics.as_ref()),
        ];
        let is_planned = plan.problem.conv() == Some(&self.problem);
        let is_plain = |role| matches!(role, Role::Bias | Role::Statistics);
        for (role, view) in given {
            let bytes = view.map_or(0, |view| view.elements() * view.dtype.size());
            let is_image = is_plain(role) || view.is_some_and(|view| view.rank() > 2);
            if !is_planned || bytes != plan.role_bytes(role) || !is_image {
                let detail = format!("{role:?} of {bytes} bytes for a plan of {}", plan.problem);
                return Err(OpError::refused("wrong-size", detail));
            }
        }
        rest.iter().try_for_each(|post_op| post_op.check(target))?;
        let is_reread = rest.iter().any(|post_op| post_op.reads(target));
        let is_last = spec.layout == Layout::Nhwc;
        let mut steps = Steps::new(queue);
        let mut addresses = Addresses::default();
        let mut from = *target;
        for (role, view) in given {
            let Some(view) = view else { continue };
            let lies = if is_plain(role) { *view } else { self.ordered(view) };
            let is_result = role == result;
            addresses[role as usize] = view.address;
            if !is_bound_there(&lies, steps.queue.caps()) || (is_result && is_reread) {
                let made = steps.make(view.dtype, lies.sizes())?;
                addresses[role as usize] = made.address;
                if is_result {
                    from = if is_last { made.channels_first() } else { made };
                } else {
                    copy(steps.queue, &lies, &made)?;
                }
            }
        }
        let filters_are_copied = addresses[Role::W as usize] != operands.w.address;
        execute(&mut steps, &mut addresses, filters_are_copied)?;
        for (at, post_op) in rest.iter().enumerate() {
            let is_read_later = rest[at + 1..].iter().any(|later| later.reads(target));
            let to = if is_read_later { from } else { *target };
            post_op.run(&mut steps, &from, &to)?;
            from = to;
        }
        steps.copy(&self.ordered(&from), &self.ordered(target))
    }
}
