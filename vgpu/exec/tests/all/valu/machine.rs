//! The model's machine: operands and results as the manual's chapters 6 and 13 have them, a lane at a time.

use wave32_exec::Wave;
use wave32_isa::{Access, Arg, Inst, SdwaSel, Swizzle, Ty};

use super::floats::{Fmt, M};

/// What an operation's model gets.
pub struct Lane<'a> {
    pub m: M,
    pub clamp: bool,
    /// Its number in the wave.
    pub lane: usize,
    /// Sources as bits: those of the text, then a destination that is read too, then VCC.
    pub s: &'a [u128],
    pub inst: &'a Inst,
}

/// What it says.
#[derive(Debug, Clone, Copy, Default)]
pub struct Out {
    /// The result; integers exact, so that they can be clamped.
    pub value: i128,
    /// The bit of the mask beside it.
    pub carry: bool,
    /// How far off in units of the last place the result may be.
    pub ulps: u64,
}

pub fn format(ty: Ty) -> Option<Fmt> {
    match ty {
        Ty::F16 => Some(Fmt::H),
        Ty::F32 => Some(Fmt::S),
        Ty::F64 => Some(Fmt::D),
        _ => None,
    }
}

fn is_half(ty: Ty) -> bool {
    matches!(ty, Ty::F16 | Ty::I16 | Ty::U16)
}

/// A constant operand.
fn constant(inst: &Inst, arg: &Arg) -> u128 {
    let code = i32::from(arg.operand.0);
    let double = arg.dwords >= 2;
    let int = |n: i32| if double { u128::from(i64::from(n) as u64) } else { u128::from(n as u32) };
    match code {
        128..=192 => int(code - 128),
        193..=208 => int(192 - code),
        240..=248 => {
            let value =
                [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.15915494309189532][code as usize - 240];
            let bits = f64::to_bits(value);
            if double {
                return bits.into();
            }
            let m = M(0xf0);
            match arg.ty {
                Ty::F16 | Ty::Pk16F => Fmt::D.to(m, bits, Fmt::H).into(),
                _ => Fmt::D.to(m, bits, Fmt::S).into(),
            }
        }
        255 => match arg.ty {
            Ty::F64 => u128::from(inst.literal) << 32,
            Ty::I64 => u128::from(i64::from(inst.literal as i32) as u64),
            _ => inst.literal.into(),
        },
        other => panic!("no constant: operand {other}"),
    }
}

fn mask_bit(wave: &Wave, inst: &Inst, arg: &Arg, lane: usize) -> u128 {
    match arg.operand.as_sgpr() {
        Some(r) => u128::from(wave.sgpr[r + lane / 32] >> (lane % 32) & 1),
        None => constant(inst, arg) >> lane & 1,
    }
}

/// The register as this lane sees it; `None` where DPP has nothing to read.
fn raw(wave: &Wave, inst: &Inst, arg: &Arg, lane: usize) -> u128 {
    if let Some(v) = arg.operand.as_vgpr() {
        return (0..usize::from(arg.dwords)).fold(0, |x, i| {
            x | u128::from(wave.vgpr[lane / 32 * wave.vgprs + v + i][lane % 32]) << (32 * i)
        });
    }
    match arg.operand.as_sgpr() {
        Some(125) => 0,
        Some(r) => (0..usize::from(arg.dwords)).fold(0, |x, i| x | u128::from(wave.sgpr[r + i]) << (32 * i)),
        None => constant(inst, arg),
    }
}

fn on(wave: &Wave, lane: usize) -> bool {
    wave.sgpr[126 + lane / 32] >> (lane % 32) & 1 != 0
}

/// The lane that DPP reads for `lane`; none out of its 16, or off.
pub fn dpp_source(wave: &Wave, swizzle: &Swizzle, lane: usize) -> Option<usize> {
    match *swizzle {
        Swizzle::Dpp16 { ctrl, fetch_inactive, .. } => {
            let place = (lane % 16) as i32;
            let n = i32::from(ctrl % 16);
            let to = match ctrl {
                0..=0xff => place / 4 * 4 + i32::from(ctrl >> (place % 4 * 2) & 3),
                0x101..=0x10f => place + n,
                0x111..=0x11f => place - n,
                0x121..=0x12f => (place - n).rem_euclid(16),
                0x140 => 15 - place,
                0x141 => place / 8 * 8 + 7 - place % 8,
                0x150..=0x15f => n,
                0x160..=0x16f => place ^ n,
                _ => panic!("dpp_ctrl {ctrl:#x}"),
            };
            if !(0..16).contains(&to) {
                return None;
            }
            let from = lane / 16 * 16 + to as usize;
            (fetch_inactive || on(wave, from)).then_some(from)
        }
        Swizzle::Dpp8 { select, fetch_inactive } => {
            let from = lane / 8 * 8 + usize::from(select[lane % 8]);
            (fetch_inactive || on(wave, from)).then_some(from)
        }
        _ => Some(lane),
    }
}

