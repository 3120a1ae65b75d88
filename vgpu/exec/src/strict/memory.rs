//! Undefined values on their way to memory and LDS and back.

use super::defined::{ALL, Defined, NONE, widen};
use super::{Lanes, RegisterUse, active, and, first, or, without};
use crate::{Fault, Finding, Lds, PRIVATE_BASE, SCRATCH_BASE, SHARED_BASE, Wave};
use wave32_isa::{Access, Arg, Form, Inst, Opcode};

impl Defined {
    /// Addresses must be defined, and what is stored to memory or goes into an atomic; what is loaded is, unless
    /// [`Defined::loaded`] says otherwise. LDS gets to know what is stored undefined to it.
    pub(super) fn memory(&mut self, wave: &Wave, inst: &Inst, lds: &mut Lds) -> Result<(), Box<Fault>> {
        let on = active(wave);
        let op = inst.op;
        if on == NONE {
            return Ok(());
        }
        self.need_sgprs(inst.args().iter().filter(|arg| arg.access != Access::W))?;
        let changes = op.is_store() || op.is_atomic();
        let (address, data) = places(inst);
        if let Some(address) = address {
            self.need_vgprs(address, on)?;
        }
        if changes {
            let local = and(on, local(wave, inst));
            for arg in data {
                self.need_vgprs(arg, without(on, or(private(wave, inst), local)))?;
            }
            let mut rows = data.iter().flat_map(|arg| self.rows_of(arg));
            lds.storing([(); 4].map(|()| rows.next().map_or(NONE, |&row| without(local, row))));
        }
        if half_of_register(inst) {
            return Ok(());
        }
        let defined = if op.is_lane_exchange() {
            // Lanes are mixed: some are defined.
            let data = inst.args().iter().rfind(|arg| arg.access == Access::R);
            widen(data.map_or(ALL, |arg| self.of(arg)))
        } else {
            ALL
        };
        self.write(inst, on, defined);
        Ok(())
    }

    /// Behind an instruction that loads from LDS half a register, or what nothing had written.
    #[cold]
    pub(super) fn loaded(&mut self, wave: &Wave, plan: &RegisterUse, lds: &mut Lds) {
        let traffic = lds.settle();
        let loaded = traffic.as_ref().map_or([NONE; 4], |traffic| traffic.loaded);
        let first = usize::from(plan.dst.first);
        let rows = self.vgprs.iter_mut().skip(first).take(usize::from(plan.dst.count));
        for (row, undefined) in rows.zip(loaded) {
            *row =
                if plan.half { or(*row, without(active(wave), undefined)) } else { without(*row, undefined) };
        }
        if let Some(traffic) = traffic {
            let unwritten = self.unwritten.get_or_insert_with(|| Box::new([None; 64]));
            for (to, from) in unwritten.iter_mut().zip(traffic.addresses) {
                *to = from.or(*to);
            }
        }
    }

    /// Every dword of a vector operand, in these lanes.
    fn need_vgprs(&self, arg: &Arg, on: Lanes) -> Result<(), Box<Fault>> {
        for (register, &lanes) in arg.operand.as_vgpr().into_iter().flat_map(|v| v..).zip(self.rows_of(arg)) {
            if let Some(lane) = first(without(on, lanes)) {
                let lds = self.unwritten.as_ref().and_then(|all| all[lane as usize % 64]);
                let finding = Finding::UninitialisedVgpr { register: register as u32, lds };
                return Err(Fault::strict(Some(lane), finding));
            }
        }
        Ok(())
    }

    /// The registers of a vector operand.
    fn rows_of(&self, arg: &Arg) -> impl Iterator<Item = &Lanes> {
        let dwords = if arg.operand.as_vgpr().is_some() { usize::from(arg.dwords.max(1)) } else { 0 };
        self.vgprs.iter().skip(arg.operand.as_vgpr().unwrap_or(0)).take(dwords)
    }
}

/// Whether it may load LDS, or store to it, what is undefined.
pub(super) fn moves_lds(inst: &Inst) -> bool {
    matches!(inst.form, Form::Ds | Form::Flat) && !inst.op.is_atomic() && !inst.op.is_lane_exchange()
}

/// Whether it loads half a register, perhaps from LDS.
pub(super) fn half_of_register(inst: &Inst) -> bool {
    moves_lds(inst) && !inst.op.is_store() && inst.op.name().contains("_d16")
}

/// The operands that hold a memory instruction's vector address and what it stores.
pub(super) fn places(inst: &Inst) -> (Option<&Arg>, &[Arg]) {
    let args = inst.args();
    if matches!(inst.form, Form::Mubuf | Form::Mtbuf) {
        // [vdata,] vaddr, srsrc, soffset
        let Some(buffer) = args.iter().position(|arg| arg.operand.as_sgpr().is_some()) else {
            return (None, &[]);
        };
        let address = buffer.checked_sub(1).map(|i| &args[i]);
        return (address, &args[..buffer.saturating_sub(1)]);
    }
    let first = args.iter().position(|arg| arg.access == Access::R).unwrap_or(args.len());
    match inst.op {
        Opcode::ds_swizzle_b32 => (None, &[]),
        Opcode::ds_write_addtid_b32 => (None, &args[first..]),
        _ => (args.get(first), args.get(first + 1..).unwrap_or(&[])),
    }
}

/// Lanes whose data go to scratch, where callers' registers are saved whatever is in them.
fn private(wave: &Wave, inst: &Inst) -> Lanes {
    match inst.form {
        Form::Scratch => ALL,
        Form::Mubuf | Form::Mtbuf => {
            let buffer = inst.args().iter().find(|arg| arg.dwords == 4 && arg.operand.as_sgpr().is_some());
            let base =
                buffer.and_then(|arg| arg.operand.as_sgpr()).map_or(0, |s| wave.sgpr[(s + 1) & 127] & 0xffff);
            if u64::from(base) >> 8 == SCRATCH_BASE >> 40 { ALL } else { NONE }
        }
        Form::Flat => aperture(wave, inst, PRIVATE_BASE),
        _ => NONE,
    }
}

/// Lanes whose data go to LDS, and not into an atomic.
fn local(wave: &Wave, inst: &Inst) -> Lanes {
    match inst.form {
        _ if !moves_lds(inst) => NONE,
        Form::Flat => aperture(wave, inst, SHARED_BASE),
        _ => ALL,
    }
}

/// Lanes of a FLAT instruction that go to the aperture at `base`.
fn aperture(wave: &Wave, inst: &Inst, base: u64) -> Lanes {
    let address = inst.args().iter().find(|arg| arg.access == Access::R && arg.dwords == 2);
    let Some(v) = address.and_then(|arg| arg.operand.as_vgpr()) else { return NONE };
    let half = |h: usize| {
        let row = wave.vgpr.get(h * wave.vgprs + v + 1);
        row.map_or(0, |row| {
            let lanes = row.iter().enumerate();
            lanes.fold(0, |mask, (l, &high)| mask | u32::from(u64::from(high) == base >> 32) << l)
        })
    };
    [half(0), if wave.wave64 { half(1) } else { 0 }]
}
