//! FLAT, GLOBAL and SCRATCH against the model, all addressing modes.

use super::machine::*;
use crate::common::{assemble, have, rng};
use rand::{Rng, rngs::StdRng};
use wave32_exec::{PRIVATE_BASE, SHARED_BASE};

/// Registers of the tests: addresses v[0:1] or v2 with s[8:9], data from v4 on, results from v16 on.
const DATA: usize = 4;
const DST: usize = 16;

/// How an instruction finds its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// `v[0:1], off` with an offset.
    Wide,
    /// `v2, s[8:9]` with an offset.
    Scalar,
    /// FLAT: `v[0:1]`; to memory, LDS or scratch.
    Flat(Space),
    /// FLAT with lanes going everywhere.
    Mixed,
    /// SCRATCH: `v2, off`, `off, s10`.
    Vector,
    Uniform,
}

/// Where lane `l` goes.
type Places = Vec<(Space, u64)>;

/// Sets the address registers up.
fn place(rng: &mut StdRng, m: &mut Machine, mode: Mode, spread: Spread, bytes: usize, offset: i64) -> Places {
    let mut room = |space| match space {
        Space::Memory => spread.offsets(rng, m.lanes, bytes, MEMORY),
        Space::Lds => spread.offsets(rng, m.lanes, bytes, LDS),
        // A lane's own: lanes may well use the same offset.
        Space::Scratch if spread == Spread::Neighbours => Spread::Same.offsets(rng, m.lanes, bytes, SCRATCH),
        Space::Scratch => spread.offsets(rng, m.lanes, bytes, SCRATCH),
    };
    let (memory, local, private) = (room(Space::Memory), room(Space::Lds), room(Space::Scratch));
    let base = m.base;
    let saddr = base - 4000;
    let mut places = Vec::new();
    for l in 0..m.lanes {
        let space = match mode {
            Mode::Wide | Mode::Scalar => Space::Memory,
            Mode::Flat(space) => space,
            Mode::Mixed => [Space::Memory, Space::Lds, Space::Scratch][rng.random_range(0..3)],
            Mode::Vector | Mode::Uniform => Space::Scratch,
        };
        let at = match space {
            Space::Memory => base + memory[l],
            Space::Lds => local[l],
            Space::Scratch if mode == Mode::Uniform => private[0],
            Space::Scratch => private[l],
        };
        let before = at.wrapping_sub(offset as u64);
        match (mode, space) {
            (Mode::Wide, _) => m.set_pair(0, l, before),
            (Mode::Scalar, _) => m.vgpr[2][l] = before.wrapping_sub(saddr) as u32,
            // Memory does not see FLAT's offset on gfx10.1; the low half of an aperture's address wraps.
            (Mode::Flat(_) | Mode::Mixed, Space::Memory) => m.set_pair(0, l, at),
            (Mode::Flat(_) | Mode::Mixed, Space::Lds) => {
                m.set_pair(0, l, SHARED_BASE | u64::from(before as u32))
            }
            (Mode::Flat(_) | Mode::Mixed, Space::Scratch) => {
                m.set_pair(0, l, PRIVATE_BASE | u64::from(before as u32));
            }
            (Mode::Vector, _) => m.vgpr[2][l] = before as u32,
            (Mode::Uniform, _) => m.sgpr[10] = before as u32,
        }
        places.push((space, at));
    }
    (m.sgpr[8], m.sgpr[9]) = (saddr as u32, (saddr >> 32) as u32);
    places
}

/// The address operands in the text: before and behind the data.
fn address(mode: Mode) -> (&'static str, &'static str) {
    match mode {
        Mode::Wide => ("v[0:1]", ", off"),
        Mode::Scalar => ("v2", ", s[8:9]"),
        Mode::Flat(_) | Mode::Mixed => ("v[0:1]", ""),
        Mode::Vector => ("v2", ", off"),
        Mode::Uniform => ("off", ", s10"),
    }
}

fn registers(first: usize, dwords: usize) -> String {
    if dwords == 1 { format!("v{first}") } else { format!("v[{first}:{}]", first + dwords - 1) }
}

const SEGMENTS: [(&str, &[Mode]); 3] = [
    ("flat", &[Mode::Flat(Space::Memory), Mode::Flat(Space::Lds), Mode::Flat(Space::Scratch), Mode::Mixed]),
    ("global", &[Mode::Wide, Mode::Scalar]),
    ("scratch", &[Mode::Vector, Mode::Uniform]),
];

fn offset(rng: &mut StdRng, segment: &str) -> i64 {
    match rng.random_range(0..3) {
        0 => 0,
        _ if segment == "flat" => rng.random_range(0..2048),
        _ => rng.random_range(-2048..2048),
    }
}

/// Operations that these tests run.
pub fn tested() -> Vec<String> {
    let mut all = Vec::new();
    for (segment, _) in SEGMENTS {
        all.extend(LOADS.map(|load| format!("{segment}_load_{}", load.0)));
        all.extend(STORES.map(|store| format!("{segment}_store_{}", store.0)));
        if segment != "scratch" {
            all.extend(ATOMICS.map(|a| format!("{segment}_atomic_{}", a.0)));
            all.extend(ATOMICS.map(|a| format!("{segment}_atomic_{}_x2", a.0)));
        }
    }
    all
}