/// Whether DPP lets this lane be written.
fn dpp_writes(wave: &Wave, swizzle: &Swizzle, lane: usize) -> bool {
    match *swizzle {
        Swizzle::Dpp16 { row_mask, bank_mask, bound_ctrl, .. } => {
            row_mask & 1 << (lane % 32 / 16) != 0
                && bank_mask & 1 << (lane % 16 / 4) != 0
                && (bound_ctrl || dpp_source(wave, swizzle, lane).is_some())
        }
        _ => true,
    }
}

fn sel(sel: SdwaSel) -> (u32, u32) {
    match sel {
        SdwaSel::Byte0 => (0, 8),
        SdwaSel::Byte1 => (8, 8),
        SdwaSel::Byte2 => (16, 8),
        SdwaSel::Byte3 => (24, 8),
        SdwaSel::Word0 => (0, 16),
        SdwaSel::Word1 => (16, 16),
        SdwaSel::Dword => (0, 32),
    }
}

/// A source after swizzle, choice of half, absolute value and negation. VOP3P's are left to its operations.
fn source(wave: &Wave, inst: &Inst, arg: &Arg, i: usize, lane: usize) -> u128 {
    if arg.ty == Ty::Mask {
        return mask_bit(wave, inst, arg, lane);
    }
    let vgpr = arg.operand.as_vgpr().is_some();
    let mut x = match &inst.swizzle {
        dpp @ (Swizzle::Dpp16 { .. } | Swizzle::Dpp8 { .. }) if i == 0 && vgpr => {
            dpp_source(wave, dpp, lane).map_or(0, |from| raw(wave, inst, arg, from))
        }
        _ => raw(wave, inst, arg, lane),
    };
    if inst.form == wave32_isa::Form::Vop3p {
        return x;
    }
    if let (Swizzle::Sdwa { src, sext, .. }, true) = (&inst.swizzle, i < 2) {
        let (shift, bits) = sel(src[i]);
        x = x >> shift & ((1 << bits) - 1);
        if sext[i] && x >> (bits - 1) & 1 != 0 {
            x |= 0xffff_ffff << bits & 0xffff_ffff;
        }
    }
    if is_half(arg.ty) {
        x = x >> if inst.mods.op_sel & 1 << i != 0 { 16 } else { 0 } & 0xffff;
    }
    let float = format(arg.ty).or((inst.op.name() == "v_cndmask_b32").then_some(Fmt::S));
    if let Some(f) = float {
        if inst.mods.abs & 1 << i != 0 {
            x &= !u128::from(f.sign());
        }
        if inst.mods.neg & 1 << i != 0 {
            x ^= u128::from(f.sign());
        }
    }
    x
}

/// A result after output multiplier and clamp.
pub fn finished(m: M, inst: &Inst, ty: Ty, out: i128) -> i128 {
    let Some(f) = format(ty) else {
        let range = match ty {
            Ty::I16 => (i128::from(i16::MIN), i128::from(i16::MAX)),
            Ty::U16 => (0, i128::from(u16::MAX)),
            Ty::I32 => (i128::from(i32::MIN), i128::from(i32::MAX)),
            Ty::U32 => (0, i128::from(u32::MAX)),
            _ => return out,
        };
        return if inst.mods.clamp { out.clamp(range.0, range.1) } else { out };
    };
    let mut x = out as u64;
    if inst.mods.omod != 0 && !m.ieee() && !m.keeps_results(f) && !f.is_nan(x) {
        x = f.scale(m, x, [0, 1, 2, -1][usize::from(inst.mods.omod)]);
        if f.is_zero(x) && f.negative(x) {
            x = 0;
        }
    }
    if inst.mods.clamp {
        let one = Fmt::D.to(M(0xf0), 1f64.to_bits(), f);
        x = match (f.is_nan(x), f.negative(x)) {
            (true, _) => {
                if m.dx10_clamp() {
                    0
                } else {
                    x
                }
            }
            (_, true) => 0,
            _ if f.f64(x) > 1.0 => one,
            _ => x,
        };
    }
    x.into()
}

