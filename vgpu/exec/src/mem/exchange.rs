//! Lanes' data through LDS's crossbar, without its memory (RDNA ISA 10.3.3). Of a wave64 each half exchanges within itself.

use super::{ADDR, DATA, Dwords, put, vector};
use crate::args::Args;
use crate::env::{Env, Fault};
use crate::{Memory, Wave};

/// `ds_swizzle_b32`: a permutation that the offset names.
pub(super) fn swizzle<M: Memory>(wave: &mut Wave, _: &mut Env<M>, args: &Args) -> Result<(), Box<Fault>> {
    let control = args.mem.offset as u32;
    gather(wave, args, ADDR, |l| {
        let l = l as u32;
        let from = if control >= 0xe000 {
            fft(control & 0x1f, l)
        } else if control >= 0xc000 {
            let by = control >> 5 & 0x1f;
            let keep = control & 0x1f;
            let turned = if control >> 10 & 1 == 0 { l.wrapping_add(by) } else { l.wrapping_sub(by) };
            l & keep | turned & !keep & 0x1f
        } else if control & 0x8000 != 0 {
            l & !3 | control >> (2 * (l & 3)) & 3
        } else {
            (l & control & 0x1f | control >> 5 & 0x1f) ^ control >> 10 & 0x1f
        };
        from as usize
    });
    Ok(())
}

/// The FFT mode's permutation: the lane's bits reversed, but for those of the mask.
fn fft(mask: u32, lane: u32) -> u32 {
    (lane.reverse_bits() >> 27) >> mask.count_ones() | lane & mask
}

/// `ds_bpermute_b32`: each lane reads the lane whose number times 4 its address holds.
pub(super) fn bpermute<M: Memory>(wave: &mut Wave, _: &mut Env<M>, args: &Args) -> Result<(), Box<Fault>> {
    let addr = *vector(wave, args.src[ADDR], 0);
    let offset = args.mem.offset as u32;
    gather(wave, args, DATA, |l| (addr[l].wrapping_add(offset) / 4 % 32) as usize);
    Ok(())
}

/// Each lane gets what lane `from` of it holds; zero from one that EXEC has off.
fn gather(wave: &mut Wave, args: &Args, source: usize, from: impl Fn(usize) -> usize) {
    let data = vector(wave, args.src[source], 0);
    let exec = wave.exec();
    let row = std::array::from_fn(|l| {
        let from = from(l);
        if exec >> from & 1 == 1 { data[from] } else { 0 }
    });
    put::<Dwords>(wave, usize::from(args.dst), &row);
}

/// `ds_permute_b32`: each lane writes to the lane whose number times 4 its address holds; the highest wins; zero where
/// none does.
pub(super) fn permute<M: Memory>(wave: &mut Wave, _: &mut Env<M>, args: &Args) -> Result<(), Box<Fault>> {
    let addr = vector(wave, args.src[ADDR], 0);
    let data = vector(wave, args.src[DATA], 0);
    let offset = args.mem.offset as u32;
    let mut row = [0; 32];
    for l in 0..32 {
        if wave.exec() >> l & 1 == 1 {
            row[(addr[l].wrapping_add(offset) / 4 % 32) as usize] = data[l];
        }
    }
    put::<Dwords>(wave, usize::from(args.dst), &row);
    Ok(())
}
