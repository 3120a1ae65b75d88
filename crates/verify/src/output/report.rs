//! What a campaign found, as data; tables and pages are made from it.

use crate::process::protocol::{Device, Outcome, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything a run of `wave32 verify` found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Version of the program.
    pub version: String,
    /// Seconds since 1970 at the start.
    pub started: u64,
    /// Seconds it took.
    pub elapsed_s: f64,
    /// The seed of the inputs.
    pub seed: u64,
    /// True where the user stopped it before its end.
    pub interrupted: bool,
    /// Problems that were not reached.
    pub not_run: usize,
    /// What the words on the command line named.
    pub selection: Vec<String>,
    /// The devices, in order.
    pub devices: Vec<DeviceReport>,
    /// The problems, in order.
    pub rows: Vec<Row>,
}

/// A device and how problems were fitted to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Identity.
    pub device: Device,
    /// Problems of the suites were scaled down to this.
    pub max_gflop: Option<f64>,
    /// Problems before scaling, equal ones counted each.
    pub named: usize,
    /// Problems that were different after scaling.
    pub distinct: usize,
}

/// One problem on one device.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The device.
    pub device: String,
    /// Where the problem came from.
    pub suite: String,
    /// Its name.
    pub label: String,
    /// The problem's line, as it was run.
    pub line: String,
    /// The line it stands for, where it was scaled down.
    pub scaled_from: Option<String>,
    /// How many named problems this one stands for on this device.
    pub stands_for: usize,
    /// `fwd`, `bwd`, `wrw`.
    pub direction: String,
    /// `f32`, `f16`, `bf16`.
    pub dtype: String,
    /// FLOP of the problem as it was run.
    pub flops: u64,
    /// What came of it.
    pub outcome: Outcome,
    /// Wall-clock seconds, references included.
    pub seconds: f64,
    /// The command that repeats it; for failures.
    pub repro: Option<String>,
    /// A smaller problem that fails the same way, as a command; for fuzz.
    pub shrunk: Option<String>,
}

impl Row {
    /// The largest normwise error among its solvers.
    pub fn worst_error(&self) -> Option<f64> {
        self.outcome.solvers.iter().filter_map(|s| s.error).max_by(f64::total_cmp)
    }
}

/// Counts of one group of rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// Rows by verdict.
    pub verdicts: BTreeMap<Verdict, usize>,
    /// The largest normwise error of any solver, and its bound.
    pub worst: Option<(f64, f64)>,
}

impl Tally {
    /// Rows with that verdict.
    pub fn of(&self, verdict: Verdict) -> usize {
        self.verdicts.get(&verdict).copied().unwrap_or(0)
    }

    /// Rows that failed.
    pub fn failed(&self) -> usize {
        self.verdicts.iter().filter(|(v, _)| v.is_failure()).map(|(_, n)| n).sum()
    }

    fn add(&mut self, row: &Row) {
        *self.verdicts.entry(row.outcome.verdict).or_default() += 1;
        for solver in &row.outcome.solvers {
            let Some(error) = solver.error else { continue };
            // The worst is what comes nearest to its own bound.
            if self.worst.is_none_or(|(e, b)| error / solver.bound > e / b) {
                self.worst = Some((error, solver.bound));
            }
        }
    }
}

impl Report {
    /// All rows together.
    pub fn total(&self) -> Tally {
        let mut tally = Tally::default();
        self.rows.iter().for_each(|row| tally.add(row));
        tally
    }

    /// One tally for each device, type and direction that occurs, in that order.
    pub fn groups(&self) -> Vec<([String; 3], Tally)> {
        let order = |key: &[String; 3]| {
            let device = self.devices.iter().position(|d| d.device.id == key[0]);
            let dtype = ["f32", "f16", "bf16"].iter().position(|d| *d == key[1]);
            let direction = ["fwd", "bwd", "wrw"].iter().position(|d| *d == key[2]);
            (device, dtype, direction)
        };
        let mut groups: Vec<([String; 3], Tally)> = Vec::new();
        for row in &self.rows {
            let key = [row.device.clone(), row.dtype.clone(), row.direction.clone()];
            let index = groups.iter().position(|(k, _)| *k == key).unwrap_or_else(|| {
                groups.push((key, Tally::default()));
                groups.len() - 1
            });
            groups[index].1.add(row);
        }
        groups.sort_by_key(|(key, _)| order(key));
        groups
    }

    /// True where everything that was asked for was run, something passed and nothing failed.
    pub fn is_clean(&self) -> bool {
        let total = self.total();
        !self.interrupted && total.failed() == 0 && total.of(Verdict::Pass) > 0
    }

    /// The report as one JSON text.
    ///
    /// # Errors
    /// Never for a report made by a campaign; the serialiser's error otherwise.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}
