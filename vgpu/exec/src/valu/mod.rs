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
pub(crate) use format::{F16, F32, F64, Format, is_nan};
pub(crate) use mode::Mode;

use crate::env::VectorFn;
use crate::lanes::Handlers;
use crate::wave::EXEC;
use crate::{Args, Src};
use wave32_isa::{Access, Form, Inst, Mods, Op, Swizzle};

/// The handler of a vector ALU instruction, and its operands.
pub(crate) fn bind(inst: &Inst) -> Option<(VectorFn, Args)> {
    let mut args = Args::new(inst);
    // The destination that is a source too, `v_fmac`'s sum, comes third.
    if inst.arg[0].access == Access::Rw && args.src[2] == Src::None {
        args.src[2] = Src::Vgpr(args.dst);
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
    let Handlers { plain, general } = lanes_of(inst.op)?;
    let is_plain = inst.swizzle == Swizzle::None && Mods { op_sel_hi: 0, ..inst.mods } == Mods::default();
    Some((if is_plain { plain } else { general }, args))
}

/// Operations that are not one lane's alone.
fn wide_operands(op: Op, swizzle: &Swizzle) -> Option<VectorFn> {
    match op {
        Op::v_div_fmas_f32 => Some(division::fmas::<F32>),
        Op::v_div_fmas_f64 => Some(division::fmas::<F64>),
        _ if *swizzle == Swizzle::None => packed::bind(op).or_else(|| cross::bind(op, swizzle)),
        _ => None,
    }
}

fn lanes_of(op: Op) -> Option<Handlers> {
    int::bind(op)
        .or_else(|| float::bind(op))
        .or_else(|| compare::bind(op))
        .or_else(|| carry::bind(op))
        .or_else(|| convert::bind(op))
        .or_else(|| special::bind(op))
        .or_else(|| division::bind(op))
        .or_else(|| packed::bind_lanes(op))
}
