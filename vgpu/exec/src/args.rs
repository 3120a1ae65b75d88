//! Operands resolved when an instruction is bound.

use wave32_isa::{Mem, Mods, Swizzle};

/// Where a source comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Src {
    /// A VGPR, the first of as many as the operation takes.
    Vgpr(u16),
    /// A scalar register by operand code; SCC, VCCZ, EXECZ and apertures too (235 to 253).
    Sgpr(u8),
    /// An inline constant or literal, already widened as the operand's type wants it.
    Const(u64),
    /// There is none.
    None,
}

/// What handlers get: small, so that a program stays in the cache.
#[derive(Debug, Clone, Copy)]
pub struct Args {
    /// VGPR or scalar destination.
    pub dst: u16,
    /// Scalar destination beside it: carry out, compare result.
    pub sdst: u16,
    /// Sources in the order of the text.
    pub src: [Src; 4],
    /// SOPK's and SOPP's constant.
    pub imm: u16,
    /// Modifiers; all zero for most.
    pub mods: Mods,
    /// DPP and SDWA; `None` for most.
    pub swizzle: Swizzle,
    /// Memory fields.
    pub mem: Mem,
}
