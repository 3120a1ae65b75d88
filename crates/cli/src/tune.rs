//! `wave32 tune`: measures configurations on this device, keeps the best that was verified.

use crate::devices::{launcher, look};
use crate::output::{LostFile, print, show, tell};
use crate::progress::Progress;
use crate::signals;
use crate::verify::{direction, dtype, fresh_seed};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wave32_check::infer::Given;
use wave32_check::{layers, onnx};
use wave32_device::DeviceInfo;
use wave32_device::tuned::{self, Record};
use wave32_host::file;
use wave32_problem::{DType, Direction};
use wave32_solve::{Policy, tuning_key};
use wave32_verify::bench::{Case, Wish, geometric_mean, select};
use wave32_verify::protocol::Device;
use wave32_verify::sheet::{Sheet, duration, figure};
use wave32_verify::suites::{self, Entry};
use wave32_verify::supervisor::{Limits, StartError, available_bytes};
use wave32_verify::tune::{Ended, Options, Report, Tuning, by_time, run};

/// Longest time that may be asked for.
const DAY: f64 = 86400.0;

/// Measures solvers and their configurations on this device, and keeps the fastest that was verified, for the device `wave`,
/// `verify`, `bench` and the drop-in.
///
/// Never needed: without it a model chooses. The file is of one card, driver and version of wave32; another one is left
/// aside. WAVE32_TUNE=0 leaves it aside too. Problems that the file has are not measured again.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Suites (seeds, nets, nets:NAME, shapes), MIOpenDriver lines, files of such lines, ONNX files [default: shapes]
    #[arg(value_name = "SUITE|LINE|FILE")]
    what: Vec<String>,
    /// vulkan or hip (the best one), vulkan:N, hip:N
    #[arg(long, default_value = "vulkan", value_name = "DEVICE")]
    device: String,
    /// Minutes that it may take; problems that are left take the next run
    #[arg(long, default_value_t = 5.0, value_name = "MINUTES")]
    time: f64,
    /// Passes: fwd, bwd, wrw, separated by commas [default: those of each line]
    #[arg(long, value_delimiter = ',', value_parser = direction)]
    direction: Option<Vec<Direction>>,
    /// Storage types: f32, f16, bf16, separated by commas [default: that of each line]
    #[arg(long, value_delimiter = ',', value_parser = dtype)]
    dtype: Option<Vec<DType>>,
    /// This batch size instead of each line's
    #[arg(long, value_name = "N")]
    batch: Option<i64>,
    /// Leave larger problems out
    #[arg(long, value_name = "GFLOP")]
    max_gflop: Option<f64>,
    /// Seconds that one configuration may take before it counts as hanging
    #[arg(long, default_value_t = 20.0, value_name = "SECONDS")]
    deadline: f64,
    /// Measure what the file has already once more
    #[arg(long)]
    again: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Show progress even where standard error is no terminal
    #[arg(long)]
    progress: bool,
}

