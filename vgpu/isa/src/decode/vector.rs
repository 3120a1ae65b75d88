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
                    self.push(operand, (Ty::F32, 1), Access::R, true);
                }
                Slot::Value(Ty::Mask, _) => self.push(Operand::VCC, self.kind(slot), Access::R, true),
                _ => {
                    let code = codes.next().unwrap_or(src1);
                    self.vector_source(code, slot, if code == src0 { "SRC0" } else { "VSRC1" })?;
                }
            }
        }
        if op.has(flag::SWAP) {
            if src0 < 256 {
                return Err(self.refuse("SRC0", src0));
            }
            self.inst.arg[1].access = Access::Rw;
        }
        if op.row().src.is_empty() {
            self.zero(0, 9, "SRC0")?;
        }
        Ok(())
    }

    /// The destinations of VOP1, VOP2 and VOPC.
    fn vop_dst(&mut self) -> Result<(), DecodeError> {
        let op = self.inst.op;
        if op.row().dst.is_empty() && op.row().src.is_empty() {
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
            self.source_modifiers([52, 54], [53, 55], 2)?;
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
        self.inst.swizzle = Swizzle::Sdwa { dst, dst_unused, src, sext: [self.bit(51), self.bit(59)] };
        self.source_modifiers([52, 60], [53, 61], 2)?;
        if !compare {
            self.inst.mods.clamp = self.bit(45);
            self.inst.mods.omod = self.bits(46, 2) as u8;
        }
        if compare && !row.dst.is_empty() {
            // SD: another SGPR than VCC.
            let kind = self.kind(crate::op::slot::Mask);
            let operand =
                if self.bit(47) { self.sgprs(self.bits(40, 7), kind.1, "SDST")? } else { Operand::VCC };
            self.push(operand, kind, Access::W, true);
        } else {
            self.vop_dst()?;
            if dst_unused == 2 && dst != SdwaSel::Dword {
                self.inst.arg[0].access = Access::Rw;
            }
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
            self.vector_source(code, slot, "SRC")?;
        }
        Ok(())
    }

    /// Negation and absolute value, of sources that are floats.
    fn source_modifiers<const N: usize>(
        &mut self,
        neg: [u32; N],
        abs: [u32; N],
        count: usize,
    ) -> Result<(), DecodeError> {
        for i in 0..count.min(N) {
            let (neg, abs) = (self.bit(neg[i]), self.bit(abs[i]));
            self.inst.mods.neg |= u8::from(neg) << i;
            self.inst.mods.abs |= u8::from(abs) << i;
        }
        Ok(())
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
        self.inst.mods.clamp = self.bit(15);
        self.inst.mods.omod = self.bits(59, 2) as u8;
        self.inst.mods.neg = self.bits(61, 3) as u8;
        if !carries {
            self.inst.mods.abs = self.bits(8, 3) as u8;
            self.inst.mods.op_sel = if op.has(flag::OPSEL) { self.bits(11, 4) as u8 } else { 0 };
        }
        self.three_sources()
    }

    /// VOP3's and VOP3P's sources.
    fn three_sources(&mut self) -> Result<(), DecodeError> {
        let row = self.inst.op.row();
        for (i, field) in ["SRC0", "SRC1", "SRC2"].into_iter().enumerate() {
            let low = 32 + 9 * i as u32;
            match row.src.get(i) {
                Some(&slot) => self.vector_source(self.bits9(low), slot, field)?,
                None if self.bits9(low) != 0 => return Err(self.refuse(field, self.bits9(low))),
                None => {}
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
