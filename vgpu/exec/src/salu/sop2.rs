//! Two sources: arithmetic, logic, shifts, fields; compares.

use super::{a32, a64, b32, b64, put32, put32_scc, put64, put64_scc};
use crate::env::ScalarFn;
use wave32_isa::Opcode;

pub(super) fn handler(op: Opcode) -> Option<ScalarFn> {
    use Opcode::*;
    let handler: ScalarFn = match op {
        s_add_u32 => |w, a| {
            let (sum, carry) = a32(w, a).overflowing_add(b32(w, a));
            put32(w, a, sum);
            w.scc = carry;
        },
        s_sub_u32 => |w, a| {
            let (difference, borrow) = a32(w, a).overflowing_sub(b32(w, a));
            put32(w, a, difference);
            w.scc = borrow;
        },
        s_add_i32 => |w, a| {
            let (sum, overflow) = (a32(w, a) as i32).overflowing_add(b32(w, a) as i32);
            put32(w, a, sum as u32);
            w.scc = overflow;
        },
        s_sub_i32 => |w, a| {
            let (difference, overflow) = (a32(w, a) as i32).overflowing_sub(b32(w, a) as i32);
            put32(w, a, difference as u32);
            w.scc = overflow;
        },
        s_addc_u32 => |w, a| {
            let sum = u64::from(a32(w, a)) + u64::from(b32(w, a)) + u64::from(w.scc);
            put32(w, a, sum as u32);
            w.scc = sum >> 32 != 0;
        },
        s_subb_u32 => |w, a| {
            let subtrahend = u64::from(b32(w, a)) + u64::from(w.scc);
            let minuend = u64::from(a32(w, a));
            put32(w, a, minuend.wrapping_sub(subtrahend) as u32);
            w.scc = subtrahend > minuend;
        },
        s_min_i32 => |w, a| {
            let (x, y) = (a32(w, a) as i32, b32(w, a) as i32);
            put32(w, a, x.min(y) as u32);
            w.scc = x < y;
        },
        s_min_u32 => |w, a| {
            let (x, y) = (a32(w, a), b32(w, a));
            put32(w, a, x.min(y));
            w.scc = x < y;
        },
        s_max_i32 => |w, a| {
            let (x, y) = (a32(w, a) as i32, b32(w, a) as i32);
            put32(w, a, x.max(y) as u32);
            w.scc = x > y;
        },
        s_max_u32 => |w, a| {
            let (x, y) = (a32(w, a), b32(w, a));
            put32(w, a, x.max(y));
            w.scc = x > y;
        },
        s_cselect_b32 => |w, a| {
            let chosen = if w.scc { a32(w, a) } else { b32(w, a) };
            put32(w, a, chosen);
        },
        s_cselect_b64 => |w, a| {
            let chosen = if w.scc { a64(w, a) } else { b64(w, a) };
            put64(w, a, chosen);
        },
        s_and_b32 => |w, a| put32_scc(w, a, a32(w, a) & b32(w, a)),
        s_and_b64 => |w, a| put64_scc(w, a, a64(w, a) & b64(w, a)),
        s_or_b32 => |w, a| put32_scc(w, a, a32(w, a) | b32(w, a)),
        s_or_b64 => |w, a| put64_scc(w, a, a64(w, a) | b64(w, a)),
        s_xor_b32 => |w, a| put32_scc(w, a, a32(w, a) ^ b32(w, a)),
        s_xor_b64 => |w, a| put64_scc(w, a, a64(w, a) ^ b64(w, a)),
        s_andn2_b32 => |w, a| put32_scc(w, a, a32(w, a) & !b32(w, a)),
        s_andn2_b64 => |w, a| put64_scc(w, a, a64(w, a) & !b64(w, a)),
        s_orn2_b32 => |w, a| put32_scc(w, a, a32(w, a) | !b32(w, a)),
        s_orn2_b64 => |w, a| put64_scc(w, a, a64(w, a) | !b64(w, a)),
        s_nand_b32 => |w, a| put32_scc(w, a, !(a32(w, a) & b32(w, a))),
        s_nand_b64 => |w, a| put64_scc(w, a, !(a64(w, a) & b64(w, a))),
        s_nor_b32 => |w, a| put32_scc(w, a, !(a32(w, a) | b32(w, a))),
        s_nor_b64 => |w, a| put64_scc(w, a, !(a64(w, a) | b64(w, a))),
        s_xnor_b32 => |w, a| put32_scc(w, a, !(a32(w, a) ^ b32(w, a))),
        s_xnor_b64 => |w, a| put64_scc(w, a, !(a64(w, a) ^ b64(w, a))),
        s_lshl_b32 => |w, a| put32_scc(w, a, a32(w, a) << (b32(w, a) & 31)),
        s_lshl_b64 => |w, a| put64_scc(w, a, a64(w, a) << (b32(w, a) & 63)),
        s_lshr_b32 => |w, a| put32_scc(w, a, a32(w, a) >> (b32(w, a) & 31)),
        s_lshr_b64 => |w, a| put64_scc(w, a, a64(w, a) >> (b32(w, a) & 63)),
        s_ashr_i32 => |w, a| put32_scc(w, a, (a32(w, a) as i32 >> (b32(w, a) & 31)) as u32),
        s_ashr_i64 => |w, a| put64_scc(w, a, (a64(w, a) as i64 >> (b32(w, a) & 63)) as u64),
        s_bfm_b32 => |w, a| put32(w, a, ((1 << (a32(w, a) & 31)) - 1) << (b32(w, a) & 31)),
        s_bfm_b64 => |w, a| put64(w, a, ((1 << (a32(w, a) & 63)) - 1) << (b32(w, a) & 63)),
        s_mul_i32 => |w, a| put32(w, a, a32(w, a).wrapping_mul(b32(w, a))),
        s_mul_hi_u32 => |w, a| put32(w, a, ((u64::from(a32(w, a)) * u64::from(b32(w, a))) >> 32) as u32),
        s_mul_hi_i32 => |w, a| {
            let product = i64::from(a32(w, a) as i32) * i64::from(b32(w, a) as i32);
            put32(w, a, (product >> 32) as u32);
        },
        // The field's offset is in bits 4:0 (5:0), its width in bits 22:16.
        s_bfe_u32 => |w, a| {
            let (offset, width) = (b32(w, a) & 31, b32(w, a) >> 16 & 127);
            put32_scc(w, a, a32(w, a) >> offset & low_bits(width) as u32);
        },
        s_bfe_i32 => |w, a| {
            let (offset, width) = (b32(w, a) & 31, b32(w, a) >> 16 & 127);
            let shifted = i64::from(a32(w, a) as i32 >> offset);
            put32_scc(w, a, sign_extend(shifted, width) as u32);
        },
        s_bfe_u64 => |w, a| {
            let (offset, width) = (b32(w, a) & 63, b32(w, a) >> 16 & 127);
            put64_scc(w, a, a64(w, a) >> offset & low_bits(width));
        },
        s_bfe_i64 => |w, a| {
            let (offset, width) = (b32(w, a) & 63, b32(w, a) >> 16 & 127);
            put64_scc(w, a, sign_extend(a64(w, a) as i64 >> offset, width) as u64);
        },
        // The difference wraps before its sign is dropped.
        s_absdiff_i32 => |w, a| {
            put32_scc(w, a, (a32(w, a).wrapping_sub(b32(w, a)) as i32).unsigned_abs());
        },
        s_lshl1_add_u32 => |w, a| shift_add(w, a, 1),
        s_lshl2_add_u32 => |w, a| shift_add(w, a, 2),
        s_lshl3_add_u32 => |w, a| shift_add(w, a, 3),
        s_lshl4_add_u32 => |w, a| shift_add(w, a, 4),
        s_pack_ll_b32_b16 => |w, a| put32(w, a, a32(w, a) & 0xffff | b32(w, a) << 16),
        s_pack_lh_b32_b16 => |w, a| put32(w, a, a32(w, a) & 0xffff | b32(w, a) & 0xffff_0000),
        s_pack_hh_b32_b16 => |w, a| put32(w, a, a32(w, a) >> 16 | b32(w, a) & 0xffff_0000),
        _ => return None,
    };
    Some(handler)
}

