//! What a rule is and what it finds: how bad it is, on which routes it bears, how it is put right.

use crate::facts::Facts;
use serde::Serialize;
use wave32_profile::Route;

/// How bad, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The parts are there, and the route cannot work.
    Broken,
    /// It hangs, crashes or computes wrongly, at some time.
    Harmful,
    /// A part of the route is not there.
    Absent,
    /// It wastes time or memory.
    Costly,
    /// It does nothing, and looks as if it did.
    Idle,
    /// Good to know.
    Note,
}

impl Severity {
    /// True for what a user should put right: what is absent or good to know is not wrong.
    pub fn is_wrong(self) -> bool {
        !matches!(self, Self::Absent | Self::Note)
    }

    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Harmful => "harmful",
            Self::Absent => "absent",
            Self::Costly => "costly",
            Self::Idle => "does nothing",
            Self::Note => "note",
        }
    }
}

/// How it is put right, as data that a plan of changes can be made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Fix {
    /// Take a variable out of the files that set it, and out of the running shell.
    UnsetVariable {
        /// Name.
        name: String,
        /// Files and lines, from 1.
        places: Vec<FileLine>,
        /// True if it is set in this process.
        now: bool,
    },
    /// Remove a file or folder that an earlier attempt left.
    RemoveLeftover {
        /// Path inside the root.
        path: String,
    },
    /// Put what belongs to a package back: files are moved away, then commands are run, of which each is a program and words
    /// (as root, by `doctor --fix --system`).
    Restore {
        /// What for.
        text: String,
        /// Paths inside the root.
        files: Vec<String>,
        /// One command each.
        commands: Vec<String>,
    },
    /// Commands for the user to read and run.
    Run {
        /// What for.
        text: String,
        /// One command each.
        commands: Vec<String>,
    },
    /// Something to do by hand, or nothing.
    Text {
        /// What.
        text: String,
    },
}

impl Fix {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    pub(crate) fn run(text: impl Into<String>, commands: &[&str]) -> Self {
        Self::Run { text: text.into(), commands: commands.iter().map(|c| c.to_string()).collect() }
    }
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileLine {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// The whole line as it was read, so that another one is never taken out.
    pub text: String,
    /// Whether the line does nothing else: one that does is for the user to edit.
    pub alone: bool,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What is wrong, with names and values of this machine.
    pub what: String,
    /// Where that was seen.
    pub evidence: Vec<String>,
    /// How it is put right.
    pub fix: Fix,
}

/// A row of the table.
#[derive(Debug)]
pub struct Rule {
    /// Stable name.
    pub id: &'static str,
    /// How bad.
    pub severity: Severity,
    /// Routes it bears on.
    pub routes: &'static [Route],
    /// What it means, in a sentence or two.
    pub meaning: &'static str,
    /// Where that is known from.
    pub source: &'static str,
    /// Looks for it.
    pub check: fn(&Facts) -> Vec<Found>,
}

/// A rule that applies here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule's name.
    pub rule: &'static str,
    /// How bad.
    pub severity: Severity,
    /// Routes it bears on.
    pub routes: Vec<Route>,
    /// What is wrong.
    pub what: String,
    /// Where that was seen.
    pub evidence: Vec<String>,
    /// What it means.
    pub meaning: &'static str,
    /// Where that is known from.
    pub source: &'static str,
    /// How it is put right.
    pub fix: Fix,
}
