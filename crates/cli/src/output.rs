//! Reports: on standard output, or in files that are either whole or not there.

use anyhow::{Context, Result};
use std::path::Path;
use wave32_host::file;

pub use wave32_host::stream::{mutter, print, show, tell};

/// Finds out before the work that a file cannot be written after it.
///
/// # Errors
/// One line that names the file and says why it cannot be written.
pub fn writable(path: &Path) -> Result<()> {
    file::writable(path).map_err(|why| anyhow::anyhow!("cannot write {}: {why}", path.display()))
}

/// Writes a file whole. Devices and pipes are written directly; a link is replaced.
///
/// # Errors
/// One line that names the file: the disk is full, or its folder is gone.
pub fn save(path: &Path, text: &str) -> Result<()> {
    file::save(path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

/// True for `-`.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}
