//! Everything that an encoding can say of operands: modifiers, DPP, SDWA, halves, output modifiers, clamping, 64 bits.

use wave32_isa::Swizzle;

use super::swizzle::{self, Moves};
use super::{Kind, Lane, blend, each_wide, gather, spread, write_mask};
use crate::valu::{F16, F32, F64, Format, Mode, is_nan, ldexp};
use crate::{Args, Row, Src, Wave};

/// A row of 64 bits a lane.
type Wide = [u64; 32];

/// The kinds of an operation's result and sources.
pub(crate) struct Kinds {
    /// What is written.
    pub(crate) dst: Kind,
    /// What is read.
    pub(crate) src: [Kind; 3],
}

/// Any operands.
pub(crate) fn general<O: Lane>(wave: &mut Wave, args: &Args) {
    let kinds = Kinds { dst: O::DST, src: O::SRC };
    if O::CARRY {
        write_mask(wave, args.sdst, |wave| {
            let mut carries = 0;
            let mask = drive(wave, args, &kinds, &mut |m, s, exec| {
                carries = carries_of::<O>(m, s);
                run::<O>(m, s, exec)
            });
            carries & mask
        });
    } else if O::DST == Kind::Mask {
        write_mask(wave, args.dst, |wave| drive(wave, args, &kinds, &mut run::<O>));
    } else {
        drive(wave, args, &kinds, &mut run::<O>);
    }
}

/// An operation that needs to know which lane it is.
pub(crate) fn by_lane(
    wave: &mut Wave,
    args: &Args,
    kinds: Kinds,
    lane: impl Fn(Mode, [u64; 3], usize) -> u64,
) {
    drive(wave, args, &kinds, &mut |m, s, _| {
        std::array::from_fn(|i| lane(m, [s[0][i], s[1][i], s[2][i]], i))
    });
}

fn run<O: Lane>(m: Mode, s: &[Wide; 3], exec: u32) -> Wide {
    each_wide::<O>(m, exec, |i| [s[0][i], s[1][i], s[2][i]])
}

fn carries_of<O: Lane>(m: Mode, s: &[Wide; 3]) -> u32 {
    (0..32).fold(0, |mask, i| mask | u32::from(O::carry(m, [s[0][i], s[1][i], s[2][i]])) << i)
}

/// One half. Returns the lanes written; of an operation whose result is a mask, those of them whose bit is set.
fn drive(
    wave: &mut Wave,
    args: &Args,
    kinds: &Kinds,
    run: &mut dyn FnMut(Mode, &[Wide; 3], u32) -> Wide,
) -> u32 {
    let exec = wave.exec();
    let m = Mode::of(wave).with_clamp(args.mods.clamp);
    let moves = Moves::of(&args.swizzle, exec);
    let sources = [0, 1, 2].map(|i| source(wave, args, moves.as_ref(), i, kinds.src[i]));
    let mask = moves.map_or(exec, |moves| exec & moves.written);

    let mut out = run(m, &sources, mask);
    if kinds.dst == Kind::Mask {
        return gather(&out.map(|x| x as u32)) & mask;
    }
    if args.mods.clamp || args.mods.omod != 0 {
        out = out.map(|x| finished(kinds.dst, m, args, x));
    }
    write(wave, args, kinds.dst, &out, mask);
    mask
}

