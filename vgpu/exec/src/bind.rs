//! Chooses the handler of a decoded instruction.

use crate::env::{MemoryFn, ScalarFn, VectorFn};
use crate::{Args, Memory};
use wave32_isa::{Form, Inst};

/// What executes an instruction.
pub(crate) enum Handler<M> {
    /// On each half.
    Vector(VectorFn),
    /// Once.
    Scalar(ScalarFn),
    /// Vector memory and LDS, on each half.
    VectorMemory(MemoryFn<M>),
    /// Scalar memory, once.
    ScalarMemory(MemoryFn<M>),
    /// Branches, barriers, messages: the run loop itself.
    Control,
    /// Nothing to do.
    Hint,
    /// Known to decode only.
    Missing,
}

impl<M> Clone for Handler<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Handler<M> {}

/// An instruction's handler with its operands.
pub(crate) fn bind<M: Memory>(inst: &Inst) -> (Handler<M>, Args) {
    if crate::control::is_hint(inst.op) {
        return (Handler::Hint, Args::new(inst));
    }
    let bound = match inst.form {
        Form::Vop1 | Form::Vop2 | Form::Vopc | Form::Vop3 | Form::Vop3p => {
            crate::valu::bind(inst).map(|(f, args)| (Handler::Vector(f), args))
        }
        Form::Ds | Form::Flat | Form::Global | Form::Scratch | Form::Mubuf | Form::Mtbuf => {
            crate::mem::bind(inst).map(|(f, args)| (Handler::VectorMemory(f), args))
        }
        Form::Smem => crate::smem::bind(inst).map(|(f, args)| (Handler::ScalarMemory(f), args)),
        Form::Sop1 | Form::Sop2 | Form::Sopk | Form::Sopc | Form::Sopp => {
            if crate::control::is_control(inst.op) {
                Some((Handler::Control, Args::new(inst)))
            } else {
                crate::salu::bind(inst).map(|(f, args)| (Handler::Scalar(f), args))
            }
        }
    };
    bound.unwrap_or_else(|| (Handler::Missing, Args::new(inst)))
}
