//! From an operation on one lane to a handler for 32 of them: operands fetched, modified and written back under EXEC.
//!
//! An operation is a [`Lane`]. It gets two handlers: [`plain()`] for operands without modifiers, where all that is left
//! is a loop over rows that LLVM makes vectors of, and [`general()`] for everything that an encoding can say.

// Loops over lanes index several rows alike.
#![allow(clippy::needless_range_loop)]

mod general;
mod plain;
mod rows;
mod swizzle;

use crate::valu::{F16, F64, Format, Mode, flushed, is_nan};
use crate::{Args, Src, env::VectorFn};

use plain::{plain, quick};

pub(crate) use general::{Kinds, by_lane, finished, general};
pub(crate) use plain::{each, each_wide};
pub(crate) use rows::{ZEROS, blend, row, spread};

/// What the bits of a lane's operand mean. A lane gets 64 bits: integers extended as their sign wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Kind {
    None,
    F16,
    I16,
    U16,
    B32,
    F32,
    I32,
    U32,
    F64,
    B64,
    /// A bit for each lane.
    Mask,
}

impl Kind {
    pub(crate) const fn is_16(self) -> bool {
        matches!(self, Self::F16 | Self::I16 | Self::U16)
    }

    pub(crate) const fn is_64(self) -> bool {
        matches!(self, Self::F64 | Self::B64)
    }

    /// One register a lane.
    const fn is_row(self) -> bool {
        !self.is_64() && !matches!(self, Self::Mask)
    }

    pub(crate) const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64)
    }

    #[inline(always)]
    pub(crate) fn widen(self, x: u32) -> u64 {
        match self {
            Self::None => 0,
            Self::F16 | Self::U16 => u64::from(x as u16),
            Self::I16 => x as i16 as i64 as u64,
            Self::I32 => x as i32 as i64 as u64,
            _ => u64::from(x),
        }
    }

    #[inline(always)]
    fn join(self, low: u32, high: u32) -> u64 {
        if self.is_64() { u64::from(low) | u64::from(high) << 32 } else { self.widen(low) }
    }

    /// A float with its denormals as zeros of their sign.
    #[inline(always)]
    pub(crate) fn flush(self, x: u64) -> u64 {
        match self {
            Self::F16 => flushed::<F16>(x),
            // In 32 bits, or LLVM goes over to vectors of 64.
            Self::F32 => {
                u64::from(if x as u32 & 0x7f80_0000 == 0 { x as u32 & 0x8000_0000 } else { x as u32 })
            }
            Self::F64 => flushed::<F64>(x),
            _ => x,
        }
    }

    /// Not 0 if a result of this kind is NaN.
    #[inline(always)]
    pub(crate) fn nan(self, x: u64) -> u32 {
        u32::from(match self {
            Self::F16 => is_nan::<F16>(x),
            Self::F32 => x as u32 & 0x7fff_ffff > 0x7f80_0000,
            Self::F64 => is_nan::<F64>(x),
            _ => false,
        })
    }
}

/// An operation on one lane.
pub(crate) trait Lane {
    /// What it writes. Integers come out exactly, as 64 bits with sign, so that they can be clamped.
    const DST: Kind;
    /// What it reads.
    const SRC: [Kind; 3];
    /// It writes a mask beside its result.
    const CARRY: bool = false;
    /// There is a [`Lane::usual`].
    const USUAL: bool = false;

    /// The result.
    fn lane(m: Mode, s: [u64; 3]) -> u64;

    /// The bit of the mask beside it.
    fn carry(m: Mode, s: [u64; 3]) -> bool {
        Self::lane(m, s) >> 32 & 1 != 0
    }

    /// Whether [`Lane::usual`] serves in this mode.
    #[inline(always)]
    fn is_usual(_: Mode) -> bool {
        false
    }

    /// Whether [`Lane::usual`] serves in this mode where sources and result are flushed.
    #[inline(always)]
    fn is_flushed(_: Mode) -> bool {
        false
    }

    /// The same as [`Lane::lane`] unless the result is NaN, and quicker.
    #[inline(always)]
    fn usual(s: [u64; 3]) -> u64 {
        let _ = s;
        0
    }
}

/// An operation's handlers.
pub(crate) struct Handlers {
    /// No modifiers, no swizzle.
    pub(crate) plain: VectorFn,
    /// Float sources negated or without sign, no more.
    pub(crate) signed: VectorFn,
    /// The same as `plain` where all sources are VGPRs, and where the first is a scalar; the operations that there are
    /// such for.
    quick: Option<[VectorFn; 2]>,
    /// Whatever is encoded.
    pub(crate) general: VectorFn,
}