/// A source, swizzled, widened and modified.
fn source(wave: &Wave, args: &Args, moves: Option<&Moves>, i: usize, kind: Kind) -> Wide {
    let src = args.src[i];
    match kind {
        Kind::None => return [0; 32],
        Kind::Mask => return spread(wave.mask_of(src)).map(u64::from),
        _ => {}
    }
    let row = |r: u16| {
        let row = wave.row(usize::from(r));
        match moves {
            Some(moves) if i == 0 => moves.apply(row),
            _ => *row,
        }
    };
    let low: Row = match src {
        Src::Vgpr(r) => row(r),
        src => [wave.uniform(src); 32],
    };
    let low = match &args.swizzle {
        Swizzle::Sdwa { src: parts, sext, .. } if i < 2 => low.map(|x| swizzle::part(x, parts[i], sext[i])),
        _ => low,
    };
    let bit = 1 << i;
    let high_half = kind.is_16() && args.mods.op_sel & bit != 0;
    let mut wide = if kind.is_64() {
        match src {
            Src::Vgpr(r) => {
                let high = row(r + 1);
                std::array::from_fn(|l| u64::from(low[l]) | u64::from(high[l]) << 32)
            }
            src => [wave.uniform64(src); 32],
        }
    } else {
        low.map(|x| kind.widen(if high_half { x >> 16 } else { x }))
    };
    let sign = match kind {
        Kind::F16 => F16::SIGN,
        Kind::F32 => F32::SIGN,
        Kind::F64 => F64::SIGN,
        _ => 0,
    };
    if args.mods.abs & bit != 0 {
        wide = wide.map(|x| x & !sign);
    }
    if args.mods.neg & bit != 0 {
        wide = wide.map(|x| x ^ sign);
    }
    wide
}

/// A result after output modifier and clamp (RDNA ISA 6.2.3 and 6.6).
pub(crate) fn finished(kind: Kind, m: Mode, args: &Args, x: u64) -> u64 {
    match kind {
        Kind::F16 => float::<F16>(m, args, x),
        Kind::F32 => float::<F32>(m, args, x),
        Kind::F64 => float::<F64>(m, args, x),
        _ if !args.mods.clamp => x,
        Kind::I16 => (x as i64).clamp(i64::from(i16::MIN), i64::from(i16::MAX)) as u64,
        Kind::U16 => (x as i64).clamp(0, i64::from(u16::MAX)) as u64,
        Kind::I32 => (x as i64).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u64,
        Kind::U32 => (x as i64).clamp(0, i64::from(u32::MAX)) as u64,
        _ => x,
    }
}

/// Output modifiers do nothing in IEEE mode and where denormal results stay; they make plus zero of minus zero.
fn float<F: Format>(m: Mode, args: &Args, x: u64) -> u64 {
    let mut x = x;
    if args.mods.omod != 0 && !m.ieee() && !m.denormals_out::<F>() && !is_nan::<F>(x) {
        x = ldexp::<F>(m, x, [0, 1, 2, -1][usize::from(args.mods.omod & 3)]);
        if x == F::SIGN {
            x = 0;
        }
    }
    if !args.mods.clamp {
        return x;
    }
    if is_nan::<F>(x) {
        return if m.dx10_clamp() { 0 } else { x };
    }
    if x & F::SIGN != 0 { 0 } else { x.min(F::ONE) }
}

fn write(wave: &mut Wave, args: &Args, kind: Kind, out: &Wide, mask: u32) {
    let dst = usize::from(args.dst);
    let low = out.map(|x| x as u32);
    if kind.is_64() {
        blend(wave.row_mut(dst), &low, mask);
        blend(wave.row_mut(dst + 1), &out.map(|x| (x >> 32) as u32), mask);
        return;
    }
    let old = *wave.row(dst);
    let new: Row = match args.swizzle {
        Swizzle::Sdwa { dst: sel, dst_unused, .. } => std::array::from_fn(|i| {
            let value = if kind.is_16() { low[i] & 0xffff } else { low[i] };
            swizzle::placed(old[i], value, sel, dst_unused)
        }),
        _ if kind.is_16() && args.mods.op_sel & 8 != 0 => {
            std::array::from_fn(|i| old[i] & 0xffff | low[i] << 16)
        }
        _ if kind.is_16() => std::array::from_fn(|i| old[i] & 0xffff_0000 | low[i] & 0xffff),
        _ => low,
    };
    blend(wave.row_mut(dst), &new, mask);
}
