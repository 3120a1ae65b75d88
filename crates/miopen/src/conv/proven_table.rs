//! The probe's tables as they are read here: docs/probe.md has their format.

use crate::conv::rewriting::Rewriting;
use serde::Deserialize;
use std::collections::HashMap;
use std::ffi::c_int;
use std::path::Path;
use wave32_host::file;
use wave32_problem::ConvProblem;

/// The table's format that is read here.
const FORMAT: u32 = 1;

/// A solver of the vendor's for one problem.
#[derive(Debug, Clone, PartialEq)]
pub struct Proven {
    /// `solution_id` of Immediate mode.
    pub id: u64,
    /// Its name.
    pub solver: String,
    /// `miopenConvAlgorithm_t`.
    pub algorithm: c_int,
    /// Measured on this card.
    pub milliseconds: f64,
    /// What it was given when it was proven.
    pub workspace_bytes: u64,
    /// How the problem was rewritten.
    pub rewriting: Rewriting,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Table {
    format: u32,
    identity: Identity,
    rows: Vec<Row>,
}

/// What a table holds for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Identity {
    pub(crate) card: String,
    pub(crate) target: String,
    pub(crate) pci: String,
    pub(crate) miopen: String,
    pub(crate) hip: String,
    pub(crate) kernel: String,
    pub(crate) library: String,
}

#[derive(Debug, Deserialize)]
struct Row {
    problem: String,
    solver: String,
    id: Option<u64>,
    #[serde(default)]
    rewrite: Vec<serde_json::Value>,
    worst: String,
    ms: Option<f64>,
    deterministic: Option<bool>,
    algorithm: Option<c_int>,
    workspace_bytes: u64,
}

impl Row {
    fn proven(self) -> Option<(String, Proven)> {
        let safe = self.worst == "works" && self.deterministic == Some(true);
        let rewriting = Rewriting::read(&self.rewrite)?;
        let (id, algorithm) = (self.id.filter(|_| safe)?, self.algorithm?);
        let milliseconds = self.ms.filter(|ms| ms.is_finite() && *ms > 0.0)?;
        let workspace_bytes = self.workspace_bytes;
        let solver = format!("{}{rewriting}", self.solver);
        Some((self.problem, Proven { id, solver, algorithm, milliseconds, workspace_bytes, rewriting }))
    }
}

/// The proven solvers of each problem: the fastest as it is, and the fastest of each rewriting.
#[derive(Debug, Default)]
pub struct Tables(HashMap<String, Vec<Proven>>);

impl Tables {
    /// Takes a table's rows, if they hold for that card, runtime and library.
    pub(crate) fn take(&mut self, found: Table, identity: &Identity) {
        if found.format == FORMAT && found.identity == *identity {
            self.add(found.rows);
        }
    }

    fn add(&mut self, rows: Vec<Row>) {
        for (problem, row) in rows.into_iter().filter_map(Row::proven) {
            let known = self.0.entry(problem).or_default();
            match known.iter_mut().find(|known| known.rewriting == row.rewriting) {
                Some(best) if row.milliseconds < best.milliseconds => *best = row,
                Some(_) => {}
                None => known.push(row),
            }
        }
    }

    /// The vendor's solvers for a problem.
    pub fn of(&self, problem: &ConvProblem) -> &[Proven] {
        if self.0.is_empty() { &[] } else { self.0.get(&problem.to_string()).map_or(&[], Vec::as_slice) }
    }
}

/// The table in a file; nothing where it is none, or a pipe that would be waited for.
pub(crate) fn read(path: &Path) -> Option<Table> {
    serde_json::from_slice(&file::read_plain(path, file::TABLE).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_among_the_tables_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("wave32-proven-{}.json", std::process::id()));
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(read(&path).is_none());
        std::fs::remove_file(&path).unwrap();
        assert!(read(Path::new("/dev/zero")).is_none());
    }

    #[test]
    fn only_rows_that_are_safe_count() {
        let row = |solver: &str, ms: f64, change: &str| {
            let text = format!(
                r#"{{"problem":"p","solver":"{solver}","id":7,"worst":"works","verdict":"works","detail":"","ms":{ms},
                "error":null,"bound":null,"deterministic":true,"algorithm":1,"workspace_bytes":64,"pieces":1,"when":1}}"#
            );
            let (from, to) = change.split_once('=').unwrap_or(("", ""));
            assert!(text.contains(from), "{change}");
            serde_json::from_str::<Row>(&if from.is_empty() { text } else { text.replace(from, to) }).unwrap()
        };
        let mut table = Tables::default();
        table.add(vec![
            row("hangs", 0.1, "\"worst\":\"works\"=\"worst\":\"hang\""),
            row("varies", 0.2, "\"deterministic\":true=\"deterministic\":false"),
            row("tiled", 0.3, "\"id\":7=\"id\":7,\"rewrite\":[{\"kind\":\"tiles\",\"h\":32,\"w\":32}]"),
            row("cut", 0.7, "\"id\":7=\"id\":7,\"rewrite\":[{\"kind\":\"batch\",\"n\":1}]"),
            row("find", 0.4, "\"id\":7=\"id\":null"),
            row("slow", 0.9, ""),
            row("fast", 0.5, ""),
            row("unmeasured", 0.6, "\"ms\":0.6=\"ms\":null"),
        ]);
        assert_eq!(table.0.len(), 1);
        let mut kept: Vec<_> =
            table.0["p"].iter().map(|row| (row.solver.as_str(), row.workspace_bytes)).collect();
        kept.sort_unstable();
        assert_eq!(kept, [("cut in parts of 1", 64), ("fast", 64), ("tiled in tiles of 32x32", 64)]);
    }
}
