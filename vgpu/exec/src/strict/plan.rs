//! What the strict card has to know of an instruction, worked out once: most instructions follow a few rules, and only
//! what does not, or meets something undefined or under way, is looked at in full.

use super::defined::{self, Rule};
use super::memory;
use super::pending::Pending;
use wave32_isa::{Access, Inst, Operand};

/// Consecutive VGPRs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    pub first: u16,
    pub count: u16,
}

/// See the module.
#[derive(Debug)]
pub struct RegisterUse {
    /// Registers that it names, a bit each.
    pub(super) vgprs: [u64; 4],
    pub(super) sgprs: u128,
    /// Scalar registers that it reads, and SCC.
    pub(super) needs: u128,
    pub(super) needs_scc: bool,
    /// Those that are defined behind it, if what it needs is.
    pub(super) sets: u128,
    pub(super) sets_scc: bool,
    /// It starts something that a counter counts, or waits.
    pub(super) counted: bool,
    /// It may load from LDS or store to it; it loads half a register then.
    pub(super) lds: bool,
    pub(super) half: bool,
    pub(super) rule: Rule,
    pub(super) src: [Span; 4],
    pub(super) dst: Span,
}

impl RegisterUse {
    /// Of an instruction.
    pub fn new(inst: &Inst) -> Self {
        let (needs_scc, sets_scc) = inst.op.scc();
        let mut plan = Self {
            vgprs: [0; 4],
            sgprs: 0,
            needs: 0,
            needs_scc: needs_scc || inst.args().iter().any(|arg| arg.operand == Operand::SCC),
            sets: 0,
            sets_scc,
            counted: Pending::counts(inst),
            lds: memory::moves_lds(inst),
            half: memory::half_of_register(inst),
            rule: defined::rule(inst),
            src: [Span::default(); 4],
            dst: Span::default(),
        };
        let (mut sources, mut results) = (0, 0);
        let read = defined::read_registers(inst);
        for arg in inst.args() {
            let count = usize::from(arg.dwords.max(1));
            if let Some(first) = arg.operand.as_vgpr() {
                (first..first + count).for_each(|v| plan.vgprs[v / 64 % 4] |= 1 << (v % 64));
                let span = Span { first: first as u16, count: count as u16 };
                if read.contains(arg) {
                    if let Some(place) = plan.src.get_mut(sources) {
                        *place = span;
                    }
                    sources += 1;
                }
                if arg.access != Access::R {
                    plan.dst = span;
                    results += 1;
                }
            } else if let Some(first) = arg.operand.as_sgpr() {
                let mask = (first..(first + count).min(128)).fold(0, |mask, s| mask | 1u128 << s);
                plan.sgprs |= mask;
                if arg.access != Access::W {
                    plan.needs |= mask;
                }
                if arg.access != Access::R {
                    plan.sets |= mask;
                }
            }
        }
        if sources > plan.src.len() || results > 1 {
            plan.rule = Rule::Special;
        }
        plan
    }

    /// The vector registers that it reads.
    pub(super) fn sources(&self) -> impl Iterator<Item = Span> {
        self.src.into_iter().take_while(|span| span.count > 0)
    }
}
