//! Lanes' accesses to their own scratch (RDNA ISA 9.2, "scratch"): offsets of a lane, not addresses.

use super::global::{Kind, Lanes};
use crate::env::{Env, Fault};
use crate::mem::Data;
use crate::{Finding, PRIVATE_BASE, SCRATCH_BASE};

/// Where a lane's byte lies in the wave's scratch: dwords of all lanes lie side by side.
fn word(offset: u64, lane: usize, width: u64) -> usize {
    (offset / 4 * width) as usize + lane
}

/// Loads `BYTES` of each lane at its offset, dword `k` of lane `l` into `out[k][l]`.
#[inline]
pub(crate) fn load<M, const BYTES: usize>(
    env: &mut Env<M>,
    lanes: Lanes,
    width: u64,
    out: &mut Data,
) -> Result<(), Box<Fault>> {
    if lanes.mask == 0 {
        return Ok(());
    }
    let aligned = check::<M, BYTES>(env, lanes, width, Kind::Load)?;
    let (low, high) = lanes.span();
    if aligned && low == high {
        for (k, row) in out.iter_mut().enumerate().take(BYTES / 4) {
            let at = word(low + 4 * k as u64, 32 * lanes.half, width);
            row.copy_from_slice(&env.scratch[at..at + 32]);
        }
        return Ok(());
    }
    for l in lanes.each() {
        for i in 0..BYTES {
            let at = lanes.addr[l] + i as u64;
            let byte = env.scratch[word(at, 32 * lanes.half + l, width)] >> (at % 4 * 8) & 0xff;
            let dword = &mut out[i / 4][l];
            *dword = if i % 4 == 0 { byte } else { *dword | byte << (i % 4 * 8) };
        }
    }
    Ok(())
}

/// Stores `BYTES` of each lane at its offset, from `data[k][l]`.
#[inline]
pub(crate) fn store<M, const BYTES: usize>(
    env: &mut Env<M>,
    lanes: Lanes,
    width: u64,
    data: &Data,
) -> Result<(), Box<Fault>> {
    if lanes.mask == 0 {
        return Ok(());
    }
    let aligned = check::<M, BYTES>(env, lanes, width, Kind::Store)?;
    let (low, high) = lanes.span();
    if aligned && low == high {
        for (k, row) in data.iter().enumerate().take(BYTES / 4) {
            let at = word(low + 4 * k as u64, 32 * lanes.half, width);
            for (l, dword) in env.scratch[at..at + 32].iter_mut().enumerate() {
                *dword = if lanes.mask >> l & 1 == 1 { row[l] } else { *dword };
            }
        }
        return Ok(());
    }
    for l in lanes.each() {
        for i in 0..BYTES {
            let at = lanes.addr[l] + i as u64;
            let dword = &mut env.scratch[word(at, 32 * lanes.half + l, width)];
            let shift = at % 4 * 8;
            *dword = *dword & !(0xff << shift) | (data[i / 4][l] >> (i % 4 * 8) & 0xff) << shift;
        }
    }
    Ok(())
}

/// Each lane replaces its 32 or 64 bits by `f(lane, old)`; the old bits come back in `out`.
pub(crate) fn atomic<M>(
    env: &mut Env<M>,
    lanes: Lanes,
    width: u64,
    wide: bool,
    out: &mut Data,
    f: impl Fn(usize, u64) -> u64,
) -> Result<(), Box<Fault>> {
    let aligned = if wide {
        check::<M, 8>(env, lanes, width, Kind::Atomic)?
    } else {
        check::<M, 4>(env, lanes, width, Kind::Atomic)?
    };
    if !aligned {
        let address = PRIVATE_BASE + lanes.span().0;
        return Err(Fault::strict(None, Finding::Misaligned { address, bytes: if wide { 8 } else { 4 } }));
    }
    for l in lanes.each() {
        let low = word(lanes.addr[l], 32 * lanes.half + l, width);
        let high = low + width as usize;
        let old = u64::from(env.scratch[low]) | if wide { u64::from(env.scratch[high]) << 32 } else { 0 };
        let new = f(l, old);
        env.scratch[low] = new as u32;
        if wide {
            env.scratch[high] = (new >> 32) as u32;
        }
        out[0][l] = old as u32;
        out[1][l] = (old >> 32) as u32;
    }
    Ok(())
}

