//! DPP and SDWA (RDNA ISA 6.8 and 13.3): which lane, which part of a register.

use wave32_isa::{SdwaSel, Swizzle};

use crate::Row;

/// What DPP does to the lanes of a half.
pub(super) struct Moves {
    /// The lane that each reads.
    from: [u8; 32],
    /// Lanes that have one to read; the others read zero.
    valid: u32,
    /// Lanes that may be written: those of the rows and banks of DPP16's masks that have a source, or read zero for the
    /// lack of one.
    pub(super) written: u32,
}

impl Moves {
    /// None if the swizzle is no DPP.
    pub(super) fn of(swizzle: &Swizzle, exec: u32) -> Option<Self> {
        if matches!(swizzle, Swizzle::None | Swizzle::Sdwa { .. }) {
            return None;
        }
        let mut moves = Self { from: [0; 32], valid: 0, written: 0 };
        for lane in 0..32 {
            let source = source(swizzle, lane, exec);
            moves.from[lane] = source.unwrap_or(lane) as u8;
            moves.valid |= u32::from(source.is_some()) << lane;
            let written = match *swizzle {
                Swizzle::Dpp16 { row_mask, bank_mask, bound_ctrl, .. } => {
                    let masks = row_mask >> (lane / 16) & bank_mask >> (lane / 4 % 4) & 1 != 0;
                    masks && (bound_ctrl || source.is_some())
                }
                _ => true,
            };
            moves.written |= u32::from(written) << lane;
        }
        Some(moves)
    }

    /// A row as the lanes read it.
    pub(super) fn apply(&self, row: &Row) -> Row {
        let mut out = [0; 32];
        for i in 0..32 {
            let x = row[usize::from(self.from[i] & 31)];
            out[i] = if self.valid >> i & 1 != 0 { x } else { 0 };
        }
        out
    }
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
