//! `wave32 bench`: how fast, beside the floors.

use crate::progress::Progress;
use crate::verify::{direction, dtype};
use crate::{output, signals};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wave32_device::DeviceKind;
use wave32_problem::{DType, Direction};
use wave32_solve::Policy;
use wave32_verify::backend::Backend;
use wave32_verify::bench::{self, BenchMode, CpuMeter, GpuMeter, Meter, Report, Selection, Settings, Wish};
use wave32_verify::suites;

/// Largest problem that a processor (lavapipe included) times unless told otherwise: above, one run
/// alone takes the better part of a second.
const CPU_MAX_GFLOP: f64 = 2.0;

/// Seconds between two writes of the partial JSON report.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// Times convolutions: GPU time by the device's timestamps, median of many warm runs.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Suites (seeds, nets, nets:NAME, shapes), MIOpenDriver lines, or files of such lines [default: seeds]
    #[arg(value_name = "SUITE|LINE|FILE")]
    what: Vec<String>,
    /// vulkan or hip (the best one), vulkan:N, hip:N or cpu
    #[arg(long, default_value = "vulkan", value_name = "DEVICE")]
    device: String,
    /// Passes: fwd, bwd, wrw, separated by commas [default: those of each line]
    #[arg(long, value_delimiter = ',', value_parser = direction)]
    direction: Option<Vec<Direction>>,
    /// Storage types: f32, f16, bf16, separated by commas [default: that of each line]
    #[arg(long, value_delimiter = ',', value_parser = dtype)]
    dtype: Option<Vec<DType>>,
    /// This batch size instead of each line's
    #[arg(long, value_name = "N")]
    batch: Option<i64>,
    /// Time every applicable solver, not only the chosen one
    #[arg(long)]
    all_solvers: bool,
    /// Time only this solver
    #[arg(long, value_name = "NAME")]
    solver: Option<String>,
    /// Timed runs of each [default: as many as fill 0.2 s]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    reps: Option<u32>,
    /// Rotate through operands larger than the caches, so that every run reads memory
    #[arg(long)]
    cold: bool,
    /// Leave larger problems out [default: none on a GPU, 2 where a processor does the work]
    #[arg(long, value_name = "GFLOP")]
    max_gflop: Option<f64>,
    /// Seconds to wait for one plan at most
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    deadline: f64,
    /// Write the measurements as JSON, `-` to standard output in the table's place
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the medians as bars; `-` is standard output, with the table on standard error
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Compare two JSON reports instead of measuring
    #[arg(long, num_args = 2, value_names = ["A.json", "B.json"], conflicts_with_all = ["what", "json", "svg"])]
    compare: Option<Vec<PathBuf>>,
}

