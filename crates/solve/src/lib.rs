//! From a problem to a plan: the solver table, its policy and cost model. Pure: no device, no compiler.
#![forbid(unsafe_code)]

mod caps;
mod plan;
pub mod variants;

pub use caps::{CARDS, CardModel, DeviceCaps};
pub use plan::{Binding, Launch, Plan, Role};
