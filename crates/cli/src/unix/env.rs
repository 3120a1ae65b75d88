//! `wave32 env`: the environment that this card, stack and route need.

use crate::ending::NoDevice;
use crate::output::{print, tell};
use anyhow::{Context, Result, anyhow};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use wave32_change::Root;
use wave32_doctor::situation;
use wave32_doctor::system::System;
use wave32_profile::{self as profile, Dialect, Profile, RocmVersion, Route};

/// What is to be known about the machine; what is not said is looked up.
#[derive(Debug, clap::Args)]
pub struct Machine {
    /// rocm, vulkan or cpu [default: rocm where PyTorch is known to have this card's code, else vulkan]
    #[arg(long, value_parser = route)]
    route: Option<Route>,
    /// The cards' targets in ROCm's order, separated by commas, e.g. gfx1010 [default: as the kernel lists them]
    #[arg(long, value_delimiter = ',', value_name = "GFX", value_parser = target)]
    card: Vec<String>,
    /// Version of the ROCm whose MIOpen PyTorch loads, e.g. 5.7 [default: as found]
    #[arg(long, value_name = "VERSION")]
    rocm: Option<RocmVersion>,
    /// What torch.cuda.get_arch_list() says, separated by commas [default: as found in its files]
    #[arg(long, value_delimiter = ',', value_name = "GFX", value_parser = target)]
    code_objects: Option<Vec<String>>,
    /// The card's number in `wave32 devices` [default: the best one]
    #[arg(long, value_name = "N")]
    vulkan_device: Option<u32>,
    /// Last resort: let the card pose as another one where PyTorch has no code for it
    #[arg(long)]
    allow_spoof: bool,
    /// Take DIR for /
    #[arg(long, default_value = "/", value_name = "DIR")]
    root: PathBuf,
}

/// Prints the variables of a route, each with its reason: eval "$(wave32 env)".
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    machine: Machine,
    /// In the words of sh, bash, zsh, fish, csh, tcsh or systemd [default: those of $SHELL]
    #[arg(long, value_parser = dialect)]
    shell: Option<Dialect>,
    /// As JSON
    #[arg(long, conflicts_with = "shell")]
    json: bool,
}

/// Reads `rocm`, `vulkan` or `cpu`.
///
/// # Errors
/// The name is no route.
pub fn route(text: &str) -> Result<Route, String> {
    let found = Route::ALL.into_iter().find(|route| route.name() == text);
    found.ok_or_else(|| "must be rocm, vulkan or cpu".into())
}

/// Reads `gfx1010`, `gfx90a:xnack-`, `gfx10-1-generic`.
fn target(text: &str) -> Result<String, String> {
    let rest = text.trim().strip_prefix("gfx").unwrap_or_default();
    let known = |c: char| c.is_ascii_alphanumeric() || ":+-".contains(c);
    match rest.starts_with(|c: char| c.is_ascii_digit()) && rest.chars().all(known) {
        true => Ok(text.trim().into()),
        false => Err("must be a target like gfx1010".into()),
    }
}

fn dialect(text: &str) -> Result<Dialect, String> {
    Dialect::of_shell(text).ok_or_else(|| "must be sh, bash, zsh, fish, csh, tcsh or systemd".into())
}

/// The name of the user's shell.
pub fn users_shell() -> Option<String> {
    let shell = std::env::var_os("SHELL")?;
    Some(Path::new(&shell).file_name()?.to_str()?.into())
}

impl Machine {
    /// The folder taken for `/`.
    ///
    /// # Errors
    /// `--root` is not a directory.
    pub fn root(&self) -> Result<Root> {
        let root = Root::new(&self.root);
        root.with_context(|| format!("--root {} is no folder that can be read", self.root.display()))
    }

    /// The environment to have here.
    ///
    /// # Errors
    /// The route does not work on this machine.
    pub fn profile(&self) -> Result<Profile> {
        let mut situation = situation::of(&System::at(&self.root)?);
        if !self.card.is_empty() {
            situation.cards.clone_from(&self.card);
        }
        if self.rocm.is_some() {
            (situation.rocm, situation.system) = (self.rocm, None);
        }
        situation.vulkan_device = self.vulkan_device;
        if let Some(list) = &self.code_objects {
            situation.code_objects = Some(list.iter().cloned().collect::<BTreeSet<_>>());
        }
        let route = self.route.or_else(|| profile::best_route(&situation)).ok_or_else(|| {
            NoDevice("no AMD card was seen; name it (--card gfx1010), or choose --route vulkan or cpu".into())
        })?;
        let profile = profile::profile(&situation, route, self.allow_spoof)?;
        for warning in &profile.warnings {
            tell(&format!("warning: {warning}"));
        }
        Ok(profile)
    }
}

/// Runs `wave32 env`.
///
/// # Errors
/// The route does not work on this machine.
pub fn main(args: &Args) -> Result<ExitCode> {
    let shell = match (args.shell, users_shell()) {
        (Some(dialect), _) => dialect,
        (None, Some(name)) if !args.json => Dialect::of_shell(&name)
            .ok_or_else(|| anyhow!("what $SHELL ({name}) understands is not known; choose: --shell sh"))?,
        _ => Dialect::Sh,
    };
    let profile = args.machine.profile()?;
    if args.json {
        print(&(serde_json::to_string_pretty(&profile)? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = match shell {
        // csh's backquotes make one line of it all: comments would swallow the rest.
        Dialect::Csh => shell.commands(&profile.settings),
        _ => format!("# {}: {}\n{}", profile.route.name(), profile.title, shell.settings(&profile.settings)),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}
