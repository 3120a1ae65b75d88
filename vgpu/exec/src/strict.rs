//! What the strict card knows of a wave.

use crate::{Fault, Wave};
use wave32_isa::Inst;

/// A wave's initialised registers and outstanding loads.
#[derive(Debug)]
pub struct WaveCheck {}

impl WaveCheck {
    /// A wave that starts with its first `sgprs` scalar and `vgprs` vector registers initialised.
    pub fn new(_wave: &Wave, _sgprs: usize, _vgprs: usize) -> Self {
        Self {}
    }

    /// Before each instruction.
    pub fn before(&mut self, _wave: &Wave, _inst: &Inst) -> Result<(), Box<Fault>> {
        Ok(())
    }
}
