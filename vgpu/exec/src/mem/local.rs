//! Lanes' accesses to LDS by address (RDNA ISA chapter 10).

use super::global::{Kind, Lanes};
use crate::env::{Env, Fault};
use crate::lds::{Lds, Touch};
use crate::{Finding, mem::Data};

/// Loads `BYTES` of each lane, dword `k` of lane `l` into `out[k][l]`; fewer than 4 bytes are zero extended.
#[inline]
pub(crate) fn load<M, const BYTES: usize>(
    env: &mut Env<M>,
    lanes: Lanes,
    out: &mut Data,
) -> Result<(), Box<Fault>> {
    if lanes.mask == 0 {
        return Ok(());
    }
    env.touch(lanes, BYTES as u32);
    check::<M, BYTES>(env, lanes, Kind::Load, None)?;
    let dwords = BYTES / 4;
    let words = &env.lds.words[..];
    if let Some((low, high)) = whole::<BYTES>(env.lds, lanes) {
        if lanes.neighbours(BYTES as u64) {
            let all = &words[low..low + 32 * dwords];
            for (l, one) in all.chunks_exact(dwords.max(1)).enumerate() {
                for (k, &dword) in one.iter().enumerate() {
                    out[k][l] = dword;
                }
            }
        } else if low == high {
            for (row, &dword) in out.iter_mut().zip(&words[low..low + dwords]) {
                *row = [dword; 32];
            }
        } else {
            for l in 0..32 {
                let at = if lanes.mask >> l & 1 == 1 { (lanes.addr[l] / 4) as usize } else { low };
                for (k, &dword) in words[at..at + dwords].iter().enumerate() {
                    out[k][l] = dword;
                }
            }
        }
        return Ok(());
    }
    for l in lanes.each() {
        for (k, bytes) in dwords_of(BYTES) {
            out[k][l] = env.lds.load(lanes.addr[l] + 4 * k as u64, bytes);
        }
    }
    Ok(())
}

/// Stores `BYTES` of each lane from `data[k][l]`. Where lanes meet, the highest is the one that stays.
#[inline]
pub(crate) fn store<M, const BYTES: usize>(
    env: &mut Env<M>,
    lanes: Lanes,
    data: &Data,
) -> Result<(), Box<Fault>> {
    if lanes.mask == 0 {
        return Ok(());
    }
    env.touch(lanes, BYTES as u32);
    check::<M, BYTES>(env, lanes, Kind::Store, Some(data))?;
    let dwords = BYTES / 4;
    if let Some((low, _)) = whole::<BYTES>(env.lds, lanes) {
        let words = &mut env.lds.words[..];
        if lanes.neighbours(BYTES as u64) {
            let all = &mut words[low..low + 32 * dwords];
            for (l, one) in all.chunks_exact_mut(dwords.max(1)).enumerate() {
                for (k, dword) in one.iter_mut().enumerate() {
                    *dword = data[k][l];
                }
            }
        } else {
            for l in lanes.each() {
                let at = (lanes.addr[l] / 4) as usize;
                for (k, dword) in words[at..at + dwords].iter_mut().enumerate() {
                    *dword = data[k][l];
                }
            }
        }
        return Ok(());
    }
    for l in lanes.each() {
        for (k, bytes) in dwords_of(BYTES) {
            env.lds.store(lanes.addr[l] + 4 * k as u64, bytes, data[k][l]);
        }
    }
    Ok(())
}

/// Each lane in turn replaces its 32 or 64 bits by `f(lane, old)`; the old bits come back in `out`.
pub(crate) fn atomic<M>(
    env: &mut Env<M>,
    lanes: Lanes,
    wide: bool,
    out: &mut Data,
    f: impl Fn(usize, u64) -> u64,
) -> Result<(), Box<Fault>> {
    let bytes = if wide { 8 } else { 4 };
    env.touch(lanes, bytes);
    for l in lanes.each() {
        let address = lanes.addr[l];
        if address % u64::from(bytes) != 0 {
            return Err(Fault::strict(lanes.name(l), Finding::Misaligned { address, bytes }));
        }
        for at in (address..address + u64::from(bytes)).step_by(4) {
            let opinion = env.lds.check(env.wave, Touch::Atomic, at, 4);
            opinion.map_err(|finding| Fault::strict(lanes.name(l), finding))?;
        }
        let high = if wide { u64::from(env.lds.load(address + 4, 4)) << 32 } else { 0 };
        let old = u64::from(env.lds.load(address, 4)) | high;
        let new = f(l, old);
        env.lds.store(address, 4, new as u32);
        if wide {
            env.lds.store(address + 4, 4, (new >> 32) as u32);
        }
        out[0][l] = old as u32;
        out[1][l] = (old >> 32) as u32;
    }
    Ok(())
}

/// First dwords of the lowest and the highest lane, where all lanes access whole dwords inside LDS.
#[inline]
fn whole<const BYTES: usize>(lds: &Lds, lanes: Lanes) -> Option<(usize, usize)> {
    let (low, high) = lanes.span();
    let mut bits = BYTES as u64;
    for (l, &a) in lanes.addr.iter().enumerate() {
        bits |= if lanes.mask >> l & 1 == 1 { a } else { 0 };
    }
    let inside = high.saturating_add(BYTES as u64) <= 4 * lds.words.len() as u64;
    (bits % 4 == 0 && inside).then_some(((low / 4) as usize, (high / 4) as usize))
}

/// The registers of an access: which, and how many bytes of it.
fn dwords_of(bytes: usize) -> impl Iterator<Item = (usize, u32)> {
    (0..bytes.div_ceil(4)).map(move |k| (k, (bytes - 4 * k).min(4) as u32))
}

/// The strict card's opinion.
fn check<M, const BYTES: usize>(
    env: &mut Env<M>,
    lanes: Lanes,
    kind: Kind,
    data: Option<&Data>,
) -> Result<(), Box<Fault>> {
    if !env.lds.watched() {
        return Ok(());
    }
    let mut last = None;
    for l in lanes.each() {
        let address = lanes.addr[l];
        // Lanes side by side often read the same.
        if kind == Kind::Load && last.replace(address) == Some(address) {
            continue;
        }
        let natural = BYTES.next_power_of_two() as u64;
        if BYTES > 4 && !env.lds.cu_mode && address % natural != 0 {
            return Err(Fault::strict(lanes.name(l), Finding::Misaligned { address, bytes: BYTES as u32 }));
        }
        for (k, bytes) in dwords_of(BYTES) {
            let touch = match (kind, data) {
                (Kind::Store, Some(data)) => Touch::Write { value: data[k][l] },
                _ => Touch::Read,
            };
            let opinion = env.lds.check(env.wave, touch, address + 4 * k as u64, bytes);
            opinion.map_err(|finding| Fault::strict(lanes.name(l), finding))?;
        }
    }
    Ok(())
}