/// Runs `wave32 tune`. Exit code 1 where a configuration failed or the run was ended.
///
/// # Errors
/// Wrong use, a device that is not here, a file that cannot be written.
pub fn main(args: &Args) -> Result<ExitCode> {
    let cases = cases(args)?;
    let options = options(args)?;
    let stop = Arc::new(AtomicBool::new(false));
    signals::watch(&stop)?;
    let id = look(&stop)?.gpu(&args.device)?.device.id.clone();
    let (cases, device) = by_time(cases, &id, &options, &stop).map_err(ended_early)?;
    let info = info(&device);
    let path = tuned::path(&info)
        .context("neither XDG_STATE_HOME nor HOME is set: there is no place for the file")?;
    let _lock = lock(&path)?;
    let known = known(&path, &info);
    let all = cases.len();
    let todo: Vec<Case> = cases
        .into_iter()
        .filter(|case| args.again || !known.contains_key(&tuning_key(&case.problem)))
        .collect();
    let skipped = all - todo.len();
    let progress = Progress::new(args.progress, "{bar:30} {pos}/{len} {elapsed}  {wide_msg}");
    progress.bar.set_length(todo.len() as u64);
    let mut hear = |done: usize, label: &str| {
        progress.bar.set_position(done as u64);
        progress.bar.set_message(label.to_string());
    };
    let report = run(&id, &todo, &options, &mut hear, &stop).map_err(ended_early)?;
    progress.bar.finish_and_clear();
    if report.ended == Ended::Interrupted || stop.load(Ordering::SeqCst) {
        tell("interrupted: nothing was kept");
        return Ok(ExitCode::from(1));
    }
    let kept = keep(&path, &info, &report)?;
    match args.json {
        true => print(&json(&report, &path, kept, skipped)?)?,
        false => show(&text(&report, &path, kept, skipped))?,
    }
    let failed = report.problems.iter().any(|tuning| !tuning.failed.is_empty());
    let lost = matches!(report.ended, Ended::DeviceLost(_));
    Ok(if failed || lost { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn ended_early(error: StartError) -> anyhow::Error {
    match error {
        StartError::Interrupted => anyhow::anyhow!("interrupted: nothing was kept"),
        other => other.into(),
    }
}

fn options(args: &Args) -> Result<Options> {
    let seconds = |name: &str, value: f64, most: f64| {
        let found =
            Duration::try_from_secs_f64(value).ok().filter(|d| !d.is_zero() && d.as_secs_f64() <= most);
        found.with_context(|| format!("{name}: must be a number above 0, at most a day"))
    };
    let deadline = seconds(&format!("--deadline {}", args.deadline), args.deadline, DAY)?;
    Ok(Options {
        launcher: launcher()?,
        limits: Limits {
            deadline,
            startup: deadline.max(Duration::from_secs(30)),
            memory_cap: available_bytes().map_or(u64::MAX, |bytes| bytes / 5 * 4),
        },
        time: seconds(&format!("--time {}", args.time), args.time * 60.0, DAY)?,
        seed: fresh_seed(),
        policy: Policy::from_env()?,
    })
}

/// The problems asked for, each once.
fn cases(args: &Args) -> Result<Vec<Case>> {
    let mut entries = Vec::new();
    let default = ["shapes".to_string()];
    for word in if args.what.is_empty() { &default } else { args.what.as_slice() } {
        match Path::new(word).extension() {
            Some(ending) if ending == "onnx" => entries.extend(network(Path::new(word), args.batch)?),
            _ => entries.extend(suites::select(word)?),
        }
    }
    let wish = Wish {
        directions: args.direction.clone(),
        dtypes: args.dtype.clone(),
        batch: args.batch,
        max_gflop: args.max_gflop,
    };
    let mut seen = std::collections::HashSet::new();
    let mut cases = select(&entries, &wish)?.cases;
    cases.retain(|case| seen.insert(tuning_key(&case.problem)));
    if cases.is_empty() {
        bail!("nothing to tune: no problem is left");
    }
    Ok(cases)
}

/// The layers of an ONNX file.
fn network(path: &Path, batch: Option<i64>) -> Result<Vec<Entry>> {
    let found = layers::layers(&onnx::read(path)?, &Given { batch, ..Given::default() });
    let entry = |layer: layers::Layer| {
        let problem = layer.problem.ok()?;
        Some(Entry {
            label: layer.name,
            layers: 1,
            problem: problem.into(),
            directions: vec![Direction::Forward],
        })
    };
    Ok(found.into_iter().filter_map(entry).collect())
}

/// A device's identity, as its queue tells it.
pub fn info(device: &Device) -> DeviceInfo {
    DeviceInfo {
        id: device.id.clone(),
        name: device.name.clone(),
        driver: device.driver.clone(),
        kind: device.kind,
        memory_bytes: device.memory_bytes,
    }
}

/// What the file has; an unusable one is told and will be replaced.
fn known(path: &Path, info: &DeviceInfo) -> BTreeMap<String, tuned::Entry> {
    match Record::read(path, info) {
        Ok(record) => record.map(|record| record.plans).unwrap_or_default(),
        Err(why) => {
            tell(&format!("{} will be replaced: {why}", path.display()));
            BTreeMap::new()
        }
    }
}

/// The lock of the file: two runs at once would measure each other.
fn lock(path: &Path) -> Result<File> {
    let lost = |why| LostFile::new(path, why);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(lost)?;
    }
    let file = File::options().create(true).append(true).open(path.with_extension("lock")).map_err(lost)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("another `wave32 tune` measures this device now; wait until it has ended")
        }
        Err(TryLockError::Error(error)) => Err(lost(error).into()),
    }
}

/// Writes the file whole, with what it had; how many problems it got.
fn keep(path: &Path, info: &DeviceInfo, report: &Report) -> Result<usize> {
    let mut record = Record::read(path, info).ok().flatten().unwrap_or_else(|| Record::new(info));
    let new = report.problems.iter().filter_map(|t| Some((t.line.clone(), t.entry.clone()?)));
    let new: Vec<(String, tuned::Entry)> = new.collect();
    let kept = new.len();
    if kept > 0 {
        record.plans.extend(new);
        file::save_durably(path, record.text()?.as_bytes()).map_err(|why| LostFile::new(path, why))?;
    }
    Ok(kept)
}

fn json(report: &Report, path: &PathBuf, kept: usize, skipped: usize) -> Result<String> {
    let mut value = serde_json::to_value(report)?;
    value["file"] = serde_json::json!(path);
    value["kept"] = kept.into();
    value["known_before"] = skipped.into();
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}

fn text(report: &Report, path: &Path, kept: usize, skipped: usize) -> String {
    let mut table = Sheet::new(&["problem", "pass", "type", "usual", "ms", "tuned", "ms", "gain"], 6);
    let mut gains = Vec::new();
    for Tuning { label, pass, dtype, entry, .. } in &report.problems {
        let Some(entry) = entry else { continue };
        let best = format!("{} {}", entry.solver, entry.config);
        let gain = entry.usual_ms.map(|usual| usual / entry.ms);
        gains.extend(gain);
        let best = if best == entry.usual { "the same".into() } else { best };
        let usual = entry.usual_ms.map_or("failed".into(), figure);
        let cells = [label.as_str(), pass, dtype, &entry.usual, &usual, &best, &figure(entry.ms)];
        table.row(
            cells.map(String::from).into_iter().chain([gain.map_or("-".into(), |gain| format!("{gain:.2}"))]),
        );
    }
    let mut text =
        format!("{} {} ({})\n\n{table}", report.device.id, report.device.name, report.device.driver);
    for Tuning { line, failed, .. } in &report.problems {
        for failure in failed {
            text += &format!("{} {}: {} on {line}\n", failure.verdict.name(), failure.plan, failure.detail);
        }
    }
    let ended = match &report.ended {
        Ended::Complete => String::new(),
        Ended::TimeLimit => ", the time was over".into(),
        Ended::Interrupted => ", interrupted".into(),
        Ended::DeviceLost(why) => format!(", the device was lost: {why}"),
    };
    let mean = geometric_mean(gains).unwrap_or(1.0);
    text += &format!(
        "{kept} problems measured in {}{ended}; {mean:.2} times as fast (geometric mean); {skipped} were known, {} are left\n",
        duration(report.elapsed_s),
        report.not_begun
    );
    if kept > 0 {
        text += &format!("kept in {}\n", path.display());
    }
    text
}
