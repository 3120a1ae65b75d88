//! `wave32 probe`: which of the vendor's own solvers are safe here, shape by shape.

use crate::ending::NoDevice;
use crate::output::{is_stdout, mutter, print, save, show, tell, writable};
use crate::progress::Progress;
use crate::signals;
use crate::unix::consent::{asked, somebody_to_ask};
use crate::unix::vendor::{self, Vendor, missing};
use crate::verify::{bytes, direction, dtype, fresh_seed};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use wave32_doctor::miopen::Miopen;
use wave32_probe::campaign::{self, Observer, Options, ProbeError, ProbeShape, Tried};
use wave32_probe::known::Key;
use wave32_probe::protocol::Identity;
use wave32_probe::superseded::superseded;
use wave32_probe::table;
use wave32_problem::{DType, Direction};
use wave32_verify::guard::StartError;
use wave32_verify::selection::{Filter, items};

/// Runs MIOpen's solvers one by one in guarded children and checks what they compute: works, wrong, hang, crash or
/// refused, for each shape; finds exact ways around what fails; remembers everything.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Suites (seeds, nets, nets:NAME, shapes, fuzz, fuzz:N, fuzz:N:SEED), MIOpenDriver lines, or files of such lines [default: seeds]
    #[arg(value_name = "SUITE|LINE|FILE")]
    what: Vec<String>,
    #[command(flatten)]
    vendor: Vendor,
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
    /// Probe nothing: show what is kept of MIOpens that are not here any more, ask, and remove it
    #[arg(long, conflicts_with_all = ["what", "json"])]
    prune: bool,
    /// With --prune: do not ask
    #[arg(short, long, requires = "prune")]
    yes: bool,
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
    if args.prune {
        signals::watch(&stop)?;
        return prune(args, &stop);
    }
    let seed = args.seed.unwrap_or_else(fresh_seed);
    let shapes = shapes(args, seed)?;
    let (library, others) = args.vendor.libraries()?;
    let options = options(args, seed, &library)?;
    if let Some(path) = args.json.as_deref().filter(|path| !is_stdout(path)) {
        writable(path)?;
    }
    signals::watch(&stop)?;
    let progress = Progress::new(args.progress, "{bar:30} {pos}/{len} shapes  {elapsed}  {wide_msg}");
    let mut watch = Watch { progress, library, others };
    let report = campaign::run(shapes, &options, &mut watch, &stop);
    watch.progress.bar.finish_and_clear();
    let report = report.map_err(|error| match error {
        ProbeError::NotHere(error) => missing(error, &watch.library),
        error => error.into(),
    })?;
    let text = table::text(&report);
    let json = serde_json::to_string_pretty(&report)?;
    if args.json.as_deref().is_some_and(is_stdout) {
        mutter(&text);
        print(&(json.clone() + "\n"))?;
    } else {
        // The file first: what was found is kept where the screen cannot have it.
        if let Some(path) = &args.json {
            save(path, &json)?;
        }
        show(&text)?;
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Shows what is kept of MIOpens that are not here any more, and removes it.
fn prune(args: &Args, stop: &AtomicBool) -> Result<ExitCode> {
    let (chosen, others) = args.vendor.libraries()?;
    let mut here = Vec::new();
    for library in [chosen].into_iter().chain(others) {
        match campaign::identify(&vendor::children(&library.path, args.device)?, stop) {
            Ok(identity) => here.push(identity),
            Err(StartError::Interrupted) => bail!("interrupted"),
            // What it is, and so what is its, cannot be told.
            Err(error) if Path::new(&library.path).exists() => bail!(NoDevice(format!(
                "{} is there and does not open ({error}): what is kept may be of it, so nothing is removed; have it \
                 open, or move it away",
                library.path
            ))),
            Err(_) => {}
        }
    }
    let found = superseded(&args.vendor.state()?, &here);
    if found.is_empty() {
        show("nothing is kept of MIOpens that are not here any more\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    found.iter().try_for_each(|old| show(&format!("{old}\n")))?;
    if !args.yes {
        somebody_to_ask("changed")?;
        if !asked("Do this?")? {
            return Ok(ExitCode::from(1));
        }
    }
    for old in &found {
        old.remove().with_context(|| format!("cannot remove {}", old.file.display()))?;
    }
    show(&format!("removed: {} files\n", found.len()))?;
    Ok(ExitCode::SUCCESS)
}

fn shapes(args: &Args, seed: u64) -> Result<Vec<ProbeShape>> {
    let default = ["seeds".to_string()];
    let words = if args.what.is_empty() { default.as_slice() } else { &args.what };
    let mut shapes: Vec<ProbeShape> = Vec::new();
    for word in words {
        let suite = wave32_verify::suites::names().contains(word) || word.starts_with("fuzz");
        let dtypes = args.dtype.clone().or_else(|| suite.then(|| vec![DType::F32]));
        let filter = Filter { directions: args.direction.clone(), dtypes };
        for item in items(std::slice::from_ref(word), &filter, seed)? {
            let posed = item.problem.conv().and_then(|problem| ProbeShape::new(&item.label, problem));
            let Some(shape) = posed else { continue };
            if shapes.iter().all(|s| s.problem != shape.problem) {
                shapes.push(shape);
            }
        }
    }
    Ok(shapes)
}

fn options(args: &Args, seed: u64, library: &Miopen) -> Result<Options> {
    let seconds = |name: &str, value: f64| {
        let time = Duration::try_from_secs_f64(value).ok().filter(|d| *d >= Duration::from_millis(100));
        time.with_context(|| format!("--{name} {value}: must be a number of seconds, 0.1 at least"))
    };
    let deadline = seconds("deadline", args.deadline)?;
    let find_deadline = seconds("find-deadline", args.find_deadline)?;
    let mut children = vendor::children(&library.path, args.device)?;
    children.find_deadline = find_deadline;
    children.limits.deadline = deadline;
    children.limits.startup = deadline.max(children.limits.startup);
    children.limits.memory_cap = args.memory_cap.unwrap_or(children.limits.memory_cap);
    Ok(Options {
        children,
        state: args.vendor.state()?,
        seed,
        all_solvers: args.all_solvers,
        rewrites: !args.no_rewrites,
        again: args.again,
    })
}

/// Says what is probed, and each failure as it happens.
struct Watch {
    progress: Progress,
    library: Miopen,
    others: Vec<Miopen>,
}

impl Observer for Watch {
    fn opened(&mut self, identity: &Identity, shapes: usize) {
        self.progress.say(&format!("{}: {}", self.library.path, self.library.why));
        for other in &self.others {
            self.progress.say(&format!("also here, for --library: {} ({})", other.path, other.why));
        }
        self.progress.bar.set_length(shapes as u64);
        self.progress.bar.enable_steady_tick(Duration::from_millis(500));
        if !self.progress.shown {
            tell(&format!("{}: {shapes} shapes on MIOpen {}", identity.card, identity.miopen));
        }
    }

    fn attempt(&mut self, shape: &ProbeShape, key: &Key) {
        let ways: Vec<String> = key.rewrite.iter().map(|r| format!(" in {r}")).collect();
        self.progress.bar.set_message(format!("{} {}{}", shape.label, key.solver, ways.concat()));
    }

    fn tried(&mut self, shape: &ProbeShape, tried: &Tried) {
        let (verdict, key) = (tried.row.finding.verdict, &tried.row.key);
        log::info!("{} {} {} {:?}", verdict.name(), key.solver, key.problem, key.rewrite);
        if verdict.is_failure() && !tried.remembered && key.rewrite.is_empty() {
            let text = format!("{} {} {}", verdict.name(), key.solver, shape.line);
            self.progress.say(&text);
        }
    }

    fn shape(&mut self) {
        self.progress.bar.inc(1);
    }
}
