//! Registers that anybody wrote.
//!
//! Compilers move, merge and compute with undefined values where nobody will look (values of branches not taken,
//! registers saved for a caller): that is no mistake. So undefinedness travels with a value, lane by lane, and is a finding
//! where it begins to matter: in an address, in what is stored to memory, in an atomic, in a branch, in EXEC. It travels
//! through LDS too, byte by byte: a dword is undefined where a byte of it is that was loaded. Where only a part of a
//! value may be undefined (half a register, one of two that are merged) it counts as defined: so does a register of which
//! a load replaces half, unless both halves are undefined. So do results of comparisons, and what comes back from scratch.

use super::memory::places;
use super::plan::Span;
use super::{Lanes, RegisterUse, active, and, chosen, or, single, without};
use crate::wave::EXEC;
use crate::{Fault, Finding, Lds, Wave};
use wave32_isa::{Access, Arg, Form, Inst, Opcode, Operand, Swizzle};

pub(super) const ALL: Lanes = [u32::MAX; 2];
pub(super) const NONE: Lanes = [0; 2];

/// How definedness goes through an instruction whose scalar sources are defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// By [`Defined::special`] alone.
    Special,
    /// Scalar results are defined.
    Scalar,
    /// Vector results are where all vector sources are.
    Every,
    /// Where one of them is.
    Some,
    /// Everywhere.
    Always,
    /// Vector memory and LDS: see [`Defined::memory`].
    Memory,
}

/// The rule of an instruction.
pub(super) fn rule(inst: &Inst) -> Rule {
    use Opcode::*;
    let op = inst.op;
    let register = |arg: &&Arg| arg.operand.as_vgpr().is_some() || arg.operand.as_sgpr().is_some();
    let mut sources = inst.args().iter().filter(|arg| arg.access != Access::W);
    match inst.form {
        Form::Sop1 | Form::Sop2 | Form::Sopk | Form::Sopc | Form::Sopp => match op {
            s_movrels_b32 | s_movrels_b64 | s_movreld_b32 | s_movreld_b64 | s_movrelsd_2_b32 => Rule::Special,
            _ => Rule::Scalar,
        },
        Form::Smem => Rule::Scalar,
        Form::Vop1 | Form::Vop2 | Form::Vopc | Form::Vop3 | Form::Vop3p => match op {
            v_readlane_b32 | v_readfirstlane_b32 | v_writelane_b32 | v_swap_b32 | v_swaprel_b32 => {
                Rule::Special
            }
            v_movreld_b32 | v_movrels_b32 | v_movrelsd_b32 | v_movrelsd_2_b32 | v_cndmask_b32 => {
                Rule::Special
            }
            _ if inst.form == Form::Vopc || writes_mask(inst) => Rule::Every,
            v_permlane16_b32 | v_permlanex16_b32 => Rule::Special,
            _ if inst.swizzle != Swizzle::None => Rule::Special,
            // A defined scalar, and of some a constant, is a part of the result that is.
            // Constants alone.
            _ if !sources.clone().any(|arg| register(&arg)) => Rule::Always,
            _ if merges(op)
                && sources
                    .any(|arg| arg.operand.as_vgpr().is_none() && (register(&arg) || sets_bits(op))) =>
            {
                Rule::Always
            }
            _ if merges(op) => Rule::Some,
            _ if same_twice(inst) => Rule::Always,
            _ => Rule::Every,
        },
        _ if op.is_lane_exchange() => Rule::Special,
        _ => Rule::Memory,
    }
}

/// The operands whose vector registers count: all sources, but of memory instructions that store nothing the address.
pub(super) fn read_registers(inst: &Inst) -> Vec<Arg> {
    if rule(inst) != Rule::Memory {
        return inst.args().iter().filter(|arg| arg.access != Access::W).copied().collect();
    }
    let (address, data) = places(inst);
    let changes = inst.op.is_store() || inst.op.is_atomic();
    address.into_iter().chain(if changes { data } else { &[] }).copied().collect()
}

/// Which registers have been written: lanes of VGPRs, SGPRs, SCC.
#[derive(Debug)]
pub(super) struct Defined {
    pub(super) vgprs: Vec<Lanes>,
    sgprs: u128,
    scc: bool,
    /// Where each lane last loaded LDS that nothing had written, if one did.
    pub(super) unwritten: Option<Box<[Option<u32>; 64]>>,
}

