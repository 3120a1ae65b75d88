//! Lanes' accesses to memory by address: one access where lanes are neighbours, else one for each lane.

use crate::env::{Env, Fault};
use crate::memory::{Memory, Region};
use crate::{Finding, Wave, mem::Data};

/// What an instruction does to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Load,
    Store,
    Atomic,
}

/// The lanes of a half that take part, and where each goes.
#[derive(Clone, Copy)]
pub(crate) struct Lanes<'a> {
    /// 0 or 1; lanes are named beyond 31 in the second.
    pub half: usize,
    /// A bit for each lane that takes part.
    pub mask: u32,
    /// Byte addresses.
    pub addr: &'a [u64; 32],
}

impl<'a> Lanes<'a> {
    /// Those of EXEC.
    pub fn active(wave: &Wave, addr: &'a [u64; 32]) -> Self {
        Self { half: wave.half, mask: wave.exec(), addr }
    }

    /// Those that take part.
    pub fn each(self) -> impl Iterator<Item = usize> {
        let mask = self.mask;
        (0..32).filter(move |l| mask >> l & 1 == 1)
    }

    /// The lane's number in the wave.
    pub fn name(&self, lane: usize) -> Option<u32> {
        Some((self.half * 32 + lane) as u32)
    }

    /// All 32 take part and each is `step` bytes behind the one before.
    #[inline]
    pub fn neighbours(&self, step: u64) -> bool {
        let first = self.addr[0];
        let mut same = self.mask == u32::MAX;
        for (l, &a) in self.addr.iter().enumerate() {
            same &= a == first.wrapping_add(l as u64 * step);
        }
        same
    }

    /// Lowest and highest address of those that take part (one does, at least).
    #[inline]
    pub fn span(&self) -> (u64, u64) {
        let (mut low, mut high) = (u64::MAX, 0);
        for (l, &a) in self.addr.iter().enumerate() {
            let on = self.mask >> l & 1 == 1;
            low = low.min(if on { a } else { u64::MAX });
            high = high.max(if on { a } else { 0 });
        }
        (low, high)
    }
}

/// Loads `BYTES` of each lane, dword `k` of lane `l` into `out[k][l]`; fewer than 4 bytes are zero extended.
#[inline]
pub(crate) fn load<M: Memory, const BYTES: usize>(
    env: &mut Env<M>,
    lanes: Lanes,
    out: &mut Data,
) -> Result<(), Box<Fault>> {
    if lanes.mask == 0 {
        return Ok(());
    }
    env.touch(lanes, BYTES as u32);
    let (low, high) = lanes.span();
    let bytes = (high - low).saturating_add(BYTES as u64);
    let Some(region) = region(env, lanes, Kind::Load, low, bytes, BYTES)? else {
        for l in lanes.each() {
            let region = lane_region(env, lanes, Kind::Load, l, BYTES)?;
            let mut one = [0; BYTES];
            env.memory.read(&region, lanes.addr[l], &mut one);
            spread(&one, out, l);
        }
        return Ok(());
    };
    if lanes.neighbours(BYTES as u64) {
        let mut all = [[0; BYTES]; 32];
        env.memory.read(&region, low, all.as_flattened_mut());
        for (l, one) in all.iter().enumerate() {
            spread(one, out, l);
        }
    } else if low == high {
        let mut one = [0; BYTES];
        env.memory.read(&region, low, &mut one);
        for l in 0..32 {
            spread(&one, out, l);
        }
    } else if bytes <= 256 {
        window::<M, BYTES, 256>(env, &region, lanes, low, bytes as usize, out);
    } else if bytes <= 1024 {
        window::<M, BYTES, 1024>(env, &region, lanes, low, bytes as usize, out);
    } else {
        for l in lanes.each() {
            let mut one = [0; BYTES];
            env.memory.read(&region, lanes.addr[l], &mut one);
            spread(&one, out, l);
        }
    }
    Ok(())
}

/// Reads all that lies between the lanes' addresses at once.
#[inline]
fn window<M: Memory, const BYTES: usize, const SIZE: usize>(
    env: &Env<M>,
    region: &Region,
    lanes: Lanes,
    low: u64,
    bytes: usize,
    out: &mut Data,
) {
    let mut window = [0; SIZE];
    env.memory.read(region, low, &mut window[..bytes]);
    for l in lanes.each() {
        let at = (lanes.addr[l] - low) as usize;
        let one: [u8; BYTES] = window[at..at + BYTES].try_into().expect("BYTES of them");
        spread(&one, out, l);
    }
}

/// A lane's bytes as dwords.
#[inline(always)]
fn spread<const BYTES: usize>(one: &[u8; BYTES], out: &mut Data, lane: usize) {
    match BYTES {
        1 => out[0][lane] = u32::from(one[0]),
        2 => out[0][lane] = u32::from(one[0]) | u32::from(one[1]) << 8,
        _ => {
            for (k, dword) in one.chunks_exact(4).enumerate() {
                out[k][lane] = u32::from_le_bytes(dword.try_into().expect("4 bytes"));
            }
        }
    }
}

