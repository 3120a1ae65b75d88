//! The vendor's MIOpen on this machine, and the folder of what the probe found out of it.

use crate::ending::NoDevice;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wave32_doctor::miopen::{Miopen, miopens};
use wave32_doctor::scan;
use wave32_doctor::system::System;
use wave32_host::own;
use wave32_probe::campaign::Children;
use wave32_profile::Dialect;
use wave32_verify::guard::{Launcher, Limits, StartError, available_bytes};

/// Time for MIOpen and the HIP runtime to open.
pub const STARTUP: Duration = Duration::from_secs(60);

/// Which MIOpen, and what is known of it.
#[derive(Debug, clap::Args)]
pub struct Vendor {
    /// The libMIOpen that is meant [default: the one that the PyTorch in reach loads, else the system's]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Folder of what the probe keeps [default: wave32/probe in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl Vendor {
    /// Was either said?
    pub fn is_given(&self) -> bool {
        self.library.is_some() || self.state.is_some()
    }

    /// The chosen MIOpen, and the others that are here.
    ///
    /// # Errors
    /// No MIOpen is here except wave32's own.
    pub fn libraries(&self) -> Result<(Miopen, Vec<Miopen>)> {
        let system = System::live();
        let facts = scan::stack(&system, &scan::Options::default());
        let mut found = miopens(&system, &facts);
        let chosen = match &self.library {
            Some(named) => {
                // Links followed, as the doctor does: what is kept is told apart by the file.
                let path = named.canonicalize().or_else(|_| std::path::absolute(named));
                let path = path.unwrap_or(named.clone());
                if own::at(&path).is_some() {
                    let kept = own::kept_name(&path);
                    let next =
                        if kept.is_file() { format!(": name {}", kept.display()) } else { String::new() };
                    bail!("--library {} is wave32's own, and the vendor's is meant{next}", named.display());
                }
                let path = path.display().to_string();
                found.retain(|other| other.path != path);
                Miopen { path, why: "--library names it".into() }
            }
            None if found.is_empty() && facts.rocm.iter().any(|rocm| rocm.library("miopen").is_some()) => {
                let why =
                    "the only MIOpen here is wave32's own: there are no solvers of the vendor's to probe";
                bail!(NoDevice(why.into()));
            }
            None if found.is_empty() => {
                // The loader has a list of its own (ldconfig's), which only it can ask.
                let why = "there is none in the places looked at, so the system's loader is asked";
                Miopen { path: "libMIOpen.so.1".into(), why: why.into() }
            }
            None => found.remove(0),
        };
        Ok((chosen, found))
    }

    /// Where results are kept: they are state, not configuration, and not to be cleared like a cache.
    ///
    /// # Errors
    /// `--state` was not given, and neither XDG_STATE_HOME nor HOME is set.
    pub fn state(&self) -> Result<PathBuf> {
        if let Some(folder) = &self.state {
            return Ok(std::path::absolute(folder)?);
        }
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let base = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
        match base {
            Some(base) => Ok(base.join("wave32/probe")),
            None => bail!("neither XDG_STATE_HOME nor HOME is set: name a folder with --state"),
        }
    }

    /// The words of a command line that say the same, for a shell.
    pub fn words(&self) -> String {
        let word = |name: &str, path: &Option<PathBuf>| {
            let path = path.as_ref().map(|path| Dialect::Sh.quoted(&path.display().to_string()));
            path.map_or(String::new(), |path| format!(" --{name} {path}"))
        };
        word("library", &self.library) + &word("state", &self.state)
    }
}

/// What is preloaded, without our libMIOpen: its functions would be found before the vendor's.
fn preload() -> Option<OsString> {
    let list = std::env::var("LD_PRELOAD").ok()?;
    let ours = |path: &&str| own::at(Path::new(path)).is_some_and(|own| own.name == "libMIOpen");
    let others: Vec<&str> = list.split([':', ' ']).filter(|path| !path.is_empty() && !ours(path)).collect();
    (!others.is_empty()).then(|| others.join(":").into())
}

/// Guarded children that open a library, with the limits that hold where none are asked for.
///
/// # Errors
/// The system does not tell the path of this program.
pub fn children(library: &str, device: i32) -> Result<Children> {
    let program = std::env::current_exe().context("cannot find this program to start the guarded child")?;
    Ok(Children {
        launcher: Launcher {
            program,
            args: vec!["__probe-child".into()],
            env: vec![("LD_PRELOAD".into(), preload())],
        },
        limits: Limits {
            deadline: STARTUP,
            startup: STARTUP,
            memory_cap: available_bytes().map_or(u64::MAX, |bytes| bytes / 5 * 4),
        },
        find_deadline: STARTUP,
        library: library.into(),
        device,
    })
}

/// What to say where MIOpen does not open.
pub fn missing(error: StartError, library: &Miopen) -> anyhow::Error {
    match error {
        error @ StartError::Spawn(_) => error.into(),
        StartError::Interrupted => anyhow::anyhow!("interrupted"),
        error => NoDevice(format!(
            "no MIOpen to probe: {error} (looked at {}: {}); install ROCm, name a library with --library, or go without: \
             wave32 needs no ROCm on Vulkan (`wave32 devices`)",
            library.path, library.why
        ))
        .into(),
    }
}
