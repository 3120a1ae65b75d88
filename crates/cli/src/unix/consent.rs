//! Changes to files: shown, asked about, carried out.

use crate::output::{mutter, print, show, tell};
use anyhow::{Result, bail};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;
use wave32_change::{ChangeError, ChangePlan, Manifest, Session, Step, Store};

/// How a command that changes files is run.
#[derive(Debug, clap::Args)]
pub struct Consent {
    /// Do it without asking
    #[arg(short, long)]
    yes: bool,
    /// Seconds to wait for another wave32 that is changing files
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=3600))]
    wait: u64,
    /// Write what is done as JSON
    #[arg(long)]
    json: bool,
}

/// What became of a plan.
pub enum Outcome {
    /// There was nothing to do.
    Nothing,
    /// The user said no.
    Declined,
    /// Done, under this number.
    Done(u64),
}

impl Outcome {
    /// The exit code of a command that ends like this.
    pub fn code(&self) -> ExitCode {
        match self {
            Self::Nothing | Self::Done(_) => ExitCode::SUCCESS,
            Self::Declined => ExitCode::from(1),
        }
    }
}

impl Consent {
    /// Keeps others out; tells what was found half done and has been taken back.
    ///
    /// # Errors
    /// See [`Store::lock`].
    pub fn lock<'s>(&self, store: &'s Store, force: bool) -> Result<Session<'s>, ChangeError> {
        let session = store.lock(Duration::from_secs(self.wait), force)?;
        for Manifest { title, .. } in session.recovered() {
            tell(&format!("note: a change that was cut short has been taken back: {title}"));
        }
        Ok(session)
    }

    /// Shows the plan of `make`, asks, and carries it out.
    ///
    /// # Errors
    /// Nobody can answer (no terminal); any error of the change.
    pub fn carry_out(
        &self,
        store: &Store,
        force: bool,
        make: impl Fn(&Session<'_>) -> Result<ChangePlan, ChangeError>,
    ) -> Result<Outcome> {
        let mut session = self.lock(store, force)?;
        let plan = make(&session)?;
        if plan.is_empty() {
            self.report(&plan, None)?;
            return Ok(Outcome::Nothing);
        }
        if !self.json {
            show(&plan.diff())?;
        }
        if !self.yes {
            somebody_to_ask("changed")?;
            // Nobody should have to wait for the user's answer.
            drop(session);
            if self.json {
                mutter(&plan.diff());
            }
            if !asked("Do this?")? {
                return Ok(Outcome::Declined);
            }
            session = self.lock(store, force)?;
            if make(&session)? != plan {
                return Err(ChangeError::Outdated.into());
            }
        }
        let id = session.apply(&plan)?;
        self.report(&plan, id)?;
        Ok(id.map_or(Outcome::Nothing, Outcome::Done))
    }

    /// Shows a plan that is not carried out.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn show(&self, plan: &ChangePlan) -> Result<()> {
        if !self.json {
            show(&plan.diff())?;
        }
        self.report(plan, None)
    }

    fn report(&self, plan: &ChangePlan, id: Option<u64>) -> Result<()> {
        if self.json {
            let steps: Vec<&Step> = plan.steps().collect();
            let report =
                serde_json::json!({ "change": id, "steps": steps, "then": plan.then(), "diff": plan.diff() });
            print(&(serde_json::to_string_pretty(&report)? + "\n"))?;
        }
        Ok(())
    }

    /// Is a report wanted?
    pub fn json(&self) -> bool {
        self.json
    }

    /// Says something that is no part of the report.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn say(&self, text: &str) -> Result<()> {
        if self.json {
            tell(text);
        } else {
            show(&format!("{text}\n"))?;
        }
        Ok(())
    }
}

/// Checks that somebody can answer the question whether something is to be `done`.
///
/// # Errors
/// Standard input is no terminal, so nobody can answer.
pub fn somebody_to_ask(done: &str) -> Result<()> {
    if !std::io::stdin().is_terminal() {
        let why = "standard input is no terminal, so there is nobody to ask";
        bail!("nothing was {done}: {why}; run it again with --yes");
    }
    Ok(())
}

/// Asks whether to do what was shown.
///
/// # Errors
/// Standard input cannot be read.
pub fn asked(question: &str) -> Result<bool> {
    mutter(&format!("{question} [y/N] "));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
