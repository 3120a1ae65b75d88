//! What all calls about a convolution share: a pass, its operands in the order of the call, the choice that answers.

use crate::abi::entry::Outcome;
use crate::abi::ffi::{Data, Id};
use crate::abi::handle::{Engine, Handle};
use crate::abi::log;
use crate::conv::bound_conv::BoundConv;
use crate::conv::convolution::{Convolution, convolution};
use crate::conv::rewritten::Run;
use crate::conv::solutions::{Solution, Solutions};
use crate::layers::tensor::tensor_of;
use crate::vendor::next::{Next, Written, next};
use std::sync::Arc;
use wave32_ops::{ConvChain, ConvOperands, PostOp, View};
use wave32_problem::{Activation, Direction, Epilogue};

/// In which order a call names its two operands before the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Find, and the calls that run its answer: x before w.
    Classic,
    /// Immediate mode and the workspace's size: w before x.
    Immediate,
}

/// A call's operands and result as x, w, y.
pub fn roles<T>(direction: Direction, order: Order, [first, second, result]: [T; 3]) -> [T; 3] {
    match (direction, order) {
        (Direction::Forward, Order::Classic) => [first, second, result],
        (Direction::Forward, Order::Immediate) => [second, first, result],
        (Direction::BackwardData, _) => [result, second, first],
        (Direction::BackwardWeights, _) => [second, result, first],
    }
}

/// A convolution that a call asks about.
#[derive(Debug)]
pub struct ConvCall {
    handle: Arc<Handle>,
    /// The call's handle, tensors (x, w, y) and convolution.
    ids: (Id, [Id; 3], Id),
    convolution: Convolution,
    direction: Direction,
    /// The problem and its tensors.
    pub bound: BoundConv,
    /// What there is for it.
    pub solutions: Solutions,
}

impl ConvCall {
    /// From a call's handle and descriptors (x, w, y).
    ///
    /// # Errors
    /// Bad parameter, where one is null, foreign, destroyed, or does not fit the others; not implemented.
    pub fn new(handle: Id, direction: Direction, [x, w, y]: [Id; 3], convolution_id: Id) -> Outcome<Self> {
        let ids = (handle, [x, w, y], convolution_id);
        let handle = Handle::of(handle)?;
        let (x, w, y) = (tensor_of(x, "xDesc")?, tensor_of(w, "wDesc")?, tensor_of(y, "yDesc")?);
        let convolution = convolution(convolution_id)?;
        let bound = BoundConv::new(direction, &convolution, &x, &w, &y)?;
        let solutions = handle.solutions(&bound.problem)?;
        Ok(Self { handle, ids, convolution, direction, bound, solutions })
    }

    /// Runs an offer of the choice. Nothing is launched where an argument is wrong.
    ///
    /// # Errors
    /// As [`BoundConv::views`] and [`launch`].
    pub fn run(&self, solution: &Solution, data: [Data; 3], factors: [f32; 2], workspace: Data) -> Outcome {
        let views = self.bound.views(data)?;
        if solution.is_vendors() {
            // Padded copies begin where the probe's buffers did.
            let aligned = solution.rewritten.is_none() || workspace.is_multiple_of(256);
            return match next().filter(|_| factors == [1.0, 0.0] && self.bound.is_packed() && aligned) {
                Some(next) => self.run_vendors(next, solution, data, workspace),
                // Immediate mode knows no factors, and strides were not proven.
                None => self.run(self.solutions.own()?, data, factors, 0),
            };
        }
        let blend = PostOp::blend(factors[0].into(), factors[1].into(), views[self.bound.result()]);
        let chain = ConvChain::new(self.bound.problem.clone(), blend.into_iter().collect());
        self.handle.run(|engine| launch(engine, &chain, &self.solutions, solution, &views, workspace))
    }

    fn run_vendors(&self, next: &Next, solution: &Solution, data: [Data; 3], workspace: Data) -> Outcome {
        say(&self.solutions, solution);
        let (handle, ids, convolution) = self.ids;
        let [x, w, y] = [0, 1, 2].map(|at| (ids[at], data[at]));
        let operands = match self.direction {
            Direction::Forward => [w, x, y],
            Direction::BackwardData => [y, w, x],
            Direction::BackwardWeights => [y, x, w],
        };
        let (spatial, own) = (self.convolution.spatial, &self.convolution);
        let convolution = Written {
            id: convolution,
            pads: &own.pads[..spatial],
            strides: &own.strides[..spatial],
            dilations: &own.dilations[..spatial],
            groups: own.groups,
        };
        if let Some((pieces, wanted)) = &solution.rewritten {
            let (handle, bound, solver) = ((&*self.handle, handle), &self.bound, (solution.id, *wanted));
            return Run { handle, bound, pieces, solver }.run(next, data, &convolution, workspace);
        }
        let workspace = (workspace, solution.workspace());
        next.immediate(handle, self.direction, operands, &convolution, workspace, solution.id)
    }

    /// Makes all that the offer's plan needs on the card.
    ///
    /// # Errors
    /// Not implemented where the card lacks what a kernel needs (16-bit storage, memory).
    pub fn prepare(&self, solution: &Solution) -> Outcome {
        self.handle.prepare(&solution.plan)
    }
}

/// Logs the problem as MIOpenDriver and `wave32 verify` take it, what runs, and why.
pub fn say(solutions: &Solutions, solution: &Solution) {
    log::line(|| {
        let Solution { plan, milliseconds, .. } = solution;
        let by = if solution.is_vendors() { "measured by the probe" } else { "by the model" };
        let others = solutions.each_solver().len();
        let why = if others > 1 { format!("of {others} solvers") } else { "the only solver".into() };
        let Epilogue { bias, activation } =
            plan.problem.conv().map(|p| p.spec().epilogue).unwrap_or_default();
        let bias = if bias { " + bias" } else { "" };
        let activation = match activation {
            Activation::None => String::new(),
            activation => format!(" + {activation}"),
        };
        format!(
            "{}{bias}{activation}: {} {}, {why}, {milliseconds:.3} ms {by}, workspace {} bytes",
            plan.problem,
            plan.solver,
            plan.config,
            solution.workspace()
        )
    });
}

/// A convolution with its post-ops, for calls that cannot run the vendor's solvers, and our ways to do it.
///
/// # Errors
/// As [`Handle::solutions`].
pub fn ours(handle: &Handle, bound: &BoundConv, post_ops: Vec<PostOp>) -> Outcome<(ConvChain, Solutions)> {
    let chain = ConvChain::new(bound.problem.clone(), post_ops);
    let solutions = handle.solutions(chain.problem())?.ours();
    Ok((chain, solutions))
}

/// Launches a chain by one of our offers for it, on x, w and y. `workspace` is memory of the caller's, as long as the
/// offer wants.
///
/// # Errors
/// Bad parameter for what is no memory of the card; the card's.
pub fn launch(
    engine: &mut Engine,
    chain: &ConvChain,
    solutions: &Solutions,
    solution: &Solution,
    [x, w, y]: &[View; 3],
    workspace: Data,
) -> Outcome {
    say(solutions, solution);
    // Kernels bind it at a multiple of their largest access; ours begin there.
    let own = (solution.workspace() > 0 && workspace.is_multiple_of(256)).then_some(workspace as u64);
    Ok(chain.run(&mut engine.queue, &solution.plan, ConvOperands { x, w, y }, own)?)
}

/// The bytes of a workspace that may be null, whatever size the call says.
pub fn given(workspace: Data, bytes: usize) -> u64 {
    if workspace == 0 { 0 } else { bytes as u64 }
}
