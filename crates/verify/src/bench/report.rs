//! What was measured, as data.

use super::Case;
use super::stats::median;
use serde::{Deserialize, Serialize};
use std::path::Path;
use wave32_host::file;
use wave32_solve::DeviceCaps;

/// Whether a run finds its operands in the caches that the run before left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BenchMode {
    /// The same operands every run.
    Warm,
    /// Operand sets in rotation, together larger than any cache.
    Cold,
}

/// Rates that the floor is computed from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Peak f32 TFLOPS.
    pub peak_tflops: f64,
    /// Memory bandwidth in GB/s.
    pub bandwidth_gbs: f64,
    /// Where they come from: `modelled` from what the driver tells, never measured here.
    pub source: String,
}

/// Who was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// `vulkan:0`, `cpu`.
    pub id: String,
    /// The card's or processor's name.
    pub name: String,
    /// Driver and version.
    pub driver: String,
    /// Rates for the floor, where a device has any.
    pub rates: Option<Rates>,
    /// How time was taken.
    pub clock: String,
}

impl Subject {
    /// Rates from a device's capabilities.
    pub fn modelled(caps: &DeviceCaps) -> Rates {
        Rates {
            peak_tflops: caps.peak_flops() / 1e12,
            bandwidth_gbs: caps.bandwidth_gbs,
            source: "modelled".to_string(),
        }
    }
}

/// One problem by one solver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the layer.
    pub label: String,
    /// Its MIOpenDriver line.
    pub line: String,
    /// `fwd`, `bwd` or `wrw`.
    pub direction: String,
    /// `f32`, `f16` or `bf16`.
    pub dtype: String,
    /// Solver.
    pub solver: String,
    /// Its configuration.
    pub config: String,
    /// True where the solver table would run this one.
    pub chosen: bool,
    /// Chosen since `wave32 tune` measured it to be the best.
    #[serde(default)]
    pub tuned: bool,
    /// Scratch bytes.
    pub workspace_bytes: u64,
    /// Floating-point operations.
    pub flops: u64,
    /// Fewest bytes through memory.
    pub bytes: u64,
    /// The times.
    pub time: Option<Times>,
    /// Milliseconds below which the device's rates allow nothing.
    pub floor_ms: Option<f64>,
    /// Why there are no times.
    pub error: Option<String>,
}

/// Times of one row, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Median.
    pub median_ms: f64,
    /// Shortest.
    pub min_ms: f64,
    /// Longest.
    pub max_ms: f64,
    /// Runs.
    pub runs: usize,
    /// Mean of as many runs between two stamps, where a run waits for the one before only where they share memory:
    /// what compares with a peer that is timed so.
    #[serde(default)]
    pub back_to_back_ms: Option<f64>,
}

impl Row {
    /// A row without times yet.
    pub(super) fn new(case: &Case, rates: Option<&Rates>) -> Self {
        let problem = &case.problem;
        let floor_ms = rates.map(|r| {
            let compute = problem.flops() as f64 / (r.peak_tflops * 1e12);
            let memory = problem.bytes() as f64 / (r.bandwidth_gbs * 1e9);
            compute.max(memory) * 1e3
        });
        Self {
            label: case.label.clone(),
            line: problem.to_string(),
            direction: problem.pass().to_string(),
            dtype: problem.dtype().name().to_string(),
            solver: String::new(),
            config: String::new(),
            chosen: true,
            tuned: false,
            workspace_bytes: 0,
            flops: problem.flops(),
            bytes: problem.bytes(),
            time: None,
            floor_ms,
            error: None,
        }
    }

    /// With the times of all runs, in milliseconds; none at all is an error.
    pub(super) fn timed(mut self, runs_ms: &[f64]) -> Self {
        match median(runs_ms) {
            Some(median_ms) if median_ms > 0.0 => {
                let (min_ms, max_ms) = runs_ms
                    .iter()
                    .fold((f64::INFINITY, 0.0f64), |(least, most), &ms| (least.min(ms), most.max(ms)));
                let runs = runs_ms.len();
                self.time = Some(Times { median_ms, min_ms, max_ms, runs, back_to_back_ms: None });
            }
            _ => self.error = Some("the device's clock saw no time pass".to_string()),
        }
        self
    }

    /// With the mean of runs between two stamps.
    pub(super) fn back_to_back(mut self, mean_ms: f64) -> Self {
        if let Some(time) = &mut self.time {
            time.back_to_back_ms = Some(mean_ms);
        }
        self
    }

    pub(super) fn failed(mut self, error: impl ToString) -> Self {
        self.error = Some(error.to_string());
        self
    }

    /// Median milliseconds.
    pub fn median_ms(&self) -> Option<f64> {
        self.time.as_ref().map(|t| t.median_ms)
    }

    /// 10^12 FLOP a second at the median.
    pub fn tflops(&self) -> Option<f64> {
        self.median_ms().map(|ms| self.flops as f64 / ms / 1e9)
    }

    /// 10^9 bytes a second at the median, counting each tensor once.
    pub fn gbs(&self) -> Option<f64> {
        self.median_ms().map(|ms| self.bytes as f64 / ms / 1e6)
    }

    /// Floor over median: 1 is as fast as the rates allow.
    pub fn floor_share(&self) -> Option<f64> {
        Some(self.floor_ms? / self.median_ms()?)
    }
}

/// One device's measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of wave32.
    pub wave32: String,
    /// Seconds since 1970 when it began.
    pub unix_time: u64,
    /// Who was measured.
    pub subject: Subject,
    /// Warm or cold caches.
    pub mode: BenchMode,
    /// In the order measured.
    pub rows: Vec<Row>,
    /// Labels of layers left out as too large.
    pub too_large: Vec<String>,
    /// Why problems are missing at the end, if any are.
    pub ended_early: Option<String>,
}

/// A report that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The system refuses the file.
    #[error("cannot use {path}")]
    File {
        /// The file.
        path: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The file is not a report.
    #[error("{path} is no report of `wave32 bench --json`")]
    Content {
        /// The file.
        path: String,
        /// What is wrong.
        source: serde_json::Error,
    },
}

impl Report {
    /// Empty, from now.
    pub fn new(subject: Subject, mode: BenchMode) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            wave32: env!("CARGO_PKG_VERSION").to_string(),
            unix_time: now.map_or(0, |d| d.as_secs()),
            subject,
            mode,
            rows: Vec::new(),
            too_large: Vec::new(),
            ended_early: None,
        }
    }

    /// As JSON text.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has only string keys and finite numbers or null")
    }

    /// Reads a report that `wave32 bench --json` wrote.
    ///
    /// # Errors
    /// [`ReportError`] with the file's name.
    pub fn load(path: &Path) -> Result<Self, ReportError> {
        let name = || path.display().to_string();
        let bytes =
            file::read(path, file::TABLE).map_err(|source| ReportError::File { path: name(), source })?;
        serde_json::from_slice(&bytes).map_err(|source| ReportError::Content { path: name(), source })
    }

    /// Writes the JSON beside `path` first and renames it, so that a reader never sees half of it.
    ///
    /// # Errors
    /// [`ReportError::File`] where the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), ReportError> {
        file::save(path, self.json().as_bytes())
            .map_err(|source| ReportError::File { path: path.display().to_string(), source })
    }

    /// Rows without times.
    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.error.is_some())
    }
}
