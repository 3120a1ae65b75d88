//! `wave32-vgpu`: runs a program, unchanged, with a virtual RDNA1 card under AMD's own runtime.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Parser;
use wave32_cards::Board;
use wave32_host::stream::{show, tell};

mod program;
mod watched;

/// The card that one gets without asking.
const USUAL: &str = "rx5600xt";
const LIBRARY: &str = "libwave32_vgpu.so";
const WRONG_USE: u8 = 2;

/// Runs HIP and Vulkan programs on a virtual RDNA1 card, under AMD's own runtime or Mesa's own RADV, both unmodified.
///
/// Results are those of a virtual card, never measurements of hardware.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    /// List the cards that can be had
    #[arg(long)]
    list: bool,
    /// With --list: as JSON
    #[arg(long, requires = "list")]
    json: bool,
    #[command(subcommand)]
    command: Option<Action>,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Run a program with a card: wave32-vgpu run -- ./program arguments
    Run(Run),
}

#[derive(clap::Args)]
struct Run {
    /// List the cards that can be had
    #[arg(long)]
    list: bool,
    /// Which card (--list has them)
    #[arg(long, value_name = "CARD", value_parser = card, default_value = USUAL)]
    card: &'static Board,
    /// Stop kernels at what a real card may let pass: missing waits, races, uninitialised registers and LDS
    #[arg(long)]
    strict: bool,
    /// With --strict: accesses past a Vulkan buffer's end are none of these, as Vulkan's robustBufferAccess allows them
    #[arg(long, requires = "strict")]
    robust: bool,
    /// With --strict: tell what is found and go on, one finding for each instruction of a launch; atomics still stop
    #[arg(long, requires = "strict")]
    keep_going: bool,
    /// Threads that run kernels [default: as many as processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// Seconds that a kernel may take [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    deadline: Option<u32>,
    /// Print how long each launch takes on the card when the program ends: modelled from the instructions that ran
    #[arg(long)]
    time: bool,
    /// With --time: run only the workgroups that are modelled. A network takes seconds, and its results are wrong
    #[arg(long, requires = "time", conflicts_with = "strict")]
    sample: bool,
    /// Exit with 3 if a kernel was stopped (a fault, a finding of --strict, a deadline), however the program ended
    #[arg(long)]
    check: bool,
    /// Write what ran to this file as JSON: kernels, instructions, findings. Other processes that the program starts
    /// write FILE.PID
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        required_unless_present = "list",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

fn card(id: &str) -> Result<&'static Board, String> {
    let board = wave32_cards::by_id(id).filter(|board| wave32_cards::rdna1().any(|card| card == *board));
    board.ok_or_else(|| {
        let ids: Vec<_> = wave32_cards::rdna1().map(Board::id).collect();
        format!("there is no such card; there are {}", ids.join(", "))
    })
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.list {
        return list(cli.json);
    }
    let Some(Action::Run(run)) = cli.command else { return ExitCode::from(WRONG_USE) };
    if run.list {
        return list(false);
    }
    match start(&run) {
        Ok(code) => code,
        Err(error) => {
            tell(&format!("wave32-vgpu: {error:#}"));
            ExitCode::from(WRONG_USE)
        }
    }
}

fn list(json: bool) -> ExitCode {
    match show(&table(json)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(lost) => {
            tell(&format!("wave32-vgpu: {:#}", anyhow::Error::from(lost)));
            ExitCode::FAILURE
        }
    }
}

fn table(json: bool) -> String {
    if json {
        let rows: Vec<_> = wave32_cards::rdna1()
            .map(|card| {
                serde_json::json!({
                    "id": card.id(), "name": card.full_name(), "target": card.target().name,
                    "compute_units": card.compute_units, "memory_mib": card.memory.mib,
                    "bandwidth_gbs": card.memory.bandwidth_gbs(), "clock_mhz": card.clocks.boost,
                })
            })
            .collect();
        return format!("{}\n", serde_json::Value::from(rows));
    }
    let header = format!(
        "{:<25}{:<39}{:<9}{:>4}{:>8}{:>10}\n",
        "card", "name", "target", "CUs", "memory", "bandwidth"
    );
    let row = |card: &Board| {
        format!(
            "{:<25}{:<39}{:<9}{:>4}{:>5} GB{:>5.0} GB/s\n",
            card.id(),
            card.full_name(),
            card.target().name,
            card.compute_units,
            card.memory.mib >> 10,
            card.memory.bandwidth_gbs(),
        )
    };
    header + &wave32_cards::rdna1().map(row).collect::<String>()
}

