//! The usual accesses quickly, whole dwords with nobody watching: to LDS where all lie inside it, to memory where all 32
//! lanes are on and lie side by side.

use super::{ADDR, BASE, DATA, vector};
use crate::args::Args;
use crate::env::Env;
use crate::{Memory, Row, Src, Wave};

/// The dword at which each lane's access starts; lanes that are off have one that does no harm. `None`: the usual way
/// is not open.
#[inline(always)]
pub(super) fn places<M, const DWORDS: usize>(
    wave: &Wave,
    env: &Env<M>,
    addr: Src,
    offset: u32,
) -> Option<Row> {
    let exec = wave.exec();
    if exec == 0 || env.lds.watched() || env.touched.is_some() {
        return None;
    }
    let row = vector(wave, addr, 0);
    let mut at = [0; 32];
    let (mut bits, mut high) = (0, 0);
    for l in 0..32 {
        let a = if exec >> l & 1 == 1 { row[l].wrapping_add(offset) } else { 0 };
        bits |= a;
        high = high.max(a);
        at[l] = a / 4;
    }
    let inside = high as usize / 4 + DWORDS <= env.lds.words.len();
    (bits % 4 == 0 && inside).then_some(at)
}

/// Half of a row: what kernels' access patterns repeat over.
const HALF: usize = 16;

/// Whether the lanes of a half of `at` follow each other without a gap.
#[inline(always)]
fn consecutive<const DWORDS: usize>(at: &[u32]) -> bool {
    let mut same = true;
    for (l, &a) in at.iter().enumerate() {
        same &= a == at[0].wrapping_add((DWORDS * l) as u32);
    }
    same
}

/// Dword `k` of lane `l` into `out[k][l]`. The patterns of tiled kernels (one address, neighbours, the same for both
/// halves) become moves of vectors.
#[inline(always)]
pub(super) fn load<const DWORDS: usize>(words: &[u32], at: &Row, out: &mut [Row]) {
    let out = &mut out[..DWORDS];
    for half in [0, HALF] {
        let places = &at[half..half + HALF];
        let first = places[0] as usize;
        if half == HALF && places == &at[..HALF] {
            for row in &mut *out {
                let (low, high) = row.split_at_mut(HALF);
                high.copy_from_slice(low);
            }
        } else if places.iter().fold(true, |same, &a| same & (a == places[0])) {
            for (row, &word) in out.iter_mut().zip(&words[first..first + DWORDS]) {
                row[half..half + HALF].fill(word);
            }
        } else if consecutive::<DWORDS>(places) {
            let all = &words[first..first + HALF * DWORDS];
            for (k, row) in out.iter_mut().enumerate() {
                for (l, to) in row[half..half + HALF].iter_mut().enumerate() {
                    *to = all[DWORDS * l + k];
                }
            }
        } else {
            for (l, &a) in places.iter().enumerate() {
                for (row, &word) in out.iter_mut().zip(&words[a as usize..][..DWORDS]) {
                    row[half + l] = word;
                }
            }
        }
    }
}

/// The lanes that are on store `data[k][l]`; where they meet, the highest stays.
#[inline(always)]
pub(super) fn store<const DWORDS: usize>(words: &mut [u32], at: &Row, exec: u32, data: &[&Row; DWORDS]) {
    for half in [0, HALF] {
        let places = &at[half..half + HALF];
        let first = places[0] as usize;
        if exec >> half & 0xffff == 0xffff && consecutive::<DWORDS>(places) {
            let all = &mut words[first..first + HALF * DWORDS];
            for l in 0..HALF {
                for (k, row) in data.iter().enumerate() {
                    all[DWORDS * l + k] = row[half + l];
                }
            }
            continue;
        }
        for (l, &a) in places.iter().enumerate().filter(|(l, _)| exec >> (half + l) & 1 == 1) {
            for (to, row) in words[a as usize..][..DWORDS].iter_mut().zip(data) {
                *to = row[half + l];
            }
        }
    }
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
    if wave.exec() != u32::MAX || env.strict || env.touched.is_some() {
        return false;
    }
    let Some(addr) = neighbours::<N>(wave, args) else { return false };
    let Some(region) = env.regions.find(env.memory, addr, 32 * 4 * N as u64) else { return false };
    let mut all = [[[0; 4]; N]; 32];
    env.memory.read(&region, addr, all.as_flattened_mut().as_flattened_mut());
    for k in 0..N {
        let row = wave.row_mut(usize::from(args.dst) + k);
        for (to, lane) in row.iter_mut().zip(&all) {
            *to = u32::from_le_bytes(lane[k]);
        }
    }
    true
}

/// `N` dwords of each lane from registers to memory.
#[inline(always)]
pub(super) fn to_memory<M: Memory, const N: usize>(wave: &Wave, env: &mut Env<M>, args: &Args) -> bool {
    let Src::Vgpr(src) = args.src[DATA] else { return false };
    if wave.exec() != u32::MAX || env.strict || env.touched.is_some() {
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