fn put(wave: &mut Wave, register: usize, lane: usize, value: u32) {
    let vgprs = wave.vgprs;
    wave.vgpr[lane / 32 * vgprs + register][lane % 32] = value;
}

/// Whether a part of the result alone is written: what is inexact cannot be compared there.
pub fn places_a_part(inst: &Inst) -> bool {
    let Swizzle::Sdwa { dst, .. } = inst.swizzle else { return false };
    let half = inst.args().first().is_some_and(|a| is_half(a.ty));
    sel(dst).1 < if half { 16 } else { 32 }
}

/// A value that may be off by some units of the last place.
pub struct Tolerance {
    pub register: usize,
    pub lane: usize,
    pub format: Fmt,
    pub ulps: u64,
    pub high: bool,
}

/// Executes an operation that is each lane's own, by its model; returns where the result may be inexact.
pub fn step(wave: &mut Wave, inst: &Inst, eval: &dyn Fn(&Lane) -> Out) -> Vec<Tolerance> {
    let before = wave.clone();
    let lanes = if wave.wave64 { 64 } else { 32 };
    let reads = |implicit: bool, arg: &&Arg| arg.access == Access::R && arg.printed != implicit;
    let mut tolerances = Vec::new();
    let mut masks = [0u64; 2];
    let writes: Vec<&Arg> = inst.args().iter().filter(|a| a.access != Access::R).collect();
    for lane in 0..lanes {
        if !on(&before, lane) || !dpp_writes(&before, &inst.swizzle, lane) {
            continue;
        }
        let mut s: Vec<u128> = inst
            .args()
            .iter()
            .filter(|a| reads(false, a))
            .enumerate()
            .map(|(i, arg)| source(&before, inst, arg, i, lane))
            .collect();
        if let Some(sum) = inst.args().first().filter(|a| a.access == Access::Rw) {
            s.push(raw(&before, inst, sum, lane));
        }
        s.extend(inst.args().iter().filter(|a| reads(true, a)).map(|a| source(&before, inst, a, 9, lane)));
        let m = M(before.mode);
        let out = eval(&Lane { m, clamp: inst.mods.clamp, lane, s: &s, inst });
        for (i, arg) in writes.iter().enumerate() {
            match (arg.ty, arg.operand.as_vgpr()) {
                (Ty::Mask, _) => {
                    let bit = if writes.len() == 1 { out.value & 1 != 0 } else { out.carry };
                    masks[i] |= u64::from(bit) << lane;
                }
                (ty, Some(register)) => {
                    let value = finished(m, inst, ty, out.value);
                    let old = before.vgpr[lane / 32 * before.vgprs + register][lane % 32];
                    let high = inst.mods.op_sel & 8 != 0 || inst.op.name() == "v_fma_mixhi_f16";
                    if out.ulps != 0 {
                        let format = format(ty).unwrap();
                        let placed_high =
                            matches!(inst.swizzle, Swizzle::Sdwa { dst, .. } if sel(dst) == (16, 16));
                        let high = high || is_half(ty) && placed_high;
                        tolerances.push(Tolerance { register, lane, format, ulps: out.ulps, high });
                    }
                    let half = value as u32 & 0xffff;
                    let dword = match inst.swizzle {
                        Swizzle::Sdwa { dst, dst_unused, .. } => {
                            let (shift, bits) = sel(dst);
                            let value = if is_half(ty) { half } else { value as u32 };
                            let field = (((1u64 << bits) - 1) << shift) as u32;
                            let placed = value.unbounded_shl(shift) & field;
                            let above = !(field | ((1u64 << shift) - 1) as u32);
                            let negative = value >> (bits - 1) & 1 != 0;
                            match dst_unused {
                                0 => placed,
                                1 => placed | if negative { above } else { 0 },
                                _ => placed | old & !field,
                            }
                        }
                        _ if is_half(ty) && high => half << 16 | old & 0xffff,
                        _ if is_half(ty) => half | old & 0xffff_0000,
                        _ => value as u32,
                    };
                    put(wave, register, lane, dword);
                    for d in 1..usize::from(arg.dwords) {
                        put(wave, register + d, lane, (value >> (32 * d)) as u32);
                    }
                }
                _ => panic!("{inst:?} writes {arg:?}"),
            }
        }
    }
    for (arg, mask) in writes.iter().zip(masks) {
        if arg.ty == Ty::Mask {
            let r = arg.operand.as_sgpr().unwrap();
            if r != 125 {
                wave.sgpr[r] = mask as u32;
                if wave.wave64 {
                    wave.sgpr[r + 1] = (mask >> 32) as u32;
                }
            }
        }
    }
    tolerances
}
