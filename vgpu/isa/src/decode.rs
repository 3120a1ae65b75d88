//! From words to instructions.

mod memory;
mod scalar;
mod vector;

use std::sync::LazyLock;

use crate::op::{Slot, flag};
use crate::{Access, Arg, Form, Inst, Mem, Mods, Opcode, Operand, Swizzle, Ty};

/// Which card the code is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Target {
    /// Navi 10: RX 5600 XT, 5700, 5700 XT. No dot products.
    #[default]
    Gfx1010,
    /// Navi 12.
    Gfx1011,
    /// Navi 14: RX 5500 XT.
    Gfx1012,
}

impl Target {
    /// By LLVM's name of it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "gfx1010" => Some(Self::Gfx1010),
            "gfx1011" => Some(Self::Gfx1011),
            "gfx1012" => Some(Self::Gfx1012),
            _ => None,
        }
    }
}

/// Why words are no instruction that is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The instruction goes on behind the end of the code.
    #[error("the code ends within an instruction of {words} dwords")]
    Truncated {
        /// How many dwords were needed.
        words: usize,
    },
    /// No such operation.
    #[error("{word:#010x}: {form:?} has no operation {code:#x}")]
    Unknown {
        /// The first dword.
        word: u32,
        /// Its format.
        form: Form,
        /// The number that is not assigned.
        code: u16,
    },
    /// No format begins like this.
    #[error("{0:#010x} begins no instruction")]
    Format(u32),
    /// An instruction of a format that only graphics uses, or of images; not decoded further.
    #[error("{0}, of images or graphics, is not executed here")]
    Graphics(&'static str),
    /// Another card has it.
    #[error("{} is not in {target:?}", op.name())]
    NotOnTarget {
        /// Which operation.
        op: Opcode,
        /// Which card.
        target: Target,
    },
    /// A field holds what the operation does not allow.
    #[error("{}: {field} may not be {value:#x}", op.name())]
    Field {
        /// Which operation.
        op: Opcode,
        /// The manual's name of the field.
        field: &'static str,
        /// What it holds.
        value: u32,
    },
}

/// The operation of each number of each format; VOP1, VOP2 and VOPC stand among VOP3's too.
static INDEX: LazyLock<Vec<Option<Opcode>>> = LazyLock::new(|| {
    let mut index = vec![None; 1024 * (Form::Mtbuf as usize + 1)];
    let mut put = |form: Form, code: u16, op: Opcode| {
        let place = &mut index[1024 * form as usize + usize::from(code)];
        assert!(place.is_none(), "two rows at {form:?} {code:#x}");
        *place = Some(op);
    };
    for &op in Opcode::ALL {
        let row = op.row();
        put(row.form, row.code, op);
        let promoted = match row.form {
            Form::Vop1 => Some(0x180),
            Form::Vop2 => Some(0x100),
            Form::Vopc => Some(0),
            _ => None,
        };
        if let (Some(base), false) = (promoted, op.has(flag::NO_VOP3)) {
            put(Form::Vop3, base + row.code, op);
        }
    }
    index
});

/// Decodes the instruction at the start of `words` (more than it takes may be there). In wave64 code lane masks
/// are pairs of SGPRs.
///
/// # Errors
/// Words that are no gfx10.1 instruction, that `target` does not have, or that only graphics uses. What LLVM's
/// disassembler refuses is refused.
pub fn decode(words: &[u32], target: Target, wave64: bool) -> Result<Inst, DecodeError> {
    let &word = words.first().ok_or(DecodeError::Truncated { words: 1 })?;
    let form = form(word)?;
    let code = match form {
        Form::Vop2 => word >> 25,
        Form::Vop1 => word >> 9 & 0xff,
        Form::Vopc => word >> 17 & 0xff,
        Form::Sop1 => word >> 8 & 0xff,
        Form::Sopc | Form::Sopp => word >> 16 & 0x7f,
        Form::Sopk => word >> 23 & 0x1f,
        Form::Sop2 => word >> 23 & 0x7f,
        Form::Vop3 => word >> 16 & 0x3ff,
        Form::Vop3p => word >> 16 & 0x7f,
        Form::Smem | Form::Ds | Form::Mubuf => word >> 18 & 0xff,
        Form::Flat | Form::Global | Form::Scratch => word >> 18 & 0x7f,
        Form::Mtbuf => word >> 16 & 7 | words.get(1).map_or(0, |high| high >> 21 & 1) << 3,
    };
    let code = code as u16;
    let op = INDEX[1024 * form as usize + usize::from(code)];
    let op = op.ok_or_else(|| {
        let graphics = form == Form::Vop3 && matches!(code, 0x200..=0x202 | 0x342 | 0x343 | 0x35a);
        if graphics { DecodeError::Graphics("v_interp") } else { DecodeError::Unknown { word, form, code } }
    })?;
    if op.has(flag::DOT) && target == Target::Gfx1010 {
        return Err(DecodeError::NotOnTarget { op, target });
    }
    let mut decoder = Decoder::new(words, op, form, wave64)?;
    match form {
        Form::Sop1 | Form::Sop2 | Form::Sopc | Form::Sopk | Form::Sopp => decoder.scalar()?,
        Form::Smem => decoder.smem()?,
        Form::Vop1 | Form::Vop2 | Form::Vopc => decoder.vop()?,
        Form::Vop3 => decoder.vop3()?,
        Form::Vop3p => decoder.vop3p()?,
        Form::Ds => decoder.ds()?,
        Form::Flat | Form::Global | Form::Scratch => decoder.flat()?,
        Form::Mubuf | Form::Mtbuf => decoder.buffer()?,
    }
    decoder.implicit();
    Ok(decoder.inst)
}

