//! Two 16-bit operations in a lane, mixed precision, dot products (RDNA ISA 6.7 and 12.10, VOP3P).

#![allow(clippy::needless_range_loop)] // rows are indexed alike

use super::arith::{convert, fma};
use super::convert::v_cvt_f16_f32;
use super::format::{F16, F32, single_of_half};
use super::mode::Mode;
use super::{float, int};
use crate::env::VectorFn;
use crate::lanes::{Handlers, Kind, Lane, ZEROS, blend, each, each_wide, finished, lanes, row, spread};
use crate::{Args, Register, Row, Src, Wave};
use wave32_isa::Opcode;

/// The handler of a packed or mixed operation.
pub(super) fn bind(op: Opcode) -> Option<VectorFn> {
    Some(match op {
        Opcode::v_pk_add_f16 => packed::<float::v_add_f16>,
        Opcode::v_pk_mul_f16 => packed::<float::v_mul_f16>,
        Opcode::v_pk_fma_f16 | Opcode::v_pk_fmac_f16 => packed::<float::v_fma_f16>,
        Opcode::v_pk_min_f16 => packed::<float::v_min_f16>,
        Opcode::v_pk_max_f16 => packed::<float::v_max_f16>,
        Opcode::v_pk_add_u16 => packed::<int::v_add_nc_u16>,
        Opcode::v_pk_add_i16 => packed::<int::v_add_nc_i16>,
        Opcode::v_pk_sub_u16 => packed::<int::v_sub_nc_u16>,
        Opcode::v_pk_sub_i16 => packed::<int::v_sub_nc_i16>,
        Opcode::v_pk_mul_lo_u16 => packed::<int::v_mul_lo_u16>,
        Opcode::v_pk_mad_u16 => packed::<int::v_mad_u16>,
        Opcode::v_pk_mad_i16 => packed::<int::v_mad_i16>,
        Opcode::v_pk_min_u16 => packed::<int::v_min_u16>,
        Opcode::v_pk_min_i16 => packed::<int::v_min_i16>,
        Opcode::v_pk_max_u16 => packed::<int::v_max_u16>,
        Opcode::v_pk_max_i16 => packed::<int::v_max_i16>,
        Opcode::v_pk_lshlrev_b16 => packed::<int::v_lshlrev_b16>,
        Opcode::v_pk_lshrrev_b16 => packed::<int::v_lshrrev_b16>,
        Opcode::v_pk_ashrrev_i16 => packed::<int::v_ashrrev_i16>,
        Opcode::v_fma_mix_f32 => mix::<32>,
        Opcode::v_fma_mixlo_f16 => mix::<0>,
        Opcode::v_fma_mixhi_f16 => mix::<16>,
        Opcode::v_dot2_f32_f16 | Opcode::v_dot2c_f32_f16 => dot_of_halves,
        Opcode::v_dot2_i32_i16 => dot::<dots::v_dot2_i32_i16, true>,
        Opcode::v_dot2_u32_u16 => dot::<dots::v_dot2_u32_u16, true>,
        Opcode::v_dot4_i32_i8 | Opcode::v_dot4c_i32_i8 => dot::<dots::v_dot4_i32_i8, false>,
        Opcode::v_dot4_u32_u8 => dot::<dots::v_dot4_u32_u8, false>,
        Opcode::v_dot8_i32_i4 => dot::<dots::v_dot8_i32_i4, false>,
        Opcode::v_dot8_u32_u4 => dot::<dots::v_dot8_u32_u4, false>,
        _ => return None,
    })
}

/// The handlers of gfx1012's operations that DPP may swizzle.
pub(super) fn bind_lanes(op: Opcode) -> Option<Handlers> {
    match op {
        Opcode::v_dot2c_f32_f16 => dots::bind(Opcode::v_dot2_f32_f16),
        Opcode::v_dot4c_i32_i8 => dots::bind(Opcode::v_dot4_i32_i8),
        _ => None,
    }
}

/// How a packed source's halves are chosen and negated.
#[derive(Clone, Copy)]
struct Halves {
    /// Shifts that bring the halves down: of the low result, of the high.
    shift: [u32; 2],
    /// Bits turned in each.
    flip: [u32; 2],
}

