//! What `wave32 probe` found of MIOpen on this machine.

use crate::signals;
use crate::unix::vendor::{Vendor, children, missing};
use anyhow::Result;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use wave32_doctor::miopen::Miopen;
use wave32_probe::campaign::{ProbeShape, identify};
use wave32_probe::known::{Known, Store};
use wave32_probe::protocol::Identity;
use wave32_probe::standing::Standing;
use wave32_probe::superseded::TABLES;
use wave32_problem::ConvProblem;
use wave32_profile::Dialect;

/// The table for the MIOpen and the card that are here.
pub struct Probed {
    known: Known,
    library: Miopen,
    file: PathBuf,
    words: String,
}

/// What the report says of it.
#[derive(Debug, Serialize)]
pub struct Source {
    /// The card and MIOpen, as they are now.
    pub identity: Identity,
    /// Why this MIOpen.
    pub why: String,
    /// The table's file.
    pub table: PathBuf,
    /// False where there is no such table yet.
    pub probed: bool,
    /// The command that probes what was not; none where all was.
    pub probe: Option<String>,
}

impl Probed {
    /// Opens MIOpen in a guarded child, to know what it is, and reads the table for that.
    ///
    /// # Errors
    /// MIOpen does not open, or the table is not valid.
    pub fn open(vendor: &Vendor, device: i32) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        signals::watch(&stop)?;
        let (library, _) = vendor.libraries()?;
        let identity =
            identify(&children(&library.path, device)?, &stop).map_err(|error| missing(error, &library))?;
        let store = Store::new(&vendor.state()?.join(TABLES), &identity);
        let known = Known { identity, ..store.read()? };
        let number = if device == 0 { String::new() } else { format!(" --device {device}") };
        Ok(Self { known, library, file: store.path().to_path_buf(), words: vendor.words() + &number })
    }

    /// The card and MIOpen.
    pub fn identity(&self) -> &Identity {
        &self.known.identity
    }

    /// How a problem stands, and its line if it is still to be probed, or to its end.
    pub fn standing(&self, problem: &ConvProblem) -> (Option<Standing>, Option<String>) {
        let Some(shape) = ProbeShape::new("", problem) else { return (None, None) };
        let standing = self.known.standing(&shape.line);
        let whole = standing.as_ref().is_some_and(|standing| standing.choice.is_some());
        (standing, (!whole).then_some(shape.line))
    }

    /// Where this is from, with the command that probes these lines.
    pub fn source(self, lines: &[String]) -> Source {
        let words: Vec<String> =
            lines.iter().map(|line| format!(" \\\n    {}", Dialect::Sh.quoted(line))).collect();
        let command = || format!("wave32 probe{}{}", self.words, words.concat());
        let probe = (!lines.is_empty()).then(command);
        Source {
            probed: !self.known.rows.is_empty(),
            identity: self.known.identity,
            why: self.library.why,
            table: self.file,
            probe,
        }
    }
}