/// RDNA ISA 13: the formats' first bits.
fn form(word: u32) -> Result<Form, DecodeError> {
    Ok(match word >> 26 {
        0b11_0010 => return Err(DecodeError::Graphics("VINTRP")),
        0b11_1100 => return Err(DecodeError::Graphics("MIMG")),
        0b11_1110 => return Err(DecodeError::Graphics("EXP")),
        0b11_0011 if word & 1 << 23 == 0 => Form::Vop3p,
        0b11_0101 => Form::Vop3,
        0b11_0110 => Form::Ds,
        0b11_0111 => match word >> 14 & 3 {
            0 => Form::Flat,
            1 => Form::Scratch,
            2 => Form::Global,
            _ => return Err(DecodeError::Format(word)),
        },
        0b11_1000 => Form::Mubuf,
        0b11_1010 => Form::Mtbuf,
        0b11_1101 => Form::Smem,
        0..0b10_0000 => match word >> 25 {
            0x3e => Form::Vopc,
            0x3f => Form::Vop1,
            _ => Form::Vop2,
        },
        0b10_0000..0b11_0000 => match word >> 23 {
            0x17d => Form::Sop1,
            0x17e => Form::Sopc,
            0x17f => Form::Sopp,
            0x160.. => Form::Sopk,
            _ => Form::Sop2,
        },
        _ => return Err(DecodeError::Format(word)),
    })
}

/// An instruction in the making.
struct Decoder<'a> {
    words: &'a [u32],
    inst: Inst,
    wave64: bool,
}

impl<'a> Decoder<'a> {
    fn new(words: &'a [u32], op: Opcode, form: Form, wave64: bool) -> Result<Self, DecodeError> {
        let long = matches!(
            form,
            Form::Vop3
                | Form::Vop3p
                | Form::Smem
                | Form::Ds
                | Form::Flat
                | Form::Global
                | Form::Scratch
                | Form::Mubuf
                | Form::Mtbuf
        );
        let none = Arg { operand: Operand::OFF, dwords: 0, ty: Ty::B, access: Access::R, printed: false };
        let inst = Inst {
            op,
            form,
            len: if long { 8 } else { 4 },
            arg: [none; 8],
            args: 0,
            literal: 0,
            imm: 0,
            mods: Mods::default(),
            swizzle: Swizzle::None,
            mem: Mem::default(),
        };
        if words.len() < usize::from(inst.len / 4) {
            return Err(DecodeError::Truncated { words: usize::from(inst.len / 4) });
        }
        Ok(Self { words, inst, wave64 })
    }

    /// Bits `low..low + count` of the first 64.
    fn bits(&self, low: u32, count: u32) -> u32 {
        let word = self.words[low as usize / 32] >> (low % 32);
        word & (u32::MAX >> (32 - count))
    }

    fn bit(&self, at: u32) -> bool {
        self.bits(at, 1) != 0
    }

    fn refuse(&self, field: &'static str, value: u32) -> DecodeError {
        DecodeError::Field { op: self.inst.op, field, value }
    }

