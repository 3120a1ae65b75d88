//! The usual accesses to LDS, quickly: whole dwords that all lie inside it, with nobody watching.

use super::vector;
use crate::env::Env;
use crate::{Row, Src, Wave};

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

/// Dword `k` of lane `l` into `out[k][l]`: four lanes at a time, which makes it a transposition in registers.
#[inline(always)]
pub(super) fn load<const DWORDS: usize>(words: &[u32], at: &Row, out: &mut [Row]) {
    for four in 0..8 {
        let mut lanes = [[0; DWORDS]; 4];
        for (i, lane) in lanes.iter_mut().enumerate() {
            lane.copy_from_slice(&words[at[4 * four + i] as usize..][..DWORDS]);
        }
        for (k, row) in out.iter_mut().enumerate().take(DWORDS) {
            for (i, lane) in lanes.iter().enumerate() {
                row[4 * four + i] = lane[k];
            }
        }
    }
}

/// The lanes that are on store `data[k][l]`; where they meet, the highest stays.
#[inline(always)]
pub(super) fn store<const DWORDS: usize>(words: &mut [u32], at: &Row, exec: u32, data: &[&Row; DWORDS]) {
    for l in (0..32).filter(|l| exec >> l & 1 == 1) {
        for (to, row) in words[at[l] as usize..][..DWORDS].iter_mut().zip(data) {
            *to = row[l];
        }
    }
}