impl Halves {
    fn of(args: &Args, i: usize, kind: Kind) -> Self {
        let bit = |mods: u8| u32::from(mods >> i & 1);
        let sign = if matches!(kind, Kind::F16) { 0x8000 } else { 0 };
        Self {
            shift: [16 * bit(args.mods.op_sel), 16 * bit(args.mods.op_sel_hi)],
            flip: [sign * bit(args.mods.neg), sign * bit(args.mods.abs)],
        }
    }

    /// The halves that one result comes from.
    #[inline(always)]
    fn row(self, which: usize, row: &Row) -> Register {
        let (shift, flip) = (self.shift[which], self.flip[which]);
        Register::of(|i| (row[i] >> shift & 0xffff) ^ flip)
    }

    #[inline(always)]
    fn half(self, which: usize, x: u32) -> u32 {
        (x >> self.shift[which] & 0xffff) ^ self.flip[which]
    }
}

/// The low and the high halves of registers, each by the operation `O`.
fn packed<O: Lane>(wave: &mut Wave, args: &Args) {
    let m = Mode::of(wave);
    let exec = wave.exec();
    let (x, y, z);
    let a = row!(wave, args.src[0], O::SRC[0], x);
    let b = row!(wave, args.src[1], O::SRC[1], y);
    let c = row!(wave, args.src[2], O::SRC[2], z);
    let halves = |which: usize| {
        let a = Halves::of(args, 0, O::SRC[0]).row(which, a);
        let b = Halves::of(args, 1, O::SRC[1]).row(which, b);
        let c = Halves::of(args, 2, O::SRC[2]).row(which, c);
        packed_half::<O>(m, exec, args, &a.0, &b.0, &c.0)
    };
    let (low, high) = (halves(0), halves(1));
    let both = Register::of(|i| low.0[i] & 0xffff | high.0[i] << 16);
    blend(wave.row_mut(usize::from(args.dst)), &both.0, exec);
}

/// The operation on 16 bits of each lane.
#[inline(always)]
fn packed_half<O: Lane>(m: Mode, exec: u32, args: &Args, a: &Row, b: &Row, c: &Row) -> Register {
    if !args.mods.clamp {
        return each::<O>(m, exec, a, b, c);
    }
    let lane = |i: usize| [O::SRC[0].widen(a[i]), O::SRC[1].widen(b[i]), O::SRC[2].widen(c[i])];
    Register(each_wide::<O>(m, exec, lane).map(|x| finished(O::DST, m, args, x) as u32))
}

/// `v_fma_mix`: sources of singles or halves, an fma of singles; rounded once more if the result is a half. `TO` is 32
/// for a single, else where the half goes.
fn mix<const TO: u32>(wave: &mut Wave, args: &Args) {
    let m = Mode::of(wave);
    let exec = wave.exec();
    let [a, b, c] = [0, 1, 2].map(|i| mix_source(wave, m, args, i));
    let mut out = each::<float::v_fma_f32>(m, exec, &a.0, &b.0, &c.0);
    let kind = if TO == 32 { Kind::F32 } else { Kind::F16 };
    if TO != 32 {
        out = each::<v_cvt_f16_f32>(m, exec, &out.0, &ZEROS, &ZEROS);
    }
    if args.mods.clamp {
        out = Register(out.0.map(|x| finished(kind, m, args, u64::from(x)) as u32));
    }
    let dst = wave.row_mut(usize::from(args.dst));
    if TO != 32 {
        for i in 0..32 {
            out.0[i] = dst[i] & !(0xffff << TO) | out.0[i] << TO;
        }
    }
    blend(dst, &out.0, exec);
}

/// A source as singles: a half of the register where `op_sel_hi` says so, the half that `op_sel` names.
#[inline(always)]
fn mix_source(wave: &Wave, m: Mode, args: &Args, i: usize) -> Register {
    let bit = |mods: u8| mods >> i & 1 != 0;
    let splat;
    let row = row!(wave, args.src[i], Kind::F32, splat);
    let keep = if bit(args.mods.abs) { 0x7fff_ffff } else { u32::MAX };
    let flip = if bit(args.mods.neg) { 0x8000_0000 } else { 0 };
    let shift = if bit(args.mods.op_sel) { 16 } else { 0 };
    if !bit(args.mods.op_sel_hi) {
        Register::of(|l| row[l] & keep ^ flip)
    } else {
        let singles = singles(m, |l| row[l] >> shift & 0xffff);
        Register::of(|l| singles.0[l] & keep ^ flip)
    }
}

