//! `wave32 probe`: which of the vendor's own solvers are safe here, shape by shape.

use crate::ending::NoDevice;
use crate::output::{print, save, writable};
use crate::progress::Progress;
use crate::signals;
use crate::verify::{bytes, direction, dtype, fresh_seed, is_stdout};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use wave32_probe::campaign::{self, Children, Observer, Options, ProbeError, Shape, Tried};
use wave32_probe::known::Key;
use wave32_probe::protocol::Identity;
use wave32_probe::{locate, table};
use wave32_problem::{DType, Direction};
use wave32_verify::guard::{Launcher, Limits, StartError, available_bytes};
use wave32_verify::selection::{Filter, items};

/// Runs MIOpen's solvers one by one in guarded children and checks what they compute: works, wrong, hang, crash or
/// refused, for each shape; finds exact ways around what fails; remembers everything.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Suites (seeds, nets, nets:NAME, shapes, fuzz[:N[:SEED]]), MIOpenDriver lines, or files of such lines [default: seeds]
    #[arg(value_name = "SUITE|LINE|FILE")]
    what: Vec<String>,
    /// libMIOpen to probe, e.g. a PyTorch wheel's torch/lib/libMIOpen.so [default: the system's]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// HIP device
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    device: i32,
    /// Passes: fwd, bwd, wrw, separated by commas [default: those of each line]
    #[arg(long, value_delimiter = ',', value_parser = direction)]
    direction: Option<Vec<Direction>>,
    /// Types: f32, f16, bf16, separated by commas [default: f32 for suites, each line's own for lines]
    #[arg(long, value_delimiter = ',', value_parser = dtype)]
    dtype: Option<Vec<DType>>,
    /// Seconds that a solver may take for one shape, compiling and checking included
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    deadline: f64,
    /// Seconds that MIOpen's Find may take
    #[arg(long, default_value_t = 300.0, value_name = "SECONDS")]
    find_deadline: f64,
    /// Memory that a child may use, e.g. 4G [default: 80 % of what is available]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory_cap: Option<u64>,
    /// Ask for every solver by name, not only where MIOpen's own choice fails
    #[arg(long)]
    all_solvers: bool,
    /// Do not look for ways around what fails
    #[arg(long)]
    no_rewrites: bool,
    /// Try again what is known already
    #[arg(long)]
    again: bool,
    /// Seed of the operands [default: of the clock; printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Folder of what is kept [default: wave32/probe in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Write everything as JSON; `-` is standard output, with the table on standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show progress even where standard error is no terminal
    #[arg(long)]
    progress: bool,
}

