//! Every scalar memory operation against bytes read and written by the test itself.

use crate::common;

use common::{Bench, assemble, have, random_wave, rng};
use rand::{Rng, rngs::StdRng};
use std::collections::BTreeSet;
use wave32_exec::{HeapMemory, Signals, Solo, Stop};
use wave32_isa::{Form, Opcode};

/// Bytes of the memory that operations work on.
const BYTES: u32 = 1024;
const ROUNDS: usize = 40;

fn operations() -> impl Iterator<Item = Opcode> {
    Opcode::ALL.iter().copied().filter(|op| op.row().form == Form::Smem)
}

/// Scratch by scalar instructions: no compiler emits them, and they stop as not implemented.
fn is_missing(op: Opcode) -> bool {
    op.name().starts_with("s_scratch")
}

/// Caches: nothing to be seen.
const CACHES: &[&str] = &[
    "s_dcache_inv",
    "s_dcache_wb",
    "s_gl1_inv",
    "s_dcache_discard",
    "s_dcache_discard_x2",
    "s_atc_probe",
    "s_atc_probe_buffer",
];
const CLOCKS: &[&str] = &["s_memtime", "s_memrealtime", "s_get_waveid_in_workgroup"];

/// Dwords that an operation moves, by its name.
fn dwords(name: &str) -> usize {
    // The digits behind an x; `s_atomic_xor` has none.
    name.rsplit_once('x').and_then(|(_, n)| n.parse().ok()).unwrap_or(1)
}

fn sgprs(first: usize, count: usize) -> String {
    if count == 1 { format!("s{first}") } else { format!("s[{first}:{}]", first + count - 1) }
}

/// What the manual's pseudo-code makes of `old` (RDNA ISA 12.16): `src` and `compare` are SDATA's halves.
fn atomic(name: &str, wide: bool, old: u64, src: u64, compare: u64) -> u64 {
    let max = if wide { u64::MAX } else { u64::from(u32::MAX) };
    let int = |v: u64| if wide { i128::from(v as i64) } else { i128::from(v as u32 as i32) };
    let modulus = i128::from(max) + 1;
    let wrapped = |v: i128| v.rem_euclid(modulus) as u64;
    match name {
        "swap" => src,
        "cmpswap" if old == compare => src,
        "cmpswap" => old,
        "add" => wrapped(i128::from(old) + i128::from(src)),
        "sub" => wrapped(i128::from(old) - i128::from(src)),
        "smin" if int(src) < int(old) => src,
        "smax" if int(src) > int(old) => src,
        "umin" if src < old => src,
        "umax" if src > old => src,
        "smin" | "smax" | "umin" | "umax" => old,
        "and" => old & src,
        "or" => old | src,
        "xor" => old ^ src,
        "inc" => {
            if old >= src {
                0
            } else {
                old + 1
            }
        }
        "dec" => {
            if old == 0 || old > src {
                src
            } else {
                old - 1
            }
        }
        other => panic!("no model of {other}"),
    }
}

/// A try of one operation: text, and what the text does not say.
struct Case {
    op: Opcode,
    text: String,
    buffer: bool,
    soffset: bool,
    imm: i32,
    glc: bool,
}

fn case(op: Opcode, rng: &mut StdRng) -> Case {
    let name = op.name();
    let buffer = name.starts_with("s_buffer");
    let data = dwords(name) * if name.contains("cmpswap") { 2 } else { 1 };
    let soffset = rng.random();
    let imm = if soffset { 0 } else { rng.random_range(0..48) * 4 + rng.random_range(0..4) };
    // LLVM writes one of the two offsets for gfx10; both at once are tried by hand below.
    let offset = if soffset { "s20".to_string() } else { format!("{imm:#x}") };
    let glc = op.is_atomic() && rng.random();
    let base = if buffer { "s[12:15]" } else { "s[12:13]" };
    let text = format!("{name} {}, {base}, {offset}{}", sgprs(32, data), if glc { " glc" } else { "" });
    Case { op, text, buffer, soffset, imm, glc }
}