pub(super) fn compare(op: Opcode) -> Option<ScalarFn> {
    use Opcode::*;
    let handler: ScalarFn = match op {
        s_cmp_eq_i32 | s_cmp_eq_u32 => |w, a| w.scc = a32(w, a) == b32(w, a),
        s_cmp_lg_i32 | s_cmp_lg_u32 => |w, a| w.scc = a32(w, a) != b32(w, a),
        s_cmp_gt_i32 => |w, a| w.scc = a32(w, a) as i32 > b32(w, a) as i32,
        s_cmp_ge_i32 => |w, a| w.scc = a32(w, a) as i32 >= b32(w, a) as i32,
        s_cmp_lt_i32 => |w, a| w.scc = (a32(w, a) as i32) < b32(w, a) as i32,
        s_cmp_le_i32 => |w, a| w.scc = a32(w, a) as i32 <= b32(w, a) as i32,
        s_cmp_gt_u32 => |w, a| w.scc = a32(w, a) > b32(w, a),
        s_cmp_ge_u32 => |w, a| w.scc = a32(w, a) >= b32(w, a),
        s_cmp_lt_u32 => |w, a| w.scc = a32(w, a) < b32(w, a),
        s_cmp_le_u32 => |w, a| w.scc = a32(w, a) <= b32(w, a),
        s_bitcmp0_b32 => |w, a| w.scc = a32(w, a) >> (b32(w, a) & 31) & 1 == 0,
        s_bitcmp1_b32 => |w, a| w.scc = a32(w, a) >> (b32(w, a) & 31) & 1 == 1,
        s_bitcmp0_b64 => |w, a| w.scc = a64(w, a) >> (b32(w, a) & 63) & 1 == 0,
        s_bitcmp1_b64 => |w, a| w.scc = a64(w, a) >> (b32(w, a) & 63) & 1 == 1,
        s_cmp_eq_u64 => |w, a| w.scc = a64(w, a) == b64(w, a),
        s_cmp_lg_u64 => |w, a| w.scc = a64(w, a) != b64(w, a),
        _ => return None,
    };
    Some(handler)
}

fn low_bits(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

fn sign_extend(value: i64, width: u32) -> i64 {
    match width {
        0 => 0,
        1..=63 => value << (64 - width) >> (64 - width),
        _ => value,
    }
}

fn shift_add(w: &mut crate::Wave, a: &crate::Args, shift: u32) {
    let sum = (u64::from(a32(w, a)) << shift) + u64::from(b32(w, a));
    put32(w, a, sum as u32);
    w.scc = sum >> 32 != 0;
}
