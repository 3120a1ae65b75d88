//! Reports: on standard output, or in files that are either whole or not there.

use anyhow::Result;
use std::path::{Path, PathBuf};
use wave32_host::file;

pub use wave32_host::stream::{mutter, print, show, tell};

/// Finds out before the work that a file cannot be written after it.
///
/// # Errors
/// One line that names the file and says why it cannot be written.
pub fn writable(path: &Path) -> Result<()> {
    file::writable(path).map_err(|why| anyhow::anyhow!("cannot write {}: {why}", path.display()))
}

/// A file that could not be written after the work: exit code 1.
#[derive(Debug)]
pub struct LostFile {
    path: PathBuf,
    why: std::io::Error,
}

impl LostFile {
    /// This file, for that reason.
    pub fn new(path: &Path, why: std::io::Error) -> Self {
        Self { path: path.to_path_buf(), why }
    }
}

impl std::fmt::Display for LostFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot write {}", self.path.display())
    }
}

impl std::error::Error for LostFile {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.why)
    }
}

/// Writes a file whole. Devices and pipes are written directly; a link is replaced.
///
/// # Errors
/// [`LostFile`]: the disk is full, or its folder is gone.
pub fn save(path: &Path, text: &str) -> Result<()> {
    Ok(file::save(path, text.as_bytes()).map_err(|why| LostFile::new(path, why))?)
}

/// True for `-`.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}
