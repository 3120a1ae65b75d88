//! Operands resolved when an instruction is bound.

use wave32_isa::{Access, Arg, Form, Inst, Mem, Mods, Operand, Swizzle, Ty};

/// Where a source comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Src {
    /// A VGPR, the first of as many as the operation takes.
    Vgpr(u16),
    /// A scalar register by operand code; SCC, VCCZ, EXECZ and apertures too (235 to 253): [`crate::Wave::scalar`].
    Sgpr(u8),
    /// An inline constant or literal, already widened as the operand's type wants it: its low and its high half, which
    /// are as one number a third larger.
    Const(u32, u32),
    /// There is none.
    None,
}

impl Src {
    /// A constant.
    pub(crate) fn constant(bits: u64) -> Self {
        Self::Const(bits as u32, (bits >> 32) as u32)
    }
}

/// What handlers get: small, so that a program stays in the cache, and what most of them look at first.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Args {
    /// VGPR or scalar destination.
    pub dst: u16,
    /// Scalar destination beside it: carry out, compare result.
    pub sdst: u16,
    /// SOPK's and SOPP's constant.
    pub imm: u16,
    /// Sources in the order of the text.
    pub src: [Src; 4],
    /// Modifiers; all zero for most.
    pub mods: Mods,
    /// DPP and SDWA; `None` for most.
    pub swizzle: Swizzle,
    /// Memory fields.
    pub mem: Mem,
}

impl Args {
    /// Resolves an instruction's operands. `dst` and `sdst` are its first and second written operands (VGPRs counted
    /// from 0), `src` what it reads in the order of the text, implicit reads last. What is read and written alike
    /// (`v_fmac`'s sum) is a destination only, but of memory instructions a source as well (an atomic's data). An `off`
    /// address keeps its place as [`Src::None`].
    pub fn new(inst: &Inst) -> Self {
        let memory = is_memory(inst.form);
        let mut args = Self {
            dst: 0,
            sdst: 0,
            src: [Src::None; 4],
            imm: inst.imm,
            mods: inst.mods,
            swizzle: inst.swizzle,
            mem: inst.mem,
        };
        let (mut written, mut read) = (0, 0);
        for arg in inst.args() {
            if arg.access != Access::R {
                match written {
                    0 => args.dst = register(arg.operand),
                    1 => args.sdst = register(arg.operand),
                    _ => {}
                }
                written += 1;
            }
            if (arg.access == Access::R || (arg.access == Access::Rw && memory)) && read < args.src.len() {
                args.src[read] = source(inst, arg);
                read += 1;
            }
        }
        args
    }
}

fn is_memory(form: Form) -> bool {
    matches!(
        form,
        Form::Smem | Form::Ds | Form::Flat | Form::Global | Form::Scratch | Form::Mubuf | Form::Mtbuf
    )
}

pub(crate) fn register(operand: Operand) -> u16 {
    operand.as_vgpr().map_or(operand.0, |v| v as u16)
}

pub(crate) fn source(inst: &Inst, arg: &Arg) -> Src {
    if let Some(v) = arg.operand.as_vgpr() {
        return Src::Vgpr(v as u16);
    }
    match arg.operand.0 {
        code @ (0..=127 | 235..=239 | 251..=253) => Src::Sgpr(code as u8),
        code @ 128..=192 => Src::constant(integer(i64::from(code) - 128, arg)),
        code @ 193..=208 => Src::constant(integer(192 - i64::from(code), arg)),
        code @ 240..=248 => Src::constant(inline_float(code, arg)),
        255 => Src::constant(literal(inst.literal, arg)),
        _ => Src::None,
    }
}

fn wide(arg: &Arg) -> bool {
    arg.dwords >= 2 || matches!(arg.ty, Ty::F64 | Ty::I64 | Ty::U64)
}

fn integer(value: i64, arg: &Arg) -> u64 {
    if wide(arg) { value as u64 } else { u64::from(value as u32) }
}

/// Inline floats (RDNA ISA 6.2.2) have the operand's width: 16-bit floats of f16 operands, doubles of 64-bit ones,
/// else singles, of which 16-bit integers read the low half.
fn inline_float(code: u16, arg: &Arg) -> u64 {
    const F16: [u16; 9] = [0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118];
    const F32: [f32; 8] = [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0];
    let i = usize::from(code - 240);
    if wide(arg) {
        return F32.get(i).map_or(0x3fc4_5f30_6dc9_c882, |&f| f64::from(f).to_bits());
    }
    match arg.ty {
        Ty::F16 | Ty::Pk16F => u64::from(F16[i]),
        _ => u64::from(F32.get(i).map_or(0x3e22_f983, |f| f.to_bits())),
    }
}

/// A literal is 32 bits: the high half of a double, sign-extended to a signed integer of 64, else zero-extended.
fn literal(bits: u32, arg: &Arg) -> u64 {
    match arg.ty {
        Ty::F64 => u64::from(bits) << 32,
        Ty::I64 => bits as i32 as i64 as u64,
        _ => u64::from(bits),
    }
}