impl Handlers {
    pub(crate) const fn of<O: Lane>() -> Self {
        let [a, b, c] = O::SRC;
        let floats = a.is_float() || b.is_float() || c.is_float();
        let whole = matches!(O::DST, Kind::B32 | Kind::F32 | Kind::I32 | Kind::U32) && !O::CARRY;
        let rows = a.is_row() && b.is_row() && c.is_row();
        Self {
            plain: plain::<O, false>,
            signed: if floats { plain::<O, true> } else { general::<O> },
            quick: if whole && rows { Some([quick::<O, false>, quick::<O, true>]) } else { None },
            general: general::<O>,
        }
    }

    /// The handler for operands without modifiers.
    pub(crate) fn without_modifiers(&self, args: &Args) -> VectorFn {
        let [first, others @ ..] = args.src;
        let vectors = others.iter().all(|src| matches!(src, Src::Vgpr(_) | Src::None));
        match self.quick {
            Some([all, _]) if vectors && matches!(first, Src::Vgpr(_)) => all,
            Some([_, uniform]) if vectors && matches!(first, Src::Sgpr(_) | Src::Const(..)) => uniform,
            _ => self.plain,
        }
    }
}

/// Whether an operation has operands of that kind alone.
#[inline(always)]
pub(crate) const fn only<O: Lane>(kind: Kind) -> bool {
    let mut i = 0;
    while i < 3 {
        if O::SRC[i] as u8 != kind as u8 && O::SRC[i] as u8 != Kind::None as u8 {
            return false;
        }
        i += 1;
    }
    O::DST as u8 == kind as u8
}

/// An operation as the host computes it, with denormals as they are or flushed.
#[inline(always)]
pub(crate) fn hosts<O: Lane, const FLUSH: bool>(s: [u64; 3]) -> u64 {
    if !FLUSH {
        return O::usual(s);
    }
    let [a, b, c] = s;
    O::DST.flush(O::usual([O::SRC[0].flush(a), O::SRC[1].flush(b), O::SRC[2].flush(c)]))
}

/// The kind of a format.
pub(crate) const fn kind_of<F: Format>() -> Kind {
    match F::WIDTH {
        16 => Kind::F16,
        32 => Kind::F32,
        _ => Kind::F64,
    }
}

/// Defines operations: `name: RESULT(SOURCES) |mode, a, b, c| result`, with `, usual FORMAT: result` where the host's
/// arithmetic does the same in the usual mode, and the `bind` that finds them. Sources are 64 bits, or signed integers
/// in a table that begins with `integers`.
macro_rules! lanes {
    (integers $($name:ident: $dst:ident($($src:ident),*) |$m:tt, $a:tt, $b:tt, $c:tt| $lane:expr;)*) => {
        $crate::lanes::lanes! { $($name: $dst($($src),*) |m, a, b, c| {
            let ($m, $a, $b, $c) = (m, a as i64, b as i64, c as i64);
            ($lane) as u64
        };)* }
    };
    ($($name:ident: $dst:ident($($src:ident),*) |$m:tt, $a:tt, $b:tt, $c:tt| $lane:expr
            $(, usual $format:ident: $usual:expr)?;)*) => {
        $(
            #[allow(non_camel_case_types)]
            pub(super) struct $name;

            impl $crate::lanes::Lane for $name {
                const DST: $crate::lanes::Kind = $crate::lanes::Kind::$dst;
                const SRC: [$crate::lanes::Kind; 3] =
                    $crate::lanes::three(&[$($crate::lanes::Kind::$src),*]);

                #[inline(always)]
                fn lane($m: $crate::valu::Mode, [$a, $b, $c]: [u64; 3]) -> u64 {
                    $lane
                }
                $(
                    const USUAL: bool = !stringify!($format).is_empty();

                    #[inline(always)]
                    fn is_usual(m: $crate::valu::Mode) -> bool {
                        m.usual::<$crate::valu::$format>()
                    }

                    #[inline(always)]
                    fn is_flushed(m: $crate::valu::Mode) -> bool {
                        $crate::lanes::only::<Self>($crate::lanes::Kind::$format)
                            && m.flushed::<$crate::valu::$format>()
                    }

                    #[inline(always)]
                    fn usual([$a, $b, $c]: [u64; 3]) -> u64 {
                        $usual
                    }
                )?
            }
        )*

        /// The handlers of the operations of this table.
        pub(super) fn bind(op: wave32_isa::Opcode) -> Option<$crate::lanes::Handlers> {
            Some(match op {
                $(wave32_isa::Opcode::$name => $crate::lanes::Handlers::of::<$name>(),)*
                _ => return None,
            })
        }
    };
}
pub(crate) use lanes;

/// Fills up with [`Kind::None`].
pub(crate) const fn three(kinds: &[Kind]) -> [Kind; 3] {
    let mut all = [Kind::None; 3];
    let mut i = 0;
    while i < kinds.len() {
        all[i] = kinds[i];
        i += 1;
    }
    all
}
