//! The vocabulary: direction, dtype, layout, activation.

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
