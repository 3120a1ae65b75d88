//! `wave32 apply`: the environment of `wave32 env`, kept.

use crate::unix::consent::{Consent, Outcome};
use crate::unix::env::{Machine, users_shell};
use anyhow::{Context, Result, anyhow, bail};
use std::path::PathBuf;
use std::process::ExitCode;
use wave32_change::startup::{self, Homes, StartupFile};
use wave32_change::{Draft, Root, Store};

/// Writes the variables of `wave32 env` to where they are read the next time: shows the diff, asks, keeps what was
/// there. `wave32 undo` takes it back.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    machine: Machine,
    /// bash, zsh, posix, fish, csh, systemd, conda[=FOLDER], venv[=FOLDER], separated by commas [default: the active
    /// venv or conda environment, else your shell]
    #[arg(long, value_delimiter = ',', value_name = "PLACE", conflicts_with = "system")]
    to: Vec<String>,
    /// For every user: /etc/profile.d and /etc/environment.d (needs root)
    #[arg(long)]
    system: bool,
    #[command(flatten)]
    consent: Consent,
}

/// A folder that the environment names; nothing if it does not.
fn folder(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn home() -> Result<PathBuf> {
    folder("HOME").context("$HOME names no folder; set it to yours")
}

/// Where changes are remembered: of this user, or of the system. What is in a user's home root changes with that user's
/// rights.
///
/// # Errors
/// The user has no home directory.
pub fn store(root: Root, system: bool) -> Result<Store> {
    if system {
        return Ok(Store::new(root, "/var/lib/wave32/changes"));
    }
    let state = folder("XDG_STATE_HOME").map_or_else(|| Ok(home()?.join(".local/state")), anyhow::Ok)?;
    let store = Store::new(root, state.join("wave32/changes"));
    Ok(match folder("HOME") {
        Some(home) => store.of(home),
        None => store,
    })
}

/// One word of `--to`.
fn place(text: &str) -> Result<StartupFile> {
    let (name, given) = text.split_once('=').map_or((text, None), |(name, path)| (name, Some(path)));
    let environment = |active: &str| -> Result<PathBuf> {
        match given {
            Some(path) => Ok(std::path::absolute(path)?),
            None => folder(active)
                .ok_or_else(|| anyhow!("no {name} is active; name its folder: --to {name}=FOLDER")),
        }
    };
    Ok(match name {
        "conda" => StartupFile::Conda(environment("CONDA_PREFIX")?),
        "venv" => StartupFile::Venv(environment("VIRTUAL_ENV")?),
        _ if given.is_some() => bail!("--to {text}: only conda and venv take a folder"),
        "bash" => StartupFile::Bash,
        "zsh" => StartupFile::Zsh,
        "posix" | "sh" | "dash" | "ksh" => StartupFile::Posix,
        "fish" => StartupFile::Fish,
        "csh" | "tcsh" => StartupFile::Csh,
        "systemd" => StartupFile::Systemd,
        _ => {
            let known = "bash, zsh, posix, fish, csh, systemd, conda[=FOLDER] or venv[=FOLDER]";
            bail!("--to {text}: must be {known}");
        }
    })
}

impl Args {
    fn places(&self) -> Result<Vec<StartupFile>> {
        if self.system {
            return Ok(vec![StartupFile::System]);
        }
        if !self.to.is_empty() {
            return self.to.iter().map(|text| place(text)).collect();
        }
        if let Some(venv) = folder("VIRTUAL_ENV") {
            return Ok(vec![StartupFile::Venv(venv)]);
        }
        if let Some(conda) = folder("CONDA_PREFIX") {
            return Ok(vec![StartupFile::Conda(conda)]);
        }
        match users_shell() {
            Some(shell) => {
                let known = place(&shell);
                let why = || format!("which files $SHELL ({shell}) reads is not known; choose: --to posix");
                Ok(vec![known.map_err(|_| anyhow!(why()))?])
            }
            None => Ok(vec![StartupFile::Posix]),
        }
    }
}

/// Runs `wave32 apply`.
///
/// # Errors
/// Wrong use, no such route, a change that could not be made (and was taken back).
pub fn main(args: &Args) -> Result<ExitCode> {
    let places = args.places()?;
    let profile = args.machine.profile()?;
    let home = if args.system { PathBuf::from("/") } else { home()? };
    let homes = Homes {
        config: folder("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
        zdot: folder("ZDOTDIR").unwrap_or_else(|| home.clone()),
        home,
    };
    let store = store(args.machine.root()?, args.system)?;
    let outcome = args.consent.carry_out(&store, false, |session| {
        let root = session.store().root();
        let mut draft =
            Draft::new(root, format!("environment for {}: {}", profile.route.name(), profile.title));
        for place in &places {
            startup::add(&mut draft, root, place, &homes, &profile.settings)?;
        }
        Ok(draft.finish())
    })?;
    match outcome {
        Outcome::Nothing => args.consent.say("nothing to do: all of it is there already")?,
        Outcome::Declined => args.consent.say("nothing was changed")?,
        Outcome::Done(id) => {
            args.consent.say(&format!(
                "done (change {id}): it holds wherever these files are read anew; `wave32 undo` takes it back"
            ))?;
        }
    }
    Ok(outcome.code())
}
