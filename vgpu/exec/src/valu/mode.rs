//! MODE, as float operations read it (RDNA ISA 3.2.2 and 6.6).

use super::format::Format;
use crate::Wave;

/// How a result that lies between two floats is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// To the nearer, ties to even.
    Nearest,
    /// Towards plus infinity.
    Up,
    /// Towards minus infinity.
    Down,
    /// Towards zero.
    Zero,
}

/// MODE's bits, and bit 31: the instruction's clamp.
#[derive(Debug, Clone, Copy)]
pub struct Mode(u32);

const CLAMP: u32 = 1 << 31;

impl Mode {
    /// The wave's.
    #[inline(always)]
    pub fn of(wave: &Wave) -> Self {
        Self(wave.mode & !CLAMP)
    }

    /// Round to nearest, keep denormals.
    pub const USUAL: Self = Self(0xf0);

    /// With the instruction's clamp bit, which some integer operations need to know.
    pub fn with_clamp(self, clamp: bool) -> Self {
        Self(self.0 & !CLAMP | if clamp { CLAMP } else { 0 })
    }

    /// The instruction's clamp bit.
    pub fn clamp(self) -> bool {
        self.0 & CLAMP != 0
    }

    /// Round to nearest, keep denormals: what kernels are compiled for, and what the host does.
    #[inline(always)]
    pub fn usual<F: Format>(self) -> bool {
        self.0 >> F::ROUND & 3 == 0 && self.0 >> F::DENORM & 3 == 3
    }

    /// Round to nearest, flush denormals: what graphics compilers ask for in single precision.
    #[inline(always)]
    pub fn flushed<F: Format>(self) -> bool {
        self.0 >> F::ROUND & 3 == 0 && self.0 >> F::DENORM & 3 == 0
    }

    /// The rounding of a format.
    #[inline(always)]
    pub fn round<F: Format>(self) -> Round {
        match self.0 >> F::ROUND & 3 {
            0 => Round::Nearest,
            1 => Round::Up,
            2 => Round::Down,
            _ => Round::Zero,
        }
    }

    /// Denormal inputs count as they are.
    #[inline(always)]
    pub fn denormals_in<F: Format>(self) -> bool {
        self.0 >> F::DENORM & 1 != 0
    }

    /// Denormal results stay.
    #[inline(always)]
    pub fn denormals_out<F: Format>(self) -> bool {
        self.0 >> F::DENORM & 2 != 0
    }

    /// The same with a format's denormals flushed, in and out: `v_mad_f32`, `v_rcp_f32`.
    #[inline(always)]
    pub fn flushing<F: Format>(self) -> Self {
        Self(self.0 & !(3 << F::DENORM))
    }

    /// The same with a format's denormals kept.
    #[inline(always)]
    pub fn keeping<F: Format>(self) -> Self {
        Self(self.0 | 3 << F::DENORM)
    }

    /// The same with a rounding of its own for a format.
    pub fn rounding<F: Format>(self, round: Round) -> Self {
        let bits = match round {
            Round::Nearest => 0,
            Round::Up => 1,
            Round::Down => 2,
            Round::Zero => 3,
        };
        Self(self.0 & !(3 << F::ROUND) | bits << F::ROUND)
    }

    /// Clamping makes 0 of NaN.
    pub fn dx10_clamp(self) -> bool {
        self.0 >> 8 & 1 != 0
    }

    /// IEEE 754-2008 minimum and maximum; no output modifiers.
    #[inline(always)]
    pub fn ieee(self) -> bool {
        self.0 >> 9 & 1 != 0
    }
}
