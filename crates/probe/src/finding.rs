//! What is found out, and about which MIOpen: the words that tables on disk and lines of children are made of.

use serde::{Deserialize, Serialize};

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

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SolverVerdict {
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

impl SolverVerdict {
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
    pub verdict: SolverVerdict,
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
    pub fn of(verdict: SolverVerdict, detail: impl Into<String>) -> Self {
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
