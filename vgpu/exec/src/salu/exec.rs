//! Operations on EXEC: the old mask saved, a new one made of it and the source.

use super::{a32, a64, put32, put64};
use crate::env::ScalarFn;
use crate::wave::EXEC;
use crate::{Args, Wave};
use wave32_isa::Opcode;

pub(super) fn handler(op: Opcode) -> Option<ScalarFn> {
    use Opcode::*;
    let handler: ScalarFn = match op {
        s_and_saveexec_b32 => |w, a| save32(w, a, |s, exec| s & exec),
        s_or_saveexec_b32 => |w, a| save32(w, a, |s, exec| s | exec),
        s_xor_saveexec_b32 => |w, a| save32(w, a, |s, exec| s ^ exec),
        s_andn2_saveexec_b32 => |w, a| save32(w, a, |s, exec| s & !exec),
        s_orn2_saveexec_b32 => |w, a| save32(w, a, |s, exec| s | !exec),
        s_nand_saveexec_b32 => |w, a| save32(w, a, |s, exec| !(s & exec)),
        s_nor_saveexec_b32 => |w, a| save32(w, a, |s, exec| !(s | exec)),
        s_xnor_saveexec_b32 => |w, a| save32(w, a, |s, exec| !(s ^ exec)),
        s_andn1_saveexec_b32 => |w, a| save32(w, a, |s, exec| !s & exec),
        s_orn1_saveexec_b32 => |w, a| save32(w, a, |s, exec| !s | exec),
        s_and_saveexec_b64 => |w, a| save64(w, a, |s, exec| s & exec),
        s_or_saveexec_b64 => |w, a| save64(w, a, |s, exec| s | exec),
        s_xor_saveexec_b64 => |w, a| save64(w, a, |s, exec| s ^ exec),
        s_andn2_saveexec_b64 => |w, a| save64(w, a, |s, exec| s & !exec),
        s_orn2_saveexec_b64 => |w, a| save64(w, a, |s, exec| s | !exec),
        s_nand_saveexec_b64 => |w, a| save64(w, a, |s, exec| !(s & exec)),
        s_nor_saveexec_b64 => |w, a| save64(w, a, |s, exec| !(s | exec)),
        s_xnor_saveexec_b64 => |w, a| save64(w, a, |s, exec| !(s ^ exec)),
        s_andn1_saveexec_b64 => |w, a| save64(w, a, |s, exec| !s & exec),
        s_orn1_saveexec_b64 => |w, a| save64(w, a, |s, exec| !s | exec),
        s_andn1_wrexec_b32 => |w, a| write32(w, a, |s, exec| !s & exec),
        s_andn2_wrexec_b32 => |w, a| write32(w, a, |s, exec| s & !exec),
        s_andn1_wrexec_b64 => |w, a| write64(w, a, |s, exec| !s & exec),
        s_andn2_wrexec_b64 => |w, a| write64(w, a, |s, exec| s & !exec),
        _ => return None,
    };
    Some(handler)
}

fn save32(w: &mut Wave, a: &Args, f: fn(u32, u32) -> u32) {
    let (source, exec) = (a32(w, a), w.sgpr[EXEC]);
    put32(w, a, exec);
    w.sgpr[EXEC] = f(source, exec);
    w.scc = w.sgpr[EXEC] != 0;
}

fn save64(w: &mut Wave, a: &Args, f: fn(u64, u64) -> u64) {
    let (source, exec) = (a64(w, a), w.scalar64(EXEC as u8));
    put64(w, a, exec);
    let new = f(source, exec);
    w.set_scalar64(EXEC as u16, new);
    w.scc = new != 0;
}

/// `wrexec`: the new mask goes to the destination too.
fn write32(w: &mut Wave, a: &Args, f: fn(u32, u32) -> u32) {
    let new = f(a32(w, a), w.sgpr[EXEC]);
    put32(w, a, new);
    w.sgpr[EXEC] = new;
    w.scc = new != 0;
}

fn write64(w: &mut Wave, a: &Args, f: fn(u64, u64) -> u64) {
    let new = f(a64(w, a), w.scalar64(EXEC as u8));
    put64(w, a, new);
    w.set_scalar64(EXEC as u16, new);
    w.scc = new != 0;
}
