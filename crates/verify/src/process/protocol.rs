//! What parent and child say to each other: one JSON object a line.
//!
//! A driver may print to the child's standard output too, so the child's lines carry [`MARK`]; the
//! parent skips any other.

use crate::bench::Row;
use serde::{Deserialize, Serialize};
use wave32_device::{DeviceError, DeviceInfo, DeviceKind};
use wave32_problem::ProblemSpec;
use wave32_solve::{DeviceCaps, Policy};

/// Start of each line that is the child's own.
pub const MARK: &str = "@wave32 ";

/// What the parent asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// Which devices a driver offers; answered by [`Reply::Listed`].
    List(Driver),
    /// Open this device (`cpu`, `vulkan:N` or `hip:N`, or `vulkan` or `hip` for the best); answered by
    /// [`Reply::Ready`].
    Open(String),
    /// Verify one problem on the open device; answered by [`Reply::Stage`]s, then [`Reply::Done`].
    Check(Box<Job>),
    /// Time one problem on the open device; answered by a [`Reply::Stage`], then [`Reply::Timed`].
    Time(Box<TimeJob>),
}

/// What GPUs are reached through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Driver {
    /// A Vulkan driver.
    Vulkan,
    /// AMD's HIP runtime.
    Hip,
}

impl Driver {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vulkan => "Vulkan",
            Self::Hip => "HIP",
        }
    }
}

/// One problem to verify.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// The problem.
    pub spec: ProblemSpec,
    /// Its line, for planted faults and seeds.
    pub line: String,
    /// The campaign's seed; the problem's own follows from it and the line.
    pub seed: u64,
    /// Runs beyond the first that must agree bit for bit.
    pub repeat: u32,
    /// Every applicable solver rather than the chosen one.
    pub all_solvers: bool,
    /// What the user allows.
    pub policy: Policy,
    /// Seconds one run on the device may take.
    pub run_deadline_s: f64,
    /// Host bytes the child may use.
    pub memory_cap: u64,
    /// Check integers by exact sums, as large problems are, whatever the size: for tests of that.
    #[serde(default)]
    pub fold: bool,
}

/// One problem to time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TimeJob {
    /// Name of its layer.
    pub label: String,
    /// The problem.
    pub spec: ProblemSpec,
    /// What the user allows.
    pub policy: Policy,
    /// Runs to time; as many as fill about a fifth of a second by default.
    pub repeats: Option<u32>,
    /// Seed of the operands.
    pub seed: u64,
    /// Longest wait for one plan, in seconds.
    pub run_deadline_s: f64,
}

/// What the child answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    /// The devices, or why there are none.
    Listed(Result<Vec<Ready>, String>),
    /// The device is open.
    Ready(Box<Ready>),
    /// The device could not be opened.
    NotOpen(String),
    /// What the child does now: the detail of a later hang or crash.
    Stage(String),
    /// The problem's outcome.
    Done(Outcome),
    /// The problem's times.
    Timed {
        /// One row, or none where the device was gone before.
        rows: Vec<Row>,
        /// Why the device cannot be used any more.
        gone: Option<String>,
    },
}

/// A device with what it can do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ready {
    /// Its identity.
    pub device: Device,
    /// What solvers know of it; the CPU has none.
    pub caps: Option<DeviceCaps>,
}

/// A device's identity, as reports keep it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// `cpu`, `vulkan:N` or `hip:N`.
    pub id: String,
    /// The card's name.
    pub name: String,
    /// Driver and version.
    pub driver: String,
    /// What sort of hardware it is.
    pub kind: DeviceKind,
    /// Bytes of memory on it.
    pub memory_bytes: u64,
    /// Why it cannot be used; empty where it can.
    #[serde(default)]
    pub unusable: Option<String>,
}

impl From<&DeviceInfo> for Device {
    fn from(info: &DeviceInfo) -> Self {
        Self {
            id: info.id.clone(),
            name: info.name.clone(),
            driver: info.driver.clone(),
            kind: info.kind,
            memory_bytes: info.memory_bytes,
            unusable: None,
        }
    }
}

