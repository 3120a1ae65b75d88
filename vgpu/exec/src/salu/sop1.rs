//! One source: moves, bit counts and searches.

use super::{a32, a64, put32, put32_scc, put64, put64_scc};
use crate::env::ScalarFn;
use crate::wave::M0;
use crate::{Args, Src};
use wave32_isa::Opcode;

pub(super) fn handler(op: Opcode) -> Option<ScalarFn> {
    use Opcode::*;
    let handler: ScalarFn = match op {
        s_mov_b32 => |w, a| put32(w, a, a32(w, a)),
        // `s_getpc_b64`: its source is the address behind it.
        s_mov_b64 | s_getpc_b64 => |w, a| put64(w, a, a64(w, a)),
        s_cmov_b32 => |w, a| {
            if w.scc {
                put32(w, a, a32(w, a));
            }
        },
        s_cmov_b64 => |w, a| {
            if w.scc {
                put64(w, a, a64(w, a));
            }
        },
        s_not_b32 => |w, a| put32_scc(w, a, !a32(w, a)),
        s_not_b64 => |w, a| put64_scc(w, a, !a64(w, a)),
        s_wqm_b32 => |w, a| put32_scc(w, a, quads(u64::from(a32(w, a))) as u32 * 15),
        s_wqm_b64 => |w, a| put64_scc(w, a, quads(a64(w, a)) * 15),
        s_quadmask_b32 => |w, a| put32_scc(w, a, gather_quads(u64::from(a32(w, a))) as u32),
        s_quadmask_b64 => |w, a| put64_scc(w, a, gather_quads(a64(w, a))),
        s_brev_b32 => |w, a| put32(w, a, a32(w, a).reverse_bits()),
        s_brev_b64 => |w, a| put64(w, a, a64(w, a).reverse_bits()),
        s_bcnt0_i32_b32 => |w, a| put32_scc(w, a, a32(w, a).count_zeros()),
        s_bcnt0_i32_b64 => |w, a| put32_scc(w, a, a64(w, a).count_zeros()),
        s_bcnt1_i32_b32 => |w, a| put32_scc(w, a, a32(w, a).count_ones()),
        s_bcnt1_i32_b64 => |w, a| put32_scc(w, a, a64(w, a).count_ones()),
        s_ff0_i32_b32 => |w, a| put32(w, a, found(a32(w, a).trailing_ones(), 32)),
        s_ff0_i32_b64 => |w, a| put32(w, a, found(a64(w, a).trailing_ones(), 64)),
        s_ff1_i32_b32 => |w, a| put32(w, a, found(a32(w, a).trailing_zeros(), 32)),
        s_ff1_i32_b64 => |w, a| put32(w, a, found(a64(w, a).trailing_zeros(), 64)),
        s_flbit_i32_b32 => |w, a| put32(w, a, found(a32(w, a).leading_zeros(), 32)),
        s_flbit_i32_b64 => |w, a| put32(w, a, found(a64(w, a).leading_zeros(), 64)),
        // Bits equal to the sign, which are followed by one that is not.
        s_flbit_i32 => |w, a| {
            let x = a32(w, a) as i32;
            put32(w, a, found((x ^ x >> 31).leading_zeros(), 32));
        },
        s_flbit_i32_i64 => |w, a| {
            let x = a64(w, a) as i64;
            put32(w, a, found((x ^ x >> 63).leading_zeros(), 64));
        },
        s_sext_i32_i8 => |w, a| put32(w, a, a32(w, a) as i8 as u32),
        s_sext_i32_i16 => |w, a| put32(w, a, a32(w, a) as i16 as u32),
        s_bitset0_b32 => |w, a| {
            let old = w.scalar(a.dst as u8);
            put32(w, a, old & !(1 << (a32(w, a) & 31)));
        },
        s_bitset1_b32 => |w, a| {
            let old = w.scalar(a.dst as u8);
            put32(w, a, old | 1 << (a32(w, a) & 31));
        },
        s_bitset0_b64 => |w, a| {
            let old = w.scalar64(a.dst as u8);
            put64(w, a, old & !(1 << (a32(w, a) & 63)));
        },
        s_bitset1_b64 => |w, a| {
            let old = w.scalar64(a.dst as u8);
            put64(w, a, old | 1 << (a32(w, a) & 63));
        },
        s_abs_i32 => |w, a| put32_scc(w, a, (a32(w, a) as i32).unsigned_abs()),
        s_bitreplicate_b64_b32 => |w, a| {
            let x = a32(w, a);
            put64(w, a, (0..32).fold(0, |d, i| d | (u64::from(x >> i & 1) * 3) << (2 * i)));
        },
        s_movrels_b32 => |w, a| put32(w, a, w.scalar(relative(source(a), w.sgpr[M0]))),
        s_movrels_b64 => |w, a| put64(w, a, w.scalar64(relative(source(a), w.sgpr[M0]))),
        s_movreld_b32 => |w, a| {
            let to = relative(a.dst as u8, w.sgpr[M0]);
            w.set_scalar(u16::from(to), a32(w, a));
        },
        s_movreld_b64 => |w, a| {
            let to = relative(a.dst as u8, w.sgpr[M0]);
            w.set_scalar64(u16::from(to), a64(w, a));
        },
        // Source and destination are both moved: by M0[9:0] and M0[25:16].
        s_movrelsd_2_b32 => |w, a| {
            let value = w.scalar(relative(source(a), w.sgpr[M0] & 0x3ff));
            let to = relative(a.dst as u8, w.sgpr[M0] >> 16 & 0x3ff);
            w.set_scalar(u16::from(to), value);
        },
        _ => return None,
    };
    Some(handler)
}

/// Bit 4i is set where any of the four bits from 4i on is.
fn quads(x: u64) -> u64 {
    (x | x >> 1 | x >> 2 | x >> 3) & 0x1111_1111_1111_1111
}

fn gather_quads(x: u64) -> u64 {
    let quads = quads(x);
    (0..16).fold(0, |d, i| d | (quads >> (4 * i) & 1) << i)
}

/// What searches give where there is nothing: -1.
fn found(position: u32, none: u32) -> u32 {
    if position == none { u32::MAX } else { position }
}

fn source(args: &Args) -> u8 {
    if let Src::Sgpr(code) = args.src[0] { code } else { 0 }
}

/// An SGPR moved by an index; past the last one (VCC_HI) the hardware uses s0 (RDNA ISA 5.10).
fn relative(code: u8, index: u32) -> u8 {
    let moved = u32::from(code).saturating_add(index);
    if moved > 107 { 0 } else { moved as u8 }
}
