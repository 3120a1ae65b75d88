//! Standard output that may end early (`| head`), and files that are either whole or not there.

use anyhow::{Context, Result};
use std::io::Write;
use std::path::Path;

/// Prints to standard output. A reader that left is not an error.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Finds out before the work that a file cannot be written after it.
///
/// # Errors
/// One line naming the file.
pub fn writable(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|f| !f.is_dir()) {
        anyhow::bail!("cannot write {}: {} is no folder; make it first", path.display(), folder.display());
    }
    if path.is_dir() {
        anyhow::bail!("cannot write {}: it is a folder; name a file", path.display());
    }
    let existed = path.exists();
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    file.with_context(|| format!("cannot write {}; choose another place", path.display()))?;
    if !existed {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Writes a file through a temporary one beside it, so that no reader sees half of it. Devices and
/// pipes are written directly.
///
/// # Errors
/// One line naming the file: disk full, folder gone.
pub fn save(path: &Path, text: &str) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    if path.exists() && !path.is_file() {
        return std::fs::write(path, text).with_context(context);
    }
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written.with_context(context)
}
