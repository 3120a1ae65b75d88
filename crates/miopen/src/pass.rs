//! What all calls about a convolution share: a pass, its operands in the order of the call, the choice that answers.

use crate::convolution::convolution;
use crate::entry::{Failure, Outcome};
use crate::ffi::{Data, Id};
use crate::handle::Handle;
use crate::offers::{Choice, Offer};
use crate::pose::{Place, Posed};
use crate::tensor::described;
use std::sync::Arc;
use wave32_problem::Direction;

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
        let handle = Handle::of(handle)?;
        let (x, w, y) = (described(x, "xDesc")?, described(w, "wDesc")?, described(y, "yDesc")?);
        let posed = Posed::new(direction, &convolution(convolution_id)?, &x, &w, &y)?;
        let choice = handle.choose(&posed.problem)?;
        Ok(Self { handle, posed, choice })
    }

    /// Runs an offer of the choice. Nothing is launched where an argument is wrong.
    ///
    /// # Errors
    /// As [`Posed::run`].
    pub fn run(&self, offer: &Offer, data: [Data; 3], factors: [f32; 2], workspace: Data) -> Outcome {
        let place = place(data)?;
        let own = (offer.workspace() > 0).then_some(workspace);
        self.handle.run(|engine| self.posed.run(engine, &offer.plan, place, factors, own))
    }

    /// Makes all that the offer's plan needs on the card.
    ///
    /// # Errors
    /// Not implemented, where the card lacks something.
    pub fn prepare(&self, offer: &Offer) -> Outcome {
        self.handle.prepare(&offer.plan)
    }
}

/// Addresses of x, w, y.
///
/// # Errors
/// Bad parameter, where one is null.
pub fn place([x, w, y]: [Data; 3]) -> Outcome<Place> {
    match [(x, "x"), (w, "w"), (y, "y")].into_iter().find(|(data, _)| *data == 0) {
        Some((_, name)) => Err(Failure::bad(format!("{name} is null"))),
        None => Ok(Place { x, w, y }),
    }
}

/// The bytes of a workspace that may be null, whatever size the call says.
pub fn given(workspace: Data, bytes: usize) -> u64 {
    if workspace == 0 { 0 } else { bytes as u64 }
}
