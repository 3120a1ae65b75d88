//! `--time`, `--check`: runs the program as a child, and tells at the end what it and those that it started did.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use wave32_host::stream::tell;
use wave32_model::Totals;

/// What a shell says of a program that a signal ended, less the signal.
const SIGNALLED: i32 = 128;
/// With `--check`: a kernel was stopped.
const STOPPED: u8 = 3;

/// What a process leaves behind.
#[derive(serde::Deserialize)]
struct Outcome {
    modelled: Option<Totals>,
    findings: Vec<serde::de::IgnoredAny>,
}

/// Runs it to its end; its exit code.
///
/// Whoever ends the launcher ends the program: SIGTERM and SIGHUP are handed on. A terminal sends SIGINT to both.
pub fn run(mut command: Command, time: bool, check: bool) -> Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("wave32-vgpu-run-").tempdir();
    let folder = folder.context("no folder for what processes leave")?;
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let mut child = command.env("WAVE32_VGPU_FOLDER", folder.path()).spawn()?;
    let pid = Pid::from_child(&child);
    let handle = signals.handle();
    let watcher = std::thread::spawn(move || {
        for signal in signals.forever() {
            let onward = match signal {
                SIGTERM => Signal::TERM,
                SIGHUP => Signal::HUP,
                _ => continue,
            };
            // It may have ended.
            let _ = kill_process(pid, onward);
        }
    });
    let status = child.wait()?;
    handle.close();
    let _ = watcher.join();
    let (mut totals, stopped) = outcomes(folder.path());
    if time {
        for row in &mut totals.kernels {
            row.kernel = readable(&row.kernel);
        }
        tell(totals.table().trim_end());
    }
    if check && stopped > 0 {
        tell(&format!("wave32-vgpu: {stopped} kernels were stopped; the reasons are above"));
        return Ok(ExitCode::from(STOPPED));
    }
    let code = status.code().unwrap_or(SIGNALLED + status.signal().unwrap_or(0));
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// A C++ function as its source has it.
fn readable(name: &str) -> String {
    let symbol = cpp_demangle::Symbol::new(name).ok();
    symbol.and_then(|symbol| symbol.demangle().ok()).unwrap_or_else(|| name.to_owned())
}

/// What all processes launched, and how many kernels were stopped.
fn outcomes(folder: &Path) -> (Totals, usize) {
    let (mut all, mut stopped) = (Totals::default(), 0);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "json")
            && let Ok(text) = std::fs::read(&path)
        {
            match serde_json::from_slice::<Outcome>(&text) {
                Ok(one) => {
                    one.modelled.into_iter().filter(|totals| !totals.is_empty()).for_each(|t| all.add(t));
                    stopped += one.findings.len();
                }
                Err(error) => tell(&format!("wave32-vgpu: {}: {error}", path.display())),
            }
        }
    }
    (all, stopped)
}