/// Becomes the program; or, where something is to be told of it at the end, runs it and returns as it ended.
fn start(run: &Run) -> Result<ExitCode> {
    let library = library()?;
    let folder = library.parent().context("the library has no folder")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = program::find(&run.command[0], &path)?;
    program::check(&program)?;

    let mut command = Command::new(&program);
    command.arg0(&run.command[0]).args(&run.command[1..]);
    // By its name, not its path: the dynamic linker then looks into glibc-hwcaps for what suits this processor.
    command.env("LD_PRELOAD", before(LIBRARY, "LD_PRELOAD"));
    command.env("LD_LIBRARY_PATH", before(folder, "LD_LIBRARY_PATH"));
    command.env("WAVE32_VGPU_CARD", run.card.id());
    command.env("WAVE32_VGPU_STRICT", if run.strict { "1" } else { "0" });
    command.env("WAVE32_VGPU_ROBUST", if run.robust { "1" } else { "0" });
    command.env("WAVE32_VGPU_KEEP_GOING", if run.keep_going { "1" } else { "0" });
    if run.strict && std::env::var_os("HSA_DISABLE_FRAGMENT_ALLOCATOR").is_none() {
        // Each allocation by itself, so that running out of one does not end in the next.
        command.env("HSA_DISABLE_FRAGMENT_ALLOCATOR", "1");
    }
    for (name, number) in [("WAVE32_VGPU_THREADS", run.threads), ("WAVE32_VGPU_DEADLINE", run.deadline)] {
        if let Some(number) = number {
            command.env(name, number.to_string());
        }
    }
    if let Some(report) = &run.report {
        std::fs::write(report, "{}\n")
            .with_context(|| format!("cannot write the report {}", report.display()))?;
        command.env("WAVE32_VGPU_REPORT", std::path::absolute(report)?);
        command.env("WAVE32_VGPU_MAIN", std::process::id().to_string());
    }
    command.env("WAVE32_VGPU_TIME", if run.time { "1" } else { "0" });
    command.env("WAVE32_VGPU_SAMPLE", if run.sample { "1" } else { "0" });
    command.env_remove("WAVE32_VGPU_FOLDER");
    if run.time || run.check {
        return watched::run(command, run.time, run.check)
            .with_context(|| format!("cannot start {}", program.display()));
    }
    Err(command.exec()).with_context(|| format!("cannot start {}", program.display()))
}

/// `first`, then what the variable holds.
fn before(first: impl AsRef<Path>, variable: &str) -> OsString {
    let mut value = first.as_ref().as_os_str().to_owned();
    if let Some(rest) = std::env::var_os(variable).filter(|rest| !rest.is_empty()) {
        value.push(":");
        value.push(rest);
    }
    value
}

/// The library: `WAVE32_VGPU_LIB`, or beside this program.
fn library() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("WAVE32_VGPU_LIB") {
        let path = std::path::absolute(path)?;
        let path = if path.is_dir() { path.join(LIBRARY) } else { path };
        if path.file_name() != Some(LIBRARY.as_ref()) || !path.is_file() {
            bail!("WAVE32_VGPU_LIB is {}: {LIBRARY}, or its folder, is meant", path.display());
        }
        return Ok(path);
    }
    let here = std::env::current_exe()?.canonicalize()?;
    let folder = here.parent().context("this program has no folder")?;
    let places =
        [folder.join("lib").join(LIBRARY), folder.join(LIBRARY), folder.join("../lib/wave32").join(LIBRARY)];
    places.iter().find(|path| path.is_file()).cloned().with_context(|| {
        format!(
            "{LIBRARY} is not beside this program ({}); build both with `make vgpu`, or name it in WAVE32_VGPU_LIB",
            folder.display()
        )
    })
}
