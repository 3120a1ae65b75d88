//! [`Problem`]: whatever there is a solver table for.

use crate::{Activation, ConvProblem, ConvSpec, DType, MatmulProblem, MatmulSpec, ProblemError};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A problem of either kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum Problem {
    /// A convolution.
    Conv(ConvProblem),
    /// A product of matrices.
    Matmul(MatmulProblem),
}

/// An unchecked [`Problem`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ProblemSpec {
    /// A convolution.
    Conv(ConvSpec),
    /// A product of matrices.
    Matmul(MatmulSpec),
}

/// The same question to either kind.
macro_rules! either {
    ($self:ident, $p:ident => $answer:expr) => {
        match $self {
            Self::Conv($p) => $answer,
            Self::Matmul($p) => $answer,
        }
    };
}

impl Problem {
    /// The convolution, if it is one.
    pub fn conv(&self) -> Option<&ConvProblem> {
        match self {
            Self::Conv(p) => Some(p),
            Self::Matmul(_) => None,
        }
    }

    /// The pass of a convolution (`fwd`, `bwd`, `wrw`), or `gemm`.
    pub fn pass(&self) -> &'static str {
        match self {
            Self::Conv(p) => p.spec().direction.name(),
            Self::Matmul(_) => "gemm",
        }
    }

    /// The same problem in another storage type.
    ///
    /// # Errors
    /// [`ProblemError`] where that makes it too large.
    pub fn with_dtype(&self, dtype: DType) -> Result<Self, ProblemError> {
        match self {
            Self::Conv(p) => ConvProblem::new(ConvSpec { dtype, ..p.spec().clone() }).map(Self::Conv),
            Self::Matmul(p) => MatmulProblem::new(MatmulSpec { dtype, ..p.spec().clone() }).map(Self::Matmul),
        }
    }

    /// Storage type.
    pub fn dtype(&self) -> DType {
        either!(self, p => p.spec().dtype)
    }

    /// What happens to a result before it is written.
    pub fn activation(&self) -> Activation {
        match self {
            Self::Conv(p) => p.spec().epilogue.activation,
            Self::Matmul(p) => p.spec().activation,
        }
    }

    /// Elements that are written.
    pub fn output_elements(&self) -> u64 {
        either!(self, p => p.output_elements())
    }

    /// Products summed into one element of the result, the most any has.
    pub fn reduction_len(&self) -> u64 {
        either!(self, p => p.reduction_len())
    }

    /// Floating-point operations, two a multiply-add.
    pub fn flops(&self) -> u64 {
        either!(self, p => p.flops())
    }

    /// Fewest bytes through memory.
    pub fn bytes(&self) -> u64 {
        either!(self, p => p.bytes())
    }

    /// What it was checked from.
    pub fn spec(&self) -> ProblemSpec {
        match self {
            Self::Conv(p) => ProblemSpec::Conv(p.spec().clone()),
            Self::Matmul(p) => ProblemSpec::Matmul(p.spec().clone()),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        either!(self, p => p.fmt(f))
    }
}

impl From<ConvProblem> for Problem {
    fn from(problem: ConvProblem) -> Self {
        Self::Conv(problem)
    }
}

impl From<MatmulProblem> for Problem {
    fn from(problem: MatmulProblem) -> Self {
        Self::Matmul(problem)
    }
}

impl TryFrom<ProblemSpec> for Problem {
    type Error = ProblemError;

    fn try_from(spec: ProblemSpec) -> Result<Self, ProblemError> {
        match spec {
            ProblemSpec::Conv(spec) => ConvProblem::new(spec).map(Self::Conv),
            ProblemSpec::Matmul(spec) => MatmulProblem::new(spec).map(Self::Matmul),
        }
    }
}
