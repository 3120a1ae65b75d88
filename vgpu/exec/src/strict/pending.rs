//! Loads under way and the counters that say so (RDNA ISA 4.4, "data dependency resolution").
//!
//! Vector memory returns in order, and so does LDS; scalar memory and messages do not. FLAT counts with both, in order
//! with either (LLVM: `hasFlatLgkmVMemCountInOrder`). Stores read their data at issue on gfx10: nobody waits for that.

use super::{Lanes, RegisterUse, active, and, chosen, first, single};
use crate::{Fault, Finding, Wave};
use std::collections::VecDeque;
use wave32_isa::{Access, Arg, Form, Inst, Opcode};

/// How an operation leaves `lgkmcnt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lgkm {
    No,
    /// After those before it.
    InOrder,
    /// Whenever it is done.
    Anytime,
}

/// An instruction under way.
#[derive(Debug, Clone, Copy)]
struct Under {
    vmcnt: bool,
    lgkm: Lgkm,
    /// Registers that it will write, and in which lanes; SGPRs in none.
    first: u16,
    count: u16,
    vector: bool,
    lanes: Lanes,
    /// It changes LDS.
    lds_store: bool,
}

/// What a wave has under way.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// One LDS serves all waves of the workgroup in order: what a wave stored before a barrier is there for those behind
    /// it without a wait. In WGP mode two LDS do. Mesa's compiler relies on it (`aco_insert_waitcnt.cpp`, 26.2).
    cu_mode: bool,
    under: VecDeque<Under>,
    vgprs: [u64; 4],
    sgprs: u128,
}

impl Pending {
    pub fn new(cu_mode: bool) -> Self {
        Self { cu_mode, ..Self::default() }
    }

    /// Checks an instruction's registers, then takes note of what it starts or waits for.
    #[inline]
    pub fn before(&mut self, wave: &Wave, inst: &Inst, plan: &RegisterUse) -> Result<(), Box<Fault>> {
        let busy = self.vgprs.iter().zip(&plan.vgprs).fold(0, |busy, (a, b)| busy | a & b) != 0
            || self.sgprs & plan.sgprs != 0;
        if busy || plan.counted { self.check(wave, inst, busy) } else { Ok(()) }
    }

    /// Whether an instruction needs to be looked at whatever is under way.
    pub fn counts(inst: &Inst) -> bool {
        Under::of([0; 2], inst).is_some()
            || inst.op == Opcode::s_barrier
            || Self::default().wait(&Wave::new(0, false), inst)
    }

    fn check(&mut self, wave: &Wave, inst: &Inst, busy: bool) -> Result<(), Box<Fault>> {
        if self.wait(wave, inst) {
            return Ok(());
        }
        let starts = Under::of(active(wave), inst);
        if busy {
            for arg in inst.args() {
                self.look(wave, inst, arg, starts.as_ref())?;
            }
        }
        if inst.op == Opcode::s_barrier
            && let Some(store) = self.under.iter().find(|u| u.lds_store && (u.vmcnt || !self.cu_mode))
        {
            let counter = if store.vmcnt { "vmcnt" } else { "lgkmcnt" };
            let register = u32::from(store.first);
            return Err(Fault::strict(None, Finding::MissingWaitcnt { register, vector: true, counter }));
        }
        if let Some(starts) = starts {
            self.mark(&starts);
            self.under.push_back(starts);
        }
        Ok(())
    }

    /// One operand against what is under way.
    fn look(&self, wave: &Wave, inst: &Inst, arg: &Arg, starts: Option<&Under>) -> Result<(), Box<Fault>> {
        let (first_register, vector) = match (arg.operand.as_vgpr(), arg.operand.as_sgpr()) {
            (Some(v), _) => (v, true),
            (_, Some(s)) => (s, false),
            _ => return Ok(()),
        };
        for register in first_register..first_register + usize::from(arg.dwords.max(1)) {
            let busy = if vector {
                self.vgprs[register / 64 % 4] >> (register % 64) & 1 == 1
            } else {
                register < 128 && self.sgprs >> register & 1 == 1
            };
            if !busy {
                continue;
            }
            let lanes = match chosen(wave, inst) {
                Some(lane) if vector && inst.op != Opcode::v_writelane_b32 => single(lane),
                Some(lane) if vector && arg.access != Access::R => single(lane),
                _ => active(wave),
            };
            for under in self.under.iter().filter(|u| u.vector == vector && u.holds(register)) {
                if vector && and(under.lanes, lanes) == [0, 0] {
                    continue;
                }
                // A load into the register of one before it, which returns in order.
                if arg.access != Access::R && starts.is_some_and(|s| s.follows(under)) {
                    continue;
                }
                let counter = if under.vmcnt { "vmcnt" } else { "lgkmcnt" };
                let lane = if vector { first(and(under.lanes, lanes)) } else { None };
                let finding = Finding::MissingWaitcnt { register: register as u32, vector, counter };
                return Err(Fault::strict(lane, finding));
            }
        }
        Ok(())
    }

