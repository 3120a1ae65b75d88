//! DS (RDNA ISA 13.4), FLAT, GLOBAL, SCRATCH (13.6), MUBUF and MTBUF (13.5).

use super::{DecodeError, Decoder};
use crate::op::{Slot, flag};
use crate::{Access, Form, Opcode, Operand, Ty};

impl Decoder<'_> {
    pub(super) fn ds(&mut self) -> Result<(), DecodeError> {
        let op = self.inst.op;
        let row = op.row();
        self.inst.mem.gds = self.bit(17);
        if op == Opcode::ds_nop {
            self.zero(0, 16, "OFFSET")?;
            self.zero(17, 1, "GDS")?;
        }
        if matches!(op, Opcode::ds_permute_b32 | Opcode::ds_bpermute_b32) {
            self.zero(17, 1, "GDS")?;
        }
        if op.is_gds() && !self.inst.mem.gds {
            return Err(self.refuse("GDS", 0));
        }
        if op.has_two_offsets() {
            self.inst.mem.offset = self.bits(0, 8) as i32;
            self.inst.mem.offset1 = self.bits(8, 8) as u8;
        } else {
            self.inst.mem.offset = self.bits(0, 16) as i32;
        }
        match row.dst.first() {
            Some(&slot) => {
                let access = self.dst_access();
                self.vgpr(self.bits(56, 8), self.kind(slot), access, "VDST")?;
            }
            None => self.zero(56, 8, "VDST")?,
        }
        let addressed = matches!(row.src.first(), Some(Slot::Addr | Slot::Data));
        if addressed {
            self.vgpr(self.bits(32, 8), (Ty::U32, 1), Access::R, "ADDR")?;
        } else {
            self.zero(32, 8, "ADDR")?;
        }
        let mut data = row.src.iter().skip(usize::from(addressed));
        for (low, field) in [(40, "DATA0"), (48, "DATA1")] {
            match data.next() {
                Some(&slot) => self.vgpr(self.bits(low, 8), self.kind(slot), Access::R, field)?,
                None => self.zero(low, 8, field)?,
            }
        }
        Ok(())
    }

    pub(super) fn flat(&mut self) -> Result<(), DecodeError> {
        let (op, form) = (self.inst.op, self.inst.form);
        let row = op.row();
        let (glc, saddr, lds) = (self.bit(16), self.bits(48, 7), self.bit(13));
        let mem = &mut self.inst.mem;
        mem.glc = glc;
        mem.lds = lds;
        mem.slc = self.words[0] >> 17 & 1 != 0;
        mem.dlc = self.words[0] >> 12 & 1 != 0;
        mem.offset = (self.words[0] << 20) as i32 >> 20;
        if form == Form::Flat {
            // Aperture addresses: no negative offsets.
            mem.offset &= 0xfff;
        }
        let returns = op.is_load() && !lds || op.is_atomic() && glc;
        match row.dst.first() {
            Some(&slot) if returns => {
                let access = self.dst_access();
                self.vgpr(self.bits(56, 8), self.kind(slot), access, "VDST")?;
            }
            _ => {}
        }
        self.zero(55, 1, "NV")?;
        if form == Form::Flat || !op.has(flag::LDS) {
            self.zero(13, 1, "LDS")?;
        }
        if form == Form::Scratch && saddr == 127 {
            return Err(self.refuse("SADDR", saddr));
        }
        let scalar = saddr != u32::from(Operand::NULL.0);
        let vaddr = self.bits(32, 8);
        let (pair, single) = ((Ty::U64, 2), (Ty::U32, 1));
        match form {
            Form::Flat | Form::Global if !scalar => self.vgpr(vaddr, pair, Access::R, "ADDR")?,
            Form::Scratch if scalar => {
                self.push(Operand::OFF, single, Access::R, true);
            }
            _ => self.vgpr(vaddr, single, Access::R, "ADDR")?,
        }
        if let Some(&slot) = row.src.iter().find(|slot| matches!(slot, Slot::Value(..))) {
            self.vgpr(self.bits(40, 8), self.kind(slot), Access::R, "DATA")?;
        }
        match (form, scalar) {
            (Form::Flat, true) => return Err(self.refuse("SADDR", saddr)),
            (Form::Flat, false) => {}
            (_, false) => self.push(Operand::OFF, pair, Access::R, true),
            (_, true) => {
                let kind = if form == Form::Global { pair } else { single };
                let operand = self.sgprs(saddr, kind.1, "SADDR")?;
                self.push(operand, kind, Access::R, true);
            }
        }
        Ok(())
    }

    pub(super) fn buffer(&mut self) -> Result<(), DecodeError> {
        let (op, form) = (self.inst.op, self.inst.form);
        let row = op.row();
        let (offen, idxen) = (self.bit(12), self.bit(13));
        if row.src.is_empty() && row.dst.is_empty() {
            // Cache control: nothing else is said.
            self.zero(12, 5, "GLC")?;
            return self.zero(55, 1, "TFE");
        }
        let mem = &mut self.inst.mem;
        let (low, high) = (self.words[0], self.words[1]);
        mem.offset = (low & 0xfff) as i32;
        (mem.offen, mem.idxen) = (offen, idxen);
        mem.glc = low >> 14 & 1 != 0;
        mem.dlc = low >> 15 & 1 != 0;
        mem.slc = high >> 22 & 1 != 0;
        mem.tfe = high >> 23 & 1 != 0;
        if form == Form::Mtbuf {
            mem.format = (low >> 19 & 0x7f) as u8;
        } else {
            mem.lds = low >> 16 & 1 != 0;
        }
        if form == Form::Mubuf && (!op.has(flag::LDS) || self.bit(55)) {
            self.zero(16, 1, "LDS")?;
        }
        if op.is_atomic() {
            self.zero(15, 1, "DLC")?;
        }
        if op.is_atomic() || form == Form::Mtbuf {
            self.zero(55, 1, "TFE")?;
        }
        let mem = &self.inst.mem;
        let (lds, tfe, glc) = (mem.lds, mem.tfe, mem.glc);
        let vdata = self.bits(40, 8);
        let slot = row.dst.first().or(row.src.first()).copied().unwrap_or(Slot::Addr);
        let (ty, dwords) = self.kind(slot);
        if !lds {
            // TFE: one more, a status.
            let kind = (ty, dwords + u8::from(tfe));
            let access = if op.is_load() { self.dst_access() } else { Access::R };
            self.vgpr(vdata, kind, access, "VDATA")?;
        }
        let vaddr = self.bits(32, 8);
        match u8::from(offen) + u8::from(idxen) {
            0 => self.push(Operand::OFF, (Ty::U32, 1), Access::R, true),
            n => self.vgpr(vaddr, (Ty::U32, n), Access::R, "VADDR")?,
        }
        let srsrc = self.sgprs(self.bits(48, 5) << 2, 4, "SRSRC")?;
        self.push(srsrc, (Ty::B, 4), Access::R, true);
        let soffset = self.bits(56, 8);
        if soffset == 255 {
            return Err(self.refuse("SOFFSET", soffset));
        }
        let soffset = self.source(soffset, 1, "SOFFSET")?;
        self.push(soffset, (Ty::U32, 1), Access::R, true);
        if op.is_atomic() && glc {
            self.returned(0);
        }
        Ok(())
    }
}
