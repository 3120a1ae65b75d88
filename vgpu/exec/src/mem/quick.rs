//! The usual accesses quickly, whole dwords: to LDS where all lie inside it, to memory where all 32
//! lanes are on and lie side by side in eights.

use super::{ADDR, BASE, DATA, vector};
use crate::args::Args;
use crate::env::Env;
use crate::{Memory, Region, Register, Row, Src, Wave};

/// Lanes over which tiled kernels' access patterns repeat.
const EIGHT: usize = 8;

/// How the lanes' addresses follow each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pattern {
    /// One address for each eight.
    Same,
    /// One behind the other in each eight.
    Neighbours,
    Any,
}

/// Each eight's first lane.
#[inline(always)]
fn leaders(row: &Row) -> [u32; 4] {
    [row[0], row[8], row[16], row[24]]
}

/// The pattern of accesses of `N` dwords, and whether one of them, `offset` bytes on, has one of the `low` bits or
/// is beyond `last`.
#[inline(always)]
fn survey<const N: usize>(row: &Row, offset: u32, low: u32, last: u32) -> (Pattern, bool) {
    let mut first = Register([0; 32]);
    for (eight, leader) in first.as_chunks_mut::<EIGHT>().0.iter_mut().zip(leaders(row)) {
        eight.fill(leader);
    }
    let [moved, gaps, wrong] = compare::<N>(row, &first, offset, low, last);
    let pattern = match (moved, gaps) {
        (0, _) => Pattern::Same,
        (_, 0) => Pattern::Neighbours,
        _ => Pattern::Any,
    };
    (pattern, wrong != 0)
}

/// The loop alone in its function: so LLVM makes vectors of all of it.
#[inline(never)]
fn compare<const N: usize>(row: &Row, first: &Row, offset: u32, low: u32, last: u32) -> [u32; 3] {
    let (mut moved, mut gaps, mut wrong) = (0, 0, 0);
    for l in 0..32 {
        let distance = row[l].wrapping_sub(first[l]);
        moved |= distance;
        gaps |= distance ^ (4 * N * (l % EIGHT)) as u32;
        let a = row[l].wrapping_add(offset);
        wrong |= a & low | u32::from(a > last);
    }
    [moved, gaps, wrong]
}

/// The dwords of LDS at which the lanes' accesses start.
pub(super) enum Places {
    /// Each eight's.
    Same([u32; 4]),
    /// Each eight's first lane's; the others' follow.
    Neighbours([u32; 4]),
    /// Those of the lanes that are on.
    Any(Row),
}

/// Where accesses of `N` dwords a lane go. `None`: the usual way is not open.
#[inline(always)]
pub(super) fn places<M, const N: usize>(wave: &Wave, env: &Env<M>, addr: Src, offset: u32) -> Option<Places> {
    if env.touched.is_some() {
        return None;
    }
    let end = if env.lds.watched() { env.lds.bytes } else { 4 * env.lds.words.len() as u32 };
    let last = end.checked_sub(4 * N as u32)?;
    // What the strict card wants of more than one.
    let natural = env.lds.watched() && !env.lds.cu_mode;
    let low = if natural { (4 * N).next_power_of_two() as u32 - 1 } else { 3 };
    let row = vector(wave, addr, 0);
    let place = |a: u32| a.wrapping_add(offset) / 4;
    let exec = wave.exec();
    if exec != u32::MAX {
        let fits = |a: u32| a & low == 0 && a <= last;
        let all = on(exec).all(|l| fits(row[l].wrapping_add(offset)));
        return all.then(|| Places::Any(row.map(place)));
    }
    let (pattern, wrong) = survey::<N>(row, offset, low, last);
    (!wrong).then(|| match pattern {
        Pattern::Same => Places::Same(leaders(row).map(place)),
        Pattern::Neighbours => Places::Neighbours(leaders(row).map(place)),
        Pattern::Any => Places::Any(row.map(place)),
    })
}

/// The lanes of a mask.
#[inline(always)]
fn on(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |l| mask >> l & 1 == 1)
}

impl Places {
    /// Whether the strict card lets the wave read `N` dwords of each lane.
    #[inline(always)]
    pub(super) fn admit_read<M, const N: usize>(&self, env: &mut Env<M>, exec: u32) -> bool {
        let (lds, wave) = (&mut *env.lds, env.wave);
        match self {
            Self::Same(at) => lds.admit_reads(wave, || distinct(at), N),
            Self::Neighbours(at) => lds.admit_reads(wave, || distinct(at), EIGHT * N),
            Self::Any(at) => lds.admit_reads(wave, || on(exec).map(|l| at[l] as usize), N),
        }
    }

