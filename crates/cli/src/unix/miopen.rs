//! `wave32 miopen`: our libMIOpen in the vendor's place, in a folder of libraries.

use crate::output::{print, show};
use crate::unix::apply::store;
use crate::unix::consent::{Consent, Outcome};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use wave32_change::drop_in::{self, MiopenFile};
use wave32_change::{ChangeError, ChangePlan, Draft, Root, Store};
use wave32_doctor::scan;
use wave32_doctor::system::System;
use wave32_host::own::{self, MIOPEN};

/// Puts wave32's libMIOpen.so.1 into a wheel's torch/lib or a library folder, and takes it out again, byte for byte.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Whose MIOpen programs load, by folder
    Status {
        /// This folder alone [default: the MIOpens that the doctor finds]
        #[arg(long, value_name = "DIR")]
        into: Option<PathBuf>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Puts it into a folder: shows what changes, asks, keeps the vendor's file beside
    Install(Install),
    /// Takes it out of a folder: the vendor's file is what it was
    Uninstall(Change),
}

#[derive(Debug, clap::Args)]
struct Install {
    #[command(flatten)]
    change: Change,
    /// The libMIOpen.so.1 of wave32 to put there [default: beside this program, ../lib/wave32, or where it was built]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Even where there is no MIOpen: for programs that need one and have none
    #[arg(long)]
    alone: bool,
}

#[derive(Debug, clap::Args)]
struct Change {
    /// The folder of libraries, e.g. .../site-packages/torch/lib or /opt/rocm/lib
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    consent: Consent,
}

impl Change {
    /// The folder, by its full name.
    fn folder(&self) -> Result<PathBuf> {
        folder(&self.into)
    }

    /// Shows, asks, does; what is said when it is done.
    fn carry_out(
        &self,
        into: &Path,
        make: impl Fn(&Store) -> Result<ChangePlan, ChangeError>,
        nothing: &str,
        done: &str,
    ) -> Result<ExitCode> {
        let root = Root::new(Path::new("/")).context("/ cannot be read")?;
        let own = store(root.clone(), false)?;
        // A folder of root's is changed by root, for everybody, even where sudo has kept a user's home.
        let store = if own.is_below(into)? { store(root, true)? } else { own };
        if self.dry_run {
            let plan = make(&store)?;
            self.consent.show(&plan)?;
            if plan.is_empty() {
                self.consent.say(nothing)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let outcome = self.consent.carry_out(&store, false, |session| make(session.store()))?;
        self.consent.say(match &outcome {
            Outcome::Nothing => nothing,
            Outcome::Declined => "nothing was changed",
            Outcome::Done(_) => done,
        })?;
        Ok(outcome.code())
    }
}

fn folder(named: &Path) -> Result<PathBuf> {
    let real = named
        .canonicalize()
        .with_context(|| format!("--into {} is no folder that can be read", named.display()))?;
    if !real.is_dir() {
        bail!("--into {} is no folder; name the one that holds libMIOpen.so.1", named.display());
    }
    Ok(real)
}

/// The file to install: one of ours, and whole.
fn library(named: Option<&Path>) -> Result<PathBuf> {
    let folders = own::folders();
    let Some(path) = named.map(Path::to_path_buf).or_else(|| own::find(&folders, MIOPEN)) else {
        let looked: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        bail!(
            "no libMIOpen.so.1 of wave32's in {}; `make rocm` builds it, --library FILE names it",
            looked.join(", ")
        );
    };
    match own::at(&path) {
        Some(own) if own.name == "libMIOpen" && own.whole => Ok(path.canonicalize()?),
        Some(own) if own.name == "libMIOpen" => {
            bail!("{} is damaged: it ends before its end; `make rocm` builds it anew", path.display())
        }
        _ => bail!("{} is not wave32's libMIOpen; --library names ours", path.display()),
    }
}

/// Runs `wave32 miopen`.
///
/// # Errors
/// Wrong use, a folder without a MIOpen, a change that could not be made (and was taken back).
pub fn main(args: &Args) -> Result<ExitCode> {
    match &args.action {
        Action::Status { into, json } => status(into.as_deref(), *json),
        Action::Install(Install { change, library: named, alone }) => {
            let (into, library) = (change.folder()?, library(named.as_deref())?);
            if library.parent() == Some(&into) {
                bail!(
                    "{} is where wave32's own copy lies; name the folder of ROCm's libraries",
                    into.display()
                );
            }
            let bytes =
                std::fs::read(&library).with_context(|| format!("cannot read {}", library.display()))?;
            let back =
                format!("done; `wave32 miopen uninstall --into {}` takes it out again", into.display());
            let make = |store: &Store| {
                let root = store.root();
                let mut draft = Draft::new(root, format!("wave32's libMIOpen into {}", into.display()));
                drop_in::install(&mut draft, root, &into, &bytes, *alone)?;
                Ok(draft.finish())
            };
            change.carry_out(&into, make, "nothing to do: it is there already", &back)
        }
        Action::Uninstall(change) => {
            let into = change.folder()?;
            if own::folders().contains(&into) {
                bail!(
                    "{} is where wave32's own copy lies, which is not installed into anything",
                    into.display()
                );
            }
            let make = |store: &Store| {
                let root = store.root();
                let mut draft = Draft::new(root, format!("wave32's libMIOpen out of {}", into.display()));
                drop_in::uninstall(&mut draft, root, &into, &store.put_away()?)?;
                Ok(draft.finish())
            };
            change.carry_out(
                &into,
                make,
                "nothing to do",
                "done; wave32's libMIOpen is out of the folder, and what had given way to it is back",
            )
        }
    }
}

fn status(into: Option<&Path>, json: bool) -> Result<ExitCode> {
    let root = Root::new(Path::new("/")).context("/ cannot be read")?;
    let folders: Vec<PathBuf> = match into {
        Some(named) => vec![folder(named)?],
        None => {
            let system = System::live();
            let facts = scan::stack(&system, &scan::Options::default());
            let miopens = facts.rocm.iter().filter_map(|rocm| Some(&rocm.library("miopen")?.path));
            miopens.filter_map(|path| Some(Path::new(path).parent()?.to_path_buf())).collect()
        }
    };
    let mut places: Vec<MiopenFile> = Vec::new();
    for folder in &folders {
        places.extend(drop_in::places(&root, folder)?);
    }
    if json {
        print(&(serde_json::to_string_pretty(&places)? + "\n"))?;
    } else if places.is_empty() {
        show("no MIOpen here\n")?;
    } else {
        show(&places.iter().map(line).collect::<String>())?;
    }
    let damaged = places.iter().any(|place| place.ours.as_ref().is_some_and(|own| !own.whole));
    Ok(if damaged { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn line(MiopenFile { path, ours, kept, missing }: &MiopenFile) -> String {
    let whose = match ours {
        Some(own) if own.whole => format!("wave32's {}", own.version),
        Some(own) => format!("wave32's {}, DAMAGED: uninstall and install it again", own.version),
        None if *missing => "gone, though the vendor's was kept: uninstall puts it back".into(),
        None => "the vendor's".into(),
    };
    let kept = match kept {
        Some(kept) if ours.is_some() || *missing => format!("; the vendor's is kept as {}", kept.display()),
        Some(kept) => format!("; put there since, so {} may be deleted", kept.display()),
        None if ours.is_some() => "; there was none before it".into(),
        None => String::new(),
    };
    format!("{}: {whose}{kept}\n", path.display())
}
