//! From an operation on one lane to a handler for 32 of them: operands fetched, modified and written back under EXEC.
//!
//! An operation is a [`Lane`]. It gets two handlers: [`plain`] for operands without modifiers, where all that is left
//! is a loop over rows that LLVM makes vectors of, and [`general`] for everything that an encoding can say.

// Loops over lanes index several rows alike.
#![allow(clippy::needless_range_loop)]

mod general;
mod swizzle;

use crate::valu::{F16, F32, F64, Format, Mode, is_nan};
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

    #[inline(always)]
    fn join(self, low: u32, high: u32) -> u64 {
        if self.is_64() { u64::from(low) | u64::from(high) << 32 } else { self.widen(low) }
    }

    /// Not 0 if a result of this kind is NaN.
    #[inline(always)]
    pub(crate) fn nan(self, x: u64) -> u32 {
        u32::from(match self {
            Self::F16 => is_nan::<F16>(x),
            Self::F32 => is_nan::<F32>(x),
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
    quick: Option<[VectorFn; 2]>,
    /// Float sources negated or without sign, no more.
    pub(crate) signed: VectorFn,
    /// Whatever is encoded.
    pub(crate) general: VectorFn,
}

impl Handlers {
    pub(crate) const fn of<O: Lane>() -> Self {
        let floats = O::SRC[0].is_float() || O::SRC[1].is_float() || O::SRC[2].is_float();
        let signed = if floats { plain::<O, true> } else { general::<O> };
        let whole = matches!(O::DST, Kind::B32 | Kind::F32 | Kind::I32 | Kind::U32) && !O::CARRY;
        let narrow = !O::SRC[0].is_64() && !O::SRC[1].is_64() && !O::SRC[2].is_64();
        let masks = matches!(O::SRC[1], Kind::Mask) || matches!(O::SRC[2], Kind::Mask);
        let quick =
            if whole && narrow && !masks { Some([quick::<O, false>, quick::<O, true>]) } else { None };
        Self { plain: plain::<O, false>, quick, signed, general: general::<O> }
    }

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
    #[inline(always)]
    pub(crate) fn uniform(&self, src: Src) -> u32 {
        match src {
            Src::Sgpr(code @ 0..128) => self.sgpr[usize::from(code)],
            Src::Const(value) => value as u32,
            src => self.uniform64(src) as u32,
        }
    }

    /// A scalar source of 64 bits.
    #[cold]
    pub(crate) fn uniform64(&self, src: Src) -> u64 {
        match src {
            Src::Sgpr(code) => self.scalar64(code),
            Src::Const(value) => value,
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

/// Writes the lanes of `mask`. By masks of bits: LLVM makes no vectors of a choice between two places.
#[inline(always)]
pub(crate) fn blend(dst: &mut Row, new: &Row, mask: u32) {
    if mask == u32::MAX {
        *dst = *new;
        return;
    }
    for i in 0..32 {
        let keep = ((mask << (31 - i)) as i32 >> 31) as u32;
        dst[i] = new[i] & keep | dst[i] & !keep;
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

/// A row on the stack, where vectors of it lie within cache lines.
#[repr(align(64))]
#[derive(Clone, Copy)]
pub(crate) struct Aligned(pub(crate) Row);

impl Aligned {
    /// Each element by its place.
    #[inline(always)]
    pub(crate) fn of(f: impl Fn(usize) -> u32) -> Self {
        let mut row = [0; 32];
        for (i, x) in row.iter_mut().enumerate() {
            *x = f(i);
        }
        Self(row)
    }
}

/// A row of a source: of a VGPR where it is, of a scalar in `$splat`.
macro_rules! row {
    ($wave:expr, $src:expr, $kind:expr, $splat:ident) => {
        // Not one `match`, which would become a jump that is hard to predict.
        if matches!($kind, Kind::None) {
            &ZEROS
        } else if matches!($kind, Kind::Mask) {
            $splat = Aligned(spread($wave.mask_of($src)));
            &$splat.0
        } else if let Src::Vgpr(r) = $src {
            $wave.row(usize::from(r))
        } else {
            $splat = Aligned([$wave.uniform($src); 32]);
            &$splat.0
        }
    };
}

/// The row of the high halves of a source of 64 bits.
macro_rules! high_row {
    ($wave:expr, $src:expr, $kind:expr, $splat:ident) => {
        match $src {
            _ if !$kind.is_64() => &ZEROS,
            Src::Vgpr(r) => $wave.row(usize::from(r) + 1),
            src => {
                $splat = Aligned([($wave.uniform64(src) >> 32) as u32; 32]);
                &$splat.0
            }
        }
    };
}

pub(crate) use row;

/// The results of all lanes of an operation of at most 32 bits, as the host computes them where MODE allows. What the
/// host makes of NaNs is not looked at: lanes of `exec` where one came out are done again.
#[inline(always)]
pub(crate) fn each<O: Lane>(m: Mode, exec: u32, a: &Row, b: &Row, c: &Row) -> Aligned {
    if !O::USUAL {
        return Aligned::of(|i| one::<O>(m, a[i], b[i], c[i]));
    }
    let mut out = Aligned([0; 32]);
    if !O::is_usual(m) {
        again::<O>(m, u32::MAX, [a, b, c], &mut out.0);
    } else if usual::<O>(a, b, c, &mut out.0) {
        again::<O>(m, exec, [a, b, c], &mut out.0);
    }
    out
}

#[inline(always)]
fn one<O: Lane>(m: Mode, a: u32, b: u32, c: u32) -> u32 {
    O::lane(m, [O::SRC[0].widen(a), O::SRC[1].widen(b), O::SRC[2].widen(c)]) as u32
}

/// The loop alone in its function: so LLVM makes vectors of all of it. Returns whether a NaN came out.
#[inline(never)]
fn usual<O: Lane>(a: &Row, b: &Row, c: &Row, out: &mut Row) -> bool {
    let mut nans = 0;
    for i in 0..32 {
        let x = O::usual([O::SRC[0].widen(a[i]), O::SRC[1].widen(b[i]), O::SRC[2].widen(c[i])]);
        nans |= O::DST.nan(x);
        out[i] = x as u32;
    }
    nans != 0
}

/// The lanes of `mask` by the operation's full definition.
#[inline(never)]
fn again<O: Lane>(m: Mode, mask: u32, [a, b, c]: [&Row; 3], out: &mut Row) {
    for i in (0..32).filter(|&i| mask >> i & 1 != 0) {
        out[i] = one::<O>(m, a[i], b[i], c[i]);
    }
}

/// The same as [`each`] of 64 bits.
#[inline(always)]
pub(crate) fn each_wide<O: Lane>(m: Mode, exec: u32, lane: impl Fn(usize) -> [u64; 3]) -> [u64; 32] {
    let mut out = [0; 32];
    if !O::is_usual(m) {
        for i in 0..32 {
            out[i] = O::lane(m, lane(i));
        }
        return out;
    }
    let mut nans = 0;
    for i in 0..32 {
        out[i] = O::usual(lane(i));
        nans |= O::DST.nan(out[i]);
    }
    if nans != 0 {
        for i in (0..32).filter(|&i| exec >> i & 1 != 0) {
            out[i] = O::lane(m, lane(i));
        }
    }
    out
}

/// What most instructions are: VGPRs, or a scalar first source, in the usual mode. Whatever is not usual goes to
/// [`plain`] as a whole, so that nothing here needs to stay in memory for it.
fn quick<O: Lane, const UNIFORM: bool>(wave: &mut Wave, args: &Args) {
    let m = Mode::of(wave);
    if O::USUAL && !O::is_usual(m) {
        return plain::<O, false>(wave, args);
    }
    let exec = wave.exec();
    let first = wave.half * wave.vgprs;
    let row = |src: Src| if let Src::Vgpr(r) = src { &wave.vgpr[first + usize::from(r)] } else { &ZEROS };
    let x = if UNIFORM { wave.uniform(args.src[0]) } else { 0 };
    let a = if UNIFORM { &ZEROS } else { row(args.src[0]) };
    let b = if matches!(O::SRC[1], Kind::None) { &ZEROS } else { row(args.src[1]) };
    let c = if matches!(O::SRC[2], Kind::None) { &ZEROS } else { row(args.src[2]) };
    let mut out = [0; 32];
    let mut nans = 0;
    for i in 0..32 {
        let a = if UNIFORM { x } else { a[i] };
        let s = [O::SRC[0].widen(a), O::SRC[1].widen(b[i]), O::SRC[2].widen(c[i])];
        let result = if O::USUAL { O::usual(s) } else { O::lane(m, s) };
        nans |= if O::USUAL { O::DST.nan(result) } else { 0 };
        out[i] = result as u32;
    }
    if nans != 0 {
        return plain::<O, false>(wave, args);
    }
    blend(wave.row_mut(usize::from(args.dst)), &out, exec);
}

/// Operands as they are, but for `SIGNED` ones.
pub(crate) fn plain<O: Lane, const SIGNED: bool>(wave: &mut Wave, args: &Args) {
    if O::CARRY || matches!(O::DST, Kind::Mask) {
        let dst = if O::CARRY { args.sdst } else { args.dst };
        write_mask(wave, dst, |wave| plain_half::<O, SIGNED>(wave, args));
    } else {
        plain_half::<O, SIGNED>(wave, args);
    }
}

/// One half; returns the bits of the mask that it writes, if it does.
#[inline(always)]
fn plain_half<O: Lane, const SIGNED: bool>(wave: &mut Wave, args: &Args) -> u32 {
    let m = Mode::of(wave);
    let exec = wave.exec();
    let (x, y, z, x_high, y_high, z_high);
    let a = row!(wave, args.src[0], O::SRC[0], x);
    let b = row!(wave, args.src[1], O::SRC[1], y);
    let c = row!(wave, args.src[2], O::SRC[2], z);
    let a_high = high_row!(wave, args.src[0], O::SRC[0], x_high);
    let b_high = high_row!(wave, args.src[1], O::SRC[1], y_high);
    let c_high = high_row!(wave, args.src[2], O::SRC[2], z_high);
    let (mut signs, mut high_signs) = ([Aligned(ZEROS); 3], [Aligned(ZEROS); 3]);
    let ([a, b, c], [a_high, b_high, c_high]) = if SIGNED {
        for (i, (low, high)) in [(a, a_high), (b, b_high), (c, c_high)].into_iter().enumerate() {
            let (keep, flip) = sign_bits(O::SRC[i], args, i);
            // Of 64 bits the sign is in the high half.
            let wide = O::SRC[i].is_64();
            signs[i] = if wide { Aligned(*low) } else { Aligned::of(|l| low[l] & keep ^ flip) };
            if wide {
                high_signs[i] = Aligned::of(|l| high[l] & keep ^ flip);
            }
        }
        (signs.each_ref().map(|x| &x.0), high_signs.each_ref().map(|x| &x.0))
    } else {
        ([a, b, c], [a_high, b_high, c_high])
    };
    let lane = |i: usize| {
        [O::SRC[0].join(a[i], a_high[i]), O::SRC[1].join(b[i], b_high[i]), O::SRC[2].join(c[i], c_high[i])]
    };
    let wide = O::DST.is_64() || O::SRC[0].is_64() || O::SRC[1].is_64() || O::SRC[2].is_64();
    let mut carries = 0;
    if O::CARRY {
        let mut bits = [0; 32];
        for i in 0..32 {
            bits[i] = u32::from(O::carry(m, lane(i)));
        }
        carries = gather(&bits) & exec;
    }
    let dst = usize::from(args.dst);
    let mut out = if wide {
        let out = each_wide::<O>(m, exec, lane);
        if O::DST.is_64() {
            blend(wave.row_mut(dst + 1), &Aligned::of(|i| (out[i] >> 32) as u32).0, exec);
        }
        Aligned::of(|i| out[i] as u32)
    } else {
        each::<O>(m, exec, a, b, c)
    };
    if matches!(O::DST, Kind::Mask) {
        return gather(&out.0) & exec;
    }
    let dst = wave.row_mut(dst);
    if O::DST.is_16() {
        // 16-bit results leave the other half of their register alone on gfx10.
        for i in 0..32 {
            out.0[i] = dst[i] & 0xffff_0000 | out.0[i] & 0xffff;
        }
    }
    blend(dst, &out.0, exec);
    carries
}

/// What absolute value and negation do to the word with a float source's sign: bits kept, then bits turned.
#[inline(always)]
fn sign_bits(kind: Kind, args: &Args, i: usize) -> (u32, u32) {
    let sign = match kind {
        Kind::F16 => 0x8000,
        Kind::F32 | Kind::F64 => 0x8000_0000,
        _ => 0,
    };
    let bit = |mods: u8| mods >> i & 1 != 0;
    (if bit(args.mods.abs) { !sign } else { u32::MAX }, if bit(args.mods.neg) { sign } else { 0 })
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
