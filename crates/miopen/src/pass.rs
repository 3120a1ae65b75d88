//! What all calls about a convolution share: a pass, its operands in the order of the call, the choice that answers.

use crate::convolution::{Convolution, convolution};
use crate::entry::Outcome;
use crate::ffi::{Data, Id};
use crate::handle::{Engine, Handle};
use crate::next::{Next, next};
use crate::offers::{Choice, Offer};
use crate::pose::Posed;
use crate::talk;
use crate::tensor::described;
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
pub struct Asked {
    handle: Arc<Handle>,
    /// The call's handle, tensors (x, w, y) and convolution.
    ids: (Id, [Id; 3], Id),
    convolution: Convolution,
    direction: Direction,
    /// The problem and its tensors.
    pub posed: Posed,
    /// What there is for it.
    pub choice: Choice,
}

impl Asked {
    /// From a call's handle and descriptors (x, w, y).
    ///
    /// # Errors
    /// Bad parameter, where one is null, foreign, destroyed, or does not fit the others; not implemented.
    pub fn new(handle: Id, direction: Direction, [x, w, y]: [Id; 3], convolution_id: Id) -> Outcome<Self> {
        let ids = (handle, [x, w, y], convolution_id);
        let handle = Handle::of(handle)?;
        let (x, w, y) = (described(x, "xDesc")?, described(w, "wDesc")?, described(y, "yDesc")?);
        let convolution = convolution(convolution_id)?;
        let posed = Posed::new(direction, &convolution, &x, &w, &y)?;
        let choice = handle.choose(&posed.problem)?;
        Ok(Self { handle, ids, convolution, direction, posed, choice })
    }

    /// Runs an offer of the choice. Nothing is launched where an argument is wrong.
    ///
    /// # Errors
    /// As [`Posed::views`] and [`launch`].
    pub fn run(&self, offer: &Offer, data: [Data; 3], factors: [f32; 2], workspace: Data) -> Outcome {
        let views = self.posed.views(data)?;
        if offer.is_vendors() {
            return match next().filter(|_| factors == [1.0, 0.0] && self.posed.is_packed()) {
                Some(next) => self.run_vendors(next, offer, data, workspace),
                // Immediate mode knows no factors, and strides were not proven.
                None => self.run(self.choice.own()?, data, factors, 0),
            };
        }
        let blend = PostOp::blend(factors[0].into(), factors[1].into(), views[self.posed.result()]);
        let chain = ConvChain::new(self.posed.problem.clone(), blend.into_iter().collect());
        self.handle.run(|engine| launch(engine, &chain, &self.choice, offer, &views, workspace))
    }

    fn run_vendors(&self, next: &Next, offer: &Offer, data: [Data; 3], workspace: Data) -> Outcome {
        say(&self.choice, offer);
        let (handle, ids, convolution) = self.ids;
        let [x, w, y] = [0, 1, 2].map(|at| (ids[at], data[at]));
        let operands = match self.direction {
            Direction::Forward => [w, x, y],
            Direction::BackwardData => [y, w, x],
            Direction::BackwardWeights => [y, x, w],
        };
        let workspace = (workspace, offer.workspace());
        next.immediate(
            handle,
            self.direction,
            operands,
            (convolution, &self.convolution),
            workspace,
            offer.id,
        )
    }

    /// Makes all that the offer's plan needs on the card.
    ///
    /// # Errors
    /// Not implemented where the card lacks what a kernel needs (16-bit storage, memory).
    pub fn prepare(&self, offer: &Offer) -> Outcome {
        self.handle.prepare(&offer.plan)
    }
}

/// Logs the problem as MIOpenDriver and `wave32 verify` take it, what runs, and why.
pub fn say(choice: &Choice, offer: &Offer) {
    talk::line(|| {
        let Offer { plan, milliseconds, .. } = offer;
        let by = if offer.is_vendors() { "measured by the probe" } else { "by the model" };
        let others = choice.solutions().len();
        let why = if others > 1 { format!("of {others} solvers") } else { "the only solver".into() };
        let Epilogue { bias, activation } = plan.problem.spec().epilogue;
        let behind = [(bias, " + bias"), (activation == Activation::Relu, " + ReLU")];
        let behind = behind.iter().filter(|(wanted, _)| *wanted).map(|(_, text)| *text).collect::<String>();
        format!(
            "{}{behind}: {} {}, {why}, {milliseconds:.3} ms {by}, workspace {} bytes",
            plan.problem,
            plan.solver,
            plan.config,
            offer.workspace()
        )
    });
}

/// A convolution with its post-ops, for calls that cannot run the vendor's solvers, and our ways to do it.
///
/// # Errors
/// As [`Handle::choose`].
pub fn ours(handle: &Handle, posed: &Posed, post_ops: Vec<PostOp>) -> Outcome<(ConvChain, Choice)> {
    let chain = ConvChain::new(posed.problem.clone(), post_ops);
    let choice = handle.choose(chain.problem())?.ours();
    Ok((chain, choice))
}

/// Launches a chain by one of our offers for it, on x, w and y. `workspace` is memory of the caller's, as long as the
/// offer wants.
///
/// # Errors
/// Bad parameter for what is no memory of the card; the card's.
pub fn launch(
    engine: &mut Engine,
    chain: &ConvChain,
    choice: &Choice,
    offer: &Offer,
    [x, w, y]: &[View; 3],
    workspace: Data,
) -> Outcome {
    say(choice, offer);
    // Kernels bind it at a multiple of their largest access; ours begin there.
    let own = (offer.workspace() > 0 && workspace.is_multiple_of(256)).then_some(workspace as u64);
    Ok(chain.run(&mut engine.queue, &offer.plan, ConvOperands { x, w, y }, own)?)
}

/// The bytes of a workspace that may be null, whatever size the call says.
pub fn given(workspace: Data, bytes: usize) -> u64 {
    if workspace == 0 { 0 } else { bytes as u64 }
}
