//! DPP and SDWA (RDNA ISA 6.8 and 13.3): which lane, which part of a register.

use wave32_isa::{SdwaSel, Swizzle};

use crate::Row;

/// A row as DPP moves it, and the lanes whose results are written.
pub(super) fn dpp(swizzle: &Swizzle, row: &Row, exec: u32) -> Row {
    let mut out = [0; 32];
    for (lane, x) in out.iter_mut().enumerate() {
        if let Some(source) = source(swizzle, lane, exec) {
            *x = row[source];
        }
    }
    out
}

/// The lanes that DPP lets be written: those of the rows and banks of its masks that have a source, or read zero for
/// the lack of one.
pub(super) fn dpp_lanes(swizzle: &Swizzle, exec: u32) -> u32 {
    let Swizzle::Dpp16 { row_mask, bank_mask, bound_ctrl, .. } = *swizzle else {
        return u32::MAX;
    };
    (0..32).fold(0, |mask, lane| {
        let written = row_mask >> (lane / 16) & 1 != 0 && bank_mask >> (lane / 4 % 4) & 1 != 0;
        let on = written && (bound_ctrl || source(swizzle, lane, exec).is_some());
        mask | u32::from(on) << lane
    })
}

/// The lane that `lane` reads; none past the end of its 16, or where the source is off and must not be read.
fn source(swizzle: &Swizzle, lane: usize, exec: u32) -> Option<usize> {
    let (source, inactive) = match *swizzle {
        Swizzle::Dpp16 { ctrl, fetch_inactive, .. } => (dpp16(usize::from(ctrl), lane)?, fetch_inactive),
        Swizzle::Dpp8 { select, fetch_inactive } => {
            (lane & !7 | usize::from(select[lane & 7] & 7), fetch_inactive)
        }
        Swizzle::None | Swizzle::Sdwa { .. } => return Some(lane),
    };
    (inactive || exec >> source & 1 != 0).then_some(source)
}

fn dpp16(ctrl: usize, lane: usize) -> Option<usize> {
    let (row, i) = (lane & !15, lane & 15);
    let n = ctrl & 15;
    let within = match ctrl >> 4 {
        0x00..=0x0f => i & !3 | ctrl >> (2 * (i & 3)) & 3, // quad_perm
        0x10 => (i + n < 16).then_some(i + n)?,            // row_shl
        0x11 => i.checked_sub(n)?,                         // row_shr
        0x12 => (i + 16 - n) & 15,                         // row_ror
        0x14 if n == 0 => 15 - i,                          // row_mirror
        0x14 if n == 1 => i ^ 7,                           // row_half_mirror
        0x15 => n,                                         // row_share
        0x16 => i ^ n,                                     // row_xmask
        _ => return None,
    };
    Some(row | within)
}

/// A part of a register, extended to 32 bits.
pub(super) fn part(x: u32, sel: SdwaSel, sext: bool) -> u32 {
    let (shift, bits) = place(sel);
    let top = x << (32 - bits - shift);
    if sext { (top as i32 >> (32 - bits)) as u32 } else { top >> (32 - bits) }
}

/// `new` in its part of `old`.
pub(super) fn placed(old: u32, new: u32, sel: SdwaSel, unused: u8) -> u32 {
    let (shift, bits) = place(sel);
    let mask = u32::MAX >> (32 - bits) << shift;
    let value = new << shift & mask;
    match unused {
        0 => value,
        // Sign extended upwards; below is zero.
        1 => (((new << (32 - bits)) as i32 >> (32 - bits)) as u32) << shift,
        _ => old & !mask | value,
    }
}

fn place(sel: SdwaSel) -> (u32, u32) {
    match sel {
        SdwaSel::Byte0 => (0, 8),
        SdwaSel::Byte1 => (8, 8),
        SdwaSel::Byte2 => (16, 8),
        SdwaSel::Byte3 => (24, 8),
        SdwaSel::Word0 => (0, 16),
        SdwaSel::Word1 => (16, 16),
        SdwaSel::Dword => (0, 32),
    }
}
