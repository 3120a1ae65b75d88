//! Element types.

use wave32_params::any;

/// Type of a tensor's elements. The discriminants are the type codes of `kernels/any.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum ElementType {
    /// 32-bit float.
    F32 = any::T_F32,
    /// 16-bit float.
    F16 = any::T_F16,
    /// bfloat16.
    BF16 = any::T_BF16,
    /// 64-bit float.
    F64 = any::T_F64,
    /// 64-bit integer.
    I64 = any::T_I64,
    /// 32-bit integer.
    I32 = any::T_I32,
    /// 16-bit integer.
    I16 = any::T_I16,
    /// 8-bit integer.
    I8 = any::T_I8,
    /// 8-bit unsigned integer.
    U8 = any::T_U8,
    /// A byte that is 0 or 1.
    Bool = any::T_BOOL,
}

/// What a kernel variant computes in: `KIND` of the variants table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// 32-bit floats.
    Float,
    /// 64-bit integers.
    Int,
    /// 64-bit floats.
    Double,
}

impl ElementType {
    /// Every type.
    pub const ALL: [Self; 10] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::F64,
        Self::I64,
        Self::I32,
        Self::I16,
        Self::I8,
        Self::U8,
        Self::Bool,
    ];

    /// Bytes of an element.
    pub fn size(self) -> u64 {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 | Self::I16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// The integer type of the same size, for kernels that move elements as they are.
    pub fn bits(self) -> Self {
        match self.size() {
            8 => Self::I64,
            4 => Self::I32,
            2 => Self::I16,
            _ => Self::U8,
        }
    }

    /// The kernels' code of the type.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// True for floats of any width.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16 | Self::F64)
    }
}

impl Kind {
    /// What to compute in so that none of these types loses precision it need not lose.
    pub fn of(types: impl IntoIterator<Item = ElementType>) -> Self {
        types.into_iter().fold(Self::Int, |kind, dtype| match (kind, dtype) {
            (Self::Double, _) | (_, ElementType::F64) => Self::Double,
            (Self::Float, _) => Self::Float,
            (Self::Int, dtype) if dtype.is_float() => Self::Float,
            (Self::Int, _) => Self::Int,
        })
    }
}
