//! What the parent and the guarded child that holds MIOpen say to each other: one JSON object a line.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use wave32_problem::{ConvSpec, Rewrite};
use wave32_verify::guard::Answer;
use wave32_verify::protocol::Failure;

pub use crate::finding::{Finding, Identity, SolverVerdict};

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
    Offers(Result<Vec<VendorSolution>, Finding>),
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

/// A solver that MIOpen offers for a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VendorSolution {
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

impl From<Failure> for Finding {
    fn from(failure: Failure) -> Self {
        use wave32_verify::protocol::Verdict as V;
        let verdict = match failure.verdict {
            V::Pass => SolverVerdict::Works,
            V::Wrong => SolverVerdict::Wrong,
            V::Hang => SolverVerdict::Hang,
            V::OutOfMemory => SolverVerdict::OutOfMemory,
            V::Unsupported => SolverVerdict::Refuses,
            V::Crash | V::DeviceLost | V::Error => SolverVerdict::Crash,
        };
        Self::of(verdict, failure.detail)
    }
}
