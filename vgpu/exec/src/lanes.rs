//! From an operation on one lane to a handler for 32 of them: operands fetched, modified and written back under EXEC.
//!
//! An operation is a [`Lane`]. It gets two handlers: [`plain`] for operands without modifiers, where all that is left
//! is a loop over rows that LLVM makes vectors of, and [`general`] for everything that an encoding can say.

mod general;
mod swizzle;

use crate::valu::{F16, F32, Format, Mode, is_nan};
use crate::{Args, Row, Src, Wave, env::VectorFn};

pub(crate) use general::{Kinds, by_lane, finished, general};

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
}

/// An operation on one lane.
pub(crate) trait Lane {
    /// What it writes. Integers come out exactly, as 64 bits with sign, so that they can be clamped.
    const DST: Kind;
    /// What it reads.
    const SRC: [Kind; 3];
    /// It writes a mask beside its result.
    const CARRY: bool = false;

    /// The result.
    fn lane(m: Mode, s: [u64; 3]) -> u64;

    /// The bit of the mask beside it.
    fn carry(m: Mode, s: [u64; 3]) -> bool {
        Self::lane(m, s) >> 32 & 1 != 0
    }

    /// There is [`Lane::usual`].
    const USUAL: bool = false;

    /// Whether [`Lane::usual`] serves in this mode.
    #[inline(always)]
    fn is_usual(_: Mode) -> bool {
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
    /// The same where all sources are VGPRs, and where the first is a scalar; the operations that there are such for.
    pub(crate) quick: Option<[VectorFn; 2]>,
    /// Whatever is encoded.
    pub(crate) general: VectorFn,
}

impl Handlers {
    pub(crate) const fn of<O: Lane>() -> Self {
        let wide = O::DST.is_64() || O::SRC[0].is_64() || O::SRC[1].is_64() || O::SRC[2].is_64();
        let whole = matches!(O::DST, Kind::B32 | Kind::F32 | Kind::I32 | Kind::U32);
        let masks = matches!(O::SRC[1], Kind::Mask) || matches!(O::SRC[2], Kind::Mask);
        Self {
            plain: if wide { general::<O> } else { plain::<O> },
            quick: if whole && !wide && !masks && !O::CARRY {
                Some([quick::<O, false>, quick::<O, true>])
            } else {
                None
            },
            general: general::<O>,
        }
    }
}

impl Handlers {
    /// The handler for operands without modifiers.
    pub(crate) fn without_modifiers(&self, args: &Args) -> VectorFn {
        let [first, others @ ..] = args.src;
        let vectors = others.iter().all(|src| matches!(src, Src::Vgpr(_) | Src::None));
        match self.quick {
            Some([all, _]) if vectors && matches!(first, Src::Vgpr(_)) => all,
            Some([_, uniform]) if vectors && matches!(first, Src::Sgpr(_) | Src::Const(_)) => uniform,
            _ => self.plain,
        }
    }
}

impl Wave {
    /// A scalar source of 32 bits.
    #[inline(never)]
    pub(crate) fn uniform(&self, src: Src) -> u32 {
        match src {
            Src::Sgpr(code) => self.scalar(code),
            Src::Const(value) => value as u32,
            Src::Vgpr(_) | Src::None => 0,
        }
    }