/// The halves of lanes as singles.
#[inline(always)]
fn singles(m: Mode, half: impl Fn(usize) -> u32) -> Register {
    if m.usual::<F16>() {
        Register::of(|l| single_of_half(half(l)).to_bits())
    } else {
        Register::of(|l| convert::<F16, F32>(m, u64::from(half(l))) as u32)
    }
}

/// `v_dot2_f32_f16`, as [`dots`] has it for a lane: row by row.
fn dot_of_halves(wave: &mut Wave, args: &Args) {
    let m = Mode::of(wave);
    let exec = wave.exec();
    let (x, y, z);
    let a = row!(wave, args.src[0], Kind::U32, x);
    let b = row!(wave, args.src[1], Kind::U32, y);
    let mut sum = Register(*row!(wave, args.src[2], Kind::F32, z));
    let [ha, hb] = [0, 1].map(|i| Halves::of(args, i, Kind::F16));
    for which in 0..2 {
        let [a, b] = [(ha, a), (hb, b)].map(|(h, row)| singles(m, |l| h.half(which, row[l])));
        sum = each::<float::v_fma_f32>(m, exec, &a.0, &b.0, &sum.0);
    }
    if args.mods.clamp {
        sum = Register(sum.0.map(|x| finished(Kind::F32, m, args, u64::from(x)) as u32));
    }
    blend(wave.row_mut(usize::from(args.dst)), &sum.0, exec);
}

/// A dot product of integers; those of 16 bits choose the `HALVES` of their first two sources.
fn dot<O: Lane, const HALVES: bool>(wave: &mut Wave, args: &Args) {
    let m = Mode::of(wave);
    let exec = wave.exec();
    let (x, y, z);
    let a = row!(wave, args.src[0], O::SRC[0], x);
    let b = row!(wave, args.src[1], O::SRC[1], y);
    let c = row!(wave, args.src[2], O::SRC[2], z);
    let [ha, hb] = [0, 1].map(|i| Halves::of(args, i, Kind::I16));
    let chosen = |h: Halves, x: u32| if HALVES { h.half(0, x) | h.half(1, x) << 16 } else { x };
    let mut out = [0; 32];
    for i in 0..32 {
        let s = [O::SRC[0].widen(chosen(ha, a[i])), O::SRC[1].widen(chosen(hb, b[i])), O::SRC[2].widen(c[i])];
        let result = O::lane(m, s);
        out[i] = if args.mods.clamp { finished(O::DST, m, args, result) as u32 } else { result as u32 };
    }
    blend(wave.row_mut(usize::from(args.dst)), &out, exec);
}

/// gfx1012's dot products. The manual gives no rounding for the halves': each product is added in turn, as an fma.
mod dots {
    use super::*;

    lanes! {
        v_dot2_f32_f16: F32(U32, U32, F32) |m, a, b, c| {
            let product = |shift: u32, sum: u64| {
                let [x, y] = [a, b].map(|x| convert::<F16, F32>(m, x >> shift & 0xffff));
                fma::<F32>(m, x, y, sum)
            };
            product(16, product(0, c))
        };
        v_dot2_i32_i16: I32(U32, U32, I32) |_, a, b, c| parts::<16>(a, b, true).wrapping_add(c);
        v_dot2_u32_u16: U32(U32, U32, U32) |_, a, b, c| parts::<16>(a, b, false).wrapping_add(c);
        v_dot4_i32_i8: I32(U32, U32, I32) |_, a, b, c| parts::<8>(a, b, true).wrapping_add(c);
        v_dot4_u32_u8: U32(U32, U32, U32) |_, a, b, c| parts::<8>(a, b, false).wrapping_add(c);
        v_dot8_i32_i4: I32(U32, U32, I32) |_, a, b, c| parts::<4>(a, b, true).wrapping_add(c);
        v_dot8_u32_u4: U32(U32, U32, U32) |_, a, b, c| parts::<4>(a, b, false).wrapping_add(c);
    }

    /// The sum of the products of parts of `BITS`.
    #[inline(always)]
    fn parts<const BITS: u32>(a: u64, b: u64, signed: bool) -> u64 {
        (0..32 / BITS).fold(0u64, |sum, i| {
            let [x, y] = [a, b].map(|x| {
                let top = x << (64 - BITS - i * BITS);
                if signed { (top as i64 >> (64 - BITS)) as u64 } else { top >> (64 - BITS) }
            });
            sum.wrapping_add(x.wrapping_mul(y))
        })
    }
}
