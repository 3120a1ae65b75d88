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
pub use launch::{Effort, GroupWork, LaunchError, Sample, Watch, record};
#[cfg(feature = "plans")]
pub use plan::{Model, ModelError};
#[cfg(feature = "plans")]
pub use tensors::Tensors;
pub use time::{Bound, Bracket, LaunchTime, PlanTime, Waits};
pub use totals::{KernelTotal, Totals};

/// How far modelled times are from public measurements, as docs/model_error.md has it.
pub const STATED_ERROR: &str =
    "modelled speed over public measurements: geometric mean 1.08, spread 1.36; docs/model_error.md";

#[cfg(test)]
mod tests {
    #[test]
    fn the_stated_error_is_the_document_s() {
        let document = include_str!("../../../docs/model_error.md");
        let aside = document.lines().find(|line| line.starts_with("- Kept aside: ")).expect("a line");
        let mut numbers =
            aside.split([' ', ',']).filter(|word| word.contains('.') && word.parse::<f64>().is_ok());
        let [mean, spread] = [(); 2].map(|()| numbers.next().expect("mean and spread"));
        let stated = format!("geometric mean {mean}, spread {spread};");
        assert!(super::STATED_ERROR.contains(&stated), "{stated}");
    }
}