fn words_of(memory: &HeapMemory, at: u64) -> Vec<u32> {
    memory.load_words(at, BYTES as usize / 4)
}

#[test]
fn loads_stores_and_atomics() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let rng = &mut rng();
    let others = |op: &Opcode| is_missing(*op) || CACHES.contains(&op.name()) || CLOCKS.contains(&op.name());
    let operations: Vec<Opcode> = operations().filter(|op| !others(op)).collect();
    let cases: Vec<Case> =
        operations.iter().flat_map(|op| vec![*op; ROUNDS]).map(|op| case(op, rng)).collect();
    let codes = assemble(&cases.iter().map(|c| c.text.clone()).collect::<Vec<_>>(), false);
    let mut bench = Bench::new();
    let at = bench.memory.alloc(u64::from(BYTES));
    let mut tested = BTreeSet::new();
    for (case, code) in cases.iter().zip(codes) {
        let (text, name) = (&case.text, case.op.name());
        let before: Vec<u32> = (0..BYTES / 4).map(|_| common::bits(rng)).collect();
        bench.memory.store(at, &before.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>());
        let mut solo = random_wave(rng, false);
        let wide = case.op.is_atomic() && dwords(name) == 2;
        let base = at + 8 * rng.random_range(0..8);
        let mut soffset = rng.random_range(0..200);
        if case.op.is_atomic() {
            soffset &= !7;
        }
        solo.wave.sgpr[20] = soffset;
        // Records of 16 bytes, or bytes; many accesses go past the end.
        let stride = if rng.random() { 16 } else { 0 };
        let records = rng.random_range(0..24) * if stride == 0 { 16 } else { 1 };
        solo.wave.sgpr[12] = base as u32;
        solo.wave.sgpr[13] = (base >> 32) as u32 | if case.buffer { stride << 16 } else { 0 };
        if case.buffer {
            (solo.wave.sgpr[14], solo.wave.sgpr[15]) = (records, rng.random());
        }
        let size = u64::from(records * stride.max(1));
        let offset = if case.soffset { u64::from(soffset) } else { case.imm as u64 } & !3;
        let place = base + offset - at;
        if wide && !place.is_multiple_of(8) {
            continue; // faults, below
        }
        let sgpr = solo.wave.sgpr;
        let mut expected = sgpr;
        let mut memory = before.clone();
        let inside = |i: usize, bytes: u64| !case.buffer || offset + 4 * i as u64 + bytes <= size;
        let word = |i: usize| place as usize / 4 + i;
        let pair = |words: &[u32], i: usize| u64::from(words[i]) | u64::from(words[i + 1]) << 32;
        if case.op.is_atomic() {
            let (_, verb) = name.split_once("atomic_").expect("an atomic");
            let verb = verb.trim_end_matches("_x2");
            let (old, src, compare) = if wide {
                (pair(&before, word(0)), pair(&sgpr, 32), pair(&sgpr, 34))
            } else {
                (u64::from(before[word(0)]), u64::from(sgpr[32]), u64::from(sgpr[33]))
            };
            let hit = inside(0, if wide { 8 } else { 4 });
            let new = atomic(verb, wide, old, src, compare);
            let count = if wide { 2 } else { 1 };
            for i in 0..count {
                if hit {
                    memory[word(i)] = (new >> (32 * i)) as u32;
                }
                if case.glc {
                    expected[32 + i] = if hit { (old >> (32 * i)) as u32 } else { 0 };
                }
            }
        } else {
            for i in 0..dwords(name) {
                if name.contains("load") {
                    expected[32 + i] = if inside(i, 4) { before[word(i)] } else { 0 };
                } else if inside(i, 4) {
                    memory[word(i)] = sgpr[32 + i];
                }
            }
        }
        let scc = solo.wave.scc;
        bench.run(&code, &mut solo).unwrap_or_else(|stop| panic!("{text}: {stop}"));
        assert_eq!(solo.wave.sgpr, expected, "{text} base +{} offset {offset} of {size}", base - at);
        assert_eq!(
            words_of(&bench.memory, at),
            memory,
            "{text} base +{} offset {offset} of {size}",
            base - at
        );
        assert_eq!(solo.wave.scc, scc);
        tested.insert(case.op);
    }
    let missing = self::operations().filter(|op| is_missing(*op)).count();
    assert_eq!(tested.len() + missing + CACHES.len() + CLOCKS.len(), self::operations().count());
}

