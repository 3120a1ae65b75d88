//! Vector ALU.

use crate::Args;
use crate::env::VectorFn;
use wave32_isa::Inst;

/// The handler of a vector ALU instruction.
pub(crate) fn bind(_inst: &Inst) -> Option<(VectorFn, Args)> {
    None
}
