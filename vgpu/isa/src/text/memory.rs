//! SMEM, DS, FLAT and its kin, MUBUF, MTBUF.

use std::fmt;

use super::List;
use crate::{Form, Inst, Opcode, Slot};

impl Inst {
    fn listed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = List::new(f);
        for arg in self.args().iter().filter(|arg| arg.printed) {
            list.item(|f| self.operand(f, arg))?;
        }
        Ok(())
    }

    fn cache_policy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mem = self.mem;
        for (bit, name) in [(mem.glc, " glc"), (mem.slc, " slc"), (mem.dlc, " dlc")] {
            f.write_str(if bit { name } else { "" })?;
        }
        Ok(())
    }

    pub(super) fn smem(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.op.row();
        let mut list = List::new(f);
        if row.src.contains(&Slot::Probe) {
            list.item(|f| super::names::simm(f, Slot::Simm, self.imm))?;
        }
        let mut soffset = false;
        for arg in self.args().iter().filter(|arg| arg.printed) {
            soffset = row.src.contains(&Slot::Offset) && arg.ty == crate::Ty::U32;
            list.item(|f| self.operand(f, arg))?;
        }
        if row.src.contains(&Slot::Offset) {
            let offset = self.mem.offset;
            let sign = if offset < 0 { "-" } else { "" };
            let magnitude = offset.unsigned_abs();
            if !soffset && offset == 0 {
                list.item(|f| f.write_str("null"))?;
            } else if !soffset {
                list.item(|f| write!(f, "{sign}{magnitude:#x}"))?;
            } else if offset != 0 {
                write!(f, " offset:{sign}{magnitude:#x}")?;
            }
        }
        self.cache_policy(f)
    }

    pub(super) fn ds(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.listed(f)?;
        let mem = self.mem;
        if self.op.has_two_offsets() {
            if mem.offset != 0 {
                write!(f, " offset0:{}", mem.offset)?;
            }
            if mem.offset1 != 0 {
                write!(f, " offset1:{}", mem.offset1)?;
            }
        } else if self.op == Opcode::ds_swizzle_b32 {
            swizzle(f, mem.offset as u16)?;
        } else if mem.offset != 0 {
            write!(f, " offset:{}", mem.offset)?;
        }
        f.write_str(if mem.gds { " gds" } else { "" })
    }

    pub(super) fn flat(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.listed(f)?;
        if self.mem.offset != 0 {
            write!(f, " offset:{}", self.mem.offset)?;
        }
        self.cache_policy(f)?;
        f.write_str(if self.mem.lds { " lds" } else { "" })
    }

    pub(super) fn buffer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.args == 0 {
            return Ok(());
        }
        let mem = self.mem;
        self.listed(f)?;
        if self.form == Form::Mtbuf {
            super::names::buffer_format(f, mem.format)?;
        }
        f.write_str(if mem.idxen { " idxen" } else { "" })?;
        f.write_str(if mem.offen { " offen" } else { "" })?;
        if mem.offset != 0 {
            write!(f, " offset:{}", mem.offset)?;
        }
        self.cache_policy(f)?;
        f.write_str(if mem.tfe { " tfe" } else { "" })?;
        f.write_str(if mem.lds { " lds" } else { "" })
    }
}

/// `ds_swizzle_b32`'s pattern (RDNA ISA 12.12).
fn swizzle(f: &mut fmt::Formatter<'_>, imm: u16) -> fmt::Result {
    if imm == 0 {
        return Ok(());
    }
    let (and, or, xor) = (imm & 31, imm >> 5 & 31, imm >> 10 & 31);
    match imm {
        0x8000..0x8100 => {
            let lane = |i: u16| imm >> (2 * i) & 3;
            write!(f, " offset:swizzle(QUAD_PERM,{},{},{},{})", lane(0), lane(1), lane(2), lane(3))
        }
        0x8100.. => write!(f, " offset:{imm}"),
        _ if and == 31 && or == 0 && xor.count_ones() == 1 => write!(f, " offset:swizzle(SWAP,{xor})"),
        _ if and == 31 && or == 0 && xor > 0 && (xor + 1).is_power_of_two() => {
            write!(f, " offset:swizzle(REVERSE,{})", xor + 1)
        }
        _ if or < 32 && xor == 0 && (32 - and).is_power_of_two() && and < 31 && or < 32 - and => {
            write!(f, " offset:swizzle(BROADCAST,{},{or})", 32 - and)
        }
        _ => {
            f.write_str(" offset:swizzle(BITMASK_PERM,\"")?;
            for bit in (0..5).rev().map(|i| 1 << i) {
                let zero = or ^ xor;
                let one = (bit & and | or) ^ xor;
                f.write_str(match (zero & bit != 0, one & bit != 0) {
                    (false, false) => "0",
                    (true, true) => "1",
                    (false, true) => "p",
                    (true, false) => "i",
                })?;
            }
            f.write_str("\")")
        }
    }
}
