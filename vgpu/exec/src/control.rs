//! Instructions that the run loop itself does: where to go on, when to wait, whom to tell.

use crate::program::PC;
use crate::wave::{EXEC, VCC};
use crate::{Args, Src, Wave};
use wave32_isa::{Inst, Opcode};

/// How a block ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// It was long enough: go on behind it.
    Next,
    /// `s_endpgm`.
    Program,
    /// To an address known at decode.
    Branch { when: When, to: u64 },
    /// `s_call_b64`, `s_swappc_b64`, `s_setpc_b64`: the return address's register, and where to.
    Jump { save: Option<u16>, to: Src },
    /// `s_subvector_loop_begin` and `_end`: the saved half, where to.
    Subvector { begin: bool, register: u16, to: u64 },
    /// `s_barrier`.
    Barrier,
    /// `s_sleep`.
    Sleep,
    /// `s_sendmsg`.
    Message(u16),
    /// `s_trap`.
    Trap(u16),
    /// `s_icache_inv`.
    Invalidate,
    /// No memory there.
    NoCode,
    /// No instruction there.
    Illegal,
}

/// When a branch is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) enum When {
    Always,
    Never,
    Scc(bool),
    VccZero(bool),
    ExecZero(bool),
}

impl When {
    pub(crate) fn holds(self, wave: &Wave) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Scc(set) => wave.scc == set,
            Self::VccZero(zero) => (wave.wide_mask(VCC) == 0) == zero,
            Self::ExecZero(zero) => (wave.wide_mask(EXEC) == 0) == zero,
        }
    }
}

impl End {
    /// Of an instruction that [`is_control`], followed by `next`.
    pub(crate) fn of(inst: &Inst, next: u64) -> Self {
        use Opcode::*;
        let args = Args::new(inst);
        let to = next.wrapping_add_signed(i64::from(inst.imm as i16) * 4);
        let branch = |when| Self::Branch { when, to };
        match inst.op {
            s_endpgm => Self::Program,
            s_branch => branch(When::Always),
            s_cbranch_scc0 => branch(When::Scc(false)),
            s_cbranch_scc1 => branch(When::Scc(true)),
            s_cbranch_vccz => branch(When::VccZero(true)),
            s_cbranch_vccnz => branch(When::VccZero(false)),
            s_cbranch_execz => branch(When::ExecZero(true)),
            s_cbranch_execnz => branch(When::ExecZero(false)),
            // No debugger is attached.
            s_cbranch_cdbgsys
            | s_cbranch_cdbguser
            | s_cbranch_cdbgsys_or_user
            | s_cbranch_cdbgsys_and_user => branch(When::Never),
            s_setpc_b64 => Self::Jump { save: None, to: args.src[0] },
            s_swappc_b64 => Self::Jump { save: Some(args.dst), to: args.src[0] },
            s_call_b64 => Self::Jump { save: Some(args.dst), to: Src::constant(to) },
            s_subvector_loop_begin => Self::Subvector { begin: true, register: args.dst, to },
            s_subvector_loop_end => Self::Subvector { begin: false, register: args.dst, to },
            s_barrier => Self::Barrier,
            s_sleep => Self::Sleep,
            s_sendmsg => Self::Message(inst.imm),
            s_trap => Self::Trap(inst.imm),
            s_icache_inv => Self::Invalidate,
            _ => Self::Illegal,
        }
    }
}

/// Where a block that [`End::Jump`]s goes on; saves the return address `next`.
pub(crate) fn jump(wave: &mut Wave, save: Option<u16>, to: Src, next: u64) -> u64 {
    let target = match to {
        Src::Sgpr(code) => wave.scalar64(code),
        Src::Const(low, high) => u64::from(low) | u64::from(high) << 32,
        Src::Vgpr(_) | Src::None => 0,
    };
    if let Some(register) = save {
        wave.set_scalar64(register, next & PC);
    }
    target & !3
}

/// `s_subvector_loop_begin`: runs a wave64's body for the low half, then the high one, where both have lanes on. The
/// other half's mask waits in the register. Whether the branch is taken.
pub(crate) fn subvector(wave: &mut Wave, begin: bool, register: u16) -> bool {
    let (low, high) = (wave.sgpr[EXEC], wave.sgpr[EXEC + 1]);
    if begin {
        if low == 0 && high == 0 {
            return true;
        }
        wave.set_scalar(register, if low == 0 { low } else { high });
        if low != 0 {
            wave.sgpr[EXEC + 1] = 0;
        }
        return false;
    }
    let saved = wave.scalar(register as u8);
    if high != 0 {
        wave.sgpr[EXEC] = saved;
        return false;
    }
    if saved == 0 {
        return false;
    }
    wave.sgpr[EXEC + 1] = saved;
    wave.set_scalar(register, low);
    wave.sgpr[EXEC] = 0;
    true
}

/// Whether the run loop does it; such an instruction ends a block of straight code.
pub(crate) fn is_control(op: Opcode) -> bool {
    use Opcode::*;
    matches!(
        op,
        s_endpgm
            | s_branch
            | s_cbranch_scc0
            | s_cbranch_scc1
            | s_cbranch_vccz
            | s_cbranch_vccnz
            | s_cbranch_execz
            | s_cbranch_execnz
            | s_cbranch_cdbgsys
            | s_cbranch_cdbguser
            | s_cbranch_cdbgsys_or_user
            | s_cbranch_cdbgsys_and_user
            | s_setpc_b64
            | s_swappc_b64
            | s_call_b64
            | s_subvector_loop_begin
            | s_subvector_loop_end
            | s_barrier
            | s_sleep
            | s_sendmsg
            | s_trap
            | s_icache_inv
    )
}

/// Whether it changes nothing here: hints, and waits for what has happened already.
pub(crate) fn is_hint(op: Opcode) -> bool {
    use Opcode::*;
    matches!(
        op,
        s_nop
            | s_waitcnt
            | s_waitcnt_vscnt
            | s_waitcnt_vmcnt
            | s_waitcnt_expcnt
            | s_waitcnt_lgkmcnt
            | s_waitcnt_depctr
            | s_wait_idle
            | s_setprio
            | s_inst_prefetch
            | s_clause
            | s_wakeup
            | s_incperflevel
            | s_decperflevel
            | s_ttracedata
            | s_ttracedata_imm
            | s_version
            | v_nop
    )
}