impl Defined {
    pub fn new(allocated: usize, sgprs: usize, vgprs: usize) -> Self {
        let mut all = vec![NONE; allocated];
        all.iter_mut().take(vgprs).for_each(|lanes| *lanes = ALL);
        let given = if sgprs >= 128 { u128::MAX } else { (1 << sgprs) - 1 };
        // EXEC is given, NULL reads zero.
        Self { vgprs: all, sgprs: given | 0b111 << 125, scc: sgprs >= 128, unwritten: None }
    }

    /// Checks what an instruction does with undefined values, then what it leaves defined.
    #[inline]
    pub fn before(
        &mut self,
        wave: &Wave,
        inst: &Inst,
        plan: &RegisterUse,
        lds: &mut Lds,
    ) -> Result<(), Box<Fault>> {
        if self.sgprs & plan.needs != plan.needs || plan.needs_scc && !self.scc {
            return self.special(wave, inst, lds);
        }
        let on = active(wave);
        let defined = match plan.rule {
            Rule::Special => return self.special(wave, inst, lds),
            Rule::Scalar => NONE,
            Rule::Every => plan.sources().fold(ALL, |all, span| and(all, self.any(span))),
            Rule::Some => plan.sources().fold(NONE, |all, span| or(all, self.any(span))),
            Rule::Always => ALL,
            Rule::Memory => {
                if on == NONE {
                    return Ok(());
                }
                let mut needed = plan.sources().flat_map(|span| self.rows(span));
                if needed.any(|&lanes| without(on, lanes) != NONE) {
                    return self.special(wave, inst, lds);
                }
                if plan.half {
                    return Ok(());
                }
                ALL
            }
        };
        let first = usize::from(plan.dst.first);
        for lanes in self.vgprs.iter_mut().skip(first).take(usize::from(plan.dst.count)) {
            *lanes = or(without(*lanes, on), and(on, defined));
        }
        self.sgprs |= plan.sets;
        self.scc |= plan.sets_scc;
        Ok(())
    }

    #[inline(always)]
    fn rows(&self, span: Span) -> &[Lanes] {
        let first = usize::from(span.first);
        self.vgprs.get(first..first + usize::from(span.count)).unwrap_or(&[])
    }

    /// Lanes in which any register of a span is defined.
    #[inline(always)]
    fn any(&self, span: Span) -> Lanes {
        self.rows(span).iter().fold(NONE, |all, &lanes| or(all, lanes))
    }

    /// The same as [`Defined::before`], whatever the instruction is.
    fn special(&mut self, wave: &Wave, inst: &Inst, lds: &mut Lds) -> Result<(), Box<Fault>> {
        match inst.form {
            Form::Vop1 | Form::Vop2 | Form::Vopc | Form::Vop3 | Form::Vop3p => {
                self.vector(wave, inst);
                Ok(())
            }
            Form::Sop1 | Form::Sop2 | Form::Sopk | Form::Sopc | Form::Sopp => self.scalar(inst, wave),
            Form::Smem => {
                self.need_sgprs(inst.args().iter().filter(|arg| arg.access != Access::W))?;
                self.write_all(inst, ALL);
                Ok(())
            }
            _ => self.memory(wave, inst, lds),
        }
    }

    /// Lanes in which an operand is defined: any dword of it.
    pub(super) fn of(&self, arg: &Arg) -> Lanes {
        let dwords = usize::from(arg.dwords.max(1));
        if let Some(v) = arg.operand.as_vgpr() {
            return self.vgprs.iter().skip(v).take(dwords).fold(NONE, |all, &lanes| or(all, lanes));
        }
        match arg.operand.as_sgpr() {
            Some(s) if self.sgprs >> s & ((1 << dwords) - 1) == 0 => NONE,
            _ if arg.operand == Operand::SCC && !self.scc => NONE,
            _ => ALL,
        }
    }

    pub fn forgive(&mut self, inst: &Inst) {
        self.write_all(inst, ALL);
    }

    /// Marks an instruction's results, in the lanes that are on, defined in those of `defined`.
    fn write_all(&mut self, inst: &Inst, defined: Lanes) {
        self.write(inst, ALL, defined);
    }

