//! Where an environment is kept, so that it is there the next time.

mod block;
mod venv;

use crate::{ChangeError, Draft, Root};
use block::with_block;
use std::path::{Path, PathBuf};
use wave32_profile::{Dialect, Setting};

/// The folders of a user, inside the root.
#[derive(Debug, Clone)]
pub struct Homes {
    /// `$HOME`.
    pub home: PathBuf,
    /// `$XDG_CONFIG_HOME`, or `~/.config`.
    pub config: PathBuf,
    /// `$ZDOTDIR`, or the home.
    pub zdot: PathBuf,
}

/// Something that reads settings when it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartupFile {
    /// Interactive and login bash.
    Bash,
    /// Every zsh.
    Zsh,
    /// Login shells of the POSIX kind.
    Posix,
    /// Every fish.
    Fish,
    /// csh and tcsh.
    Csh,
    /// What the user's systemd starts, desktops among it.
    Systemd,
    /// A conda environment.
    Conda(PathBuf),
    /// A virtual environment of Python.
    Venv(PathBuf),
    /// Every user's login shell and systemd; needs root.
    System,
}

/// Plans what `place` needs.
///
/// # Errors
/// A place that is not what it is said to be, files that cannot be read or were edited in our own lines.
pub fn add(
    draft: &mut Draft<'_>,
    root: &Root,
    place: &StartupFile,
    homes: &Homes,
    settings: &[Setting],
) -> Result<(), ChangeError> {
    let sh = Dialect::Sh.settings(settings);
    match place {
        StartupFile::Bash => {
            // A login bash reads the first of these only.
            let login = [".bash_profile", ".bash_login", ".profile"].map(|name| homes.home.join(name));
            let mut first = None;
            for path in &login {
                if first.is_none() && there(root, path)? {
                    first = Some(path);
                }
            }
            let login = first.unwrap_or(&login[2]);
            block(draft, &homes.home.join(".bashrc"), &sh)?;
            block(draft, login, &sh)
        }
        StartupFile::Zsh => {
            // The first is read by every zsh, the second last by those that a user types into.
            block(draft, &homes.zdot.join(".zshenv"), &sh)?;
            block(draft, &homes.zdot.join(".zshrc"), &sh)
        }
        StartupFile::Posix => block(draft, &homes.home.join(".profile"), &sh),
        StartupFile::Csh => {
            let tcshrc = homes.home.join(".tcshrc");
            // tcsh reads this instead of .cshrc.
            let theirs = there(root, &tcshrc)?;
            let path = if theirs { tcshrc } else { homes.home.join(".cshrc") };
            block(draft, &path, &Dialect::Csh.settings(settings))
        }
        StartupFile::Fish => {
            let path = homes.config.join("fish/conf.d/wave32.fish");
            whole(draft, &path, &Dialect::Fish.settings(settings))
        }
        StartupFile::Systemd => {
            let path = homes.config.join("environment.d/90-wave32.conf");
            whole(draft, &path, &Dialect::Systemd.settings(settings))
        }
        StartupFile::System => {
            whole(draft, Path::new("/etc/profile.d/wave32.sh"), &sh)?;
            let path = Path::new("/etc/environment.d/90-wave32.conf");
            whole(draft, path, &Dialect::Systemd.settings(settings))
        }
        StartupFile::Conda(prefix) => {
            let meta = prefix.join("conda-meta");
            if !root.is_dir(&meta).map_err(ChangeError::io("look at", &meta))? {
                let why = "is no conda environment (it has no conda-meta)".into();
                let next = "give its folder: --to conda=FOLDER, as `conda env list` shows it".into();
                return Err(ChangeError::Refused { path: prefix.clone(), why, next });
            }
            for dialect in [Dialect::Sh, Dialect::Fish, Dialect::Csh] {
                let file = format!("wave32.{}", dialect.name());
                let etc = prefix.join("etc/conda");
                whole(draft, &etc.join("activate.d").join(&file), &dialect.activate(settings))?;
                whole(draft, &etc.join("deactivate.d").join(&file), &dialect.restore(settings))?;
            }
            Ok(())
        }
        StartupFile::Venv(folder) => venv::add(draft, root, folder, settings),
    }
}

fn there(root: &Root, path: &Path) -> Result<bool, ChangeError> {
    root.is_there(path).map_err(ChangeError::io("look at", path))
}

/// A file that is ours alone.
fn whole(draft: &mut Draft<'_>, path: &Path, body: &str) -> Result<(), ChangeError> {
    let text = format!("# Written by `wave32 apply`; `wave32 undo` takes it away.\n{body}");
    draft.edit(path, 0o644, |_| Ok(text.into_bytes()))
}

/// Our lines in a file of the user's; at its end, so that they win.
fn block(draft: &mut Draft<'_>, path: &Path, body: &str) -> Result<(), ChangeError> {
    draft.edit(path, 0o644, |old| {
        let old = old.unwrap_or_default();
        with_block(path, old, "", body, old.len())
    })
}
