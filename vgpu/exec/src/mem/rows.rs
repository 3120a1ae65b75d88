//! The short way for what most memory instructions are: all 32 lanes on, whole dwords, straight between memory and
//! registers. Each function does everything or nothing; `false` sends the caller the long way.

use super::{ADDR, BASE, DATA, vector};
use crate::args::{Args, Src};
use crate::env::Env;
use crate::lds::Lds;
use crate::{Memory, Wave};

/// Whether nobody looks at the accesses, and all lanes are on.
#[inline(always)]
fn short<M>(wave: &Wave, env: &Env<M>) -> bool {
    wave.exec() == u32::MAX && !env.strict && env.touched.is_none()
}

/// Index of each lane's first dword in LDS; none where one is misaligned or, `N` dwords long, outside.
#[inline(always)]
fn indices<const N: usize>(lds: &Lds, addr: &[u32; 32], offset: u32) -> Option<[usize; 32]> {
    let (mut bits, mut highest) = (0, 0);
    for a in addr {
        let a = a.wrapping_add(offset);
        bits |= a;
        highest = highest.max(a);
    }
    let inside = (highest as usize / 4).saturating_add(N) <= lds.words.len();
    (bits % 4 == 0 && inside).then(|| addr.map(|a| (a.wrapping_add(offset) / 4) as usize))
}

/// `N` dwords of each lane from LDS at `addr` and `offset` into registers from `dst` on.
#[inline(always)]
pub(super) fn from_lds<M, const N: usize>(
    wave: &mut Wave,
    env: &Env<M>,
    addr: &[u32; 32],
    offset: u32,
    dst: usize,
) -> bool {
    if !short(wave, env) {
        return false;
    }
    let words = &env.lds.words[..];
    let Some(at) = indices::<N>(env.lds, addr, offset) else { return false };
    let one = |at: usize| -> [u32; N] { std::array::from_fn(|k| words[at..at + N][k]) };
    let first = at[0];
    if at.iter().all(|&at| at == first) {
        for (k, value) in one(first).into_iter().enumerate() {
            *wave.row_mut(dst + k) = [value; 32];
        }
        return true;
    }
    let lanes = at.map(one);
    for k in 0..N {
        *wave.row_mut(dst + k) = std::array::from_fn(|l| lanes[l][k]);
    }
    true
}

/// `N` dwords of each lane from registers from `src` on to LDS.
#[inline(always)]
pub(super) fn to_lds<M, const N: usize>(
    wave: &Wave,
    env: &mut Env<M>,
    addr: &[u32; 32],
    offset: u32,
    src: Src,
) -> bool {
    let Src::Vgpr(src) = src else { return false };
    if !short(wave, env) {
        return false;
    }
    let Some(at) = indices::<N>(env.lds, addr, offset) else { return false };
    let rows: [&[u32; 32]; N] = std::array::from_fn(|k| wave.row(usize::from(src) + k));
    for (l, &at) in at.iter().enumerate() {
        let to = &mut env.lds.words[at..at + N];
        for (to, row) in to.iter_mut().zip(rows) {
            *to = row[l];
        }
    }
    true
}

/// The first lane's address, where each lane's `N` dwords in memory lie behind those of the lane before.
#[inline(always)]
fn neighbours<const N: usize>(wave: &Wave, args: &Args) -> Option<u64> {
    let low = vector(wave, args.src[ADDR], 0);
    let first = low[0];
    let mut same = first.checked_add(31 * 4 * N as u32).is_some();
    for (l, &a) in low.iter().enumerate() {
        same &= a == first.wrapping_add((l * 4 * N) as u32);
    }
    let offset = i64::from(args.mem.offset) as u64;
    let base = if let Src::Sgpr(base) = args.src[BASE] {
        wave.scalar64(base)
    } else {
        let high = vector(wave, args.src[ADDR], 1);
        high.iter().for_each(|&h| same &= h == high[0]);
        u64::from(high[0]) << 32
    };
    same.then(|| base.wrapping_add(u64::from(first)).wrapping_add(offset))
}

/// `N` dwords of each lane from memory into registers.
#[inline(always)]
pub(super) fn from_memory<M: Memory, const N: usize>(wave: &mut Wave, env: &mut Env<M>, args: &Args) -> bool {
    if !short(wave, env) {
        return false;
    }
    let Some(addr) = neighbours::<N>(wave, args) else { return false };
    let Some(region) = env.regions.find(env.memory, addr, 32 * 4 * N as u64) else { return false };
    let mut all = [[[0; 4]; N]; 32];
    env.memory.read(&region, addr, all.as_flattened_mut().as_flattened_mut());
    for k in 0..N {
        *wave.row_mut(usize::from(args.dst) + k) = std::array::from_fn(|l| u32::from_le_bytes(all[l][k]));
    }
    true
}

/// `N` dwords of each lane from registers to memory.
#[inline(always)]
pub(super) fn to_memory<M: Memory, const N: usize>(wave: &Wave, env: &mut Env<M>, args: &Args) -> bool {
    let Src::Vgpr(src) = args.src[DATA] else { return false };
    if !short(wave, env) {
        return false;
    }
    let Some(addr) = neighbours::<N>(wave, args) else { return false };
    let Some(region) = env.regions.find(env.memory, addr, 32 * 4 * N as u64) else { return false };
    if region.readonly {
        return false;
    }
    let mut all = [[[0; 4]; N]; 32];
    for k in 0..N {
        let row = wave.row(usize::from(src) + k);
        for (lane, value) in all.iter_mut().zip(row) {
            lane[k] = value.to_le_bytes();
        }
    }
    env.memory.write(&region, addr, all.as_flattened().as_flattened());
    true
}
