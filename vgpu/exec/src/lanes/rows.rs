//! Rows of lanes: operands fetched, masks spread and gathered, results blended in.

use crate::{Register, Row, Src, Wave};

impl Wave {
    /// A scalar source of 32 bits.
    #[inline(always)]
    pub(crate) fn uniform(&self, src: Src) -> u32 {
        match src {
            Src::Sgpr(code @ 0..128) => self.sgpr[usize::from(code)],
            Src::Const(low, _) => low,
            src => self.uniform64(src) as u32,
        }
    }

    /// A scalar source of 64 bits.
    #[cold]
    pub(crate) fn uniform64(&self, src: Src) -> u64 {
        match src {
            Src::Sgpr(code) => self.scalar64(code),
            Src::Const(low, high) => u64::from(low) | u64::from(high) << 32,
            Src::Vgpr(_) | Src::None => 0,
        }
    }

    /// A mask operand's bits of the current half.
    #[inline(always)]
    pub(crate) fn mask_of(&self, src: Src) -> u32 {
        match src {
            Src::Sgpr(code @ 0..=126) => self.mask(usize::from(code)),
            Src::Const(low, high) => [low, high][self.half & 1],
            _ => 0,
        }
    }
}

/// A bit for each lane as a row of zeros and ones.
#[inline(always)]
pub(crate) fn spread(mask: u32) -> Row {
    let mut row = [0; 32];
    for (i, x) in row.iter_mut().enumerate() {
        *x = mask >> i & 1;
    }
    row
}

/// The lowest bits of the lanes.
#[inline(always)]
pub(super) fn gather(row: &Row) -> u32 {
    row.iter().enumerate().fold(0, |mask, (i, x)| mask | (x & 1) << i)
}

/// Writes the lanes of `mask`. By masks of bits: LLVM makes no vectors of a choice between two places.
#[inline(always)]
pub(crate) fn blend(dst: &mut Row, new: &Row, mask: u32) {
    if mask == u32::MAX {
        *dst = *new;
        return;
    }
    for i in 0..32 {
        let keep = ((mask << (31 - i)) as i32 >> 31) as u32;
        dst[i] = new[i] & keep | dst[i] & !keep;
    }
}

/// Writes a mask destination of the wave: both halves of a wave64 at once, or an instruction's second half would read
/// what its first has written. `half` computes a half's bits, lanes that are off being zero.
#[inline(always)]
pub(crate) fn write_mask(wave: &mut Wave, dst: u16, mut half: impl FnMut(&mut Wave) -> u32) {
    if !wave.wave64 {
        let bits = half(wave);
        wave.set_scalar(dst, bits);
    } else if wave.half == 1 {
        wave.half = 0;
        let low = half(wave);
        wave.half = 1;
        let high = half(wave);
        wave.set_scalar64(dst, u64::from(low) | u64::from(high) << 32);
    }
}

/// Stands for sources that there are not.
pub(crate) static ZEROS: Row = [0; 32];

impl Register {
    /// Each lane by its place.
    #[inline(always)]
    pub(crate) fn of(f: impl Fn(usize) -> u32) -> Self {
        let mut row = [0; 32];
        for (i, x) in row.iter_mut().enumerate() {
            *x = f(i);
        }
        Self(row)
    }
}

/// A row of a source: of a VGPR where it is, of a scalar in `$splat`.
macro_rules! row {
    ($wave:expr, $src:expr, $kind:expr, $splat:ident) => {
        // Not one `match`, which would become a jump that is hard to predict.
        if matches!($kind, Kind::None) {
            &ZEROS
        } else if matches!($kind, Kind::Mask) {
            $splat = Register(spread($wave.mask_of($src)));
            &$splat.0
        } else if let Src::Vgpr(r) = $src {
            $wave.row(usize::from(r))
        } else {
            $splat = Register([$wave.uniform($src); 32]);
            &$splat.0
        }
    };
}

/// The row of the high halves of a source of 64 bits.
macro_rules! high_row {
    ($wave:expr, $src:expr, $kind:expr, $splat:ident) => {
        match $src {
            _ if !$kind.is_64() => &ZEROS,
            Src::Vgpr(r) => $wave.row(usize::from(r) + 1),
            src => {
                $splat = Register([($wave.uniform64(src) >> 32) as u32; 32]);
                &$splat.0
            }
        }
    };
}

pub(super) use high_row;
pub(crate) use row;
