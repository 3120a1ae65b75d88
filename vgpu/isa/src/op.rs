//! What the table says of an operation, and what follows from it.

use crate::{Form, Opcode, Ty};

/// What the table says of an operation.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// LLVM's mnemonic without encoding suffix.
    pub name: &'static str,
    /// The shortest encoding; VOP1, VOP2 and VOPC may come as VOP3, DPP and SDWA too.
    pub form: Form,
    /// Its number there.
    pub code: u16,
    /// What it writes, in the order of the text.
    pub dst: &'static [Slot],
    /// What it reads, in the order of the text.
    pub src: &'static [Slot],
    /// See [`flag`].
    pub(crate) flags: u32,
}

/// A place for an operand in an encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// A register, or a constant where the encoding allows one: type and dwords.
    Value(Ty, u8),
    /// An SGPR that a vector instruction writes.
    Sgpr,
    /// A dword from a VGPR.
    Vgpr,
    /// A dword that is the same for all lanes: from an SGPR, or a constant.
    Scalar,
    /// The literal that always follows (`v_madmk_f32`).
    Literal,
    /// A source of `v_fma_mix_f32`: f32, or a half as `op_sel_hi` says.
    Mix,
    /// [`Inst::imm`](crate::Inst::imm) as a number; this and the next are no operands.
    Simm,
    /// As a hexadecimal number.
    Hex,
    /// Left out of the text where zero: `s_endpgm`.
    EndImm,
    /// Dwords to jump by, from behind the instruction.
    Label,
    /// Bits of a hardware register.
    Hwreg,
    /// Counters and what they are waited to come down to.
    Waitcnt,
    /// A message.
    Msg,
    /// What `s_waitcnt_depctr` waits for.
    Depctr,
    /// What `s_version` says.
    Version,
    /// Address of a vector memory instruction.
    Addr,
    /// A dword of DS that is not an address, in the address field's place.
    Data,
    /// SMEM's offset: an SGPR or a constant.
    Offset,
    /// The buffer's offset: an SGPR or an inline constant.
    Soffset,
    /// Seven bits in SMEM's data field.
    Probe,
}

/// The types of the table's rows.
#[allow(missing_docs, non_upper_case_globals)]
pub(crate) mod slot {
    pub use super::Slot::{
        Addr, Data, Depctr, EndImm, Hex, Hwreg, Label, Literal as K, Mix, Msg, Offset, Probe, Scalar, Sgpr,
        Simm, Soffset, Version, Vgpr, Waitcnt,
    };
    use super::{Slot, Slot::Value, Ty};

    pub const B16: Slot = Value(Ty::U16, 1);
    pub const B32: Slot = Value(Ty::B, 1);
    pub const B64: Slot = Value(Ty::B, 2);
    pub const B96: Slot = Value(Ty::B, 3);
    pub const B128: Slot = Value(Ty::B, 4);
    pub const B256: Slot = Value(Ty::B, 8);
    pub const B512: Slot = Value(Ty::B, 16);
    pub const F16: Slot = Value(Ty::F16, 1);
    pub const I16: Slot = Value(Ty::I16, 1);
    pub const U16: Slot = Value(Ty::U16, 1);
    pub const Pk16F: Slot = Value(Ty::Pk16F, 1);
    pub const Pk16I: Slot = Value(Ty::Pk16I, 1);
    pub const F32: Slot = Value(Ty::F32, 1);
    pub const I32: Slot = Value(Ty::I32, 1);
    pub const U32: Slot = Value(Ty::U32, 1);
    pub const F64: Slot = Value(Ty::F64, 2);
    pub const I64: Slot = Value(Ty::I64, 2);
    pub const U64: Slot = Value(Ty::U64, 2);
    /// One SGPR in wave32, two in wave64.
    pub const Mask: Slot = Value(Ty::Mask, 1);
}

