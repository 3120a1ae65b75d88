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
mod plan;
mod reuse;
mod stream;
mod tensors;
mod time;
mod wgp;

pub use card::ModelCard;
pub use constants::{CONSTANTS, Constant};
pub use launch::{Effort, LaunchError, launch};
pub use plan::{Model, ModelError};
pub use tensors::Tensors;
pub use time::{Bound, LaunchTime, PlanTime, Waits};
