//! `wave32 demo`: the training of `python -m wave32.demo`, by the Python that has wave32.

use crate::output::tell;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Trains a small CNN with PyTorch on the best Vulkan device and on the CPU, and compares: a few minutes at most.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Options of the demo; --help tells them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
    options: Vec<OsString>,
}

/// Becomes Python. Comes back only where there is none with wave32.
///
/// # Errors
/// Python cannot be started.
pub fn main(args: &Args) -> Result<ExitCode> {
    let Some(python) = candidates().into_iter().find(|python| has_wave32(python)) else {
        tell(
            "error: no Python here has wave32: install the wheel into one with PyTorch (pip install wave32-*.whl), or name it in WAVE32_PYTHON",
        );
        return Ok(ExitCode::from(2));
    };
    let why = Command::new(&python).args(["-m", "wave32.demo"]).args(&args.options).exec();
    Err(why).with_context(|| format!("cannot start {}", python.display()))
}

/// The one that is named; else that beside this program (pip puts both into one folder), then the path's.
fn candidates() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os("WAVE32_PYTHON").filter(|name| !name.is_empty()) {
        return vec![named.into()];
    }
    let program = std::env::current_exe().and_then(|path| path.canonicalize()).ok();
    let beside = program.as_deref().and_then(Path::parent).map(|folder| folder.join("python3"));
    beside.into_iter().filter(|path| path.exists()).chain([PathBuf::from("python3")]).collect()
}

fn has_wave32(python: &Path) -> bool {
    let look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('wave32') is None)";
    let quiet = Command::new(python).args(["-c", look]).stdin(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}