    /// Whether the strict card lets the wave write `rows`.
    pub(super) fn admit_write<M, const N: usize>(
        &self,
        env: &mut Env<M>,
        exec: u32,
        rows: &[Register; N],
    ) -> bool {
        on(exec).all(|l| {
            let at = match self {
                Self::Same(at) => at[l / EIGHT],
                Self::Neighbours(at) => at[l / EIGHT] + (l % EIGHT * N) as u32,
                Self::Any(at) => at[l],
            };
            (0..N).all(|k| env.lds.admit_write(env.wave, at as usize + k, rows[k][l]))
        })
    }
}

/// The first of four places, and those that are not the first or the second again.
#[inline(always)]
fn distinct(at: &[u32; 4]) -> impl Iterator<Item = usize> {
    let count = if at[1..] == [at[0]; 3] {
        1
    } else if at[..2] == at[2..] {
        2
    } else {
        4
    };
    at.map(|a| a as usize).into_iter().take(count)
}

/// `N` dwords of each lane from LDS into registers.
#[inline(always)]
pub(super) fn load<const N: usize>(words: &[u32], places: &Places, wave: &mut Wave, dst: usize) {
    let exec = wave.exec();
    let first = wave.half * wave.vgprs + dst;
    let rows = wave.vgpr[first..].first_chunk_mut::<N>().expect("registers that the wave has");
    match places {
        Places::Same(at) => {
            for (&at, lanes) in at.iter().zip((0..32).step_by(EIGHT)) {
                let word: &[u32; N] = words[at as usize..].first_chunk().expect("inside");
                for (row, &word) in rows.iter_mut().zip(word) {
                    row[lanes..lanes + EIGHT].fill(word);
                }
            }
        }
        Places::Neighbours(at) => {
            // Tiled kernels' halves of a wave often read alike.
            let alike = at[..2] == at[2..];
            let eights = if alike { 2 } else { 4 };
            for (&at, lanes) in at.iter().zip((0..32).step_by(EIGHT)).take(eights) {
                let all = &words[at as usize..][..EIGHT * N];
                for (k, row) in rows.iter_mut().enumerate() {
                    for (l, to) in row[lanes..lanes + EIGHT].iter_mut().enumerate() {
                        *to = all[N * l + k];
                    }
                }
            }
            if alike {
                for row in rows {
                    let (low, high) = row.split_at_mut(16);
                    high.copy_from_slice(low);
                }
            }
        }
        Places::Any(at) => {
            for l in on(exec) {
                let word: &[u32; N] = words[at[l] as usize..].first_chunk().expect("inside");
                for (row, &word) in rows.iter_mut().zip(word) {
                    row[l] = word;
                }
            }
        }
    }
}

/// The registers from `first` on.
#[inline(always)]
pub(super) fn registers<const N: usize>(wave: &Wave, first: usize) -> &[Register; N] {
    wave.vgpr[wave.half * wave.vgprs + first..].first_chunk().expect("registers that the wave has")
}

/// `N` dwords of each lane from registers to LDS; where lanes meet, the highest stays.
#[inline(always)]
pub(super) fn store<const N: usize>(words: &mut [u32], places: &Places, wave: &Wave, src: usize) {
    let rows: &[Register; N] = registers(wave, src);
    let mut one = |at: u32, l: usize| {
        let word: &mut [u32; N] = words[at as usize..].first_chunk_mut().expect("inside");
        for (to, row) in word.iter_mut().zip(rows) {
            *to = row[l];
        }
    };
    match places {
        Places::Same(at) => at.iter().zip((EIGHT - 1..32).step_by(EIGHT)).for_each(|(&at, l)| one(at, l)),
        Places::Any(at) => on(wave.exec()).for_each(|l| one(at[l], l)),
        Places::Neighbours(at) => {
            for (&at, lanes) in at.iter().zip((0..32).step_by(EIGHT)) {
                let all = &mut words[at as usize..][..EIGHT * N];
                for (k, row) in rows.iter().enumerate() {
                    for (l, &from) in row[lanes..lanes + EIGHT].iter().enumerate() {
                        all[N * l + k] = from;
                    }
                }
            }
        }
    }
}

/// Where in memory the lanes go, in eights.
struct Spots {
    /// Of each eight's first lane.
    first: [u64; 4],
    pattern: Pattern,
    /// Holds all of them.
    region: Region,
}