/// Every mode and spread, with a fresh offset: `text(segment, mode, offset)` is run on 32 and 64 lanes.
fn sweep(
    spreads: &[Spread],
    bytes: usize,
    text: impl Fn(&str, Mode, &str) -> String,
    model: impl Fn(&mut Machine, &Places),
    prepare: impl Fn(&mut StdRng, &mut Machine),
) {
    let mut rng = rng();
    let card = Card::new();
    for wave64 in [false, true] {
        let mut cases = Vec::new();
        for (segment, modes) in SEGMENTS {
            for &mode in modes {
                for &spread in spreads {
                    let offset = offset(&mut rng, segment);
                    let line = text(segment, mode, &format!("offset:{offset}"));
                    if !line.is_empty() {
                        cases.push((line, mode, spread, offset));
                    }
                }
            }
        }
        let lines: Vec<String> = cases.iter().map(|c| c.0.clone()).collect();
        for ((line, mode, spread, offset), code) in cases.into_iter().zip(assemble(&lines, wave64)) {
            let mut m = card.machine(&mut rng, wave64);
            prepare(&mut rng, &mut m);
            let places = place(&mut rng, &mut m, mode, spread, bytes, offset);
            card.check(&format!("{line} {spread:?}"), &m, &code, |m| model(m, &places));
        }
    }
}

#[test]
fn loads() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    for load in LOADS {
        let text = |segment: &str, mode, offset: &str| {
            let (before, behind) = address(mode);
            let dst = registers(DST, load.1.div_ceil(4));
            format!("{segment}_load_{} {dst}, {before}{behind} {offset}", load.0)
        };
        sweep(&SPREADS, load.1, text, |m, places| model_load(m, load, DST, |l| places[l]), |_, _| {});
    }
}

#[test]
fn stores() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    for store in STORES {
        let text = |segment: &str, mode, offset: &str| {
            let (before, behind) = address(mode);
            let data = registers(DATA, store.1.div_ceil(4));
            format!("{segment}_store_{} {before}, {data}{behind} {offset}", store.0)
        };
        sweep(&SPREADS, store.1, text, |m, places| model_store(m, store, DATA, |l| places[l]), |_, _| {});
    }
}

#[test]
fn atomics() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    for (name, f) in ATOMICS {
        for bits in [32, 64] {
            for returns in [false, true] {
                atomic(name, f, bits, returns);
            }
        }
    }
}

fn atomic(name: &str, f: Change, bits: u32, returns: bool) {
    let dwords = bits as usize / 32;
    let pair = name.ends_with("cmpswap");
    let text = |segment: &str, mode, offset: &str| {
        if segment == "scratch" {
            return String::new();
        }
        let (before, behind) = address(mode);
        let dst = if returns { registers(DST, dwords) + ", " } else { String::new() };
        let data = registers(DATA, if pair { 2 * dwords } else { dwords });
        let x2 = if bits == 64 { "_x2" } else { "" };
        let glc = if returns { " glc" } else { "" };
        format!("{segment}_atomic_{name}{x2} {dst}{before}, {data}{behind} {offset}{glc}")
    };
    let operands = move |m: &Machine, l: usize| {
        let value = |r| if bits == 64 { m.pair(r, l) } else { u64::from(m.vgpr[r][l]) };
        (value(DATA), if pair { value(DATA + dwords) } else { 0 })
    };
    sweep(
        &SPREADS[..5],
        bits as usize / 8,
        text,
        |m, places| model_atomic(m, bits, f, returns.then_some(DST), |l| places[l], operands),
        |rng, m| {
            // Values that meet: comparisons hit, bounds are reached.
            let few = [0, 1, 5, 0x8000_0000, 0x3f80_0000, 0xbf80_0000, 0x7fc0_0000, u32::MAX];
            let mut some = || few[rng.random_range(0..few.len())];
            if some() % 2 == 0 {
                m.memory.chunks_exact_mut(4).for_each(|d| d.copy_from_slice(&some().to_le_bytes()));
                m.vgpr[DATA..DATA + 4].iter_mut().flatten().for_each(|v| *v = some());
            }
        },
    );
}

#[test]
fn faults_name_the_first_lane() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let mut rng = rng();
    let mut card = Card::new();
    let freed = card.bench.memory.alloc(4096);
    card.bench.memory.free(freed);
    let readonly = card.bench.memory.alloc_as(4096, |region| region.readonly = true);
    let lines =
        ["global_load_dword v16, v[0:1], off", "global_store_dwordx2 v[0:1], v[4:5], off"].map(String::from);
    for wave64 in [false, true] {
        let code = assemble(&lines, wave64);
        for lane in [0, 7, if wave64 { 45 } else { 31 }] {
            for (bad, write) in [(freed + 8, false), (card.base + MEMORY as u64 - 2, false), (readonly, true)]
            {
                let mut m = card.machine(&mut rng, wave64);
                m.exec = if wave64 { u64::MAX } else { u32::MAX.into() };
                (m.sgpr[126], m.sgpr[127]) = (m.exec as u32, (m.exec >> 32) as u32);
                for l in 0..m.lanes {
                    m.set_pair(0, l, if l == lane { bad } else { card.base + 16 });
                }
                let stop = card.run(&m, &code[usize::from(write)]).err().expect("a fault");
                let wave32_exec::Stop::MemoryFault { place, address, bytes, write: wrote } = stop else {
                    panic!("{stop:?}")
                };
                assert_eq!((place.lane, address, wrote), (Some(lane as u32), bad, write));
                assert_eq!(bytes, if write { 8 } else { 4 });
                let name = if write { "global_store_dwordx2 " } else { "global_load_dword " };
                assert!(place.instruction.starts_with(name), "{place}");
            }
        }
    }
}
