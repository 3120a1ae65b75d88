//! 16-bit constants, hardware registers, and the mode switches among the SOPP.

use super::{a32, put32};
use crate::env::ScalarFn;
use crate::wave::{EXEC, VCC};
use crate::{Args, Wave};
use wave32_isa::Opcode;

pub(super) fn handler(op: Opcode, imm: u16) -> Option<ScalarFn> {
    use Opcode::*;
    let handler: ScalarFn = match op {
        s_movk_i32 => |w, a| put32(w, a, signed(a)),
        s_cmovk_i32 => |w, a| {
            if w.scc {
                put32(w, a, signed(a));
            }
        },
        s_cmpk_eq_i32 => |w, a| w.scc = a32(w, a) == signed(a),
        s_cmpk_lg_i32 => |w, a| w.scc = a32(w, a) != signed(a),
        s_cmpk_gt_i32 => |w, a| w.scc = a32(w, a) as i32 > signed(a) as i32,
        s_cmpk_ge_i32 => |w, a| w.scc = a32(w, a) as i32 >= signed(a) as i32,
        s_cmpk_lt_i32 => |w, a| w.scc = (a32(w, a) as i32) < signed(a) as i32,
        s_cmpk_le_i32 => |w, a| w.scc = a32(w, a) as i32 <= signed(a) as i32,
        s_cmpk_eq_u32 => |w, a| w.scc = a32(w, a) == u32::from(a.imm),
        s_cmpk_lg_u32 => |w, a| w.scc = a32(w, a) != u32::from(a.imm),
        s_cmpk_gt_u32 => |w, a| w.scc = a32(w, a) > u32::from(a.imm),
        s_cmpk_ge_u32 => |w, a| w.scc = a32(w, a) >= u32::from(a.imm),
        s_cmpk_lt_u32 => |w, a| w.scc = a32(w, a) < u32::from(a.imm),
        s_cmpk_le_u32 => |w, a| w.scc = a32(w, a) <= u32::from(a.imm),
        s_addk_i32 => |w, a| {
            let (sum, overflow) = (w.scalar(a.dst as u8) as i32).overflowing_add(signed(a) as i32);
            put32(w, a, sum as u32);
            w.scc = overflow;
        },
        s_mulk_i32 => |w, a| put32(w, a, w.scalar(a.dst as u8).wrapping_mul(signed(a))),
        s_getreg_b32 if read(&Wave::new(1, false), imm & 63).is_some() => |w, a| {
            let (_, offset, mask) = field(a.imm);
            let value = read(w, a.imm & 63).unwrap_or(0);
            put32(w, a, value >> offset & mask);
        },
        s_setreg_b32 | s_setreg_imm32_b32
            if matches!(imm & 63, MODE | TRAPSTS | FLAT_SCR_LO | FLAT_SCR_HI) =>
        {
            |w, a| {
                let (register, offset, mask) = field(a.imm);
                let old = read(w, register).unwrap_or(0);
                let value = a32(w, a);
                write(w, register, old & !(mask << offset) | (value & mask) << offset);
            }
        }
        _ => return None,
    };
    Some(handler)
}

/// `s_round_mode` and `s_denorm_mode`: four bits of MODE each.
pub(super) fn mode(op: Opcode) -> Option<ScalarFn> {
    let handler: ScalarFn = match op {
        Opcode::s_round_mode => |w, a| w.mode = w.mode & !0xf | u32::from(a.imm) & 0xf,
        Opcode::s_denorm_mode => |w, a| w.mode = w.mode & !0xf0 | (u32::from(a.imm) & 0xf) << 4,
        _ => return None,
    };
    Some(handler)
}

fn signed(args: &Args) -> u32 {
    args.imm as i16 as u32
}

// Hardware registers (LLVM's "hwreg" of gfx10).
const MODE: u16 = 1;
const STATUS: u16 = 2;
const TRAPSTS: u16 = 3;
const GPR_ALLOC: u16 = 5;
const LDS_ALLOC: u16 = 6;
const IB_STS: u16 = 7;
const SH_MEM_BASES: u16 = 15;
const FLAT_SCR_LO: u16 = 20;
const FLAT_SCR_HI: u16 = 21;
const XNACK_MASK: u16 = 22;
const HW_ID1: u16 = 23;
const HW_ID2: u16 = 24;

/// Register, first bit, and mask of the field's width that a `hwreg` constant names.
fn field(imm: u16) -> (u16, u32, u32) {
    let width = u32::from(imm >> 11) + 1;
    (imm & 63, u32::from(imm >> 6 & 31), u32::MAX >> (32 - width))
}

/// `None`: no such register on gfx10.1, or none that means anything here.
fn read(w: &Wave, register: u16) -> Option<u32> {
    Some(match register {
        MODE => w.mode,
        STATUS => {
            let (execz, vccz) = (w.wide_mask(EXEC) == 0, w.wide_mask(VCC) == 0);
            // In a workgroup (11), valid (16).
            u32::from(w.scc) | u32::from(execz) << 9 | u32::from(vccz) << 10 | 1 << 11 | 1 << 16
        }
        TRAPSTS => w.trapsts,
        GPR_ALLOC => w.hardware.gpr_alloc,
        LDS_ALLOC => w.hardware.lds_alloc,
        // No instruction is outstanding, or only such as have already had their effect.
        IB_STS => 0,
        // Shared base in the high half, private base in the low one, bits 63:48 of both.
        SH_MEM_BASES => ((crate::SHARED_BASE >> 48) << 16 | crate::PRIVATE_BASE >> 48) as u32,
        FLAT_SCR_LO => w.flat_scratch as u32,
        FLAT_SCR_HI => (w.flat_scratch >> 32) as u32,
        XNACK_MASK => 0,
        HW_ID1 => w.hardware.id1,
        HW_ID2 => w.hardware.id2,
        _ => return None,
    })
}

fn write(w: &mut Wave, register: u16, value: u32) {
    match register {
        MODE => w.mode = value,
        TRAPSTS => w.trapsts = value,
        FLAT_SCR_LO => w.flat_scratch = w.flat_scratch & !0xffff_ffff | u64::from(value),
        FLAT_SCR_HI => w.flat_scratch = w.flat_scratch & 0xffff_ffff | u64::from(value) << 32,
        _ => {}
    }
}