    /// Whether the instruction is a wait; if so what it waited for is under way no longer.
    fn wait(&mut self, wave: &Wave, inst: &Inst) -> bool {
        let imm = u32::from(inst.imm);
        let sum = || {
            let sgpr = inst.args().first().and_then(|a| a.operand.as_sgpr()).map_or(0, |s| wave.sgpr[s]);
            (sgpr & 63) + (imm & 63)
        };
        let (vmcnt, lgkmcnt) = match inst.op {
            Opcode::s_waitcnt => (imm & 15 | imm >> 10 & 48, imm >> 8 & 63),
            Opcode::s_waitcnt_vmcnt => (sum(), 63),
            Opcode::s_waitcnt_lgkmcnt => (63, sum()),
            Opcode::s_wait_idle => (0, 0),
            Opcode::s_waitcnt_vscnt | Opcode::s_waitcnt_expcnt | Opcode::s_waitcnt_depctr => return true,
            _ => return false,
        };
        let (mut younger_vector, mut younger_lds) = (0, 0);
        for under in self.under.iter_mut().rev() {
            if under.vmcnt {
                under.vmcnt = younger_vector < vmcnt;
                younger_vector += 1;
            }
            match under.lgkm {
                Lgkm::InOrder => {
                    if younger_lds >= lgkmcnt {
                        under.lgkm = Lgkm::No;
                    }
                    younger_lds += 1;
                }
                // With only one left it may be any of them.
                Lgkm::Anytime if lgkmcnt == 0 => under.lgkm = Lgkm::No,
                Lgkm::Anytime | Lgkm::No => {}
            }
        }
        self.under.retain(|u| u.vmcnt || u.lgkm != Lgkm::No);
        (self.vgprs, self.sgprs) = ([0; 4], 0);
        let under = std::mem::take(&mut self.under);
        under.iter().for_each(|u| self.mark(u));
        self.under = under;
        true
    }

    /// Its registers are busy.
    fn mark(&mut self, under: &Under) {
        for register in usize::from(under.first)..usize::from(under.first + under.count) {
            if under.vector {
                self.vgprs[register / 64 % 4] |= 1 << (register % 64);
            } else if register < 128 {
                self.sgprs |= 1 << register;
            }
        }
    }
}

impl Under {
    /// What an instruction starts, if anything that a counter counts.
    fn of(lanes: Lanes, inst: &Inst) -> Option<Self> {
        let op = inst.op;
        let written = inst.args().iter().find(|arg| arg.printed && arg.access != Access::R);
        let register = written.and_then(|arg| arg.operand.as_vgpr().or(arg.operand.as_sgpr()));
        let (first, count) = match (register, written) {
            (Some(register), Some(arg)) => (register as u16, u16::from(arg.dwords)),
            // A store: named by what it stores.
            _ => (inst.args().iter().rev().find_map(|arg| arg.operand.as_vgpr()).unwrap_or(0) as u16, 0),
        };
        let none = Self { vmcnt: false, lgkm: Lgkm::No, first, count, vector: true, lanes, lds_store: false };
        Some(match inst.form {
            Form::Smem | Form::Sopp if inst.form == Form::Smem || op == Opcode::s_sendmsg => {
                Self { lgkm: Lgkm::Anytime, vector: false, ..none }
            }
            Form::Ds => Self { lgkm: Lgkm::InOrder, lds_store: op.is_store() || op.is_atomic(), ..none },
            Form::Flat if count > 0 => Self { vmcnt: true, lgkm: Lgkm::InOrder, ..none },
            Form::Flat => Self { lgkm: Lgkm::InOrder, ..none },
            Form::Global | Form::Scratch | Form::Mubuf | Form::Mtbuf if count > 0 || inst.mem.lds => {
                Self { vmcnt: true, lds_store: inst.mem.lds, ..none }
            }
            _ => return None,
        })
    }

    fn holds(&self, register: usize) -> bool {
        (usize::from(self.first)..usize::from(self.first + self.count)).contains(&register)
    }

    /// Whether this one, started later, cannot return before `other`.
    fn follows(&self, other: &Self) -> bool {
        let vector = self.vmcnt && other.vmcnt;
        let lds = self.lgkm == Lgkm::InOrder && other.lgkm == Lgkm::InOrder;
        // Of FLAT either may be the way that it goes: both must be in order.
        match (self.vmcnt || other.vmcnt, self.lgkm != Lgkm::No || other.lgkm != Lgkm::No) {
            (true, true) => vector && lds,
            (true, false) => vector,
            _ => lds,
        }
    }
}
