//! What ran, as JSON, written when the process ends or a kernel fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use wave32_exec::{Class, Counts};
use wave32_model::Totals;

use crate::settings::Settings;

/// Collects; empty and without cost unless a file was asked for.
#[derive(Debug)]
pub struct Report {
    file: Option<PathBuf>,
    /// Where the launcher finds what this process did.
    folder: Option<PathBuf>,
    content: Mutex<Content>,
}

#[derive(Debug, Clone, Serialize)]
struct Content {
    /// So that nobody takes the figures for those of hardware.
    note: &'static str,
    process: u32,
    card: String,
    name: String,
    target: &'static str,
    strict: bool,
    kernels: BTreeMap<String, Kernel>,
    operations: BTreeSet<&'static str>,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    content: &'a Content,
    /// What the render node still has: buffers, bytes and so on.
    left: &'a BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    modelled: Option<&'a Totals>,
}

/// What the launcher tells at the end.
#[derive(Serialize)]
struct Outcome<'a> {
    modelled: Option<&'a Totals>,
    findings: &'a [Finding],
}

#[derive(Debug, Clone, Default, Serialize)]
struct Kernel {
    dispatches: u64,
    workgroups: u64,
    waves: u64,
    instructions: u64,
    /// Wave instructions and active lanes by class.
    classes: BTreeMap<&'static str, [u64; 2]>,
}

/// Why a kernel was stopped.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The kernel.
    pub kernel: String,
    /// Which kind: `memory_fault`, `strict` and so on.
    pub kind: &'static str,
    /// As on stderr.
    pub message: String,
}

impl Report {
    /// As asked for. Processes that the launched one starts write files of their own.
    pub fn new(settings: &Settings) -> Self {
        let process = std::process::id();
        // With a folder, the launcher stays the program's parent; else it became the program.
        let started = if settings.folder.is_some() { std::os::unix::process::parent_id() } else { process };
        let main = std::env::var("WAVE32_VGPU_MAIN").ok().and_then(|pid| pid.parse::<u32>().ok());
        let file = settings.report.clone().map(|file| match main {
            Some(main) if main != started => {
                let mut name = file.into_os_string();
                name.push(format!(".{process}"));
                PathBuf::from(name)
            }
            _ => file,
        });
        let card = settings.card;
        Self {
            file,
            folder: settings.folder.clone(),
            content: Mutex::new(Content {
                note: "a virtual card: what was executed, not a measurement of hardware",
                process,
                card: card.board.id(),
                name: card.board.full_name(),
                target: card.target.name,
                strict: settings.strict,
                kernels: BTreeMap::new(),
                operations: BTreeSet::new(),
                findings: Vec::new(),
            }),
        }
    }

    /// Whether anybody will read what [`Report::write`] writes: the file, or the launcher what it tells at the end.
    pub fn is_read(&self) -> bool {
        self.file.is_some() || self.folder.is_some()
    }

    /// Whether counts are to be collected, for the file.
    pub fn wanted(&self) -> bool {
        self.file.is_some()
    }

    /// A kernel that ended.
    pub fn ran(&self, kernel: String, ran: &wave32_exec::Report) {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        content.operations.extend(ran.coverage.iter().map(|op| op.name()));
        let row = content.kernels.entry(kernel).or_default();
        row.dispatches += 1;
        row.workgroups += ran.workgroups;
        row.waves += ran.waves;
        row.instructions += ran.instructions;
        for (name, count) in classes(&ran.counts) {
            let sum = row.classes.entry(name).or_default();
            sum[0] += count[0];
            sum[1] += count[1];
        }
    }

    /// A kernel that was stopped.
    pub fn stopped(&self, finding: Finding) {
        self.content.lock().unwrap_or_else(PoisonError::into_inner).findings.push(finding);
    }

    /// Writes the file; with what was modelled, where that was asked for, and what the render node still has.
    pub fn write(&self, modelled: Option<&Totals>, left: &BTreeMap<&'static str, u64>) {
        let content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = &self.folder {
            leave(folder, &Outcome { modelled, findings: &content.findings });
        }
        let Some(file) = &self.file else { return };
        let text = serde_json::to_string_pretty(&Whole { content: &content, left, modelled })
            .map_err(std::io::Error::from);
        if let Err(error) = text.and_then(|text| std::fs::write(file, text + "\n")) {
            log!("the report {} could not be written: {error}", file.display());
        }
    }
}

/// Whole or not at all.
fn leave(folder: &Path, outcome: &Outcome<'_>) {
    let [part, whole] =
        ["part", "json"].map(|ending| folder.join(format!("{}.{ending}", std::process::id())));
    let text = serde_json::to_vec(outcome).map_err(std::io::Error::from);
    let written = text.and_then(|text| std::fs::write(&part, text));
    if let Err(error) = written.and_then(|()| std::fs::rename(&part, &whole)) {
        log!("{} could not be written: {error}", whole.display());
    }
}

fn classes(counts: &Counts) -> impl Iterator<Item = (&'static str, [u64; 2])> + '_ {
    Class::ALL.into_iter().map(|class| {
        let name = match class {
            Class::Valu => "valu",
            Class::Transcendental => "transcendental",
            Class::Double => "double",
            Class::Salu => "salu",
            Class::Smem => "smem",
            Class::Vmem => "vmem",
            Class::Lds => "lds",
            Class::Branch => "branch",
            Class::Control => "control",
        };
        (name, [counts[class].instructions, counts[class].lanes])
    })
}
