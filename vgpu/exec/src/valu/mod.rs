//! Vector ALU: every operation of VOP1, VOP2, VOPC, VOP3 and VOP3P but graphics' interpolation.

mod arith;
mod carry;
mod compare;
mod convert;
mod cross;
mod division;
mod float;
mod format;
mod int;
mod mode;
mod packed;
mod special;

pub(crate) use arith::ldexp;
pub(crate) use format::{F16, F32, F64, Format, flushed, is_nan};
pub(crate) use mode::Mode;

use crate::env::VectorFn;
use crate::lanes::Handlers;
use crate::wave::EXEC;
use crate::{Args, Src, Wave};
use wave32_isa::{Access, Form, Inst, Mods, Opcode, Swizzle};

/// The handler of a vector ALU instruction, and its operands.
pub(crate) fn bind(inst: &Inst) -> Option<(VectorFn, Args)> {
    let mut args = Args::new(inst);
    if args.src[uniform_from(inst.op)..].iter().any(|src| matches!(src, Src::Vgpr(_))) {
        return None;
    }
    // The destination that is a source too, `v_fmac`'s sum, comes third; no encoding has modifiers of it.
    if inst.arg[0].access == Access::Rw && args.src[2] == Src::None {
        args.src[2] = Src::Vgpr(args.dst);
        args.mods.neg &= 3;
        args.mods.abs &= 3;
    }
    if inst.op.name().starts_with("v_cmpx") {
        args.dst = EXEC as u16;
    }
    if inst.form != Form::Vop3p {
        // Only VOP3P says where the high half comes from.
        args.mods.op_sel_hi = 7;
    }
    if let Some(handler) = wide_operands(inst.op, &inst.swizzle) {
        return Some((handler, args));
    }
    let handlers = lanes_of(inst.op)?;
    let rest = Mods { neg: 0, abs: 0, op_sel_hi: 0, ..inst.mods };
    let handler = if inst.swizzle != Swizzle::None || rest != Mods::default() {
        handlers.general
    } else if inst.mods.neg | inst.mods.abs != 0 {
        handlers.signed
    } else {
        handlers.without_modifiers(&args)
    };
    Some((handler, args))
}

/// The first source that is the wave's, not a lane's: a lane number. Of a VGPR there the manual says nothing.
fn uniform_from(op: Opcode) -> usize {
    match op {
        Opcode::v_writelane_b32 => 0,
        Opcode::v_readlane_b32 | Opcode::v_permlane16_b32 | Opcode::v_permlanex16_b32 => 1,
        _ => 4,
    }
}

/// Operations that are not one lane's alone, or treat the halves of a register alike.
fn wide_operands(op: Opcode, swizzle: &Swizzle) -> Option<VectorFn> {
    match op {
        Opcode::v_div_fmas_f32 => Some(division::fmas::<F32>),
        Opcode::v_div_fmas_f64 => Some(division::fmas::<F64>),
        // The packed operations that come swizzled are dot products, which are lanes' too.
        _ if *swizzle == Swizzle::None => packed::bind(op).or_else(|| cross::bind(op)),
        _ => cross::bind(op),
    }
}

fn lanes_of(op: Opcode) -> Option<Handlers> {
    int::bind(op)
        .or_else(|| float::bind(op))
        .or_else(|| compare::bind(op))
        .or_else(|| carry::bind(op))
        .or_else(|| convert::bind(op))
        .or_else(|| special::bind(op))
        .or_else(|| division::bind(op))
        .or_else(|| packed::bind_lanes(op))
}

impl Wave {
    /// Executes one vector ALU instruction for all lanes, apart from a program; returns whether it is one.
    pub fn execute_vector(&mut self, inst: &Inst) -> bool {
        let Some((handler, args)) = bind(inst) else {
            return false;
        };
        for half in 0..1 + usize::from(self.wave64) {
            self.half = half;
            handler(self, &args);
        }
        self.half = 0;
        true
    }
}