    /// Refuses the instruction unless the bits are zero.
    fn zero(&self, low: u32, count: u32, field: &'static str) -> Result<(), DecodeError> {
        match self.bits(low, count) {
            0 => Ok(()),
            value => Err(self.refuse(field, value)),
        }
    }

    fn push(&mut self, operand: Operand, (ty, dwords): (Ty, u8), access: Access, printed: bool) {
        self.inst.arg[usize::from(self.inst.args)] = Arg { operand, dwords, ty, access, printed };
        self.inst.args += 1;
    }

    /// Type and size of a slot here: masks are as wide as the wave.
    fn kind(&self, slot: Slot) -> (Ty, u8) {
        match slot {
            Slot::Value(Ty::Mask, _) => (Ty::Mask, if self.wave64 { 2 } else { 1 }),
            Slot::Value(ty, dwords) => (ty, dwords),
            _ => (Ty::B, 1),
        }
    }

    /// How the first destination is accessed.
    fn dst_access(&self) -> Access {
        if self.inst.op.has(flag::ACC) { Access::Rw } else { Access::W }
    }

    /// The dword behind the instruction, which all literal operands share.
    fn literal(&mut self) -> Result<Operand, DecodeError> {
        let at = match self.inst.form {
            Form::Vop3 | Form::Vop3p => 2,
            _ => 1,
        };
        self.inst.literal = *self.words.get(at).ok_or(DecodeError::Truncated { words: at + 1 })?;
        self.inst.len = 4 * (at as u8 + 1);
        Ok(Operand::LITERAL)
    }

    /// The VGPRs from `first`; they must all exist.
    fn vgpr(
        &mut self,
        first: u32,
        kind: (Ty, u8),
        access: Access,
        field: &'static str,
    ) -> Result<(), DecodeError> {
        if first + u32::from(kind.1) > 256 {
            return Err(self.refuse(field, first));
        }
        self.push(Operand::vgpr(first as u8), kind, access, true);
        Ok(())
    }

    /// The SGPRs from `first`; as in the hardware, low bits that their number does not allow are ignored.
    fn sgprs(&self, first: u32, dwords: u8, field: &'static str) -> Result<Operand, DecodeError> {
        let last = u32::from(dwords) - 1;
        let aligned = first
            & !match dwords {
                1 => 0,
                2 => 1,
                _ => 3,
            };
        let exists = match first {
            // VCC is what follows: ACO takes it for the last two of a group (aco_ir.cpp: "VCC, which can be treated as
            // s[106-107] on GFX10+").
            0..=105 => aligned + last <= 107,
            108..=123 => aligned + last <= 123,
            106 | 126 => last < 2,
            125 => true,
            107 | 124 | 127 => last == 0,
            _ => false,
        };
        let operand = if first < 106 || (108..124).contains(&first) { aligned } else { first };
        if exists { Ok(Operand(operand as u16)) } else { Err(self.refuse(field, first)) }
    }

    /// A register or constant of a scalar source.
    fn source(&mut self, code: u32, dwords: u8, field: &'static str) -> Result<Operand, DecodeError> {
        match code {
            0..128 => self.sgprs(code, dwords, field),
            128..=208 | 235..=239 | 240..=248 | 251..=253 => Ok(Operand(code as u16)),
            255 => self.literal(),
            _ => Err(self.refuse(field, code)),
        }
    }

    /// What the text does not name.
    fn implicit(&mut self) {
        let op = self.inst.op;
        let mask = self.kind(crate::op::slot::Mask);
        if op.has(flag::VCC_R) {
            self.push(Operand::VCC, mask, Access::R, false);
        }
        match (op.has(flag::EXEC_R), op.has(flag::EXEC_W)) {
            (true, true) => self.push(Operand::EXEC, mask, Access::Rw, false),
            (true, false) => self.push(Operand::EXEC, mask, Access::R, false),
            (false, true) => self.push(Operand::EXEC, mask, Access::W, false),
            (false, false) => {}
        }
        let reads = |code| self.inst.args().iter().any(|arg| arg.operand == Operand(code));
        let (vccz, execz, lds_direct) = (reads(251), reads(252), reads(254));
        if vccz && !op.has(flag::VCC_R) {
            self.push(Operand::VCC, mask, Access::R, false);
        }
        if execz && !op.has(flag::EXEC_R) {
            self.push(Operand::EXEC, mask, Access::R, false);
        }
        if op.has(flag::M0_R) || self.inst.mem.lds || lds_direct {
            self.push(Operand::M0, (Ty::B, 1), Access::R, false);
        }
    }
}
