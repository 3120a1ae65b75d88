//! The `wave32` command.
#![forbid(unsafe_code)]

mod apply;
mod bench;
mod build_torch;
mod check;
mod consent;
#[cfg(unix)]
mod demo;
mod devices;
mod doctor;
mod ending;
mod env;
mod explain;
mod miopen;
mod output;
mod pages;
mod probe;
mod progress;
mod report;
#[cfg(target_os = "linux")]
mod run;
mod signals;
mod undo;
mod vendor;
mod verify;

use clap::{Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;

/// Convolutions on AMD RDNA and any other Vulkan GPU: right, quick, and never hanging.
#[derive(Debug, Parser)]
#[command(
    version = pages::version(),
    arg_required_else_help = true,
    after_help = "Exit codes: 0 all well, 1 something failed its check, 2 wrong use, 3 no such device or route."
)]
struct Cli {
    /// Say more: -v information, -vv debugging, -vvv everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What could run convolutions here, by route
    Devices(devices::Args),
    /// What is wrong on this machine, by route, and what to do
    Doctor(doctor::Args),
    /// A recipe for a PyTorch with this card's own code, with what it needs looked up here
    BuildTorch(build_torch::Args),
    /// Right and hang-free? Each problem in a guarded child; table, JSON, HTML
    Verify(Box<verify::Args>),
    /// How fast, beside the floors; table, JSON, SVG
    Bench(Box<bench::Args>),
    /// This machine in one file to share: devices, right or wrong, speed, temperatures; asks before it writes
    Report(report::Args),
    /// Which solver takes a problem, why, which refused, and the modelled time on RDNA1 cards
    Explain(explain::Args),
    /// Will this network run here? Its convolutions with route, solver, modelled time and the owners' verdict
    Check(check::Args),
    /// Which of the vendor's own MIOpen solvers are safe here, shape by shape; table, JSON
    Probe(Box<probe::Args>),
    /// An unmodified program on the best route: scripts that say `cuda` run on any Vulkan GPU
    #[cfg(target_os = "linux")]
    Run(run::Args),
    /// Trains a small CNN with PyTorch on the best Vulkan device and on the CPU, and compares
    #[cfg(unix)]
    Demo(demo::Args),
    /// The environment that this card, stack and route need, for eval or to read
    Env(env::Args),
    /// Keeps that environment: shows the diff, asks, writes
    Apply(Box<apply::Args>),
    /// wave32's libMIOpen in the place of ROCm's, in a wheel's or a distribution's folder, and out of it again
    Miopen(miopen::Args),
    /// Takes back what `apply` changed, around what you edited since
    Undo(undo::Args),
    /// The guarded child of `verify` and `devices`: requests on standard input, answers on standard output.
    ///
    /// For tests only: WAVE32_INJECT=FAULT:SUBSTR,... makes problems whose line contains SUBSTR fail in
    /// this process; FAULT is hang, crash, oom, wrong, tile, channel, flaky or lost.
    #[command(name = "__verify-child", hide = true)]
    VerifyChild,
    /// The child of `explain --model` on the virtual card.
    #[command(name = "__explain-child", hide = true)]
    ExplainChild(explain::aco::ChildArgs),
    /// Writes the manual pages, the shells' completions and the reference that a release has.
    #[command(name = "__pages", hide = true)]
    Pages(pages::Args),
    /// The guarded child of `probe`.
    #[command(name = "__probe-child", hide = true)]
    ProbeChild,
}

fn main() -> ExitCode {
    // Whatever is wrong, the user gets one line; a panic is a bug of ours and says so.
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string().replace('\n', " ");
        // Standard error may be closed or full; a panic here would be an abort.
        output::tell(&format!("error: internal error, please report it: {text}"));
        std::process::exit(1);
    }));
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ending::usage(&error),
    };
    let level = match cli.verbose {
        0 => log::LevelFilter::Warn,
        1 => log::LevelFilter::Info,
        2 => log::LevelFilter::Debug,
        _ => log::LevelFilter::Trace,
    };
    env_logger::Builder::new()
        .filter_level(level)
        .format(|out, record| {
            let style = out.default_level_style(record.level());
            // Drivers' and files' words are in it.
            let text = record.args().to_string();
            writeln!(out, "[{style}{:<5}{style:#}] {}", record.level(), wave32_host::text::readable(&text))
        })
        .init();
    let result = match &cli.command {
        Command::Devices(args) => devices::main(args),
        Command::Doctor(args) => doctor::main(args),
        Command::BuildTorch(args) => build_torch::main(args),
        Command::Verify(args) => verify::main(args),
        Command::Bench(args) => bench::main(args),
        Command::Report(args) => report::main(args),
        Command::Explain(args) => explain::main(args),
        Command::Check(args) => check::main(args),
        Command::Probe(args) => probe::main(args),
        Command::ExplainChild(args) => explain::aco::child(args),
        Command::Pages(args) => pages::main(args, <Cli as clap::CommandFactory>::command()),
        Command::ProbeChild => {
            wave32_probe::child::serve();
            Ok(ExitCode::SUCCESS)
        }
        #[cfg(target_os = "linux")]
        Command::Run(args) => run::main(args),
        #[cfg(unix)]
        Command::Demo(args) => demo::main(args),
        Command::Env(args) => env::main(args),
        Command::Apply(args) => apply::main(args),
        Command::Miopen(args) => miopen::main(args),
        Command::Undo(args) => undo::main(args),
        Command::VerifyChild => {
            wave32_verify::child::serve(wave32_probe::device::open);
            Ok(ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|error| ending::error(&error))
}
