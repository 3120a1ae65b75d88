//! A decoded instruction: what the printer prints and the executor binds.

/// An operand as the nine-bit source field has it (RDNA ISA 6.2, "Input Operands").
///
/// 0 to 105 SGPRs, 106/107 VCC, 124 M0, 125 NULL, 126/127 EXEC, 128 to 208 integers, 235 to 239 apertures,
/// 240 to 248 floats, 251 VCCZ, 252 EXECZ, 253 SCC, 254 LDS direct, 255 literal, 256 to 511 VGPRs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operand(pub u16);

impl Operand {
    /// VCC, its low half.
    pub const VCC: Self = Self(106);
    /// M0.
    pub const M0: Self = Self(124);
    /// Reads zero, swallows writes.
    pub const NULL: Self = Self(125);
    /// EXEC, its low half.
    pub const EXEC: Self = Self(126);
    /// The carry and condition bit of the scalar unit.
    pub const SCC: Self = Self(253);
    /// The 32-bit constant behind the instruction: [`Inst::literal`].
    pub const LITERAL: Self = Self(255);
    /// None: an `off` address, a field that is not there.
    pub const OFF: Self = Self(0xffff);

    /// The `n`-th VGPR.
    pub const fn vgpr(n: u8) -> Self {
        Self(256 + n as u16)
    }

    /// Which VGPR, if one.
    pub const fn as_vgpr(self) -> Option<usize> {
        if self.0 >= 256 && self.0 < 512 { Some(self.0 as usize - 256) } else { None }
    }

    /// Which scalar register (0 to 127, VCC, M0, NULL and EXEC among them), if one.
    pub const fn as_sgpr(self) -> Option<usize> {
        if self.0 < 128 { Some(self.0 as usize) } else { None }
    }
}

/// What an operand's bits mean: decides inline constants, literals, modifiers and print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ty {
    /// Untyped bits of the [`Arg`]'s size.
    B,
    /// 16-bit float, integer signed, unsigned.
    F16,
    /// See `F16`.
    I16,
    /// See `F16`.
    U16,
    /// Two of them in one register.
    Pk16F,
    /// See `Pk16F`.
    Pk16I,
    /// 32-bit float, integer signed, unsigned.
    F32,
    /// See `F32`.
    I32,
    /// See `F32`.
    U32,
    /// 64-bit float, integer signed, unsigned.
    F64,
    /// See `F64`.
    I64,
    /// See `F64`.
    U64,
    /// A bit for each lane: one SGPR in wave32, two in wave64.
    Mask,
    /// A lane number, an immediate, an address: never an inline float.
    Imm,
}

/// Whether an instruction reads or writes an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads.
    R,
    /// Writes; the other half of the register, other bytes or other lanes may be kept.
    W,
    /// Both: `v_fmac`'s destination.
    Rw,
}

/// One operand of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Arg {
    /// Where.
    pub operand: Operand,
    /// Consecutive registers, 1 to 16.
    pub dwords: u8,
    /// What the bits mean.
    pub ty: Ty,
    /// Read or written.
    pub access: Access,
    /// Named in the text; VCC of `v_div_fmas` is not, SCC never is and stands in no list.
    pub printed: bool,
}

/// How the instruction is encoded (RDNA ISA chapter 13). An operation of VOP1, VOP2 or VOPC may come in several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the manual's names
pub enum Form {
    Sop1,
    Sop2,
    Sopk,
    Sopc,
    Sopp,
    Smem,
    Vop1,
    Vop2,
    Vopc,
    Vop3,
    Vop3p,
    Ds,
    Flat,
    Global,
    Scratch,
    Mubuf,
    Mtbuf,
}

/// Modifiers of VOP3, VOP3P, DPP16 and SDWA; bit `i` is source `i`. NEG and ABS mean nothing for a source that is no float,
/// though a few encodings have the bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Mods {
    /// Negated (of VOP3P: the low half).
    pub neg: u8,
    /// Absolute value; of VOP3P: the high half negated (`neg_hi`). `v_mad_mix`/`v_fma_mix` use it as absolute value.
    pub abs: u8,
    /// Which half a 16-bit source comes from; bit 3 is the destination's.
    pub op_sel: u8,
    /// VOP3P: where the high result's sources come from.
    pub op_sel_hi: u8,
    /// Clamped to 0..1 (floats) or saturated (integers).
    pub clamp: bool,
    /// Output multiplied: 0 not, 1 by 2, 2 by 4, 3 by 1/2.
    pub omod: u8,
}

/// SDWA's choice of a part of a register (RDNA ISA 13.3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the manual's names
pub enum SdwaSel {
    Byte0,
    Byte1,
    Byte2,
    Byte3,
    Word0,
    Word1,
    Dword,
}

