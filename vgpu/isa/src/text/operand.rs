//! Registers, constants, source modifiers.

use std::fmt;

use crate::op::flag;
use crate::{Arg, Form, Inst, Opcode, Operand, Slot, Swizzle, Ty};

impl Inst {
    pub(super) fn operand(&self, f: &mut fmt::Formatter<'_>, arg: &Arg) -> fmt::Result {
        let code = arg.operand.0;
        match code {
            _ if arg.operand == Operand::OFF => f.write_str("off"),
            256.. => registers(f, "v", code - 256, arg.dwords),
            0..106 => registers(f, "s", code, arg.dwords),
            108..124 => registers(f, "ttmp", code - 108, arg.dwords),
            106 | 107 | 126 | 127 => {
                let name = if code < 108 { "vcc" } else { "exec" };
                let half = match (arg.dwords, code & 1) {
                    (2, _) => "",
                    (_, 0) => "_lo",
                    _ => "_hi",
                };
                write!(f, "{name}{half}")
            }
            124 => f.write_str("m0"),
            125 => f.write_str("null"),
            128..=192 => write!(f, "{}", code - 128),
            193..=208 => write!(f, "-{}", code - 192),
            235 => f.write_str("src_shared_base"),
            236 => f.write_str("src_shared_limit"),
            237 => f.write_str("src_private_base"),
            238 => f.write_str("src_private_limit"),
            239 => f.write_str("src_pops_exiting_wave_id"),
            240..=248 if matches!(self.shown(arg), Ty::I16 | Ty::U16) => {
                let bits: [u16; 9] = [0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118];
                write!(f, "{:#x}", bits[usize::from(code - 240)])
            }
            240..=247 => f.write_str(
                ["0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0"][usize::from(code - 240)],
            ),
            248 => f.write_str(if arg.dwords == 2 { "0.15915494309189532" } else { "0.15915494" }),
            251 => f.write_str("src_vccz"),
            252 => f.write_str("src_execz"),
            253 => f.write_str("src_scc"),
            254 => f.write_str("src_lds_direct"),
            _ => self.constant(f, arg),
        }
    }

    /// The type that LLVM shows constants of: half for all of `v_fma_mix`, and for `v_ldexp_f16`'s exponent, though it is
    /// an integer.
    fn shown(&self, arg: &Arg) -> Ty {
        let half =
            self.op.row().src.contains(&Slot::Mix) || self.op == Opcode::v_ldexp_f16 && arg.ty == Ty::I16;
        if half { Ty::F16 } else { arg.ty }
    }

    /// The literal: LLVM shows it as an inline constant where it equals one.
    fn constant(&self, f: &mut fmt::Formatter<'_>, arg: &Arg) -> fmt::Result {
        let value = self.literal;
        let ty = self.shown(arg);
        let (integer, float) = match (ty, arg.dwords) {
            (Ty::Imm, _) => (None, None),
            (Ty::F16, _) => (Some(i64::from(value as i16)), inline_f16(u32::from(value as u16))),
            (Ty::Pk16F, _) => (Some(i64::from(value as i32)), inline_f16(value)),
            // The upper half of the double.
            (Ty::F64, _) => (Some(i64::from(value) << 32), inline_f64(value)),
            (_, 2) => (Some(i64::from(value)), None),
            _ => (Some(i64::from(value as i32)), inline_f32(value)),
        };
        let integer = integer.filter(|value| (-16..=64).contains(value));
        match (integer, float) {
            (Some(integer), _) => write!(f, "{integer}"),
            (_, Some(float)) => f.write_str(float),
            _ if matches!(ty, Ty::F16 | Ty::I16 | Ty::U16) => write!(f, "{:#x}", value as u16),
            _ => write!(f, "{value:#x}"),
        }
    }

    /// A vector instruction's source with its modifiers.
    pub(super) fn source(&self, f: &mut fmt::Formatter<'_>, index: usize, arg: &Arg) -> fmt::Result {
        let extended = matches!(self.swizzle, Swizzle::Sdwa { sext, .. } if sext.get(index) == Some(&true));
        let row = self.op.row();
        let float = matches!(arg.ty, Ty::F16 | Ty::Pk16F | Ty::F32 | Ty::F64) || self.op.has(flag::FMODS);
        let packed = matches!(self.form, Form::Vop3p) && !row.src.contains(&Slot::Mix);
        let unused = packed || self.op.has(flag::OPSEL | flag::DOT);
        // LLVM takes an integer's NEG, which means nothing, for this modifier.
        if extended || !float && !unused && self.mods.neg >> index & 1 != 0 {
            f.write_str("sext(")?;
            self.operand(f, arg)?;
            return f.write_str(")");
        }
        let neg = float && !packed && self.mods.neg >> index & 1 != 0;
        let abs = float && !packed && self.mods.abs >> index & 1 != 0;
        let constant = matches!(arg.operand.0, 128..=208 | 240..=248 | 255);
        match (neg, abs) {
            (false, false) => self.operand(f, arg),
            (true, false) if constant => {
                f.write_str("neg(")?;
                self.operand(f, arg)?;
                f.write_str(")")
            }
            _ => {
                f.write_str(if neg { "-" } else { "" })?;
                f.write_str(if abs { "|" } else { "" })?;
                self.operand(f, arg)?;
                f.write_str(if abs { "|" } else { "" })
            }
        }
    }
}

fn registers(f: &mut fmt::Formatter<'_>, file: &str, first: u16, dwords: u8) -> fmt::Result {
    match dwords {
        1 => write!(f, "{file}{first}"),
        n => write!(f, "{file}[{first}:{}]", first + u16::from(n) - 1),
    }
}

fn inline_f32(bits: u32) -> Option<&'static str> {
    Some(match bits {
        0x3f00_0000 => "0.5",
        0xbf00_0000 => "-0.5",
        0x3f80_0000 => "1.0",
        0xbf80_0000 => "-1.0",
        0x4000_0000 => "2.0",
        0xc000_0000 => "-2.0",
        0x4080_0000 => "4.0",
        0xc080_0000 => "-4.0",
        0x3e22_f983 => "0.15915494",
        _ => return None,
    })
}

fn inline_f64(high: u32) -> Option<&'static str> {
    Some(match high {
        0x3fe0_0000 => "0.5",
        0xbfe0_0000 => "-0.5",
        0x3ff0_0000 => "1.0",
        0xbff0_0000 => "-1.0",
        0x4000_0000 => "2.0",
        0xc000_0000 => "-2.0",
        0x4010_0000 => "4.0",
        0xc010_0000 => "-4.0",
        _ => return None,
    })
}

fn inline_f16(bits: u32) -> Option<&'static str> {
    Some(match bits {
        0x3800 => "0.5",
        0xb800 => "-0.5",
        0x3c00 => "1.0",
        0xbc00 => "-1.0",
        0x4000 => "2.0",
        0xc000 => "-2.0",
        0x4400 => "4.0",
        0xc400 => "-4.0",
        0x3118 => "0.15915494",
        _ => return None,
    })
}
