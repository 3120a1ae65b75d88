//! What the model must know of an instruction, worked out once.

use crate::constants as c;
use std::collections::BTreeSet;
use wave32_exec::Class;
use wave32_isa::{Access, Form, Inst, Opcode, Operand, Ty};

/// What executes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Valu,
    /// The transcendental unit beside the VALU.
    Trans,
    Salu,
    Smem,
    Vmem,
    Lds,
    Branch,
    /// Done by the sequencer itself: waits, hints.
    None,
}

impl Unit {
    pub(crate) const COUNT: usize = 8;
}

/// VGPRs, scalar operands, SCC.
pub(crate) const REGISTERS: usize = 256 + 128 + 1;
const SCC: u16 = 256 + 128;

/// Counters as `s_waitcnt` lets them stand; 255 lets them be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) vm: u8,
    pub(crate) lgkm: u8,
    pub(crate) vs: u8,
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Issue {
    pub(crate) unit: Unit,
    /// Clocks that a half of 32 lanes keeps the unit.
    pub(crate) clocks: u8,
    /// Clocks to a dependent instruction.
    pub(crate) latency: u8,
    /// Clocks more that a half keeps the unit if nothing hides that sources lie in one bank.
    pub(crate) conflicts: u8,
    pub(crate) reads: Box<[u16]>,
    pub(crate) writes: Box<[u16]>,
    pub(crate) wait: Option<Wait>,
    pub(crate) vmcnt: bool,
    pub(crate) vscnt: bool,
    pub(crate) lgkmcnt: bool,
    pub(crate) barrier: bool,
    /// Dwords of code: where the next instruction is unless a branch was taken.
    pub(crate) dwords: u8,
}

impl Issue {
    pub(crate) fn of(inst: &Inst, wave64: bool) -> Self {
        let (unit, clocks, latency) = cost(inst);
        let counters = inst.counters();
        let memory = matches!(unit, Unit::Vmem | Unit::Lds | Unit::Smem);
        let registers = |wanted: fn(Access) -> bool| {
            let args = inst.args().iter().filter(move |a| wanted(a.access));
            args.flat_map(move |a| {
                let mask = a.ty == Ty::Mask && wave64;
                let count = if mask { 2 } else { u16::from(a.dwords) };
                register(a.operand).into_iter().flat_map(move |first| first..first + count)
            })
        };
        let mut reads: Vec<u16> = registers(|access| access != Access::W).collect();
        // What memory instructions return is waited for by `s_waitcnt`.
        let mut writes: Vec<u16> =
            if memory { Vec::new() } else { registers(|access| access != Access::R).collect() };
        let (reads_scc, writes_scc) = inst.op.scc();
        reads.extend(reads_scc.then_some(SCC));
        writes.extend(writes_scc.then_some(SCC));
        if matches!(unit, Unit::Valu | Unit::Trans | Unit::Vmem | Unit::Lds) {
            reads.push(256 + Operand::EXEC.0);
        }
        Self {
            unit,
            clocks: clocks as u8,
            latency: latency as u8,
            conflicts: if matches!(unit, Unit::Valu | Unit::Trans) { conflicts(inst) } else { 0 },
            reads: reads.into_iter().filter(|r| usize::from(*r) < REGISTERS).collect(),
            writes: writes.into_iter().filter(|r| usize::from(*r) < REGISTERS).collect(),
            wait: wait(inst),
            vmcnt: counters.vmcnt,
            vscnt: counters.vscnt,
            lgkmcnt: counters.lgkmcnt && memory,
            barrier: inst.op == Opcode::s_barrier,
            dwords: inst.len / 4,
        }
    }
}

/// Clocks that the fullest bank reads longer than one: by the different VGPRs among the sources.
fn conflicts(inst: &Inst) -> u8 {
    let sources = inst.args().iter().filter(|a| a.access != Access::W).filter_map(|a| a.operand.as_vgpr());
    let different: BTreeSet<usize> = sources.collect();
    let in_bank = |bank: u64| different.iter().filter(|v| **v as u64 % c::VGPR_BANKS == bank).count();
    (0..c::VGPR_BANKS).map(in_bank).max().unwrap_or(0).saturating_sub(1) as u8
}

fn register(operand: Operand) -> Option<u16> {
    match (operand.as_vgpr(), operand.as_sgpr()) {
        (Some(v), _) => Some(v as u16),
        (_, Some(125)) => None, // NULL
        (_, Some(s)) => Some(256 + s as u16),
        _ => (operand == Operand::SCC).then_some(SCC),
    }
}

/// Unit, clocks it is kept, clocks to a dependent instruction.
fn cost(inst: &Inst) -> (Unit, u64, u64) {
    let double = inst.args().iter().any(|a| a.ty == Ty::F64);
    match Class::of(inst) {
        Class::Transcendental if double => (Unit::Trans, c::DOUBLE_CLOCKS, c::DOUBLE_LATENCY),
        Class::Transcendental => (Unit::Trans, c::TRANS_CLOCKS, c::TRANS_LATENCY),
        Class::Double => (Unit::Valu, c::DOUBLE_CLOCKS, c::DOUBLE_LATENCY),
        Class::Valu if multiplies_integers(inst.op) => (Unit::Valu, c::QUARTER_CLOCKS, c::QUARTER_LATENCY),
        Class::Valu => {
            let wide = inst.args().first().is_some_and(|a| a.dwords == 2 && a.operand.as_vgpr().is_some());
            (Unit::Valu, c::VALU_CLOCKS, if wide { c::WIDE_LATENCY } else { c::VALU_LATENCY })
        }
        Class::Salu => (Unit::Salu, 1, c::SALU_LATENCY),
        Class::Smem => (Unit::Smem, 1, 1),
        Class::Vmem => (Unit::Vmem, 1, 1),
        Class::Lds => (Unit::Lds, 1, 1),
        Class::Branch => (Unit::Branch, 1, 1),
        Class::Control if inst.form == Form::Sopp => (Unit::None, 1, 1),
        Class::Control => (Unit::Salu, 1, c::SALU_LATENCY),
    }
}

fn multiplies_integers(op: Opcode) -> bool {
    matches!(
        op,
        Opcode::v_mul_lo_u32
            | Opcode::v_mul_hi_u32
            | Opcode::v_mul_hi_i32
            | Opcode::v_mad_u64_u32
            | Opcode::v_mad_i64_i32
    )
}

/// `s_waitcnt` of gfx10: vmcnt in bits 0 to 3 and 14, 15; lgkmcnt in 8 to 13 (RDNA ISA 4.4).
fn wait(inst: &Inst) -> Option<Wait> {
    const OPEN: Wait = Wait { vm: 255, lgkm: 255, vs: 255 };
    let imm = inst.imm;
    match inst.op {
        Opcode::s_waitcnt => {
            let (vm, lgkm) = ((imm & 15 | imm >> 14 << 4) as u8, (imm >> 8 & 63) as u8);
            let open = |n: u8| if n == 63 { 255 } else { n };
            Some(Wait { vm: open(vm), lgkm: open(lgkm), vs: 255 })
        }
        Opcode::s_waitcnt_vscnt => Some(Wait { vs: imm as u8, ..OPEN }),
        Opcode::s_waitcnt_vmcnt => Some(Wait { vm: imm as u8, ..OPEN }),
        Opcode::s_waitcnt_lgkmcnt => Some(Wait { lgkm: imm as u8, ..OPEN }),
        _ => None,
    }
}