/// Where `N` dwords of each lane lie. `None`: the usual way is not open.
#[inline(always)]
fn spots<M: Memory, const N: usize>(wave: &Wave, env: &mut Env<M>, args: &Args) -> Option<Spots> {
    if wave.exec() != u32::MAX || env.touched.is_some() {
        return None;
    }
    let row = vector(wave, args.src[ADDR], 0);
    let (pattern, _) = survey::<N>(row, 0, 0, u32::MAX);
    if pattern == Pattern::Any {
        return None;
    }
    let base = if let Src::Sgpr(base) = args.src[BASE] {
        wave.scalar64(base)
    } else {
        let high = vector(wave, args.src[ADDR], 1);
        if high.iter().fold(0, |moved, h| moved | (h ^ high[0])) != 0 {
            return None;
        }
        u64::from(high[0]) << 32
    };
    let base = base.wrapping_add(i64::from(args.mem.offset) as u64);
    let at = leaders(row);
    let (low, high) = at.iter().fold((u32::MAX, 0), |(low, high), &a| (a.min(low), a.max(high)));
    // Distances that wrap are no neighbours.
    let end = high.checked_add((EIGHT * 4 * N) as u32)?;
    let all = if pattern == Pattern::Same { high - low + 4 * N as u32 } else { end - low };
    let region = env.regions.find(env.memory, base.wrapping_add(u64::from(low)), u64::from(all))?;
    let first = at.map(|a| base.wrapping_add(u64::from(a)));
    let suits = !(env.strict && region.coherent);
    suits.then_some(Spots { first, pattern, region })
}

/// `N` dwords of each lane from memory into registers.
#[inline(always)]
pub(super) fn from_memory<M: Memory, const N: usize>(wave: &mut Wave, env: &mut Env<M>, args: &Args) -> bool {
    let Some(Spots { first, pattern, region }) = spots::<M, N>(wave, env, args) else { return false };
    let mut all = [[[[0; 4]; N]; EIGHT]; 4];
    match pattern {
        Pattern::Same => {
            for (eight, addr) in all.iter_mut().zip(first) {
                env.memory.read(&region, addr, eight[0].as_flattened_mut());
                *eight = [eight[0]; EIGHT];
            }
        }
        _ if in_a_row::<N>(first) => {
            let all = all.as_flattened_mut().as_flattened_mut().as_flattened_mut();
            env.memory.read(&region, first[0], all);
        }
        _ => {
            for (eight, addr) in all.iter_mut().zip(first) {
                env.memory.read(&region, addr, eight.as_flattened_mut().as_flattened_mut());
            }
        }
    }
    let dst = wave.half * wave.vgprs + usize::from(args.dst);
    let rows = wave.vgpr[dst..].first_chunk_mut::<N>().expect("registers that the wave has");
    for (k, row) in rows.iter_mut().enumerate() {
        for (to, lane) in row.iter_mut().zip(all.as_flattened()) {
            *to = u32::from_le_bytes(lane[k]);
        }
    }
    true
}

/// Whether each eight follows the one before.
#[inline(always)]
fn in_a_row<const N: usize>(first: [u64; 4]) -> bool {
    let gap = (EIGHT * 4 * N) as u64;
    first.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == gap)
}

/// `N` dwords of each lane from registers to memory.
#[inline(always)]
pub(super) fn to_memory<M: Memory, const N: usize>(wave: &Wave, env: &mut Env<M>, args: &Args) -> bool {
    let Src::Vgpr(src) = args.src[DATA] else { return false };
    let Some(Spots { first, pattern, region }) = spots::<M, N>(wave, env, args) else { return false };
    if region.readonly || pattern != Pattern::Neighbours {
        return false;
    }
    let rows: &[Register; N] = registers(wave, usize::from(src));
    let mut all = [[[[0; 4]; N]; EIGHT]; 4];
    for (k, row) in rows.iter().enumerate() {
        for (lane, value) in all.as_flattened_mut().iter_mut().zip(row.iter()) {
            lane[k] = value.to_le_bytes();
        }
    }
    if in_a_row::<N>(first) {
        let all = all.as_flattened().as_flattened().as_flattened();
        env.memory.write(&region, first[0], all);
    } else {
        for (eight, addr) in all.iter().zip(first) {
            env.memory.write(&region, addr, eight.as_flattened().as_flattened());
        }
    }
    true
}
