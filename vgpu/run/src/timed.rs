//! `--time`: runs the program as a child, and prints what it and those that it started launched.

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

/// Runs it to its end; its exit code.
///
/// Whoever ends the launcher ends the program: SIGTERM and SIGHUP are handed on. A terminal sends SIGINT to both.
pub fn run(mut command: Command) -> Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("wave32-vgpu-time-").tempdir();
    let folder = folder.context("no folder for modelled times")?;
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let mut child = command.env("WAVE32_VGPU_TIME", folder.path()).spawn()?;
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
    let mut totals = totals(folder.path());
    for row in &mut totals.kernels {
        row.kernel = readable(&row.kernel);
    }
    tell(totals.table().trim_end());
    let code = status.code().unwrap_or(SIGNALLED + status.signal().unwrap_or(0));
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// A C++ function as its source has it.
fn readable(name: &str) -> String {
    let symbol = cpp_demangle::Symbol::new(name).ok();
    symbol.and_then(|symbol| symbol.demangle().ok()).unwrap_or_else(|| name.to_owned())
}

/// What all processes left behind.
fn totals(folder: &Path) -> Totals {
    let mut all = Totals::default();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "json")
            && let Ok(text) = std::fs::read(&path)
        {
            match serde_json::from_slice(&text) {
                Ok(one) => all.add(one),
                Err(error) => tell(&format!("wave32-vgpu: {}: {error}", path.display())),
            }
        }
    }
    all
}