/// What came of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// Right.
    Pass,
    /// A wrong result, a touched guard band or input, or runs that differ.
    Wrong,
    /// The child died.
    Crash,
    /// The deadline passed.
    Hang,
    /// Host or device memory did not suffice, or the cap was reached.
    OutOfMemory,
    /// The driver lost the device.
    DeviceLost,
    /// The driver, or wave32 itself, answered with any other error.
    Error,
    /// No solver takes the problem on this device.
    Unsupported,
}

impl Verdict {
    /// As tables print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Wrong => "WRONG",
            Self::Crash => "CRASH",
            Self::Hang => "HANG",
            Self::OutOfMemory => "OUT_OF_MEMORY",
            Self::DeviceLost => "DEVICE_LOST",
            Self::Error => "ERROR",
            Self::Unsupported => "UNSUPPORTED",
        }
    }

    /// True where something is wrong: neither right nor refused beforehand.
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Pass | Self::Unsupported)
    }

    /// True where the child's device cannot be trusted with another problem.
    pub fn spoils_device(self) -> bool {
        matches!(self, Self::Crash | Self::Hang | Self::DeviceLost | Self::OutOfMemory | Self::Error)
    }
}

/// Why a problem did not pass.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failure {
    /// The verdict it leads to.
    pub verdict: Verdict,
    /// One line for people.
    pub detail: String,
}

impl Failure {
    /// A verdict and its reason.
    pub fn new(verdict: Verdict, detail: impl Into<String>) -> Self {
        Self { verdict, detail: detail.into() }
    }
}

impl From<crate::data::NoMemory> for Failure {
    fn from(error: crate::data::NoMemory) -> Self {
        Self::new(Verdict::OutOfMemory, format!("{error}; use a smaller problem or a larger --memory-cap"))
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        let verdict = match &error {
            DeviceError::OutOfMemory { .. } => Verdict::OutOfMemory,
            DeviceError::Timeout { .. } => Verdict::Hang,
            DeviceError::Lost(_) => Verdict::DeviceLost,
            // A plan that a solver made for this device and that does not run on it is a fault, not a refusal.
            _ => Verdict::Error,
        };
        Self::new(verdict, error.to_string())
    }
}

/// What one solver made of the problem.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SolverResult {
    /// The solver.
    pub solver: String,
    /// Its configuration.
    pub config: String,
    /// Scratch bytes it used.
    pub workspace_bytes: u64,
    /// Chosen since `wave32 tune` measured it to be the best.
    #[serde(default)]
    pub tuned: bool,
    /// Normwise error on random inputs, where that check was reached.
    pub error: Option<f64>,
    /// What the error had to stay below.
    pub bound: f64,
    /// Runs made.
    pub runs: u32,
    /// Why it did not pass.
    pub failure: Option<Failure>,
}

/// What the child found out about a problem.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The worst of the solvers' verdicts.
    pub verdict: Verdict,
    /// Why it did not pass, in one line.
    pub detail: String,
    /// Each solver that was run.
    pub solvers: Vec<SolverResult>,
    /// What the exact check compared with.
    pub exact_against: String,
    /// What the tolerance check compared with.
    pub close_against: String,
    /// Where the time went.
    #[serde(default)]
    pub phases: Phases,
}

/// Seconds of each part of a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// Operands and what must come of them, on the CPU.
    pub references_s: f64,
    /// Copies to the device, kernels, copies back, guard bands.
    pub runs_s: f64,
    /// Results against the references, on the CPU.
    pub comparisons_s: f64,
}

impl Outcome {
    /// An outcome reached before any solver ran.
    pub fn early(verdict: Verdict, detail: impl Into<String>) -> Self {
        Self {
            verdict,
            detail: detail.into(),
            solvers: Vec::new(),
            exact_against: String::new(),
            close_against: String::new(),
            phases: Phases::default(),
        }
    }
}
