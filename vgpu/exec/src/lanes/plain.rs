//! Handlers of operands as they are: what is left is loops over rows, which LLVM makes vectors of.

use super::rows::{ZEROS, blend, gather, high_row, row, spread, write_mask};
use super::{Kind, Lane, hosts};
use crate::valu::Mode;
use crate::{Args, Register, Row, Src, Wave};

/// The results of all lanes of an operation of at most 32 bits, as the host computes them where MODE allows. What the
/// host makes of NaNs is not looked at: lanes of `exec` where one came out are done again.
#[inline(always)]
pub(crate) fn each<O: Lane>(m: Mode, exec: u32, a: &Row, b: &Row, c: &Row) -> Register {
    if !O::USUAL {
        return Register::of(|i| one::<O>(m, a[i], b[i], c[i]));
    }
    let mut out = Register([0; 32]);
    let nans = match (O::is_usual(m), O::is_flushed(m)) {
        (true, _) => usual::<O, false>(a, b, c, &mut out.0),
        (_, true) => usual::<O, true>(a, b, c, &mut out.0),
        _ => {
            again::<O>(m, u32::MAX, [a, b, c], &mut out.0);
            false
        }
    };
    if nans {
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
fn usual<O: Lane, const FLUSH: bool>(a: &Row, b: &Row, c: &Row, out: &mut Row) -> bool {
    let mut nans = 0;
    for i in 0..32 {
        let x = hosts::<O, FLUSH>([O::SRC[0].widen(a[i]), O::SRC[1].widen(b[i]), O::SRC[2].widen(c[i])]);
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
    let flushed = O::is_flushed(m);
    if !O::is_usual(m) && !flushed {
        for i in 0..32 {
            out[i] = O::lane(m, lane(i));
        }
        return out;
    }
    let mut nans = 0;
    for i in 0..32 {
        out[i] = if flushed { hosts::<O, true>(lane(i)) } else { O::usual(lane(i)) };
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
pub(super) fn quick<O: Lane, const UNIFORM: bool>(wave: &mut Wave, args: &Args) {
    let m = Mode::of(wave);
    match (O::USUAL && !O::is_usual(m), O::is_flushed(m)) {
        (false, _) => whole::<O, UNIFORM, false>(wave, args, m),
        (_, true) => whole::<O, UNIFORM, true>(wave, args, m),
        _ => plain::<O, false>(wave, args),
    }
}

/// A row of results, denormals kept or flushed.
#[inline(always)]
fn whole<O: Lane, const UNIFORM: bool, const FLUSH: bool>(wave: &mut Wave, args: &Args, m: Mode) {
    let exec = wave.exec();
    let first = wave.half * wave.vgprs;
    let row = |src: Src| if let Src::Vgpr(r) = src { &wave.vgpr[first + usize::from(r)] } else { &ZEROS };
    let x = if UNIFORM { wave.uniform(args.src[0]) } else { 0 };
    let a = if UNIFORM { &ZEROS } else { row(args.src[0]) };
    let b = if matches!(O::SRC[1], Kind::None) { &ZEROS } else { row(args.src[1]) };
    let c = if matches!(O::SRC[2], Kind::None) { &ZEROS } else { row(args.src[2]) };
    let mut out = Register([0; 32]);
    let mut nans = 0;
    for i in 0..32 {
        let a = if UNIFORM { x } else { a[i] };
        let s = [O::SRC[0].widen(a), O::SRC[1].widen(b[i]), O::SRC[2].widen(c[i])];
        let result = if O::USUAL { hosts::<O, FLUSH>(s) } else { O::lane(m, s) };
        nans |= if O::USUAL { O::DST.nan(result) } else { 0 };
        out.0[i] = result as u32;
    }
    if nans != 0 {
        return plain::<O, false>(wave, args);
    }
    blend(wave.row_mut(usize::from(args.dst)), &out.0, exec);
}

/// Operands as they are, but for `SIGNED` ones.
pub(super) fn plain<O: Lane, const SIGNED: bool>(wave: &mut Wave, args: &Args) {
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
    let (mut signs, mut high_signs) = ([Register(ZEROS); 3], [Register(ZEROS); 3]);
    let ([a, b, c], [a_high, b_high, c_high]) = if SIGNED {
        for (i, (low, high)) in [(a, a_high), (b, b_high), (c, c_high)].into_iter().enumerate() {
            let (keep, flip) = sign_bits(O::SRC[i], args, i);
            // Of 64 bits the sign is in the high half.
            let wide = O::SRC[i].is_64();
            signs[i] = if wide { Register(*low) } else { Register::of(|l| low[l] & keep ^ flip) };
            if wide {
                high_signs[i] = Register::of(|l| high[l] & keep ^ flip);
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
            blend(wave.row_mut(dst + 1), &Register::of(|i| (out[i] >> 32) as u32).0, exec);
        }
        Register::of(|i| out[i] as u32)
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
