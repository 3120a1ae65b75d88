//! Scalar memory (RDNA ISA chapter 7).

use crate::env::MemoryFn;
use crate::{Args, Memory};
use wave32_isa::Inst;

/// The handler of a scalar memory instruction.
pub(crate) fn bind<M: Memory>(_inst: &Inst) -> Option<(MemoryFn<M>, Args)> {
    None
}
