//! The commands that are about Linux, its files and AMD's software there. They are no part of the command for Windows.

mod apply;
mod build_torch;
mod check;
mod consent;
mod demo;
mod doctor;
mod env;
mod miopen;
mod probe;
mod report;
#[cfg(target_os = "linux")]
mod run;
mod undo;
mod vendor;

use anyhow::Result;
use clap::Subcommand;
use std::error::Error;
use std::process::ExitCode;
use wave32_change::ChangeError;
use wave32_profile::NoRoute;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// What is wrong on this machine, by route, and what to do
    Doctor(doctor::Args),
    /// A recipe for a PyTorch with this card's own code, with what it needs looked up here
    BuildTorch(build_torch::Args),
    /// This machine in one file to share: devices, right or wrong, speed, temperatures; asks before it writes
    Report(report::Args),
    /// Will this network run here? Its convolutions with route, solver, modelled time and the owners' verdict
    Check(check::Args),
    /// Which of the vendor's own MIOpen solvers are safe here, shape by shape; table, JSON
    Probe(Box<probe::Args>),
    /// An unmodified program on the best route: scripts that say `cuda` run on any Vulkan GPU
    #[cfg(target_os = "linux")]
    Run(run::Args),
    /// Trains a small CNN with PyTorch on the best Vulkan device and on the CPU, and compares
    Demo(demo::Args),
    /// The environment that this card, stack and route need, for eval or to read
    Env(env::Args),
    /// Keeps that environment: shows the diff, asks, writes
    Apply(Box<apply::Args>),
    /// wave32's libMIOpen in the place of ROCm's, in a wheel's or a distribution's folder, and out of it again
    Miopen(miopen::Args),
    /// Takes back what `apply` changed, around what you edited since
    Undo(undo::Args),
    /// The guarded child of `probe`.
    #[command(name = "__probe-child", hide = true)]
    ProbeChild,
}

/// Runs one of them.
///
/// # Errors
/// The command's own.
pub fn main(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Doctor(args) => doctor::main(args),
        Command::BuildTorch(args) => build_torch::main(args),
        Command::Report(args) => report::main(args),
        Command::Check(args) => check::main(args),
        Command::Probe(args) => probe::main(args),
        #[cfg(target_os = "linux")]
        Command::Run(args) => run::main(args),
        Command::Demo(args) => demo::main(args),
        Command::Env(args) => env::main(args),
        Command::Apply(args) => apply::main(args),
        Command::Miopen(args) => miopen::main(args),
        Command::Undo(args) => undo::main(args),
        Command::ProbeChild => {
            wave32_probe::child::serve();
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The exit code of an error that only these commands have.
pub fn exit_code(cause: &(dyn Error + 'static)) -> Option<u8> {
    if cause.is::<NoRoute>() { Some(3) } else { cause.is::<ChangeError>().then_some(1) }
}