/// Stores `BYTES` of each lane from `data[k][l]`. Where lanes meet, the highest is the one that stays.
#[inline]
pub(crate) fn store<M: Memory, const BYTES: usize>(
    env: &mut Env<M>,
    lanes: Lanes,
    data: &Data,
) -> Result<(), Box<Fault>> {
    if lanes.mask == 0 {
        return Ok(());
    }
    env.touch(lanes, BYTES as u32);
    let (low, high) = lanes.span();
    let bytes = (high - low).saturating_add(BYTES as u64);
    let region = region(env, lanes, Kind::Store, low, bytes, BYTES)?;
    if let Some(region) = region
        && lanes.neighbours(BYTES as u64)
    {
        let mut all = [[0; BYTES]; 32];
        for (l, one) in all.iter_mut().enumerate() {
            *one = collect(data, l);
        }
        env.memory.write(&region, low, all.as_flattened());
        return Ok(());
    }
    if region.is_none() {
        // No lane writes where one of them faults.
        for l in lanes.each() {
            lane_region(env, lanes, Kind::Store, l, BYTES)?;
        }
    }
    for l in lanes.each() {
        let region = match region {
            Some(region) => region,
            None => lane_region(env, lanes, Kind::Store, l, BYTES)?,
        };
        env.memory.write(&region, lanes.addr[l], &collect::<BYTES>(data, l));
    }
    Ok(())
}

/// A lane's dwords as bytes.
#[inline(always)]
fn collect<const BYTES: usize>(data: &Data, lane: usize) -> [u8; BYTES] {
    let mut one = [0; BYTES];
    for (k, dword) in one.chunks_mut(4).enumerate() {
        dword.copy_from_slice(&data[k][lane].to_le_bytes()[..dword.len()]);
    }
    one
}

/// Each lane in turn replaces its 32 or 64 bits by `f(lane, old)`; the old bits come back in `out`.
pub(crate) fn atomic<M: Memory>(
    env: &mut Env<M>,
    lanes: Lanes,
    wide: bool,
    out: &mut Data,
    f: impl Fn(usize, u64) -> u64,
) -> Result<(), Box<Fault>> {
    let bytes = if wide { 8 } else { 4 };
    env.touch(lanes, bytes as u32);
    for l in lanes.each() {
        let address = lanes.addr[l];
        // Memory's atomic units take naturally aligned addresses only, in every mode.
        if !address.is_multiple_of(bytes as u64) {
            return Err(Fault::strict(lanes.name(l), Finding::Misaligned { address, bytes: bytes as u32 }));
        }
        lane_region(env, lanes, Kind::Atomic, l, bytes)?;
    }
    for l in lanes.each() {
        let region = lane_region(env, lanes, Kind::Atomic, l, bytes)?;
        let old = if wide {
            env.memory.update64(&region, lanes.addr[l], |old| f(l, old))
        } else {
            u64::from(env.memory.update32(&region, lanes.addr[l], |old| f(l, u64::from(old)) as u32))
        };
        out[0][l] = old as u32;
        out[1][l] = (old >> 32) as u32;
    }
    Ok(())
}

/// The region that holds all lanes' accesses, if one does.
#[inline]
fn region<M: Memory>(
    env: &mut Env<M>,
    lanes: Lanes,
    kind: Kind,
    low: u64,
    bytes: u64,
    each: usize,
) -> Result<Option<Region>, Box<Fault>> {
    let Some(region) = env.regions.find(env.memory, low, bytes) else { return Ok(None) };
    if region.readonly || env.strict {
        let lane = lanes.each().next().unwrap_or(0);
        admit(env, &region, lanes, kind, lane, each)?;
    }
    Ok(Some(region))
}

/// The region of a lane's access.
fn lane_region<M: Memory>(
    env: &mut Env<M>,
    lanes: Lanes,
    kind: Kind,
    lane: usize,
    bytes: usize,
) -> Result<Region, Box<Fault>> {
    let address = lanes.addr[lane];
    let Some(region) = env.regions.find(env.memory, address, bytes as u64) else {
        return Err(Fault::memory(lanes.name(lane), address, bytes as u32, kind != Kind::Load));
    };
    admit(env, &region, lanes, kind, lane, bytes)?;
    Ok(region)
}

/// What every kernel does to fine-grained memory: it reads its arguments and its packet. The runtime's own copies may also
/// read and write it otherwise.
fn excused<M: Memory>(env: &Env<M>, region: &Region, kind: Kind) -> bool {
    let dispatch = env.dispatch;
    let own = || [dispatch.kernarg, dispatch.packet].into_iter().any(|address| region.holds(address, 1));
    kind != Kind::Atomic && dispatch.trusted_copies || kind == Kind::Load && own()
}

/// Whether the card may do this there: the strict one refuses what an RDNA1 board has no way to do right.
fn admit<M: Memory>(
    env: &Env<M>,
    region: &Region,
    lanes: Lanes,
    kind: Kind,
    lane: usize,
    bytes: usize,
) -> Result<(), Box<Fault>> {
    let address = lanes.addr[lane];
    if region.readonly && kind != Kind::Load {
        return Err(Fault::memory(lanes.name(lane), address, bytes as u32, true));
    }
    if env.strict && region.host && kind == Kind::Atomic {
        return Err(Fault::strict(lanes.name(lane), Finding::HostAtomic { address }));
    }
    if env.strict && region.coherent && !excused(env, region, kind) {
        return Err(Fault::strict(lanes.name(lane), Finding::FineGrained { address }));
    }
    Ok(())
}
