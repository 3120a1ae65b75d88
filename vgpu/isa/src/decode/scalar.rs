//! SOP1, SOP2, SOPC, SOPK, SOPP (RDNA ISA 13.1) and SMEM (13.2).

use super::{DecodeError, Decoder};
use crate::op::{Slot, flag};
use crate::{Access, Form, Operand, Ty};

impl Decoder<'_> {
    pub(super) fn scalar(&mut self) -> Result<(), DecodeError> {
        let (form, row) = (self.inst.form, self.inst.op.row());
        match form {
            Form::Sopp if row.src.is_empty() => self.zero(0, 16, "SIMM16")?,
            Form::Sopk | Form::Sopp => self.inst.imm = self.bits(0, 16) as u16,
            _ => {}
        }
        if let Some(&dst) = row.dst.first() {
            let kind = self.kind(dst);
            let operand = self.sgprs(self.bits(16, 7), kind.1, "SDST")?;
            self.push(operand, kind, self.dst_access(), true);
        }
        let mut fields = if form == Form::Sopk { [16, 0] } else { [0, 8] }.into_iter();
        for &slot in row.src {
            match slot {
                Slot::Literal => {
                    let operand = self.literal()?;
                    self.push(operand, (Ty::B, 1), Access::R, true);
                }
                Slot::Value(..) => {
                    let low = fields.next().unwrap_or(0);
                    let (kind, field) = (self.kind(slot), if low == 8 { "SSRC1" } else { "SSRC0" });
                    let code = self.bits(low, 8);
                    if self.inst.op.has(flag::REG_SRC) && matches!(code, 128..=208 | 240..=248 | 255) {
                        return Err(self.refuse(field, code));
                    }
                    let operand = match form {
                        Form::Sopk => self.sgprs(self.bits(low, 7), kind.1, "SDST")?,
                        _ => self.source(code, kind.1, field)?,
                    };
                    self.push(operand, kind, Access::R, true);
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn smem(&mut self) -> Result<(), DecodeError> {
        let op = self.inst.op;
        let row = op.row();
        let (glc, dlc) = (self.bit(16), self.bit(14));
        if op.is_load() || op.is_store() || op.is_atomic() {
            self.inst.mem.glc = glc;
            self.inst.mem.dlc = dlc;
        }
        let returns = op.is_atomic() && glc;
        let data = self.bits(6, 7);
        if matches!(data, 124 | 126 | 127)
            && !row.src.contains(&Slot::Probe)
            && (returns || !row.dst.is_empty() || op.is_store() || op.is_atomic())
        {
            return Err(self.refuse("SDATA", data));
        }
        if let Some(&dst) = row.dst.first() {
            let kind = self.kind(dst);
            let operand = self.sgprs(self.bits(6, 7), kind.1, "SDATA")?;
            self.push(operand, kind, self.dst_access(), true);
        }
        let at = self.inst.args;
        for (i, &slot) in row.src.iter().enumerate() {
            match slot {
                Slot::Probe => self.inst.imm = self.bits(6, 7) as u16,
                Slot::Offset => {
                    // Signed; added to the SGPR where there is one.
                    self.inst.mem.offset = (self.bits(32, 21) << 11) as i32 >> 11;
                    let soffset = self.bits(57, 7);
                    let operand = if soffset == u32::from(Operand::NULL.0) {
                        Operand::OFF
                    } else {
                        self.sgprs(soffset, 1, "SOFFSET")?
                    };
                    self.push(operand, (Ty::U32, 1), Access::R, operand != Operand::OFF);
                }
                Slot::Value(ty, dwords) if i == 0 && (op.is_store() || op.is_atomic()) => {
                    let operand = self.sgprs(self.bits(6, 7), dwords, "SDATA")?;
                    self.push(operand, (ty, dwords), Access::R, true);
                }
                Slot::Value(ty, dwords) => {
                    let operand = self.sgprs(self.bits(0, 6) << 1, dwords, "SBASE")?;
                    self.push(operand, (ty, dwords), Access::R, true);
                }
                _ => {}
            }
        }
        if returns {
            self.returned(usize::from(at));
        }
        Ok(())
    }

    /// The atomic leaves what was in memory in its data's place; a compare and swap in the first half.
    pub(super) fn returned(&mut self, data: usize) {
        let arg = self.inst.arg[data];
        if self.inst.op.name().contains("cmpswap") {
            self.push(arg.operand, (arg.ty, arg.dwords / 2), Access::W, false);
        } else {
            self.inst.arg[data].access = Access::Rw;
        }
    }
}