/// Constant and SGPR offset together, negative constants: not what LLVM's assembler writes for gfx10.
#[test]
fn both_offsets_add_up() {
    let mut bench = Bench::new();
    let at = bench.memory.alloc_words(&(0..64).collect::<Vec<_>>());
    let mut solo = random_wave(&mut rng(), false);
    (solo.wave.sgpr[12], solo.wave.sgpr[13]) = (at as u32, (at >> 32) as u32);
    solo.wave.sgpr[20] = 100;
    // s_load_dword s32, s[12:13], s20 offset:-40
    let code = [0xf400_0000 | 32 << 6 | 6, 20 << 25 | (-40i32 as u32 & 0x1f_ffff)];
    bench.run(&code, &mut solo).expect("runs");
    assert_eq!(solo.wave.sgpr[32], (100 - 40) / 4);
}

#[test]
fn what_is_not_allocated_faults() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let mut bench = Bench::new();
    let at = bench.memory.alloc(64);
    let readonly = bench.memory.alloc_as(64, |r| r.readonly = true);
    let lines = [
        "s_load_dwordx2 s[32:33], s[12:13], 0x3c",
        "s_store_dword s32, s[12:13], 0x0",
        "s_atomic_add_x2 s[32:33], s[12:13], 0x4",
    ]
    .map(String::from);
    let codes = assemble(&lines, false);
    let try_at = |code: &[u32], base: u64| {
        let mut solo = random_wave(&mut rng(), false);
        (solo.wave.sgpr[12], solo.wave.sgpr[13]) = (base as u32, (base >> 32) as u32);
        bench.run(code, &mut solo).expect_err("a fault")
    };
    let expect = |stop: Stop, at: u64, size: u32, writes: bool| match stop {
        Stop::MemoryFault { address, bytes, write, .. } => {
            assert_eq!((address, bytes, write), (at, size, writes));
        }
        other => panic!("{other}"),
    };
    expect(try_at(&codes[0], at), at + 0x3c, 8, false);
    expect(try_at(&codes[1], readonly), readonly, 4, true);
    expect(try_at(&codes[2], at), at + 4, 8, true); // not aligned
}

struct Clock;

impl Signals for Clock {
    fn realtime(&self) -> u64 {
        0x1234_5678_9abc
    }
}

#[test]
fn clocks_caches_and_ids() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let lines = [
        "s_memtime s[32:33]",
        "s_memrealtime s[34:35]",
        "s_get_waveid_in_workgroup s36",
        "s_dcache_inv",
        "s_dcache_wb",
        "s_gl1_inv",
        "s_dcache_discard s[4:5], 0x10",
        "s_dcache_discard_x2 s[4:5], 0x10",
        "s_atc_probe 8, s[4:5], 0x10",
        "s_atc_probe_buffer 8, s[4:7], 0x10",
    ]
    .map(String::from);
    assert_eq!(lines.len(), CACHES.len() + CLOCKS.len());
    let mut words = assemble(&lines, false).concat();
    words.push(0xbf81_0000);
    let mut bench = Bench::new();
    let code = bench.memory.alloc_words(&words);
    let mut solo: Solo = random_wave(&mut rng(), false);
    solo.wave.hardware.wave = 3;
    let mut expected = solo.wave.sgpr;
    expected[32..37].copy_from_slice(&[0x6789_abc0, 0x0001_2345, 0x5678_9abc, 0x1234, 3]);
    bench.executor.run_wave(&bench.memory, code, &mut solo, &bench.options, &Clock).expect("runs");
    assert_eq!(solo.wave.sgpr, expected);
}
