//! The vendor's solvers that `wave32 probe` has proven on this very card, with this very library: docs/probe.md has the table.
//!
//! Asked for by `WAVE32_ROUTE=probe` only: the table's times were measured, ours are modelled, and until both are measured
//! side by side "faster" is the user's bet, not ours. "Safe" is not: a row counts where its worst verdict is `works` and its bits
//! repeated, on the problem itself or on a rewriting of it ([`crate::conv::rewritten`]).

use crate::conv::proven_table::{Identity, read};
use crate::vendor::next::{Next, next, runtime};
use std::path::{Path, PathBuf};

pub use crate::conv::proven_table::{Proven, Tables};

impl Tables {
    /// What is known of the HIP device of that index, whose driver describes it so; empty where nothing is.
    pub fn load(device: usize, driver: &str) -> Self {
        let Some(identity) = next().and_then(|next| identity(next, device, driver)) else {
            return Self::default();
        };
        let mut table = Self::default();
        for path in files() {
            if let Some(found) = read(&path) {
                table.take(found, &identity);
            }
        }
        table
    }
}

/// The probe's tables.
fn files() -> Vec<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    let entries = state.and_then(|state| std::fs::read_dir(state.join("wave32/probe/tables")).ok());
    let paths = entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "json")).collect()
}

/// This card, runtime and library, in the table's words.
fn identity(next: &Next, device: usize, driver: &str) -> Option<Identity> {
    let hip = runtime()?;
    let version = hip.runtime_version()?;
    let miopen = next.version()?;
    let is_target = |word: &&str| word.starts_with("gfx");
    let target = driver.split(|c: char| !c.is_ascii_alphanumeric()).find(is_target)?;
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let real = |path: &Path| path.canonicalize().ok().map(|path| path.display().to_string());
    Some(Identity {
        card: hip.device_text(c"hipDeviceGetName", device)?,
        target: target.into(),
        pci: hip.device_text(c"hipDeviceGetPCIBusId", device)?,
        miopen: miopen.map(|number| number.to_string()).join("."),
        hip: format!("{}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000),
        kernel: kernel.trim().into(),
        library: real(next.path())?,
    })
}
