//! The `wave32` command.
#![forbid(unsafe_code)]

mod bench;
mod devices;
mod ending;
mod explain;
mod output;
mod pages;
mod progress;
mod signals;
mod tune;
#[cfg(unix)]
mod unix;
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
    /// Right and hang-free? Each problem in a guarded child; table, JSON, HTML
    Verify(Box<verify::Args>),
    /// How fast, beside the floors; table, JSON, SVG
    Bench(Box<bench::Args>),
    /// Measure configurations on this device within a time limit, keep the fastest that was verified
    Tune(Box<tune::Args>),
    /// Which solver takes a problem, why, which refused, and the modelled time on RDNA1 cards
    Explain(explain::Args),
    #[cfg(unix)]
    #[command(flatten)]
    Unix(unix::Command),
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
        Command::Verify(args) => verify::main(args),
        Command::Bench(args) => bench::main(args),
        Command::Tune(args) => tune::main(args),
        Command::Explain(args) => explain::main(args),
        Command::ExplainChild(args) => explain::aco::child(args),
        Command::Pages(args) => pages::main(args, <Cli as clap::CommandFactory>::command()),
        #[cfg(unix)]
        Command::Unix(command) => unix::main(command),
        Command::VerifyChild => {
            #[cfg(unix)]
            wave32_verify::child::serve(wave32_probe::device::open);
            #[cfg(not(unix))]
            wave32_verify::child::serve(|_| None);
            Ok(ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|error| ending::error(&error))
}
