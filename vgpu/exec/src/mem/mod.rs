//! Vector memory and LDS.

use crate::env::MemoryFn;
use crate::{Args, Memory};
use wave32_isa::Inst;

/// The handler of a vector memory or LDS instruction.
pub(crate) fn bind<M: Memory>(_inst: &Inst) -> Option<(MemoryFn<M>, Args)> {
    None
}
