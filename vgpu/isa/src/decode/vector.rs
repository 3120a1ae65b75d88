//! VOP1, VOP2, VOPC, their DPP and SDWA forms, VOP3 and VOP3P (RDNA ISA 13.3).

use super::{DecodeError, Decoder};
use crate::op::{Slot, flag};
use crate::{Access, Form, Operand, SdwaSel, Swizzle, Ty};

/// Values of SRC0 that announce another dword.
const SDWA: u32 = 249;
const DPP16: u32 = 250;
const DPP8: [u32; 2] = [233, 234];

impl Decoder<'_> {
    pub(super) fn vop(&mut self) -> Result<(), DecodeError> {
        let op = self.inst.op;
        let src0 = self.bits(0, 9);
        let small = |slot: &Slot| !matches!(slot, Slot::Value(_, 2..));
        let small = op.row().dst.iter().chain(op.row().src).all(small);
        match src0 {
            SDWA if small && !op.has(flag::NO_SDWA) => {
                self.second()?;
                self.sdwa()
            }
            DPP16 | 233 | 234 if small && !op.has(flag::NO_DPP) && self.inst.form != Form::Vopc => {
                self.second()?;
                self.dpp(src0)
            }
            _ => self.plain(src0),
        }
    }

    /// There is a second dword, DPP's or SDWA's.
    fn second(&mut self) -> Result<(), DecodeError> {
        self.inst.len = 8;
        if self.words.len() < 2 { Err(DecodeError::Truncated { words: 2 }) } else { Ok(()) }
    }

    fn plain(&mut self, src0: u32) -> Result<(), DecodeError> {
        let op = self.inst.op;
        self.vop_dst()?;
        let src1 = 256 + self.bits(9, 8);
        let mut codes = [src0, src1].into_iter();
        for &slot in op.row().src {
            match slot {
                Slot::Literal => {
                    let operand = self.literal()?;
                    self.push(operand, (Ty::Imm, 1), Access::R, true);
                }
                Slot::Value(Ty::Mask, _) => self.push(Operand::VCC, self.kind(slot), Access::R, true),
                _ => {
                    let code = codes.next().unwrap_or(src1);
                    self.vector_source(code, slot, if code == src0 { "SRC0" } else { "VSRC1" })?;
                }
            }
        }
        if op.has(flag::SWAP) {
            self.inst.arg[1].access = Access::Rw;
        }
        Ok(())
    }

    /// The destinations of VOP1, VOP2 and VOPC.
    fn vop_dst(&mut self) -> Result<(), DecodeError> {
        let op = self.inst.op;
        if op.row().dst.is_empty() && self.inst.form == Form::Vop1 {
            return self.zero(17, 8, "VDST");
        }
        let access = self.dst_access();
        for &slot in op.row().dst {
            match slot {
                Slot::Value(Ty::Mask, _) => self.push(Operand::VCC, self.kind(slot), Access::W, true),
                Slot::Sgpr => {
                    let operand = self.sgprs(self.bits(17, 8), 1, "VDST")?;
                    self.push(operand, (Ty::B, 1), Access::W, true);
                }
                _ => self.vgpr(self.bits(17, 8), self.kind(slot), access, "VDST")?,
            }
        }
        Ok(())
    }

    /// A source of nine bits.
    fn vector_source(&mut self, code: u32, slot: Slot, field: &'static str) -> Result<(), DecodeError> {
        let kind = self.kind(slot);
        let wrong = match slot {
            // LLVM takes no EXEC for a lane mask.
            Slot::Value(Ty::Mask, _) => code >= 126,
            Slot::Value(_, 4) => code < 256,
            // LDS direct goes to lanes' readers too, not to what indexes VGPRs.
            Slot::Vgpr => code < 256 && !(code == 254 && matches!(self.inst.op.row().dst, [Slot::Sgpr])),
            Slot::Scalar => code >= 256 || code == 254 && field != "SRC0",
            _ => false,
        };
        if wrong {
            return Err(self.refuse(field, code));
        }
        if code >= 256 {
            return self.vgpr(code - 256, kind, Access::R, field);
        }
        let operand =
            if code == 254 && kind.1 == 1 { Operand(254) } else { self.source(code, kind.1, field)? };
        self.push(operand, kind, Access::R, true);
        Ok(())
    }

    fn dpp(&mut self, src0: u32) -> Result<(), DecodeError> {
        let op = self.inst.op;
        self.inst.swizzle = if DPP8.contains(&src0) {
            let select = std::array::from_fn(|i| self.bits(40 + 3 * i as u32, 3) as u8);
            Swizzle::Dpp8 { select, fetch_inactive: src0 == DPP8[1] }
        } else {
            let ctrl = self.bits(40, 9) as u16;
            let known = matches!(ctrl, 0..=0xff | 0x101..=0x10f | 0x111..=0x11f | 0x121..=0x12f)
                || matches!(ctrl, 0x140 | 0x141 | 0x150..=0x15f | 0x160..=0x16f);
            if !known {
                return Err(self.refuse("DPP_CTRL", u32::from(ctrl)));
            }
            // Where the first source is a float, the second has the bits too.
            let floats = self.is_float(0) || op.has(flag::DOT);
            self.modifier(0, 52, 53, floats)?;
            self.modifier(1, 54, 55, floats && self.inst.form == Form::Vop2)?;
            Swizzle::Dpp16 {
                ctrl,
                row_mask: self.bits(60, 4) as u8,
                bank_mask: self.bits(56, 4) as u8,
                bound_ctrl: self.bit(51),
                fetch_inactive: self.bit(50),
            }
        };
        self.vop_dst()?;
        let mut codes = [self.bits(32, 8), self.bits(9, 8)].into_iter();
        for &slot in op.row().src {
            match slot {
                Slot::Value(Ty::Mask, _) => self.push(Operand::VCC, self.kind(slot), Access::R, true),
                _ => self.vgpr(codes.next().unwrap_or(0), self.kind(slot), Access::R, "SRC")?,
            }
        }
        Ok(())
    }

    fn sdwa(&mut self) -> Result<(), DecodeError> {
        let op = self.inst.op;
        let row = op.row();
        let sel = |low| match self.bits(low, 3) {
            0 => Ok(SdwaSel::Byte0),
            1 => Ok(SdwaSel::Byte1),
            2 => Ok(SdwaSel::Byte2),
            3 => Ok(SdwaSel::Byte3),
            4 => Ok(SdwaSel::Word0),
            5 => Ok(SdwaSel::Word1),
            6 => Ok(SdwaSel::Dword),
            value => Err(self.refuse("SDWA_SEL", value)),
        };
        let compare = self.inst.form == Form::Vopc;
        let (dst, dst_unused) =
            if compare { (SdwaSel::Dword, 0) } else { (sel(40)?, self.bits(43, 2) as u8) };
        if dst_unused == 3 {
            return Err(self.refuse("DST_UNUSED", 3));
        }
        let src = [sel(48)?, if self.inst.form == Form::Vop1 { SdwaSel::Dword } else { sel(56)? }];
        for (i, sext) in [51, 59].into_iter().enumerate() {
            self.modifier(i, sext + 1, sext + 2, self.is_float(i))?;
            if self.is_float(i) {
                self.zero(sext, 1, "SEXT")?;
            }
        }
        if self.inst.form == Form::Vop1 {
            self.zero(56, 6, "SRC1")?;
            self.zero(63, 1, "SRC1")?;
        }
        self.inst.swizzle = Swizzle::Sdwa { dst, dst_unused, src, sext: [self.bit(51), self.bit(59)] };
        if !compare {
            self.inst.mods.clamp = self.bit(45);
            let float = |slot: &Slot| matches!(slot, Slot::Value(Ty::F16 | Ty::F32 | Ty::Pk16F, _));
            if row.dst.iter().any(float) {
                self.inst.mods.omod = self.bits(46, 2) as u8;
            } else {
                self.zero(46, 2, "OMOD")?;
            }
        }
        if compare && row.dst.is_empty() {
            self.zero(47, 1, "SD")?;
        } else if compare {
            // SD: another SGPR than VCC.
            let kind = self.kind(crate::op::slot::Mask);
            let operand =
                if self.bit(47) { self.sgprs(self.bits(40, 7), kind.1, "SDST")? } else { Operand::VCC };
            self.push(operand, kind, Access::W, true);
        } else {
            self.vop_dst()?;
        }
        let mut fields = [(32, 55), (9, 63)].into_iter();
        for &slot in row.src {
            if let Slot::Value(Ty::Mask, _) = slot {
                self.push(Operand::VCC, self.kind(slot), Access::R, true);
                continue;
            }
            let (low, scalar) = fields.next().unwrap_or((32, 55));
            let code = self.bits(low, 8) + if self.bit(scalar) { 0 } else { 256 };
            if code == 255 {
                return Err(self.refuse("SRC", code));
            }
            self.vector_source(code, if slot == Slot::Vgpr { crate::op::slot::B32 } else { slot }, "SRC")?;
        }
        Ok(())
    }

    /// Negation and absolute value, of sources that are floats.
    fn modifier(&mut self, i: usize, neg: u32, abs: u32, allowed: bool) -> Result<(), DecodeError> {
        if !allowed {
            self.zero(neg, 1, "NEG")?;
            return self.zero(abs, 1, "ABS");
        }
        self.inst.mods.neg |= u8::from(self.bit(neg)) << i;
        self.inst.mods.abs |= u8::from(self.bit(abs)) << i;
        Ok(())
    }

    /// Whether source `i` is a float, or may be negated like one.
    fn is_float(&self, i: usize) -> bool {
        let float = |slot| matches!(slot, Some(&Slot::Value(Ty::F16 | Ty::F32 | Ty::F64, _)));
        float(self.inst.op.row().src.get(i)) || i < 2 && self.inst.op.has(flag::FMODS)
    }

    pub(super) fn vop3(&mut self) -> Result<(), DecodeError> {
        let op = self.inst.op;
        let row = op.row();
        let carries = row.dst.len() == 2;
        let access = self.dst_access();
        for (i, &slot) in row.dst.iter().enumerate() {
            match slot {
                Slot::Value(Ty::Mask, _) | Slot::Sgpr => {
                    let kind = self.kind(slot);
                    let code = if i == 0 { self.bits(0, 8) } else { self.bits(8, 7) };
                    let operand = self.sgprs(code, kind.1, "SDST")?;
                    self.push(operand, kind, Access::W, true);
                }
                _ => self.vgpr(self.bits(0, 8), self.kind(slot), access, "VDST")?,
            }
        }
        if row.dst.is_empty() && row.src.is_empty() {
            self.zero(0, 8, "VDST")?;
        }
        self.vop3_modifiers(carries)?;
        self.three_sources()
    }

    fn vop3_modifiers(&mut self, carries: bool) -> Result<(), DecodeError> {
        let op = self.inst.op;
        let row = op.row();
        let op_sel = op.has(flag::OPSEL);
        let float = |slot: &Slot| matches!(slot, Slot::Value(Ty::F16 | Ty::F32 | Ty::F64, _));
        let any_float = row.dst.iter().chain(row.src).any(float);
        let sources = row.src.iter().filter(|slot| **slot != crate::op::slot::Mask).count();
        for i in 0..3 {
            let floats = if row.form == Form::Vopc { self.is_float(i) } else { self.is_float(0) };
            let allowed = i < sources && (floats || op_sel);
            let (neg, abs) = (61 + i as u32, 8 + i as u32);
            if carries {
                // SDST stands in the place of ABS.
                if allowed {
                    self.inst.mods.neg |= u8::from(self.bit(neg)) << i;
                } else {
                    self.zero(neg, 1, "NEG")?;
                }
            } else {
                self.modifier(i, neg, abs, allowed)?;
            }
        }
        let compares_class = row.form == Form::Vopc && !self.is_float(1);
        let lanes = row.src.contains(&Slot::Scalar);
        if op.has(flag::CLAMP) || any_float && !compares_class {
            self.inst.mods.clamp = self.bit(15);
        } else {
            self.zero(15, 1, "CLAMP")?;
        }
        let multiplied = match row.form {
            Form::Vopc => false,
            Form::Vop3 => row.dst.first().is_some_and(float),
            _ => any_float,
        };
        if multiplied && !op.has(flag::NO_OMOD) {
            self.inst.mods.omod = self.bits(59, 2) as u8;
        } else {
            self.zero(59, 2, "OMOD")?;
        }
        if carries {
            // SDST stands there.
        } else if !(op_sel || op.has(flag::HALVES)) {
            // What hardware makes of it is not known, and no compiler writes it.
            self.zero(11, 4, "OP_SEL")?;
        } else {
            if sources == 2 {
                self.zero(13, 1, "OP_SEL")?;
            }
            self.inst.mods.op_sel = (self.bits(11, 4) & if lanes { 3 } else { 15 }) as u8;
        }
        Ok(())
    }

    /// VOP3's and VOP3P's sources.
    fn three_sources(&mut self) -> Result<(), DecodeError> {
        let row = self.inst.op.row();
        for (i, field) in ["SRC0", "SRC1", "SRC2"].into_iter().enumerate() {
            let low = 32 + 9 * i as u32;
            match row.src.get(i) {
                Some(&slot) => self.vector_source(self.bits9(low), slot, field)?,
                // Hardware looks at no source that the operation has not; Mesa's compiler writes the constant 0 there.
                None if matches!(self.bits9(low), 0 | 128) => {}
                None => return Err(self.refuse(field, self.bits9(low))),
            }
        }
        Ok(())
    }

    fn bits9(&self, low: u32) -> u32 {
        self.bits(low, 9)
    }

    pub(super) fn vop3p(&mut self) -> Result<(), DecodeError> {
        let op = self.inst.op;
        let access = self.dst_access();
        for &slot in op.row().dst {
            self.vgpr(self.bits(0, 8), self.kind(slot), access, "VDST")?;
        }
        self.inst.mods.clamp = self.bit(15);
        self.inst.mods.abs = self.bits(8, 3) as u8;
        self.inst.mods.neg = self.bits(61, 3) as u8;
        self.inst.mods.op_sel = self.bits(11, 3) as u8;
        self.inst.mods.op_sel_hi = (self.bits(59, 2) | self.bits(14, 1) << 2) as u8;
        if op.row().src.len() == 2 {
            self.zero(10, 1, "NEG_HI")?;
            self.zero(13, 1, "OP_SEL")?;
            self.zero(63, 1, "NEG")?;
        }
        self.three_sources()?;
        let halves = self.inst.mods.op_sel_hi;
        for (i, slot) in op.row().src.iter().enumerate() {
            if *slot == Slot::Mix {
                self.inst.arg[i + 1].ty = if halves >> i & 1 != 0 { Ty::F16 } else { Ty::F32 };
            }
        }
        Ok(())
    }
}