/// Runs the subcommand. Exit code 1 where a problem could not be timed.
///
/// # Errors
/// Wrong use, a file that cannot be read or written, or a [`wave32_device::DeviceError`] for a device
/// that is not there.
pub fn main(args: &Args) -> Result<ExitCode> {
    if let Some([a, b]) = args.compare.as_deref() {
        return compare(a, b);
    }
    if to_stdout(args) && svg_to_stdout(args) {
        bail!("--json - and --svg -: standard output can be one of them; name a file for the other");
    }
    let settings = settings(args)?;
    let mut entries = Vec::new();
    let default = ["seeds".to_string()];
    for word in if args.what.is_empty() { &default } else { args.what.as_slice() } {
        entries.extend(suites::select(word)?);
    }
    for path in [&args.json, &args.svg].into_iter().flatten().filter(|path| !output::is_stdout(path)) {
        output::writable(path)?;
    }
    let mut wish = Wish {
        directions: args.direction.clone(),
        dtypes: args.dtype.clone(),
        batch: args.batch,
        max_gflop: args.max_gflop,
    };
    let report = if args.device == "cpu" {
        wish.max_gflop.get_or_insert(CPU_MAX_GFLOP);
        let mut options = wave32_cpu::Options::default();
        if let Some(cap) = settings.policy.workspace_cap {
            options.workspace_cap = cap;
        }
        measure(&mut CpuMeter::new(options), &bench::select(&entries, &wish)?, &settings, args)?
    } else {
        let Backend::Gpu(mut device) = Backend::open(&args.device)? else {
            bail!("--device {}: must be cpu, vulkan, vulkan:N, hip or hip:N", args.device)
        };
        if device.info().kind == DeviceKind::Cpu {
            wish.max_gflop.get_or_insert(CPU_MAX_GFLOP);
        }
        measure(&mut GpuMeter::new(device.as_mut()), &bench::select(&entries, &wish)?, &settings, args)?
    };
    let shown = if to_stdout(args) {
        output::print(&format!("{}\n", report.json()))
    } else if svg_to_stdout(args) {
        output::mutter(&bench::table(&report));
        output::print(&bench::svg(&report))
    } else {
        output::show(&bench::table(&report))
    };
    // What was measured is kept in the file where the screen cannot have it.
    if let Some(path) = args.svg.as_deref().filter(|path| !output::is_stdout(path)) {
        output::save(path, &bench::svg(&report))?;
    }
    shown?;
    let failed = report.ended_early.is_some() || report.failures().next().is_some();
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn compare(a: &Path, b: &Path) -> Result<ExitCode> {
    let (a, b) = (Report::load(a)?, Report::load(b)?);
    let comparison = bench::compare(&a, &b);
    if comparison.pairs.is_empty() {
        bail!("the two reports have no timed problem in common");
    }
    output::show(&bench::comparison_table(&a, &b, &comparison))?;
    Ok(ExitCode::SUCCESS)
}

fn settings(args: &Args) -> Result<Settings> {
    let mut policy = Policy::from_env()?;
    if args.solver.is_some() {
        policy.only = args.solver.clone();
    }
    policy.check()?;
    let deadline = Duration::try_from_secs_f64(args.deadline).ok().filter(|d| !d.is_zero());
    Ok(Settings {
        policy,
        all_solvers: args.all_solvers,
        repeats: args.reps,
        mode: if args.cold { BenchMode::Cold } else { BenchMode::Warm },
        deadline: deadline
            .with_context(|| format!("--deadline {}: must be a number of seconds above 0", args.deadline))?,
        ..Settings::default()
    })
}

fn to_stdout(args: &Args) -> bool {
    args.json.as_deref().is_some_and(output::is_stdout)
}

fn svg_to_stdout(args: &Args) -> bool {
    args.svg.as_deref().is_some_and(output::is_stdout)
}

/// Measures, shows where it is, and keeps the JSON file up to date on the way.
fn measure(meter: &mut dyn Meter, selection: &Selection, settings: &Settings, args: &Args) -> Result<Report> {
    if selection.cases.is_empty() {
        bail!("nothing to time: all {} problems are above --max-gflop", selection.too_large.len());
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    signals::watch(&interrupted)?;
    let file = args.json.as_deref().filter(|_| !to_stdout(args));
    let bar = Progress::new(false, "{bar:30} {pos}/{len} {eta} left  {wide_msg}").bar;
    bar.set_length(selection.cases.len() as u64);
    if let Some(first) = selection.cases.first() {
        bar.set_message(first.label.clone());
    }
    let (mut saved, mut broken) = (Instant::now(), None);
    let report = bench::run(meter, selection, settings, |report, done| {
        bar.set_position(done as u64);
        bar.set_message(selection.cases.get(done).map_or(String::new(), |c| c.label.clone()));
        if let Some(path) = file.filter(|_| saved.elapsed() > SAVE_EVERY) {
            broken = output::save(path, &report.json()).err();
            saved = Instant::now();
        }
        broken.is_none() && !interrupted.load(Ordering::SeqCst)
    });
    bar.finish_and_clear();
    if let Some(error) = broken {
        return Err(error);
    }
    if let Some(path) = file {
        output::save(path, &report.json())?;
    }
    Ok(report)
}