/// The flags of the table's rows.
pub(crate) mod flag {
    /// The first destination is read too: it is added to, or may stay. Not said of what keeps the other half, byte, or lanes.
    pub const ACC: u32 = 1;
    /// The source is written too.
    pub const SWAP: u32 = 1 << 1;
    /// Reads, writes the scalar condition bit.
    pub const SCC_R: u32 = 1 << 2;
    /// See `SCC_R`.
    pub const SCC_W: u32 = 1 << 3;
    /// Reads VCC, reads and writes EXEC, reads M0, with no word of it in the text. That vector instructions run
    /// for EXEC's lanes only goes without saying.
    pub const VCC_R: u32 = 1 << 4;
    /// See `VCC_R`.
    pub const EXEC_R: u32 = 1 << 5;
    /// See `VCC_R`.
    pub const EXEC_W: u32 = 1 << 6;
    /// See `VCC_R`.
    pub const M0_R: u32 = 1 << 7;
    /// Transcendental: a quarter of the rate.
    pub const TRANS: u32 = 1 << 8;
    /// Not on gfx1010.
    pub const DOT: u32 = 1 << 9;
    /// May go on elsewhere.
    pub const BRANCH: u32 = 1 << 10;
    /// Ends the wave.
    pub const END: u32 = 1 << 11;
    /// Memory or LDS: reads it, writes it, both.
    pub const LOAD: u32 = 1 << 12;
    /// See `LOAD`.
    pub const STORE: u32 = 1 << 13;
    /// See `LOAD`.
    pub const ATOMIC: u32 = 1 << 14;
    /// DS with two offsets of 8 bits.
    pub const TWO: u32 = 1 << 15;
    /// Of the global data share.
    pub const GDS_ONLY: u32 = 1 << 16;
    /// May put what it loads into LDS.
    pub const LDS: u32 = 1 << 26;
    /// Uses LDS's crossbar, not its memory.
    pub const LANES: u32 = 1 << 17;
    /// Forms that VOP1, VOP2 and VOPC do not come in.
    pub const NO_DPP: u32 = 1 << 18;
    /// See `NO_DPP`.
    pub const NO_SDWA: u32 = 1 << 19;
    /// See `NO_DPP`.
    pub const NO_VOP3: u32 = 1 << 20;
    /// VOP3 chooses halves of 16-bit operands.
    pub const OPSEL: u32 = 1 << 21;
    /// As `OPSEL`, of which LLVM 19 does not know; Mesa's compiler uses it, and LLVM 22 prints it.
    pub const HALVES: u32 = 1 << 27;
    /// Integers that VOP3 saturates.
    pub const CLAMP: u32 = 1 << 22;
    /// Scalar sources that may not be constants.
    pub const REG_SRC: u32 = 1 << 25;
    /// Floats that have no output multiplier.
    pub const NO_OMOD: u32 = 1 << 23;
    /// Untyped sources that may be negated as if f32.
    pub const FMODS: u32 = 1 << 24;
}

/// Makes `Opcode` and its rows, so that the rows are the only place.
macro_rules! table {
    ($($name:ident $form:ident $code:literal [$($dst:ident)*] [$($src:ident)*] $($flag:ident)*;)*) => {
        /// An operation; named as LLVM names it, without encoding suffix.
        #[allow(non_camel_case_types, missing_docs)] // the names are the documentation
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Opcode { $($name),* }

        static ROWS: &[$crate::op::Row] = &[
            $($crate::op::Row {
                name: stringify!($name),
                form: $crate::Form::$form,
                code: $code,
                dst: &[$($crate::op::slot::$dst),*],
                src: &[$($crate::op::slot::$src),*],
                flags: 0 $(| $crate::op::flag::$flag)*,
            }),*
        ];

        impl Opcode {
            /// All of them, in the order of the table.
            pub const ALL: &[Opcode] = &[$(Opcode::$name),*];

            /// What the table says.
            pub fn row(self) -> &'static $crate::op::Row {
                &ROWS[self as usize]
            }
        }
    };
}
pub(crate) use table;

impl Opcode {
    /// LLVM's mnemonic without encoding suffix.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    pub(crate) fn has(self, flags: u32) -> bool {
        self.row().flags & flags != 0
    }

    /// Whether it reads and writes SCC.
    pub fn scc(self) -> (bool, bool) {
        (self.has(flag::SCC_R), self.has(flag::SCC_W))
    }

    /// Reads memory or LDS into registers and changes neither.
    pub fn is_load(self) -> bool {
        self.has(flag::LOAD)
    }

    /// Writes memory or LDS and returns nothing.
    pub fn is_store(self) -> bool {
        self.has(flag::STORE)
    }

    /// Reads and changes memory or LDS, whether or not it returns what was there.
    pub fn is_atomic(self) -> bool {
        self.has(flag::ATOMIC)
    }

    /// May go on elsewhere than behind itself.
    pub fn is_branch(self) -> bool {
        self.has(flag::BRANCH)
    }

    /// Ends the wave.
    pub fn is_end(self) -> bool {
        self.has(flag::END)
    }

    /// One of the transcendental operations, at a quarter of the rate.
    pub fn is_transcendental(self) -> bool {
        self.has(flag::TRANS)
    }

    /// Runs on the vector ALU.
    pub fn is_valu(self) -> bool {
        matches!(self.row().form, Form::Vop1 | Form::Vop2 | Form::Vopc | Form::Vop3 | Form::Vop3p)
    }

    /// Vector memory by any path: FLAT, GLOBAL, SCRATCH, MUBUF, MTBUF.
    pub fn is_vmem(self) -> bool {
        matches!(self.row().form, Form::Flat | Form::Global | Form::Scratch | Form::Mubuf | Form::Mtbuf)
    }

    /// DS with two offsets; they count in elements, or in 64 of them where the name says `st64`.
    pub fn has_two_offsets(self) -> bool {
        self.has(flag::TWO)
    }

    /// Moves data between lanes through LDS's crossbar, without its memory.
    pub fn is_lane_exchange(self) -> bool {
        self.has(flag::LANES)
    }

    /// Computes in double precision: a sixteenth of the rate.
    pub fn is_f64(self) -> bool {
        let row = self.row();
        self.is_valu() && row.dst.iter().chain(row.src).any(|slot| matches!(slot, Slot::Value(Ty::F64, _)))
    }

    /// Works on the global data share only.
    pub fn is_gds(self) -> bool {
        self.has(flag::GDS_ONLY)
    }
}
