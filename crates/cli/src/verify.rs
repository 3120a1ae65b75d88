//! `wave32 verify`: proof on this very machine.

use crate::devices::{Found, launcher, look};
use crate::ending::NoDevice;
use crate::output::{is_stdout, mutter, print, save, show, tell, writable};
use crate::progress::Progress;
use crate::signals;
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wave32_host::text::quoted;
use wave32_problem::{DType, Direction};
use wave32_solve::Policy;
use wave32_verify::campaign::{self, MaxFlops, Observer, Options};
use wave32_verify::protocol::Device;
use wave32_verify::report::Row;
use wave32_verify::selection::{Filter, items};
use wave32_verify::supervisor::{Limits, available_bytes, resident_bytes};
use wave32_verify::{html, table};

/// Time to spend on making a failing fuzz problem smaller.
const SHRINK: Duration = Duration::from_secs(60);

/// Checks each problem in a guarded child: exact on integers, within the promise on random numbers, the
/// same bits every run, nothing written beside the result.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Suites (seeds, nets, nets:NAME, shapes, fuzz, fuzz:N, fuzz:N:SEED), MIOpenDriver lines, or files of such lines [default: seeds nets]
    #[arg(value_name = "SUITE|LINE|FILE")]
    what: Vec<String>,
    /// cpu, vulkan or hip (the best one), vulkan:N, hip:N or all, separated by commas; miopen:FILE is a libMIOpen
    #[arg(long, default_value = "all", value_delimiter = ',', value_name = "DEVICE")]
    device: Vec<String>,
    /// Passes: fwd, bwd, wrw, separated by commas [default: those of each line]
    #[arg(long, value_delimiter = ',', value_parser = direction)]
    direction: Option<Vec<Direction>>,
    /// Types: f32, f16, bf16, separated by commas [default: f32,f16 for suites, each line's own for lines]
    #[arg(long, value_delimiter = ',', value_parser = dtype)]
    dtype: Option<Vec<DType>>,
    /// Scale larger problems down to this, or `none` [default: none on GPUs; 0.005 for suites on the CPU and on software drivers]
    #[arg(long, value_name = "GFLOP", value_parser = max_flops)]
    max_gflop: Option<MaxFlops>,
    /// Seconds that one problem may take before it counts as hanging
    #[arg(long, default_value_t = 120.0, value_name = "SECONDS")]
    deadline: f64,
    /// Memory that a child may use, e.g. 4G [default: 80 % of what is available]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory_cap: Option<u64>,
    /// Further runs that must agree bit for bit
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    repeat: u32,
    /// Every applicable solver, not just the chosen one
    #[arg(long)]
    all_solvers: bool,
    /// Seed of the inputs and of fuzz [default: of the clock; printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Children at the same time on each device
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
    /// Write everything as JSON; `-` is standard output, with the table on standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write one self-contained page; `-` is standard output, with the table on standard error
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show progress even where standard error is no terminal
    #[arg(long)]
    progress: bool,
}

/// Reads `fwd`, `bwd` or `wrw`.
pub fn direction(text: &str) -> Result<Direction, String> {
    let found = Direction::ALL.into_iter().find(|d| d.name() == text);
    found.ok_or_else(|| "must be fwd, bwd or wrw".into())
}

/// Reads `f32`, `f16` or `bf16`.
pub fn dtype(text: &str) -> Result<DType, String> {
    let found = DType::ALL.into_iter().find(|d| d.name() == text);
    found.ok_or_else(|| "must be f32, f16 or bf16".into())
}

fn max_flops(text: &str) -> Result<MaxFlops, String> {
    if text == "none" {
        return Ok(MaxFlops::Unlimited);
    }
    match text.parse::<f64>() {
        Ok(gflop) if gflop > 0.0 && gflop < 1e9 => Ok(MaxFlops::Limit((gflop * 1e9) as u64)),
        _ => Err("must be a number of GFLOP above 0, or none".into()),
    }
}

