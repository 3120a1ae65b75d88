//! Instructions that the run loop itself does: where to go on, when to wait, whom to tell.

use wave32_isa::Op;

/// Whether the run loop does it; such an instruction ends a block of straight code.
pub(crate) fn is_control(op: Op) -> bool {
    use Op::*;
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
            | s_getpc_b64
            | s_setpc_b64
            | s_swappc_b64
            | s_call_b64
            | s_subvector_loop_begin
            | s_subvector_loop_end
            | s_barrier
            | s_sleep
            | s_sendmsg
            | s_sendmsghalt
            | s_trap
            | s_icache_inv
    )
}

/// Whether it changes nothing here: hints, and waits for what has happened already.
pub(crate) fn is_hint(op: Op) -> bool {
    use Op::*;
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
