//! The vocabulary: direction, dtype, layout, activation.

use crate::ProblemError;
use serde::{Deserialize, Serialize};

/// Which of the three passes of a convolution layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Direction {
    /// y from x and w.
    Forward,
    /// dx from dy and w.
    BackwardData,
    /// dw from x and dy.
    BackwardWeights,
}

impl Direction {
    /// All three, in MIOpenDriver's order (`-F 1`, `2`, `4`).
    pub const ALL: [Self; 3] = [Self::Forward, Self::BackwardData, Self::BackwardWeights];

    /// Short name: `fwd`, `bwd`, `wrw` (the words MIOpen uses).
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "fwd",
            Self::BackwardData => "bwd",
            Self::BackwardWeights => "wrw",
        }
    }

    /// Of which pass of a network it is part.
    pub fn pass(self) -> Pass {
        match self {
            Self::Forward => Pass::Forward,
            Self::BackwardData | Self::BackwardWeights => Pass::Backward,
        }
    }
}

/// A pass of a network. Operands of the backward one may be gradients: tiny numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Pass {
    /// Results.
    #[default]
    Forward,
    /// Gradients.
    Backward,
}

/// Storage type of every tensor of the problem. Accumulation is always f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    BF16,
}

impl DType {
    /// All storage types.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::BF16];

    /// Bytes an element.
    pub fn size(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
        }
    }

    /// `f32`, `f16`, `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
        }
    }
}

/// Memory layout of all tensors of the problem (filters follow: KCRS with NCHW, KRSC with NHWC).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Layout {
    /// Channels before pixels: x NCHW, w K(C/g)RS, y NKPQ.
    Nchw,
    /// Channels last: x NHWC, w KRS(C/g), y NPQK.
    Nhwc,
}

impl Layout {
    /// `NCHW` or `NHWC`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nchw => "NCHW",
            Self::Nhwc => "NHWC",
        }
    }
}

/// Activation fused after the bias of a forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default)]
pub enum Activation {
    /// None.
    #[default]
    None,
    /// max(0, v); NaN stays NaN.
    Relu,
    /// min(max(0, v), 6).
    Relu6,
    /// v / (1 + exp(-v)).
    Silu,
    /// v min(max(v + 3, 0), 6) / 6.
    Hardswish,
    /// v (1 + erf(v / sqrt(2))) / 2.
    Gelu,
    /// Below 0 a product with a slope, in hundredths: at most [`Activation::MAX_SLOPE`].
    LeakyRelu(u8),
}

impl Activation {
    /// The largest slope of a leaky ReLU that kernels take, in hundredths.
    pub const MAX_SLOPE: u8 = 127;

    /// One of each; of leaky ReLUs one.
    pub const ALL: [Self; 7] =
        [Self::None, Self::Relu, Self::Relu6, Self::Silu, Self::Hardswish, Self::Gelu, Self::LeakyRelu(20)];

    /// A leaky ReLU of that slope, if kernels take it: a number of hundredths, as slopes in use are.
    pub fn leaky(slope: f64) -> Option<Self> {
        let hundredths = (slope * 100.0).round();
        let is_near = (slope * 100.0 - hundredths).abs() < 1e-5
            && (0.0..=f64::from(Self::MAX_SLOPE)).contains(&hundredths);
        is_near.then_some(Self::LeakyRelu(hundredths as u8))
    }

    /// That kernels take it.
    pub(crate) fn check(self) -> Result<(), ProblemError> {
        match self {
            Self::LeakyRelu(slope) if slope > Self::MAX_SLOPE => {
                let rule = format!("its slope must be at most {} hundredths", Self::MAX_SLOPE);
                Err(ProblemError::field("activation", self, rule))
            }
            _ => Ok(()),
        }
    }

    /// True where integers stay integers.
    pub fn keeps_integers(self) -> bool {
        matches!(self, Self::None | Self::Relu | Self::Relu6)
    }

    /// True where large results are cut, so that those left may be much smaller than the sums they were made of.
    pub fn cuts_large(self) -> bool {
        self == Self::Relu6
    }

    /// Of an exact sum.
    pub fn apply(self, v: f64) -> f64 {
        match self {
            Self::None => v,
            // Not f64::max, which drops a NaN.
            Self::Relu if v < 0.0 => 0.0,
            Self::Relu => v,
            Self::Relu6 => v.clamp(0.0, 6.0),
            Self::Silu => v / (1.0 + (-v).exp()),
            Self::Hardswish => v * (v + 3.0).clamp(0.0, 6.0) / 6.0,
            Self::Gelu => v * 0.5 * libm::erfc(-v * std::f64::consts::FRAC_1_SQRT_2),
            Self::LeakyRelu(hundredths) if v < 0.0 => v * f64::from(hundredths) / 100.0,
            Self::LeakyRelu(_) => v,
        }
    }
}

impl std::fmt::Display for Activation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Relu => f.write_str("relu"),
            Self::Relu6 => f.write_str("relu6"),
            Self::Silu => f.write_str("silu"),
            Self::Hardswish => f.write_str("hardswish"),
            Self::Gelu => f.write_str("gelu"),
            Self::LeakyRelu(hundredths) => write!(f, "leaky_relu{hundredths}"),
        }
    }
}

impl std::str::FromStr for Activation {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some(found) = Self::ALL.into_iter().find(|one| one.to_string() == text) {
            return Ok(found);
        }
        let slope = text.strip_prefix("leaky_relu").and_then(|slope| slope.parse().ok());
        slope.filter(|&slope| slope <= Self::MAX_SLOPE).map(Self::LeakyRelu).ok_or(())
    }
}

/// What happens to an output element before it is stored (forward only).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default)]
pub struct Epilogue {
    /// Add `bias[k]` (dtype of the problem).
    pub bias: bool,
    /// Then apply this.
    pub activation: Activation,
}

impl Epilogue {
    /// True where nothing is fused.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}
