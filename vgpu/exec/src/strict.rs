//! What the strict card knows of a wave: which registers anybody wrote, which loads are under way.

mod defined;
mod memory;
mod pending;
mod plan;

use crate::{Fault, Lds, Wave};
use defined::Defined;
use pending::Pending;
use wave32_isa::Inst;

pub(crate) use plan::RegisterUse;

/// A wave's initialised registers and outstanding loads.
#[derive(Debug)]
pub struct WaveCheck {
    defined: Defined,
    pending: Pending,
}

impl WaveCheck {
    /// A wave that starts with its first `sgprs` scalar and `vgprs` vector registers initialised; `cu_mode`: one compute
    /// unit runs its workgroup.
    pub fn new(wave: &Wave, sgprs: usize, vgprs: usize, cu_mode: bool) -> Self {
        Self { defined: Defined::new(wave.vgprs, sgprs, vgprs), pending: Pending::new(cu_mode) }
    }

    /// Before each instruction.
    ///
    /// # Errors
    /// A finding, and the first lane concerned.
    #[inline]
    pub fn before(
        &mut self,
        wave: &Wave,
        inst: &Inst,
        plan: &RegisterUse,
        lds: &mut Lds,
    ) -> Result<(), Box<Fault>> {
        self.pending.before(wave, inst, plan)?;
        self.defined.before(wave, inst, plan, lds)
    }

    /// A finding about this instruction was told; what it computes counts as defined.
    pub fn forgive(&mut self, inst: &Inst) {
        self.defined.forgive(inst);
    }

    /// Behind each instruction.
    #[inline(always)]
    pub fn after(&mut self, wave: &Wave, plan: &RegisterUse, lds: &mut Lds) {
        if plan.lds && (plan.half || lds.moves_undefined()) {
            self.defined.loaded(wave, plan, lds);
        }
    }
}

/// A mask of lanes, a half each.
type Lanes = [u32; 2];

/// All lanes that EXEC has on.
fn active(wave: &Wave) -> Lanes {
    let exec = crate::wave::EXEC;
    [wave.sgpr[exec], if wave.wave64 { wave.sgpr[exec + 1] } else { 0 }]
}

fn and(a: Lanes, b: Lanes) -> Lanes {
    [a[0] & b[0], a[1] & b[1]]
}

fn or(a: Lanes, b: Lanes) -> Lanes {
    [a[0] | b[0], a[1] | b[1]]
}

fn without(a: Lanes, b: Lanes) -> Lanes {
    [a[0] & !b[0], a[1] & !b[1]]
}

/// The first lane of a mask.
fn first(lanes: Lanes) -> Option<u32> {
    let all = u64::from(lanes[0]) | u64::from(lanes[1]) << 32;
    (all != 0).then(|| all.trailing_zeros())
}

/// One lane.
fn single(lane: u32) -> Lanes {
    if lane < 32 { [1 << lane, 0] } else { [0, 1 << (lane % 32)] }
}

/// The lane that `v_readlane` and `v_writelane` mean, `v_readfirstlane`'s.
fn chosen(wave: &Wave, inst: &Inst) -> Option<u32> {
    use wave32_isa::Opcode;
    let lanes = if wave.wave64 { 64 } else { 32 };
    match inst.op {
        Opcode::v_readlane_b32 | Opcode::v_writelane_b32 => {
            let args = crate::Args::new(inst);
            let lane = match args.src[1] {
                crate::Src::Sgpr(code) => wave.scalar(code),
                crate::Src::Const(low, _) => low,
                _ => 0,
            };
            Some(lane % lanes)
        }
        Opcode::v_readfirstlane_b32 => Some(first(active(wave)).unwrap_or(0)),
        _ => None,
    }
}