/// How sources reach the lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Swizzle {
    /// Each lane its own.
    #[default]
    None,
    /// DPP16 (RDNA ISA 13.3.9).
    Dpp16 {
        /// The permutation.
        ctrl: u16,
        /// Rows and banks written, a bit each.
        row_mask: u8,
        /// See `row_mask`.
        bank_mask: u8,
        /// Lanes without a source read zero; else they are not written.
        bound_ctrl: bool,
        /// Reads lanes that EXEC turned off.
        fetch_inactive: bool,
    },
    /// DPP8: each lane's source within its eight.
    Dpp8 {
        /// Source lane of lane `i`, 0 to 7.
        select: [u8; 8],
        /// Reads lanes that EXEC turned off.
        fetch_inactive: bool,
    },
    /// Sub-dword addressing.
    Sdwa {
        /// Part of the destination written.
        dst: SdwaSel,
        /// The rest of the destination: 0 zeroed, 1 sign extended, 2 preserved.
        dst_unused: u8,
        /// Parts of the sources, and whether they are sign extended.
        src: [SdwaSel; 2],
        /// See `src`.
        sext: [bool; 2],
    },
}

/// Fields of memory instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Mem {
    /// Byte offset: signed in FLAT and SMEM; DS `offset0`.
    pub offset: i32,
    /// DS `offset1`.
    pub offset1: u8,
    /// Cache policy; GLC returns an atomic's old value.
    pub glc: bool,
    /// Cache policy.
    pub slc: bool,
    /// Cache policy.
    pub dlc: bool,
    /// Buffers: the VGPR address holds an offset, an index.
    pub offen: bool,
    /// See `offen`.
    pub idxen: bool,
    /// Global data share instead of LDS.
    pub gds: bool,
    /// MUBUF: into LDS instead of VGPRs.
    pub lds: bool,
    /// Returns a status dword.
    pub tfe: bool,
    /// MTBUF's data format.
    pub format: u8,
}

/// An instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inst {
    /// Which: an index of the table; `op.name()` is the mnemonic without suffix.
    pub op: crate::Opcode,
    /// How it is encoded.
    pub form: Form,
    /// Bytes: 4, 8, 12.
    pub len: u8,
    /// Operands in the order of the text, destinations first; implicit ones behind (EXEC as the mask of active lanes is in
    /// no list). An SMEM, GLOBAL, SCRATCH or buffer address that is off has [`Operand::OFF`] in its place. [`Inst::args`]
    /// gives those there are.
    pub arg: [Arg; 8],
    /// How many operands there are.
    pub args: u8,
    /// The constant behind the instruction.
    pub literal: u32,
    /// SOPK's and SOPP's 16 bits.
    pub imm: u16,
    /// Modifiers.
    pub mods: Mods,
    /// DPP and SDWA.
    pub swizzle: Swizzle,
    /// Memory fields.
    pub mem: Mem,
}

impl Inst {
    /// The operands.
    pub fn args(&self) -> &[Arg] {
        &self.arg[..usize::from(self.args)]
    }
}

/// What `s_waitcnt` and its kin wait for (RDNA ISA 4.4): which counters an instruction raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Vector memory that returns something.
    pub vmcnt: bool,
    /// Vector memory that returns nothing.
    pub vscnt: bool,
    /// LDS, GDS, scalar memory, messages; FLAT too, which may go to LDS.
    pub lgkmcnt: bool,
    /// GDS.
    pub expcnt: bool,
}

impl Inst {
    /// The counters that it raises until it is done.
    pub fn counters(&self) -> Counters {
        let op = self.op;
        let vector = |lgkmcnt| {
            let returns = op.is_load() || op.is_atomic() && self.mem.glc;
            let counted = returns || op.is_store() || op.is_atomic();
            Counters { vmcnt: counted && returns, vscnt: counted && !returns, lgkmcnt, expcnt: false }
        };
        match self.form {
            Form::Smem => Counters { lgkmcnt: true, ..Counters::default() },
            Form::Sopp => {
                let message = matches!(op, crate::Opcode::s_sendmsg | crate::Opcode::s_sendmsghalt);
                Counters { lgkmcnt: message, ..Counters::default() }
            }
            Form::Ds => {
                let counted = op != crate::Opcode::ds_nop;
                Counters { lgkmcnt: counted, expcnt: counted && self.mem.gds, ..Counters::default() }
            }
            Form::Flat => vector(true),
            Form::Global | Form::Scratch | Form::Mubuf | Form::Mtbuf => vector(false),
            _ => Counters::default(),
        }
    }
}