/// Runs `wave32 probe`.
///
/// # Errors
/// Wrong use, no MIOpen or HIP device, a file that cannot be written.
pub fn main(args: &Args) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    let seed = args.seed.unwrap_or_else(fresh_seed);
    let shapes = shapes(args, seed)?;
    let options = options(args, seed)?;
    if let Some(path) = args.json.as_deref().filter(|path| !is_stdout(path)) {
        writable(path)?;
    }
    signals::watch(&stop)?;
    let mut progress = Progress::new(args.progress, "{bar:30} {pos}/{len} shapes  {elapsed}  {wide_msg}");
    let report = campaign::run(shapes, &options, &mut progress, &stop);
    progress.bar.finish_and_clear();
    let report = report.map_err(|error| missing(error, &options))?;
    let text = table::text(&report);
    let json = serde_json::to_string_pretty(&report)?;
    if args.json.as_deref().is_some_and(is_stdout) {
        print(&(json.clone() + "\n"));
        eprint!("{text}");
    } else {
        print(&text);
    }
    if let Some(path) = args.json.as_deref().filter(|path| !is_stdout(path)) {
        save(path, &json)?;
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// What to say where there is nothing to probe.
fn missing(error: ProbeError, options: &Options) -> anyhow::Error {
    match error {
        ProbeError::NotHere(StartError::Spawn(text)) => anyhow::anyhow!("cannot start the guarded child: {text}"),
        ProbeError::NotHere(StartError::Interrupted) => anyhow::anyhow!("interrupted"),
        ProbeError::NotHere(error) => NoDevice(format!(
            "no MIOpen to probe: {error} (looked at {}); install ROCm, name a library with --library, or go without: \
             wave32 needs no ROCm on Vulkan (`wave32 devices`)",
            options.children.library.display()
        ))
        .into(),
        error => error.into(),
    }
}

fn shapes(args: &Args, seed: u64) -> Result<Vec<Shape>> {
    let default = ["seeds".to_string()];
    let words = if args.what.is_empty() { default.as_slice() } else { &args.what };
    let mut shapes: Vec<Shape> = Vec::new();
    for word in words {
        let suite = wave32_verify::suites::names().contains(word) || word.starts_with("fuzz");
        let dtypes = args.dtype.clone().or_else(|| suite.then(|| vec![DType::F32]));
        let filter = Filter { directions: args.direction.clone(), dtypes };
        for item in items(std::slice::from_ref(word), &filter, seed)? {
            let Some(shape) = Shape::new(&item.label, &item.problem) else { continue };
            if shapes.iter().all(|s| s.problem != shape.problem) {
                shapes.push(shape);
            }
        }
    }
    Ok(shapes)
}

fn options(args: &Args, seed: u64) -> Result<Options> {
    let seconds = |name: &str, value: f64| {
        let time = Duration::try_from_secs_f64(value).ok().filter(|d| *d >= Duration::from_millis(100));
        time.with_context(|| format!("--{name} {value}: must be a number of seconds, 0.1 at least"))
    };
    let deadline = seconds("deadline", args.deadline)?;
    let find_deadline = seconds("find-deadline", args.find_deadline)?;
    let available = available_bytes().map_or(u64::MAX, |bytes| bytes / 5 * 4);
    let program = std::env::current_exe().context("cannot find this program to start the guarded child")?;
    let found = locate::candidates(|name| std::env::var(name).ok());
    let library = args.library.clone().or_else(|| found.into_iter().next());
    Ok(Options {
        children: Children {
            launcher: Launcher { program, args: vec!["__probe-child".into()], env: Vec::new() },
            limits: Limits {
                deadline,
                startup: deadline.max(Duration::from_secs(60)),
                memory_cap: args.memory_cap.unwrap_or(available),
            },
            find_deadline,
            // The loader has a list of its own (ldconfig's), which only it can ask.
            library: library.unwrap_or_else(|| "libMIOpen.so.1".into()),
            device: args.device,
        },
        state: state(args)?,
        seed,
        all_solvers: args.all_solvers,
        rewrites: !args.no_rewrites,
        again: args.again,
    })
}

/// Where results are kept: they are state, not configuration, and not to be cleared like a cache.
fn state(args: &Args) -> Result<PathBuf> {
    if let Some(folder) = &args.state {
        return Ok(std::path::absolute(folder)?);
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    match base {
        Some(base) => Ok(base.join("wave32/probe")),
        None => bail!("neither XDG_STATE_HOME nor HOME is set: name a folder with --state"),
    }
}

/// A line for each failure as it happens.
impl Observer for Progress {
    fn opened(&mut self, identity: &Identity, shapes: usize) {
        self.bar.set_length(shapes as u64);
        self.bar.enable_steady_tick(Duration::from_millis(500));
        if !self.shown {
            eprintln!("{}: {shapes} shapes on MIOpen {}", identity.card, identity.miopen);
        }
    }

    fn attempt(&mut self, shape: &Shape, key: &Key) {
        let ways: Vec<String> = key.rewrite.iter().map(|r| format!(" in {r}")).collect();
        self.bar.set_message(format!("{} {}{}", shape.label, key.solver, ways.concat()));
    }

    fn tried(&mut self, shape: &Shape, tried: &Tried) {
        let (verdict, key) = (tried.row.finding.verdict, &tried.row.key);
        log::info!("{} {} {} {:?}", verdict.name(), key.solver, key.problem, key.rewrite);
        if verdict.is_failure() && !tried.remembered && key.rewrite.is_empty() {
            let text = format!("{} {} {}", verdict.name(), key.solver, shape.line);
            self.say(&text);
        }
    }

    fn shape(&mut self) {
        self.bar.inc(1);
    }
}