    pub(super) fn write(&mut self, inst: &Inst, on: Lanes, defined: Lanes) {
        for arg in inst.args().iter().filter(|arg| arg.access != Access::R) {
            let dwords = usize::from(arg.dwords.max(1));
            if let Some(v) = arg.operand.as_vgpr() {
                for lanes in self.vgprs.iter_mut().skip(v).take(dwords) {
                    *lanes = or(without(*lanes, on), and(on, defined));
                }
            } else if let Some(s) = arg.operand.as_sgpr() {
                let mask = ((1u128 << dwords) - 1) << s;
                self.sgprs = if defined == NONE { self.sgprs & !mask } else { self.sgprs | mask };
                self.sgprs |= 0b111 << 125;
            }
        }
    }

    fn vector(&mut self, wave: &Wave, inst: &Inst) {
        let on = active(wave);
        let sources = || inst.args().iter().filter(|arg| arg.access != Access::W);
        let source = |i: usize| sources().nth(i).map_or(ALL, |arg| self.of(arg));
        let every = || sources().fold(ALL, |all, arg| and(all, self.of(arg)));
        match inst.op {
            Opcode::v_readlane_b32 | Opcode::v_readfirstlane_b32 => {
                let lane = single(chosen(wave, inst).unwrap_or(0));
                let defined = if and(source(0), lane) == NONE { NONE } else { ALL };
                self.write(inst, ALL, defined);
            }
            Opcode::v_writelane_b32 => {
                // The lane's value; the register's other lanes are none of its business.
                let value =
                    inst.args().iter().find(|arg| arg.access == Access::R).map_or(ALL, |arg| self.of(arg));
                self.write(inst, single(chosen(wave, inst).unwrap_or(0)), value);
            }
            Opcode::v_swap_b32 => {
                let registers: Vec<usize> = inst.args().iter().filter_map(|a| a.operand.as_vgpr()).collect();
                if let [a, b] = registers[..] {
                    let (x, y) = (self.vgprs[a], self.vgprs[b]);
                    self.vgprs[a] = or(without(x, on), and(on, y));
                    self.vgprs[b] = or(without(y, on), and(on, x));
                }
            }
            Opcode::v_movreld_b32
            | Opcode::v_movrels_b32
            | Opcode::v_movrelsd_b32
            | Opcode::v_movrelsd_2_b32
            | Opcode::v_swaprel_b32 => {
                // Registers that M0 chooses: all that it may choose count as defined.
                for lanes in &mut self.vgprs {
                    *lanes = or(*lanes, on);
                }
            }
            Opcode::v_cndmask_b32 => {
                let condition = inst.args().last().map_or(Operand::VCC, |arg| arg.operand);
                let mask = match condition.as_sgpr() {
                    Some(s) if self.sgprs >> s & 1 == 0 => None,
                    Some(s) => Some([wave.sgpr[s], wave.sgpr[(s + 1) & 127]]),
                    None => Some(ALL),
                };
                let either = and(source(0), source(1));
                let defined = mask.map_or(NONE, |m| or(and(source(1), m), without(source(0), m)));
                let swizzled = inst.swizzle != Swizzle::None;
                let defined = if swizzled { widen(or(either, defined)) } else { defined };
                self.write(inst, on, defined);
            }
            _ if inst.form == Form::Vopc || writes_mask(inst) => {
                let defined = every();
                for arg in inst.args().iter().filter(|arg| arg.access != Access::R) {
                    let one = Inst { arg: [*arg; 8], args: 1, ..*inst };
                    self.write(&one, on, if arg.operand.as_vgpr().is_some() { defined } else { ALL });
                }
            }
            op => {
                let defined = if merges(op) {
                    sources()
                        .filter(|arg| self.is_register(arg) || sets_bits(op))
                        .fold(NONE, |all, arg| or(all, self.of(arg)))
                } else if same_twice(inst) {
                    ALL
                } else {
                    every()
                };
                let crosses = !matches!(inst.swizzle, Swizzle::None)
                    || matches!(op, Opcode::v_permlane16_b32 | Opcode::v_permlanex16_b32);
                self.write(inst, on, if crosses { widen(defined) } else { defined });
            }
        }
    }

    fn is_register(&self, arg: &Arg) -> bool {
        arg.operand.as_vgpr().is_some() || arg.operand.as_sgpr().is_some()
    }

