//! What all calls about a convolution share: a pass, its operands in the order of the call, the choice that answers.

use crate::convolution::{Convolution, convolution};
use crate::entry::{Failure, Outcome};
use crate::ffi::{Data, Id};
use crate::handle::Handle;
use crate::next::{Next, next};
use crate::offers::{Choice, Offer};
use crate::pose::{Place, Posed};
use crate::talk;
use crate::tensor::{Tensor, described};
use std::sync::Arc;
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
    posed: Posed,
    /// What there is for it.
    pub choice: Arc<Choice>,
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
    /// As [`Posed::run`].
    pub fn run(&self, offer: &Offer, data: [Data; 3], factors: [f32; 2], workspace: Data) -> Outcome {
        let place = place(data)?;
        if offer.is_vendors() {
            return match next().filter(|_| factors == [1.0, 0.0] && self.posed.is_packed()) {
                Some(next) => self.run_vendors(next, offer, data, workspace),
                // Immediate mode knows no factors, and strides were not proven.
                None => self.run(self.choice.own()?, data, factors, 0),
            };
        }
        let own = (offer.workspace() > 0).then_some(workspace);
        say(&self.posed, &self.choice, offer);
        self.handle.run(|engine| self.posed.run(engine, &offer.plan, place, factors, own))
    }

    fn run_vendors(&self, next: &Next, offer: &Offer, data: [Data; 3], workspace: Data) -> Outcome {
        say(&self.posed, &self.choice, offer);
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
    /// Not implemented, where the card lacks something.
    pub fn prepare(&self, offer: &Offer) -> Outcome {
        self.handle.prepare(&offer.plan)
    }
}

/// Logs the problem as MIOpenDriver and `wave32 verify` take it, what runs, and why.
pub fn say(posed: &Posed, choice: &Choice, offer: &Offer) {
    talk::line(|| {
        let Offer { plan, milliseconds, .. } = offer;
        let by = if offer.is_vendors() { "measured by the probe" } else { "by the model" };
        let others = choice.solutions().len();
        let why = if others > 1 { format!("of {others} solvers") } else { "the only solver".into() };
        let Epilogue { bias, activation } = posed.problem.spec().epilogue;
        let behind = [(bias, " + bias"), (activation == Activation::Relu, " + ReLU")];
        let behind = behind.iter().filter(|(wanted, _)| *wanted).map(|(_, text)| *text).collect::<String>();
        format!(
            "{}{behind}: {} {}, {why}, {milliseconds:.3} ms {by}, workspace {} bytes",
            posed.problem,
            plan.solver,
            plan.config,
            offer.workspace()
        )
    });
}

/// A convolution on x, w, y for calls that cannot run the vendor's solvers, and our ways to do it.
///
/// # Errors
/// As [`Asked::new`].
pub fn ours(
    handle: &Handle,
    direction: Direction,
    convolution: &Convolution,
    [x, w, y]: [&Tensor; 3],
    epilogue: Epilogue,
) -> Outcome<(Posed, Choice)> {
    let posed = Posed::new(direction, convolution, x, w, y)?.with(epilogue)?;
    let choice = handle.choose(&posed.problem)?.ours();
    Ok((posed, choice))
}

/// Addresses of x, w, y.
///
/// # Errors
/// Bad parameter, where one is null.
pub fn place([x, w, y]: [Data; 3]) -> Outcome<Place> {
    match [(x, "x"), (w, "w"), (y, "y")].into_iter().find(|(data, _)| *data == 0) {
        Some((_, name)) => Err(Failure::bad(format!("{name} is null"))),
        None => Ok(Place { x, w, y, bias: None }),
    }
}

/// The bytes of a workspace that may be null, whatever size the call says.
pub fn given(workspace: Data, bytes: usize) -> u64 {
    if workspace == 0 { 0 } else { bytes as u64 }
}
