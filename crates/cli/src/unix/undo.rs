//! `wave32 undo`: what `wave32 apply` and `wave32 doctor --fix` changed, as it was.

use crate::output::{print, show};
use crate::unix::apply::store;
use crate::unix::consent::{Consent, Outcome};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use wave32_change::{Made, Root};
use wave32_doctor::restore;

/// Takes changes back, to the byte; what you edited since stays. Without a number: the last one.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The change's number
    #[arg(value_name = "N")]
    id: Option<u64>,
    /// Every change, the last one first
    #[arg(long, conflicts_with = "id")]
    all: bool,
    /// Only show the changes
    #[arg(long, conflicts_with_all = ["id", "all"])]
    list: bool,
    /// Restore even lines that you edited since; your version is kept beside as FILE.yours-1
    #[arg(long)]
    force: bool,
    /// Changes made with --system (needs root)
    #[arg(long)]
    system: bool,
    /// Take DIR for /
    #[arg(long, default_value = "/", value_name = "DIR")]
    root: PathBuf,
    #[command(flatten)]
    consent: Consent,
}

/// Runs `wave32 undo`.
///
/// # Errors
/// No such change; a file that cannot be restored (then nothing is changed).
pub fn main(args: &Args) -> Result<ExitCode> {
    let root = Root::new(&args.root)
        .with_context(|| format!("--root {} is no folder that can be read", args.root.display()))?;
    let store = store(root, args.system)?;
    if args.list {
        return list(args, &store.history()?);
    }
    if store.interrupted()?.is_some() {
        let session = args.consent.lock(&store, args.force)?;
        // What was cut short is undone now: that was the last change. An undo that was cut short goes on below.
        if session.recovered().iter().any(|manifest| manifest.undoes.is_none())
            && !args.all
            && args.id.is_none()
        {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let history = store.history()?;
    let there: Vec<u64> = history.iter().filter(|made| !made.undone).map(|made| made.id).collect();
    let ids: Vec<u64> = match (args.id, args.all) {
        (Some(id), _) => vec![id],
        (None, true) => there.iter().rev().copied().collect(),
        (None, false) => there.last().copied().into_iter().collect(),
    };
    if ids.is_empty() {
        args.consent.say("nothing to undo")?;
    }
    for id in ids {
        let outcome = args.consent.carry_out(&store, args.force, |session| session.plan_undo(id))?;
        match outcome {
            Outcome::Nothing => args.consent.say(&format!("nothing to do: change {id} is undone already"))?,
            Outcome::Done(_) => {
                args.consent.say(&format!("change {id} is undone"))?;
                let made = history.iter().find(|made| made.id == id);
                remains(args, made.map_or(&[][..], |made| &made.then))?;
            }
            Outcome::Declined => {
                args.consent.say("nothing was changed")?;
                return Ok(outcome.code());
            }
        }
    }
    let left = store.history()?.iter().filter(|made| !made.undone).count();
    if left > 0 {
        args.consent
            .say(&format!("earlier changes that remain: {left} (`wave32 undo --list` shows them)"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What the commands of a change did is not taken back by undoing its files.
fn remains(args: &Args, then: &[String]) -> Result<()> {
    let (again, done): (Vec<&String>, Vec<&String>) =
        then.iter().partition(|command| restore::is_index(command));
    for command in done {
        args.consent.say(&format!("what this command did remains: {command}"))?;
    }
    for command in again {
        args.consent.say(&format!("run it again, as root, now that the files are back: {command}"))?;
    }
    Ok(())
}

fn list(args: &Args, history: &[Made]) -> Result<ExitCode> {
    if args.consent.json() {
        print(&(serde_json::to_string_pretty(history)? + "\n"))?;
    } else if history.is_empty() {
        show("no changes\n")?;
    } else {
        for Made { id, title, undone, created, .. } in history {
            let undone = if *undone { "  (undone)" } else { "" };
            show(&format!("{id:>4}  {:<16}  {title}{undone}\n", ago(*created)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How long ago a time (in seconds since 1970) was.
fn ago(then: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    match now.saturating_sub(then) / 60 {
        0..2 => "just now".into(),
        minutes @ 2..120 => format!("{minutes} minutes ago"),
        minutes @ 120..2880 => format!("{} hours ago", minutes / 60),
        minutes => format!("{} days ago", minutes / 1440),
    }
}
