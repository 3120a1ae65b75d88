//! Lanes' accesses to LDS by address (RDNA ISA chapter 10), one after the other; `quick` has the usual ones.

use super::global::Lanes;
use crate::env::{Env, Fault};
use crate::lds::Touch;
use crate::{Finding, mem::Data};

/// Loads `BYTES` of each lane, dword `k` of lane `l` into `out[k][l]`; fewer than 4 bytes are zero extended. They are the
/// instruction's dwords from `first` on.
#[inline]
pub(crate) fn load<M, const BYTES: usize>(
    env: &mut Env<M>,
    lanes: Lanes,
    first: usize,
    out: &mut Data,
) -> Result<(), Box<Fault>> {
    if lanes.mask == 0 {
        return Ok(());
    }
    env.touch(lanes, BYTES as u32);
    check_load::<M, BYTES>(env, lanes, first)?;
    for l in lanes.each() {
        for (k, bytes) in dwords_of(BYTES) {
            out[k][l] = env.lds.load(lanes.addr[l] + 4 * k as u64, bytes);
        }
    }
    Ok(())
}

/// Stores `BYTES` of each lane from `data[k][l]`, the instruction's dwords from `first` on. Where lanes meet, the highest
/// is the one that stays.
#[inline]
pub(crate) fn store<M, const BYTES: usize>(
    env: &mut Env<M>,
    lanes: Lanes,
    first: usize,
    data: &Data,
) -> Result<(), Box<Fault>> {
    if lanes.mask == 0 {
        return Ok(());
    }
    env.touch(lanes, BYTES as u32);
    check_store::<M, BYTES>(env, lanes, first, data)?;
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
        if !address.is_multiple_of(u64::from(bytes)) {
            return Err(Fault::strict(lanes.name(l), Finding::Misaligned { address, bytes }));
        }
        check_use(env, lanes, l, bytes)?;
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

/// The registers of an access: which, and how many bytes of it.
fn dwords_of(bytes: usize) -> impl Iterator<Item = (usize, u32)> {
    (0..bytes.div_ceil(4)).map(move |k| (k, (bytes - 4 * k).min(4) as u32))
}

/// The strict card's opinion of a lane's atomic, or of its operand in LDS.
pub(crate) fn check_use<M>(env: &mut Env<M>, lanes: Lanes, l: usize, bytes: u32) -> Result<(), Box<Fault>> {
    let address = lanes.addr[l];
    for at in (address..address + u64::from(bytes)).step_by(4) {
        let opinion = env.lds.check(env.wave, Touch::Use, at, 4);
        opinion.map_err(|finding| Fault::strict(lanes.name(l), finding))?;
    }
    Ok(())
}

/// The strict card's opinion of loads; it takes note of what nobody wrote.
fn check_load<M, const BYTES: usize>(env: &mut Env<M>, lanes: Lanes, first: usize) -> Result<(), Box<Fault>> {
    if !env.lds.watched() {
        return Ok(());
    }
    // Lanes side by side often read the same.
    let (mut last, mut unwritten) = (None, [None; 4]);
    for l in lanes.each() {
        let address = lanes.addr[l];
        if last.replace(address) != Some(address) {
            check_alignment::<M, BYTES>(env, lanes, l)?;
            for (k, bytes) in dwords_of(BYTES) {
                let opinion = env.lds.check(env.wave, Touch::Load, address + 4 * k as u64, bytes);
                unwritten[k] = opinion.map_err(|finding| Fault::strict(lanes.name(l), finding))?;
            }
        }
        for (k, unwritten) in unwritten.into_iter().enumerate() {
            if let Some(address) = unwritten {
                env.lds.found_unwritten(first + k, lanes.half, l, address);
            }
        }
    }
    Ok(())
}

/// The strict card's opinion of stores; it takes note of what is undefined.
fn check_store<M, const BYTES: usize>(
    env: &mut Env<M>,
    lanes: Lanes,
    first: usize,
    data: &Data,
) -> Result<(), Box<Fault>> {
    if !env.lds.watched() {
        return Ok(());
    }
    for l in lanes.each() {
        check_alignment::<M, BYTES>(env, lanes, l)?;
        for (k, bytes) in dwords_of(BYTES) {
            let defined = env.lds.stores_defined(first + k, lanes.half, l);
            let touch = Touch::Write { value: data[k][l], defined };
            let opinion = env.lds.check(env.wave, touch, lanes.addr[l] + 4 * k as u64, bytes);
            opinion.map_err(|finding| Fault::strict(lanes.name(l), finding))?;
        }
    }
    Ok(())
}

fn check_alignment<M, const BYTES: usize>(env: &Env<M>, lanes: Lanes, l: usize) -> Result<(), Box<Fault>> {
    let address = lanes.addr[l];
    let natural = BYTES.next_power_of_two() as u64;
    if BYTES > 4 && !env.lds.cu_mode && !address.is_multiple_of(natural) {
        return Err(Fault::strict(lanes.name(l), Finding::Misaligned { address, bytes: BYTES as u32 }));
    }
    Ok(())
}