/// Loads `BYTES` (1, 2, 4) of each lane at an address from [`crate::SCRATCH_BASE`] on, where a buffer's swizzle led it.
#[inline]
pub(crate) fn load_at<M, const BYTES: usize>(
    env: &mut Env<M>,
    lanes: Lanes,
    out: &mut Data,
) -> Result<(), Box<Fault>> {
    if let Some(at) = row_at::<M, BYTES>(env, lanes) {
        out[0].copy_from_slice(&env.scratch[at..at + 32]);
        return Ok(());
    }
    for l in lanes.each() {
        let (at, shift) = place_at::<M, BYTES>(env, lanes, l, Kind::Load)?;
        out[0][l] = env.scratch[at] >> shift & ones::<BYTES>();
    }
    Ok(())
}

/// Stores what [`load_at`] loads.
#[inline]
pub(crate) fn store_at<M, const BYTES: usize>(
    env: &mut Env<M>,
    lanes: Lanes,
    data: &Data,
) -> Result<(), Box<Fault>> {
    if let Some(at) = row_at::<M, BYTES>(env, lanes) {
        env.scratch[at..at + 32].copy_from_slice(&data[0]);
        return Ok(());
    }
    for l in lanes.each() {
        let (at, shift) = place_at::<M, BYTES>(env, lanes, l, Kind::Store)?;
        let dword = &mut env.scratch[at];
        *dword = *dword & !(ones::<BYTES>() << shift) | (data[0][l] & ones::<BYTES>()) << shift;
    }
    Ok(())
}

fn ones<const BYTES: usize>() -> u32 {
    u32::MAX >> (32 - 8 * BYTES)
}

/// The first word, where all lanes access neighbouring words.
fn row_at<M, const BYTES: usize>(env: &mut Env<M>, lanes: Lanes) -> Option<usize> {
    env.touch(lanes, BYTES as u32);
    let at = lanes.addr[0].wrapping_sub(SCRATCH_BASE);
    let row =
        BYTES == 4 && at.is_multiple_of(4) && at / 4 + 32 <= env.scratch.len() as u64 && lanes.neighbours(4);
    row.then_some((at / 4) as usize)
}

/// The word and the shift in it.
fn place_at<M, const BYTES: usize>(
    env: &Env<M>,
    lanes: Lanes,
    lane: usize,
    kind: Kind,
) -> Result<(usize, u64), Box<Fault>> {
    let at = lanes.addr[lane].wrapping_sub(SCRATCH_BASE);
    if at / 4 >= env.scratch.len() as u64 {
        return Err(Fault::memory(lanes.name(lane), lanes.addr[lane], BYTES as u32, kind != Kind::Load));
    }
    Ok(((at / 4) as usize, at % 4 * 8))
}

/// Faults where a lane leaves its scratch; tells whether all are aligned to dwords and take whole ones.
fn check<M, const BYTES: usize>(
    env: &mut Env<M>,
    lanes: Lanes,
    width: u64,
    kind: Kind,
) -> Result<bool, Box<Fault>> {
    env.touch(lanes, BYTES as u32);
    let bytes = env.scratch.len() as u64 / width * 4;
    let mut aligned = BYTES.is_multiple_of(4);
    for l in lanes.each() {
        let offset = lanes.addr[l];
        if offset.saturating_add(BYTES as u64) > bytes {
            return Err(Fault::memory(
                lanes.name(l),
                PRIVATE_BASE + offset,
                BYTES as u32,
                kind != Kind::Load,
            ));
        }
        aligned &= offset.is_multiple_of(4);
    }
    Ok(aligned)
}
