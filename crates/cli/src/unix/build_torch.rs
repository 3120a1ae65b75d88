//! `wave32 build-torch --plan`: a recipe for a PyTorch of this card's own.

use crate::ending::NoDevice;
use crate::output::{print, show};
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;
use wave32_cards::targets;
use wave32_doctor::build_torch::plan;
use wave32_doctor::scan::{self, Options};
use wave32_doctor::system::System;

/// Prints how to build PyTorch for this card, with what is needed looked up on this machine. Runs nothing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the plan; there is no other mode, since a build is long and worth reading first
    #[arg(long, required = true)]
    plan: bool,
    /// Target, e.g. gfx1010 [default: that of the card here]
    #[arg(long, value_name = "GFX")]
    target: Option<String>,
    /// The root of another machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Runs `wave32 build-torch`.
///
/// # Errors
/// A root that is no folder, a target that is none, or no card to build for.
pub fn main(args: &Args) -> Result<ExitCode> {
    let system = System::at(&args.root)?;
    let facts = scan::stack(&system, &Options::default());
    let target = match &args.target {
        Some(text) if targets::leading(text) == Some(text.as_str()) => text.clone(),
        Some(text) => bail!("--target {text}: must be a gfx target such as gfx1010"),
        None => match facts.cards().first().map(|card| card.to_string()) {
            Some(target) => target,
            None => bail!(NoDevice(
                "no AMD GPU whose target is known is here; name one with --target gfx1010".into()
            )),
        },
    };
    let plan = plan(&system, &facts, &target);
    match args.json {
        true => print(&(serde_json::to_string_pretty(&plan)? + "\n"))?,
        false => show(&plan.text())?,
    }
    Ok(if plan.is_ready() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
