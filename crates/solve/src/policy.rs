//! What the caller allows: forced and skipped solvers, workspace cap.

use serde::{Deserialize, Serialize};
use std::str::FromStr;
use wave32_problem::Pass;

/// Which passes may sum short runs of products (8 to 32) in f16, where the operands are f16 (docs/performance.md).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fp16Accumulation {
    /// None: every sum is f32, so that no result is infinite whose f32 sum is not.
    #[default]
    Never,
    /// Matrix products (`mm`, `bmm`, `linear`) of forward passes: PyTorch's `torch.backends.cuda.matmul.allow_fp16_accumulation`.
    Matmul,
    /// Forward passes. Gradients may be so small that their products vanish in f16.
    Forward,
    /// All passes.
    Always,
}

impl Fp16Accumulation {
    /// As the variable `WAVE32_FP16_ACCUMULATION` says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Never => "0",
            Self::Matmul => "matmul",
            Self::Forward => "forward",
            Self::Always => "1",
        }
    }

    /// May this pass of a convolution, or of attention?
    pub fn allows(self, pass: Pass) -> bool {
        self == Self::Always || self == Self::Forward && pass == Pass::Forward
    }

    /// May this pass of a matrix product?
    pub fn allows_product(self, pass: Pass) -> bool {
        self.allows(pass) || self == Self::Matmul && pass == Pass::Forward
    }
}

impl FromStr for Fp16Accumulation {
    type Err = crate::SolveError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "0" => Ok(Self::Never),
            "matmul" => Ok(Self::Matmul),
            "forward" => Ok(Self::Forward),
            "1" => Ok(Self::Always),
            _ => Err(crate::SolveError::Policy(format!(
                "WAVE32_FP16_ACCUMULATION={text}: must be 0, 1, forward or matmul"
            ))),
        }
    }
}

/// Limits on the choice of a plan. The default allows every solver, and the device's usual workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Policy {
    /// Only this solver, by name; it holds for the problems that have such a solver.
    pub only: Option<String>,
    /// Never these, by name.
    pub skip: Vec<String>,
    /// Most workspace bytes a plan may need; 0 is always possible. `None` is the device's usual cap
    /// ([`crate::DeviceCaps::workspace_cap`]).
    pub workspace_cap: Option<u64>,
    /// Only this configuration of the solver (as [`crate::Plan::config`] prints it).
    pub config: Option<String>,
    /// Where sums may be f16.
    #[serde(default)]
    pub fp16_accumulation: Fp16Accumulation,
    /// Without the device's matrix instructions and dot products.
    #[serde(default)]
    pub no_matrix: bool,
}

impl Policy {
    /// From the environment: `WAVE32_SOLVER` (name), `WAVE32_SKIP` (names, comma-separated),
    /// `WAVE32_WORKSPACE` (bytes), `WAVE32_CONFIG`, `WAVE32_FP16_ACCUMULATION`, `WAVE32_MATRIX`.
    ///
    /// # Errors
    /// [`crate::SolveError::Policy`] for a name that no solver has or a number that is none.
    pub fn from_env() -> Result<Self, crate::SolveError> {
        Self::from_vars(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// As [`Policy::from_env`], with the variables from `get`.
    ///
    /// # Errors
    /// As [`Policy::from_env`].
    pub fn from_vars(get: impl Fn(&str) -> Option<String>) -> Result<Self, crate::SolveError> {
        let skip = get("WAVE32_SKIP").unwrap_or_default();
        let workspace_cap = get("WAVE32_WORKSPACE")
            .map(|value| {
                value.parse().map_err(|_| {
                    crate::SolveError::Policy(format!("WAVE32_WORKSPACE={value}: must be a number of bytes"))
                })
            })
            .transpose()?;
        let policy = Self {
            only: get("WAVE32_SOLVER"),
            skip: skip.split(',').map(str::trim).filter(|s| !s.is_empty()).map(String::from).collect(),
            workspace_cap,
            config: get("WAVE32_CONFIG"),
            fp16_accumulation: get("WAVE32_FP16_ACCUMULATION")
                .map_or(Ok(Fp16Accumulation::default()), |text| text.parse())?,
            no_matrix: match get("WAVE32_MATRIX").as_deref() {
                None | Some("1") => false,
                Some("0") => true,
                Some(text) => {
                    let text = format!("WAVE32_MATRIX={text}: must be 0 or 1");
                    return Err(crate::SolveError::Policy(text));
                }
            },
        };
        policy.check()?;
        Ok(policy)
    }

    /// Every name is a solver's.
    ///
    /// # Errors
    /// [`crate::SolveError::Policy`] naming the unknown solver and those there are.
    pub fn check(&self) -> Result<(), crate::SolveError> {
        let mut known: Vec<_> = crate::solvers().iter().map(|s| s.name()).collect();
        known.extend(
            crate::matmul_solvers()
                .iter()
                .map(|s| s.name())
                .filter(|name| !known.contains(name))
                .collect::<Vec<_>>(),
        );
        for name in self.only.iter().chain(&self.skip) {
            if !known.contains(&name.as_str()) {
                let text = format!("no solver is called `{name}`; there are {}", known.join(", "));
                return Err(crate::SolveError::Policy(text));
            }
        }
        Ok(())
    }
}
