//! `wave32 report`: this machine in one file, for its owner to read and to share.

mod compare;
mod gather;
mod parts;
mod sampler;

use crate::output::{is_stdout, mutter, print, save, show, tell, writable};
use crate::signals;
use crate::unix::consent::{asked, somebody_to_ask};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wave32_report::verdict::Overall;
use wave32_report::{Report, page, project_page, sample, summary};

/// What `reports/` takes.
const LARGEST: usize = 1_000_000;

/// Gathers what is here, proves a sample of problems on every route, times some, and writes it all as one JSON file and one
/// page, without names and serial numbers. Five minutes at most. Shows it and asks first; sends nothing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write the report as JSON; `-` is standard output [default: wave32-report.json, unless --html alone is given]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write it as one page [default: wave32-report.html, unless --out alone is given]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write without asking
    #[arg(short, long)]
    yes: bool,
    /// A minute at most: fewer problems
    #[arg(long)]
    quick: bool,
    /// cpu, vulkan or hip (the best one), vulkan:N, hip:N or all, separated by commas; miopen:FILE is a libMIOpen
    #[arg(long, default_value = "all", value_delimiter = ',', value_name = "DEVICE")]
    device: Vec<String>,
    /// Set a report's times beside the model's instead, layer by layer; it may come from another machine
    #[arg(long, value_name = "FILE", conflicts_with_all = ["out", "html", "yes", "quick", "device"])]
    compare: Option<PathBuf>,
    /// Seconds that it may take, for tests
    #[arg(long, hide = true, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=300))]
    seconds: Option<u64>,
    /// The root of the files that are read, for tests
    #[arg(long, hide = true, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// Runs `wave32 report`.
///
/// # Errors
/// Wrong use, nobody to ask, a device that is not here, a file that cannot be written.
pub fn main(args: &Args) -> Result<ExitCode> {
    if let Some(path) = &args.compare {
        return compare::main(path);
    }
    let [json, html] = files(args);
    if [&json, &html].into_iter().flatten().filter(|path| is_stdout(path)).count() == 2 {
        bail!("--out - and --html -: standard output can be one of them; name a file for the other");
    }
    // Five minutes are not spent on what cannot be written.
    for path in [&json, &html].into_iter().flatten().filter(|path| !is_stdout(path)) {
        writable(path)?;
    }
    if !args.yes {
        somebody_to_ask("written")?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    signals::watch(&stop)?;
    let limit = args.seconds.map(Duration::from_secs);
    let request = gather::Request {
        devices: &args.device,
        quick: args.quick,
        limit: limit.unwrap_or(if args.quick { sample::QUICK } else { sample::LIMIT }),
        root: &args.root,
    };
    let report = gather::gather(&request, &stop)?;
    let files = Files {
        json: (json, serde_json::to_string_pretty(&report)? + "\n"),
        html: (html, page::page(&report)),
    };
    let text = summary::text(&report);
    if files.to_stdout() {
        mutter(&text)
    } else {
        show(&text)?
    }
    if report.interrupted {
        tell("stopped early: what is there until then can be written");
    }
    if !args.yes && !consent(&files, &stop)? {
        tell("nothing was written");
        return Ok(ExitCode::from(1));
    }
    files.write()?;
    Ok(if report.verdict().0 == Overall::Right { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Where the JSON and the page go.
fn files(args: &Args) -> [Option<PathBuf>; 2] {
    if args.out.is_none() && args.html.is_none() {
        return [Some("wave32-report.json".into()), Some("wave32-report.html".into())];
    }
    [args.out.clone(), args.html.clone()]
}

/// The files, with what goes into them.
struct Files {
    json: (Option<PathBuf>, String),
    html: (Option<PathBuf>, String),
}

impl Files {
    fn each(&self) -> impl Iterator<Item = (&Path, &str)> {
        [&self.json, &self.html]
            .into_iter()
            .filter_map(|(path, text)| Some((path.as_deref()?, text.as_str())))
    }

    fn to_stdout(&self) -> bool {
        self.each().any(|(path, _)| is_stdout(path))
    }

    /// What can be written is, whatever cannot.
    fn write(&self) -> Result<()> {
        let mut saved = Ok(());
        for (path, text) in self.each() {
            let done = if is_stdout(path) { print(text).map_err(Into::into) } else { save(path, text) };
            if done.is_ok() && !is_stdout(path) {
                tell(&format!("written: {}", path.display()));
            }
            saved = saved.and(done);
        }
        saved?;
        if let (Some(path), text) = &self.json {
            if text.len() > LARGEST {
                tell(&format!(
                    "note: {} is larger than the {LARGEST} bytes that reports/ takes",
                    path.display()
                ));
            }
            let file = if is_stdout(path) { "the JSON".into() } else { path.display().to_string() };
            tell(&format!(
                "nothing was sent. To send it: {file} as a file in `reports/` by a pull request, or attached to an issue on {}",
                project_page()
            ));
        }
        Ok(())
    }
}

/// Asks, with the whole to be read in a private folder meanwhile.
fn consent(files: &Files, stop: &Arc<AtomicBool>) -> Result<bool> {
    let copy = copy_to_read(files);
    match &copy {
        Ok(folder) => tell(&format!(
            "the whole, to read before you answer: {}/report.html and report.json",
            folder.path().display()
        )),
        Err(why) => tell(&format!("note: no copy to read: {why:#}")),
    }
    let names: Vec<String> = files.each().map(|(path, _)| path.display().to_string()).collect();
    stop.store(false, Ordering::SeqCst);
    let answered = Arc::new(AtomicBool::new(false));
    let (seen, done) = (Arc::clone(stop), Arc::clone(&answered));
    let folder = copy.as_ref().ok().map(|folder| folder.path().to_path_buf());
    // Ctrl-C does not end the wait for an answer by itself.
    let watch = move || {
        while !done.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(50));
            if seen.load(Ordering::SeqCst) {
                folder.iter().for_each(|folder| drop(std::fs::remove_dir_all(folder)));
                tell("\nnothing was written");
                std::process::exit(1);
            }
        }
    };
    std::thread::Builder::new().spawn(watch).map_err(crate::ending::NoThread)?;
    let answer = asked(&format!("Write {}?", names.join(" and ")));
    answered.store(true, Ordering::SeqCst);
    answer
}

fn copy_to_read(files: &Files) -> Result<tempfile::TempDir> {
    let folder =
        tempfile::Builder::new().prefix("wave32-report-").tempdir().context("cannot make a folder for it")?;
    save(&folder.path().join("report.json"), &files.json.1)?;
    save(&folder.path().join("report.html"), &files.html.1)?;
    Ok(folder)
}

/// The report as it may leave this machine.
fn redacted(report: &Report, redaction: &wave32_report::redact::Redaction) -> Result<Report> {
    let mut value = serde_json::to_value(report)?;
    redaction.clean_value(&mut value);
    serde_json::from_value(value).context("what is left without names is no report any more")
}