    /// A mask operand's bits of the current half.
    #[inline(always)]
    pub(crate) fn mask_of(&self, src: Src) -> u32 {
        match src {
            Src::Sgpr(code @ 0..=126) => self.mask(usize::from(code)),
            Src::Const(value) => (value >> (32 * self.half)) as u32,
            _ => 0,
        }
    }
}

/// A bit for each lane as a row of zeros and ones.
#[inline(always)]
pub(crate) fn spread(mask: u32) -> Row {
    let mut row = [0; 32];
    for (i, x) in row.iter_mut().enumerate() {
        *x = mask >> i & 1;
    }
    row
}

/// The lowest bits of the lanes.
#[inline(always)]
fn gather(row: &Row) -> u32 {
    row.iter().enumerate().fold(0, |mask, (i, x)| mask | (x & 1) << i)
}

/// Writes the lanes of `mask`.
#[inline(always)]
pub(crate) fn blend(dst: &mut Row, new: &Row, mask: u32) {
    if mask == u32::MAX {
        *dst = *new;
        return;
    }
    for i in 0..32 {
        dst[i] = if mask >> i & 1 != 0 { new[i] } else { dst[i] };
    }
}

/// Writes a mask destination of the wave: both halves of a wave64 at once, or an instruction's second half would read
/// what its first has written. `half` computes a half's bits, lanes that are off being zero.
#[inline(always)]
pub(crate) fn write_mask(wave: &mut Wave, dst: u16, mut half: impl FnMut(&mut Wave) -> u32) {
    if !wave.wave64 {
        let bits = half(wave);
        wave.set_scalar(dst, bits);
    } else if wave.half == 1 {
        wave.half = 0;
        let low = half(wave);
        wave.half = 1;
        let high = half(wave);
        wave.set_scalar64(dst, u64::from(low) | u64::from(high) << 32);
    }
}

/// The kind of a format.
pub(crate) const fn kind_of<F: Format>() -> Kind {
    match F::WIDTH {
        16 => Kind::F16,
        32 => Kind::F32,
        _ => Kind::F64,
    }
}

/// Stands for sources that there are not.
pub(crate) static ZEROS: Row = [0; 32];

/// A row of a source: of a VGPR where it is, of a scalar in `$splat`.
macro_rules! row {
    ($wave:expr, $src:expr, $kind:expr, $splat:ident) => {
        // Not one `match`, which would become a jump that is hard to predict.
        if matches!($kind, Kind::None) {
            &ZEROS
        } else if matches!($kind, Kind::Mask) {
            $splat = spread($wave.mask_of($src));
            &$splat
        } else if let Src::Vgpr(r) = $src {
            $wave.row(usize::from(r))
        } else {
            $splat = [$wave.uniform($src); 32];
            &$splat
        }
    };
}

pub(crate) use row;

/// What most instructions are: VGPRs, or a scalar first source, in the usual mode. Whatever is not usual goes to
/// [`plain`] as a whole, so that nothing here needs to stay in memory for it.
fn quick<O: Lane, const UNIFORM: bool>(wave: &mut Wave, args: &Args) {
    let m = Mode::of(wave);
    if O::USUAL && !O::is_usual(m) {
        return plain::<O>(wave, args);
    }
    let exec = wave.exec();
    let first = wave.half * wave.vgprs;
    let row = |src: Src| if let Src::Vgpr(r) = src { &wave.vgpr[first + usize::from(r)] } else { &ZEROS };
    let x = if UNIFORM { wave.uniform(args.src[0]) } else { 0 };
    let a = if UNIFORM { &ZEROS } else { row(args.src[0]) };
    let b = if matches!(O::SRC[1], Kind::None) { &ZEROS } else { row(args.src[1]) };
    let c = if matches!(O::SRC[2], Kind::None) { &ZEROS } else { row(args.src[2]) };
    let mut out = [0; 32];
    let mut nan = false;
    for i in 0..32 {
        let s =
            [O::SRC[0].widen(if UNIFORM { x } else { a[i] }), O::SRC[1].widen(b[i]), O::SRC[2].widen(c[i])];
        out[i] = if O::USUAL { O::usual(s) } else { O::lane(m, s) } as u32;
        nan |= O::USUAL && one_is_nan(O::DST, out[i]);
    }
    if nan {
        return plain::<O>(wave, args);
    }
    blend(wave.row_mut(usize::from(args.dst)), &out, exec);
}

/// Operands as they are, of at most 32 bits.
pub(crate) fn plain<O: Lane>(wave: &mut Wave, args: &Args) {
    if O::CARRY || matches!(O::DST, Kind::Mask) {
        let dst = if O::CARRY { args.sdst } else { args.dst };
        write_mask(wave, dst, |wave| plain_half::<O>(wave, args));
    } else {
        plain_half::<O>(wave, args);
    }
}

/// One half; returns the bits of the mask that it writes, if it does.
#[inline(always)]
fn plain_half<O: Lane>(wave: &mut Wave, args: &Args) -> u32 {
    let m = Mode::of(wave);
    let exec = wave.exec();
    let (x, y, z);
    let a = row!(wave, args.src[0], O::SRC[0], x);
    let b = row!(wave, args.src[1], O::SRC[1], y);
    let c = row!(wave, args.src[2], O::SRC[2], z);
    let lane = |i: usize| [O::SRC[0].widen(a[i]), O::SRC[1].widen(b[i]), O::SRC[2].widen(c[i])];

    let mut out = [0; 32];
    if O::USUAL && !O::is_usual(m) {
        exactly::<O>(m, u32::MAX, [a, b, c], &mut out);
    } else if O::USUAL {
        // In one loop: a second one over `out` would wait for the first one's stores.
        let mut nan = false;
        for i in 0..32 {
            out[i] = O::usual(lane(i)) as u32;
            nan |= one_is_nan(O::DST, out[i]);
        }
        if nan {
            exactly::<O>(m, exec, [a, b, c], &mut out);
        }
    } else {
        for i in 0..32 {
            out[i] = O::lane(m, lane(i)) as u32;
        }
    }
    if matches!(O::DST, Kind::Mask) {
        return gather(&out) & exec;
    }
    let mut carries = 0;
    if O::CARRY {
        let mut bits = [0; 32];
        for i in 0..32 {
            bits[i] = u32::from(O::carry(m, lane(i)));
        }
        carries = gather(&bits) & exec;
    }
    let dst = wave.row_mut(usize::from(args.dst));
    if O::DST.is_16() {
        // 16-bit results leave the other half of their register alone on gfx10.
        for i in 0..32 {
            out[i] = dst[i] & 0xffff_0000 | out[i] & 0xffff;
        }
    }
    blend(dst, &out, exec);
    carries
}

/// Lanes of `mask` by the full description: apart, so that the usual way stays short.
#[inline(never)]
fn exactly<O: Lane>(m: Mode, mask: u32, [a, b, c]: [&Row; 3], out: &mut Row) {
    for i in (0..32).filter(|&i| mask >> i & 1 != 0) {
        out[i] = O::lane(m, [O::SRC[0].widen(a[i]), O::SRC[1].widen(b[i]), O::SRC[2].widen(c[i])]) as u32;
    }
}

#[inline(always)]
pub(crate) fn one_is_nan(kind: Kind, x: u32) -> bool {
    match kind {
        Kind::F32 => is_nan::<F32>(u64::from(x)),
        Kind::F16 => is_nan::<F16>(u64::from(x as u16)),
        _ => false,
    }
}

#[inline(always)]
pub(crate) fn has_nan(kind: Kind, row: &Row) -> bool {
    row.iter().fold(false, |any, &x| any | one_is_nan(kind, x))
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
                    const USUAL: bool = true;

                    #[inline(always)]
                    fn is_usual(m: $crate::valu::Mode) -> bool {
                        m.usual::<$crate::valu::$format>()
                    }

                    #[inline(always)]
                    fn usual([$a, $b, $c]: [u64; 3]) -> u64 {
                        $usual
                    }
                )?
            }
        )*

        /// The handlers of the operations of this table.
        pub(super) fn bind(op: wave32_isa::Op) -> Option<$crate::lanes::Handlers> {
            Some(match op {
                $(wave32_isa::Op::$name => $crate::lanes::Handlers::of::<$name>(),)*
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