/// Reads `1048576`, `512M`, `4G`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.trim_end_matches(['B', 'b']).to_uppercase() {
        t if t.ends_with('K') => (t[..t.len() - 1].to_string(), 1u64 << 10),
        t if t.ends_with('M') => (t[..t.len() - 1].to_string(), 1 << 20),
        t if t.ends_with('G') => (t[..t.len() - 1].to_string(), 1 << 30),
        t => (t, 1),
    };
    let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).filter(|&b| b > 0);
    bytes.ok_or_else(|| "must be a number of bytes, with K, M or G behind it if you like".into())
}

/// Runs `wave32 verify`.
///
/// # Errors
/// Wrong use, a device that is not here, a file that cannot be written.
pub fn main(args: &Args) -> Result<ExitCode> {
    if to_stdout(&args.json) && to_stdout(&args.html) {
        bail!("--json - and --html -: standard output can be one of them; name a file for the other");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let seed = args.seed.unwrap_or_else(fresh_seed);
    let default = ["seeds".to_string(), "nets".to_string()];
    let words = if args.what.is_empty() { default.as_slice() } else { &args.what };
    let filter = Filter { directions: args.direction.clone(), dtypes: args.dtype.clone() };
    let items = items(words, &filter, seed)?;
    let policy = Policy::from_env()?;
    let options = options(args, seed, policy)?;
    let files = [&args.json, &args.html].into_iter().flatten();
    files.filter(|path| !is_stdout(path)).try_for_each(|path| writable(path))?;
    signals::watch(&stop)?;
    let devices = devices(&args.device, &stop)?;

    let mut watch = Watch::new(args.progress);
    let mut report = campaign::run(&items, &devices, &options, &mut watch, &stop);
    watch.progress.bar.finish_and_clear();
    report.selection = words.to_vec();

    let text = table::summary(&report);
    // What can be written is, whatever cannot.
    let mut saved: Result<()> = match (to_stdout(&args.json), to_stdout(&args.html)) {
        (false, false) => show(&text).map_err(Into::into),
        (json, _) => {
            mutter(&text);
            print(&if json { report.to_json()? + "\n" } else { html::page(&report) }).map_err(Into::into)
        }
    };
    if let Some(path) = args.json.as_deref().filter(|path| !is_stdout(path)) {
        saved = saved.and(save(path, &report.to_json()?));
    }
    if let Some(path) = args.html.as_deref().filter(|path| !is_stdout(path)) {
        saved = saved.and(save(path, &html::page(&report)));
        if saved.is_ok() {
            tell(&format!("report: {}", path.display()));
        }
    }
    saved?;
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn to_stdout(file: &Option<PathBuf>) -> bool {
    file.as_deref().is_some_and(is_stdout)
}

pub fn fresh_seed() -> u64 {
    // Short enough to be read aloud.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| u64::from(d.subsec_nanos()) ^ d.as_secs())
        % 1_000_000
}

fn options(args: &Args, seed: u64, policy: Policy) -> Result<Options> {
    let deadline =
        Duration::try_from_secs_f64(args.deadline).ok().filter(|d| *d >= Duration::from_millis(10));
    let Some(deadline) = deadline else {
        bail!("--deadline {}: must be a number of seconds, 0.01 at least", args.deadline)
    };
    if args.memory_cap.is_some() && resident_bytes(std::process::id()).is_none() {
        bail!("--memory-cap: this system does not tell what a child holds; leave it out");
    }
    let available = available_bytes().map_or(u64::MAX, |bytes| bytes / 5 * 4);
    let mut repro_flags = String::new();
    if args.all_solvers {
        repro_flags += " --all-solvers";
    }
    if args.repeat != 2 {
        repro_flags += &format!(" --repeat {}", args.repeat);
    }
    if args.deadline != 120.0 {
        repro_flags += &format!(" --deadline {}", args.deadline);
    }
    if let Some(cap) = args.memory_cap {
        repro_flags += &format!(" --memory-cap {cap}");
    }
    Ok(Options {
        launcher: launcher()?,
        limits: Limits {
            deadline,
            startup: deadline.max(Duration::from_secs(30)),
            memory_cap: args.memory_cap.unwrap_or(available),
        },
        seed,
        repeat: args.repeat,
        all_solvers: args.all_solvers,
        policy,
        max_flops: args.max_gflop.unwrap_or(MaxFlops::ByKind),
        jobs: usize::from(args.jobs),
        shrink_time: SHRINK,
        repro_flags,
    })
}

/// The devices asked for, each once, in the order asked for.
fn devices(names: &[String], stop: &AtomicBool) -> Result<Vec<Device>> {
    let found = if names.iter().any(|n| n != "cpu") { Some(look(stop)?) } else { None };
    chosen(names, found.as_ref())
}

/// The devices of these names among those that were found; without a look around there is the CPU alone.
///
/// # Errors
/// [`NoDevice`] for a name that is none of a device here.
pub fn chosen(names: &[String], found: Option<&Found>) -> Result<Vec<Device>> {
    let mut chosen: Vec<Device> = Vec::new();
    for name in names {
        let named = match (name.as_str(), found) {
            ("all", Some(found)) => {
                let usable = found.usable();
                if let (true, Some(why)) = (usable.len() == 1, &found.no_vulkan) {
                    tell(&format!("note: verifying the CPU only: {why}"));
                }
                usable
            }
            ("cpu", _) => vec![wave32_verify::backend::cpu_device()],
            (name, Some(found)) if matches!(name.split(':').next(), Some("vulkan" | "hip")) => {
                vec![found.gpu(name)?.device.clone()]
            }
            (name, Some(found)) if name.starts_with("miopen:") => vec![Device {
                id: name.into(),
                driver: format!("a libMIOpen over {}", found.gpu("hip")?.device.driver),
                ..found.gpu("hip")?.device.clone()
            }],
            _ => bail!(NoDevice(format!(
                "no device `{}`; use cpu, vulkan, vulkan:N, hip, hip:N, miopen:FILE or all (`wave32 devices` lists them)",
                quoted(name)
            ))),
        };
        for device in named {
            if !chosen.contains(&device) {
                chosen.push(device);
            }
        }
    }
    Ok(chosen)
}

/// A bar, and a line for each failure as it happens.
pub struct Watch {
    /// The bar.
    pub progress: Progress,
    failed: usize,
}

impl Watch {
    /// A bar; `forced` shows it where standard error is no terminal too.
    pub fn new(forced: bool) -> Self {
        Self {
            progress: Progress::new(forced, "{prefix:<10} {bar:30} {pos}/{len}  {eta} left  {wide_msg}"),
            failed: 0,
        }
    }
}

impl Observer for Watch {
    fn device(&mut self, device: &Device, problems: usize) {
        self.progress.bar.reset();
        self.progress.bar.set_length(problems as u64);
        self.progress.bar.set_prefix(device.id.clone());
        if !self.progress.shown {
            tell(&format!("{}: {problems} problems on {}", device.id, device.name));
        }
    }

    fn row(&mut self, row: &Row) {
        log::info!(
            "{} {} {} {} in {:.3} s ({:.3} s operands and references, {:.3} s runs with their copies, {:.3} s comparisons)",
            row.outcome.verdict.name(),
            row.device,
            row.line,
            row.label,
            row.seconds,
            row.outcome.phases.references_s,
            row.outcome.phases.runs_s,
            row.outcome.phases.comparisons_s
        );
        if row.outcome.verdict.is_failure() {
            self.failed += 1;
            let text = format!("{} {} {}", row.outcome.verdict.name(), row.device, row.line);
            self.progress.say(&text);
        }
        let failed = if self.failed > 0 { format!("{} failed, ", self.failed) } else { String::new() };
        self.progress.bar.set_message(format!("{failed}{}", row.label));
        self.progress.bar.inc(1);
    }
}
