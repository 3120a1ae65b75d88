//! What the parent and the guarded child that holds MIOpen say to each other: one JSON object a line.

use crate::rewrite::Rewrite;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use wave32_problem::ConvSpec;
use wave32_verify::guard::Answer;
use wave32_verify::protocol::Failure;

/// What the parent asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// Load this libMIOpen and open this HIP device; answered by [`Reply::Ready`].
    Open {
        /// A path, or a name for the system's loader.
        library: PathBuf,
        /// The device's number.
        device: i32,
    },
    /// Which solvers MIOpen offers for the problem; answered by [`Reply::Offers`].
    List(Box<ConvSpec>),
    /// Try one; answered by [`Reply::Stage`]s, then [`Reply::Done`].
    Try(Box<Attempt>),
}

/// What the child answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    /// It is open.
    Ready(Box<Identity>),
    /// It could not be opened.
    NotOpen(String),
    /// What the child does now: the detail of a later hang or crash.
    Stage(String),
    /// The solvers offered, or what MIOpen says instead.
    Offers(Result<Vec<Offer>, Finding>),
    /// What came of the attempt.
    Done(Finding),
}

impl Answer for Reply {
    fn into_stage(self) -> Result<String, Self> {
        match self {
            Self::Stage(stage) => Ok(stage),
            answer => Err(answer),
        }
    }
}

/// What results hold for: the same card, driver and MIOpen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The card's name.
    pub card: String,
    /// Its gfx target as the HIP runtime sees it, which `HSA_OVERRIDE_GFX_VERSION` changes.
    pub target: String,
    /// Its place on the bus.
    pub pci: String,
    /// MIOpen's version.
    pub miopen: String,
    /// The HIP runtime's version.
    pub hip: String,
    /// The kernel's release, which holds the driver.
    pub kernel: String,
    /// The library that was loaded.
    pub library: String,
}

impl Identity {
    /// True where results of the one hold for the other: same card, target, runtime, kernel and MIOpen.
    pub fn holds_for(&self, other: &Self) -> bool {
        self.key() == other.key()
    }

    /// A file name for results that hold for it.
    pub fn key(&self) -> String {
        let parts = [&self.target, &self.card, &self.miopen, &self.hip, &self.kernel];
        let text = parts.map(String::as_str).join("_");
        text.chars().map(|c| if c.is_ascii_alphanumeric() || "._-+".contains(c) { c } else { '-' }).collect()
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { card, target, miopen, hip, kernel, .. } = self;
        write!(f, "{card} ({target}), MIOpen {miopen}, HIP {hip}, Linux {kernel}")
    }
}

#[cfg(test)]
impl Identity {
    /// One for tests.
    pub(crate) fn example() -> Self {
        Self {
            card: "AMD Radeon RX 5600 XT".into(),
            target: "gfx1010".into(),
            pci: "0000:03:00.0".into(),
            miopen: "2.20.0".into(),
            hip: "5.7.0".into(),
            kernel: "6.1.0-18-amd64".into(),
            library: "libMIOpen.so.1".into(),
        }
    }
}

/// A solver that MIOpen offers for a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Its number.
    pub id: u64,
    /// `miopenConvAlgorithm_t`.
    pub algorithm: i32,
    /// Workspace that it wants.
    pub workspace_bytes: u64,
}

/// How a solver is reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// MIOpen's own choice: Find, then the algorithm that it found best. This is what PyTorch does.
    Find,
    /// Find with all other solvers shut out, by name. The child's environment does that.
    FindOnly(String),
    /// Immediate mode, by number.
    Immediate(u64),
}

/// One thing to try.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attempt {
    /// The problem.
    pub spec: ConvSpec,
    /// What is done to it before MIOpen sees it, outermost first.
    pub rewrite: Vec<Rewrite>,
    /// How.
    pub way: Way,
    /// Seed of the operands.
    pub seed: u64,
    /// Host bytes that the child may use.
    pub memory_cap: u64,
}

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Right, in time.
    Works,
    /// MIOpen said no, before or instead of running it.
    Refuses,
    /// Memory did not suffice.
    OutOfMemory,
    /// A wrong result, a touched guard band or operand.
    Wrong,
    /// The process died, or the device reported a fault.
    Crash,
    /// The deadline passed.
    Hang,
    /// The machine, or the probe itself, went down during it.
    Down,
}

impl Verdict {
    /// As tables print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Refuses => "refuses",
            Self::OutOfMemory => "NO MEM",
            Self::Wrong => "WRONG",
            Self::Crash => "CRASH",
            Self::Hang => "HANG",
            Self::Down => "DOWN",
        }
    }

    /// True where something is wrong: neither right nor refused.
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Works | Self::Refuses)
    }
}

/// What the child found out, and what the parent makes of a child that did not answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The verdict.
    pub verdict: Verdict,
    /// Why, in one line; empty where it works.
    pub detail: String,
    /// Milliseconds on the device: the best of the runs, all pieces of a rewrite together.
    pub ms: Option<f64>,
    /// Normwise error on random operands.
    pub error: Option<f64>,
    /// What that had to stay below.
    pub bound: Option<f64>,
    /// The same bits in every run.
    pub deterministic: Option<bool>,
    /// `miopenConvAlgorithm_t` that ran.
    pub algorithm: Option<i32>,
    /// Workspace that it was given.
    pub workspace_bytes: u64,
    /// Launches that one problem takes: more than 1 where a rewrite cuts it.
    pub pieces: u64,
}

impl Finding {
    /// A verdict with its reason, and nothing measured.
    pub fn of(verdict: Verdict, detail: impl Into<String>) -> Self {
        Self {
            verdict,
            detail: detail.into(),
            ms: None,
            error: None,
            bound: None,
            deterministic: None,
            algorithm: None,
            workspace_bytes: 0,
            pieces: 1,
        }
    }
}

impl From<Failure> for Finding {
    fn from(failure: Failure) -> Self {
        use wave32_verify::protocol::Verdict as V;
        let verdict = match failure.verdict {
            V::Pass => Verdict::Works,
            V::Wrong => Verdict::Wrong,
            V::Hang => Verdict::Hang,
            V::OutOfMemory => Verdict::OutOfMemory,
            V::Unsupported => Verdict::Refuses,
            V::Crash | V::DeviceLost | V::Error => Verdict::Crash,
        };
        Self::of(verdict, failure.detail)
    }
}
