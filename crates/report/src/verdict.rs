//! What a report says as a whole, and reports read from files.

use crate::schema::{Check, Class, Device, Report, SCHEMA, State};
use std::path::Path;
use wave32_host::file;

/// A report in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overall {
    /// Everything that ran was right.
    Right,
    /// Something failed, hung or was lost.
    Wrong,
    /// Nothing failed, and not everything ran that says so.
    Partial,
}

/// A file that is no report.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The system refuses it.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// It is something else.
    #[error("{path} is no report of `wave32 report`: {source}")]
    Content {
        /// The file.
        path: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// It is of another version.
    #[error("{path} has schema {schema}, and this wave32 reads {SCHEMA}; use a wave32 of its time")]
    Version {
        /// The file.
        path: String,
        /// Its version.
        schema: u64,
    },
}

impl Report {
    /// The verdict and its line.
    pub fn verdict(&self) -> (Overall, String) {
        let [passed, failed, _] = self
            .checks
            .iter()
            .map(Check::counts)
            .fold([0; 3], |a, b| [a[0] + b[0], a[1] + b[1], a[2] + b[2]]);
        let broken = self.parts.iter().filter(|p| matches!(p.state, State::Hung | State::Failed)).count();
        if failed > 0 || broken > 0 {
            let parts = match (failed, broken) {
                (0, _) => String::new(),
                (n, _) => format!("{n} of {} problems failed; ", n + passed),
            };
            let first = self.parts.iter().find(|p| matches!(p.state, State::Hung | State::Failed));
            let first = first.map_or(String::new(), |p| {
                let note = p.note.as_deref().unwrap_or_default();
                format!("{} {}{}{note}", p.name, p.state.name(), if note.is_empty() { "" } else { ": " })
            });
            return (Overall::Wrong, format!("NOT ALL RIGHT: {parts}{first}"));
        }
        let on: Vec<&str> =
            self.checks.iter().filter(|c| c.counts()[0] > 0).map(|c| c.device.as_str()).collect();
        if passed == 0 || self.interrupted {
            let text = if self.interrupted { "STOPPED EARLY" } else { "NOTHING WAS PROVED" };
            return (Overall::Partial, format!("{text}: {passed} problems right, none wrong"));
        }
        (Overall::Right, format!("ALL RIGHT: {passed} problems on {}, none wrong", on.join(", ")))
    }

    /// The device that the report is about: the first GPU that can be used, else the first device.
    pub fn main_device(&self) -> Option<&Device> {
        let rank =
            |d: &&Device| (d.unusable.is_some(), d.class != Class::Card, d.class != Class::VirtualCard);
        self.devices.iter().min_by_key(rank)
    }

    /// The device of that name.
    pub fn device(&self, id: &str) -> Option<&Device> {
        self.devices.iter().find(|d| d.id == id)
    }

    /// Reads a file that `wave32 report` wrote.
    ///
    /// # Errors
    /// [`LoadError`], with the file's name.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let name = || path.display().to_string();
        let bytes =
            file::read(path, file::TABLE).map_err(|source| LoadError::File { path: name(), source })?;
        let content = |source| LoadError::Content { path: name(), source };
        let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(content)?;
        match value["schema"].as_u64() {
            Some(schema) if schema != u64::from(SCHEMA) => Err(LoadError::Version { path: name(), schema }),
            _ => serde_json::from_value(value).map_err(content),
        }
    }
}
