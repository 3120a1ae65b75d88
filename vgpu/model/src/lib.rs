//! Modelled time: what plans should take on RDNA1 cards, from the instructions that their code objects really issue.
//!
//! ```text
//! plan -> launches -> sampled workgroups run by wave32-exec -> recorded streams -> a simulated WGP -> the card's time
//! ```
//! Nothing here is a measurement. Every figure that it stands on is in [`CONSTANTS`], with its source; what is left out
//! and how far it errs where truth is known is in docs/model_vgpu.md.
#![forbid(unsafe_code)]

mod banks;
mod cache;
mod card;
mod constants;
mod hierarchy;
mod issue;
mod launch;
#[cfg(feature = "plans")]
mod plan;
mod reuse;
mod stream;
#[cfg(feature = "plans")]
mod tensors;
mod time;
mod totals;
mod wgp;

pub use card::ModelCard;
pub use constants::{CONSTANTS, Constant};
#[cfg(feature = "plans")]
pub use launch::launch;
pub use launch::{Effort, LaunchError, Watch};
#[cfg(feature = "plans")]
pub use plan::{Model, ModelError};
#[cfg(feature = "plans")]
pub use tensors::Tensors;
pub use time::{Bound, Bracket, LaunchTime, PlanTime, Waits};
pub use totals::{KernelTotal, Totals};