    fn scalar(&mut self, inst: &Inst, wave: &Wave) -> Result<(), Box<Fault>> {
        let op = inst.op;
        let (reads_scc, writes_scc) = op.scc();
        let sources = || inst.args().iter().filter(|arg| arg.access != Access::W);
        let branches = op.is_branch() || matches!(op, Opcode::s_sendmsg);
        if branches {
            self.need_sgprs(sources())?;
            if reads_scc && !self.scc {
                return Err(undefined_sgpr(usize::from(Operand::SCC.0)));
            }
        }
        let every = sources().all(|arg| self.of(arg) != NONE) && (!reads_scc || self.scc);
        let some = sources().any(|arg| self.of(arg) != NONE);
        let defined = match op {
            Opcode::s_cselect_b32 | Opcode::s_cselect_b64 => {
                let chosen = sources().nth(usize::from(!wave.scc)).is_none_or(|arg| self.of(arg) != NONE);
                self.scc && chosen
            }
            _ if scalar_merges(op) => some,
            _ if same_twice(inst) => true,
            _ => every,
        };
        let exec = |arg: &&Arg| arg.operand.0 == EXEC as u16 || arg.operand.0 == EXEC as u16 + 1;
        if !defined && inst.args().iter().any(|arg| arg.access != Access::R && exec(&arg)) {
            let arg = sources().find(|arg| self.of(arg) == NONE);
            return Err(undefined_sgpr(arg.and_then(|arg| arg.operand.as_sgpr()).unwrap_or(253)));
        }
        if matches!(
            op,
            Opcode::s_movrels_b32
                | Opcode::s_movrels_b64
                | Opcode::s_movreld_b32
                | Opcode::s_movreld_b64
                | Opcode::s_movrelsd_2_b32
        ) {
            // Registers that M0 chooses: all count as defined.
            self.sgprs = u128::MAX;
            return Ok(());
        }
        self.write_all(inst, if defined { ALL } else { NONE });
        if writes_scc {
            self.scc = defined;
        }
        Ok(())
    }

    /// Every dword of scalar operands that decide where to go.
    pub(super) fn need_sgprs<'i>(&self, args: impl Iterator<Item = &'i Arg>) -> Result<(), Box<Fault>> {
        for arg in args {
            if let Some(s) = arg.operand.as_sgpr() {
                let all = s..(s + usize::from(arg.dwords.max(1))).min(128);
                if let Some(undefined) = all.into_iter().find(|s| self.sgprs >> s & 1 == 0) {
                    return Err(undefined_sgpr(undefined));
                }
            }
        }
        Ok(())
    }
}

fn undefined_sgpr(register: usize) -> Box<Fault> {
    Fault::strict(None, Finding::UninitialisedSgpr { register: register as u32 })
}

/// All lanes of a half in which any is defined.
pub(super) fn widen(lanes: Lanes) -> Lanes {
    if lanes == NONE { NONE } else { ALL }
}

/// Writes a mask of lanes beside its result.
fn writes_mask(inst: &Inst) -> bool {
    inst.args().iter().any(|arg| arg.access != Access::R && arg.operand.as_sgpr().is_some())
}

/// The same register twice, as in `x ^ x`: a way to write zero.
fn same_twice(inst: &Inst) -> bool {
    let mut sources = inst.args().iter().filter(|arg| arg.access == Access::R);
    let zero = matches!(
        inst.op,
        Opcode::v_xor_b32
            | Opcode::v_sub_nc_u32
            | Opcode::s_xor_b32
            | Opcode::s_xor_b64
            | Opcode::s_sub_u32
            | Opcode::s_sub_i32
    );
    zero && matches!((sources.next(), sources.next()), (Some(a), Some(b)) if a.operand == b.operand)
}

/// Results of which each source may give a part.
fn merges(op: Opcode) -> bool {
    let name = op.name();
    sets_bits(op)
        || matches!(op, Opcode::v_and_b32 | Opcode::v_and_or_b32)
        || ["v_pk_", "v_cvt_pk", "v_pack", "v_fma_mix", "v_perm_b32", "v_alignb", "v_dot", "v_lshrrev_b64"]
            .iter()
            .any(|start| name.starts_with(start))
}

/// Those whose constants are a part too.
fn sets_bits(op: Opcode) -> bool {
    matches!(
        op,
        Opcode::v_or_b32
            | Opcode::v_or3_b32
            | Opcode::v_lshl_or_b32
            | Opcode::v_bfi_b32
            | Opcode::v_perm_b32
            | Opcode::v_mad_u32_u16
    )
}

/// Scalar results of which each source may give a part.
fn scalar_merges(op: Opcode) -> bool {
    let name = op.name();
    ["s_and", "s_or", "s_nand", "s_nor", "s_xnor", "s_pack", "s_bitset", "s_xor_save", "s_bfm"]
        .iter()
        .any(|start| name.starts_with(start))
}
