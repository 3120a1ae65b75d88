//! DS against the model.

use super::machine::*;
use crate::common::{assemble, have, rng};
use rand::{Rng, rngs::StdRng};

/// Registers: addresses v1, data v[4:7] and v[8:11], results from v16 on.
const ADDR: usize = 1;
const DATA: usize = 4;
const DATA2: usize = 8;
const DST: usize = 16;

const LOADS_DS: [(&str, &str); 14] = [
    ("u8", "ubyte"),
    ("i8", "sbyte"),
    ("u16", "ushort"),
    ("i16", "sshort"),
    ("b32", "dword"),
    ("b64", "dwordx2"),
    ("b96", "dwordx3"),
    ("b128", "dwordx4"),
    ("u8_d16", "ubyte_d16"),
    ("u8_d16_hi", "ubyte_d16_hi"),
    ("i8_d16", "sbyte_d16"),
    ("i8_d16_hi", "sbyte_d16_hi"),
    ("u16_d16", "short_d16"),
    ("u16_d16_hi", "short_d16_hi"),
];

const STORES_DS: [(&str, &str); 8] = [
    ("b8", "byte"),
    ("b16", "short"),
    ("b32", "dword"),
    ("b64", "dwordx2"),
    ("b96", "dwordx3"),
    ("b128", "dwordx4"),
    ("b8_d16_hi", "byte_d16_hi"),
    ("b16_d16_hi", "short_d16_hi"),
];

/// DS's atomics as LLVM names them without `_rtn`, and the model; `wrxchg` always returns.
fn atomics() -> Vec<(String, u32, Change, bool)> {
    let memory = |name: &str| ATOMICS.iter().find(|a| a.0 == name).expect("one of them").1;
    let mut all: Vec<(String, u32, Change, bool)> = Vec::new();
    for bits in [32, 64] {
        for (name, ty, of) in [
            ("add", 'u', "add"),
            ("sub", 'u', "sub"),
            ("inc", 'u', "inc"),
            ("dec", 'u', "dec"),
            ("min", 'i', "smin"),
            ("max", 'i', "smax"),
            ("min", 'u', "umin"),
            ("max", 'u', "umax"),
            ("and", 'b', "and"),
            ("or", 'b', "or"),
            ("xor", 'b', "xor"),
            ("min", 'f', "fmin"),
            ("max", 'f', "fmax"),
            ("wrxchg", 'b', "swap"),
        ] {
            all.push((format!("{name}%_{ty}{bits}"), bits, memory(of), false));
        }
        all.push((format!("rsub%_u{bits}"), bits, |n, old, a, _| ATOMICS[3].1(n, a, old, 0), false));
        // DS compares with its first operand.
        all.push((format!("cmpst%_b{bits}"), bits, |_, old, a, b| if old == a { b } else { old }, true));
        all.push((format!("cmpst%_f{bits}"), bits, |n, old, a, b| ATOMICS[13].1(n, old, b, a), true));
        all.push((format!("mskor%_b{bits}"), bits, |_, old, a, b| old & (u64::MAX ^ a) | b, true));
    }
    all.push((
        "wrap%_b32".into(),
        32,
        |_, old, a, b| (if old >= a { old - a } else { old + b }) % (1 << 32),
        true,
    ));
    all.push(("add%_f32".into(), 32, |_, old, a, _| add(old as u32, a as u32).into(), false));
    all
}

/// A sum of singles, rounded from the exact one of doubles where that is one (else the test has no opinion: NaN).
fn add(a: u32, b: u32) -> u32 {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    if x.is_nan() || y.is_nan() {
        return if x.is_nan() { a | 0x40_0000 } else { b | 0x40_0000 };
    }
    if x.is_infinite() && y == -x {
        return 0x7fc0_0000;
    }
    // The sum of two singles rounds to a double innocuously before it rounds to a single (Figueroa 1995).
    ((f64::from(x) + f64::from(y)) as f32).to_bits()
}

fn returns_only(name: &str) -> bool {
    name.starts_with("wrxchg") || name.starts_with("wrap")
}

/// Operations that these tests run.
pub fn tested() -> Vec<String> {
    let mut all = Vec::new();
    all.extend(LOADS_DS.map(|l| format!("ds_read_{}", l.0)));
    all.extend(STORES_DS.map(|s| format!("ds_write_{}", s.0)));
    for (name, ..) in atomics() {
        all.push(format!("ds_{}", name.replace('%', "_rtn")));
        if !returns_only(&name) {
            all.push(format!("ds_{}", name.replace('%', "")));
        }
    }
    for bits in [32, 64] {
        for st64 in ["", "st64"] {
            all.push(format!("ds_read2{st64}_b{bits}"));
            all.push(format!("ds_write2{st64}_b{bits}"));
            all.push(format!("ds_wrxchg2{st64}_rtn_b{bits}"));
        }
    }
    all.extend(from_lds().into_iter().map(|(name, ..)| name));
    let rest = [
        "append",
        "consume",
        "read_addtid_b32",
        "write_addtid_b32",
        "swizzle_b32",
        "permute_b32",
        "bpermute_b32",
        "nop",
    ];
    all.extend(rest.map(|name| format!("ds_{name}")));
    all
}

fn registers(first: usize, dwords: usize) -> String {
    if dwords == 1 { format!("v{first}") } else { format!("v[{first}:{}]", first + dwords - 1) }
}

/// LDS addresses for each lane into v1, less the offset; where they lead.
fn place(rng: &mut StdRng, m: &mut Machine, spread: Spread, bytes: usize, offset: u64) -> Vec<u64> {
    let at = spread.offsets(rng, m.lanes, bytes, LDS);
    for (l, at) in at.iter().enumerate() {
        m.vgpr[ADDR][l] = at.wrapping_sub(offset) as u32;
    }
    at
}

/// Values that meet, in LDS and data, or random ones.
fn few(rng: &mut StdRng, m: &mut Machine) {
    let few =
        [0, 1, 5, 0x8000_0000, 0x3f80_0000, 0xbf80_0000, 0x7fc0_0000, 0x7f80_0000, 0x0000_0001, u32::MAX];
    let mut some = || few[rng.random_range(0..few.len())];
    if some() % 2 == 0 {
        m.lds.chunks_exact_mut(4).for_each(|d| d.copy_from_slice(&some().to_le_bytes()));
        m.vgpr[DATA..DATA2 + 4].iter_mut().flatten().for_each(|v| *v = some());
    }
}

/// Runs lines on both wave sizes; `check` gets each with its code.
fn each(lines: &[String], mut check: impl FnMut(&mut StdRng, &Card, bool, usize, &[u32])) {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let mut rng = rng();
    let card = Card::new();
    for wave64 in [false, true] {
        for (i, code) in assemble(lines, wave64).iter().enumerate() {
            for _ in 0..3 {
                check(&mut rng, &card, wave64, i, code);
            }
        }
    }
}

#[test]
fn loads() {
    let lines = LOADS_DS.map(|(name, memory)| {
        let load = LOADS.into_iter().find(|l| l.0 == memory).expect("one of them");
        format!("ds_read_{name} {}, v{ADDR} offset:260", registers(DST, load.1.div_ceil(4)))
    });
    each(&lines, |rng, card, wave64, i, code| {
        let load = LOADS.into_iter().find(|l| l.0 == LOADS_DS[i].1).expect("one of them");
        for spread in SPREADS {
            let mut m = card.machine(rng, wave64);
            let at = place(rng, &mut m, spread, load.1, 260);
            card.check(&lines[i], &m, code, |m| model_load(m, load, DST, |l| (Space::Lds, at[l])));
        }
    });
}

#[test]
fn stores() {
    let lines = STORES_DS.map(|(name, memory)| {
        let store = STORES.into_iter().find(|s| s.0 == memory).expect("one of them");
        format!("ds_write_{name} v{ADDR}, {} offset:65535", registers(DATA, store.1.div_ceil(4)))
    });
    each(&lines, |rng, card, wave64, i, code| {
        let store = STORES.into_iter().find(|s| s.0 == STORES_DS[i].1).expect("one of them");
        for spread in SPREADS {
            let mut m = card.machine(rng, wave64);
            let at = place(rng, &mut m, spread, store.1, 65535);
            card.check(&lines[i], &m, code, |m| model_store(m, store, DATA, |l| (Space::Lds, at[l])));
        }
    });
}

#[test]
fn beyond_the_end_is_nothing() {
    let lines = [
        "ds_read_b32 v16, v1",
        "ds_write_b32 v1, v4",
        "ds_read_b128 v[16:19], v1",
        "ds_write_b128 v1, v[4:7]",
    ];
    let lines = lines.map(String::from);
    each(&lines, |rng, card, wave64, i, code| {
        let mut m = card.machine(rng, wave64);
        for l in 0..m.lanes {
            let beyond = [LDS as u32, 0xffff_fffc, LDS as u32 - 8, rng.random()];
            m.vgpr[ADDR][l] = beyond[rng.random_range(0..4)] & !15;
        }
        let at = m.vgpr[ADDR].clone();
        let size = if i < 2 { 4 } else { 7 };
        card.check(&lines[i], &m, code, |m| {
            if i % 2 == 0 {
                model_load(m, LOADS[size], DST, |l| (Space::Lds, at[l].into()));
            } else {
                model_store(m, STORES[if i < 2 { 2 } else { 5 }], DATA, |l| (Space::Lds, at[l].into()));
            }
        });
    });
}

#[test]
fn two_at_once() {
    let mut cases = Vec::new();
    for bits in [32usize, 64] {
        for (st64, step) in [("", bits / 8), ("st64", bits * 8)] {
            let dwords = bits / 32;
            let (dst, a, b) = (registers(DST, 2 * dwords), registers(DATA, dwords), registers(DATA2, dwords));
            let offsets = "offset0:3 offset1:7";
            cases.push((format!("ds_read2{st64}_b{bits} {dst}, v1 {offsets}"), dwords, step));
            cases.push((format!("ds_write2{st64}_b{bits} v1, {a}, {b} {offsets}"), dwords, step));
            cases.push((format!("ds_wrxchg2{st64}_rtn_b{bits} {dst}, v1, {a}, {b} {offsets}"), dwords, step));
        }
    }
    let lines: Vec<String> = cases.iter().map(|c| c.0.clone()).collect();
    each(&lines, |rng, card, wave64, i, code| {
        let (line, dwords, step) = &cases[i];
        let mut m = card.machine(rng, wave64);
        let spread = SPREADS[rng.random_range(0..5)];
        let at: Vec<u64> = spread.offsets(rng, m.lanes, 4 * dwords, LDS - 8 * step);
        m.vgpr[ADDR] = at.iter().map(|&a| a as u32).collect();
        card.check(line, &m, code, |m| {
            let before = m.clone();
            // A wave64 goes through with its low half before the high one starts.
            for (half, which, count) in [(0, 0, 3), (0, 1, 7), (1, 0, 3), (1, 1, 7)] {
                m.exec = before.exec & 0xffff_ffff << (32 * half);
                let at = |l: usize| (Space::Lds, at[l] + (count * step) as u64);
                let data = [DATA, DATA2][which];
                let dst = DST + which * dwords;
                let size = [4, 5][dwords - 1];
                if line.starts_with("ds_read2") {
                    model_load(m, LOADS[size], dst, at);
                } else if line.starts_with("ds_write2") {
                    model_store(m, STORES[size - 2], data, at);
                } else {
                    let value = |_: &Machine, l| {
                        (if *dwords == 2 { before.pair(data, l) } else { before.vgpr[data][l].into() }, 0)
                    };
                    model_atomic(m, 32 * *dwords as u32, |_, _, a, _| a, Some(dst), at, value);
                }
            }
            m.exec = before.exec;
        });
    });
}

#[test]
fn atomic_operations() {
    let mut cases = Vec::new();
    for (name, bits, f, two) in atomics() {
        let dwords = bits as usize / 32;
        let (dst, a, b) = (registers(DST, dwords), registers(DATA, dwords), registers(DATA2, dwords));
        let b = if two { format!(", {b}") } else { String::new() };
        let rtn = format!("ds_{} {dst}, v1, {a}{b} offset:24", name.replace('%', "_rtn"));
        cases.push((rtn, bits, f, Some(DST)));
        if !returns_only(&name) {
            cases.push((format!("ds_{} v1, {a}{b} offset:24", name.replace('%', "")), bits, f, None));
        }
    }
    let lines: Vec<String> = cases.iter().map(|c| c.0.clone()).collect();
    each(&lines, |rng, card, wave64, i, code| {
        let (line, bits, f, dst) = &cases[i];
        for spread in &SPREADS[..5] {
            let mut m = card.machine(rng, wave64);
            few(rng, &mut m);
            let at = place(rng, &mut m, *spread, *bits as usize / 8, 24);
            let value =
                |m: &Machine, r: usize, l| if *bits == 64 { m.pair(r, l) } else { m.vgpr[r][l].into() };
            card.check(line, &m, code, |m| {
                let operands = |m: &Machine, l| (value(m, DATA, l), value(m, DATA2, l));
                model_atomic(m, *bits, *f, *dst, |l| (Space::Lds, at[l]), operands);
            });
        }
    });
}

/// A float atomic flushes denormals where MODE says so.
#[test]
fn float_sums_honour_the_mode() {
    let lines = ["ds_add_rtn_f32 v16, v1, v4".to_owned()];
    each(&lines, |rng, card, wave64, _, code| {
        let mut m = card.machine(rng, wave64);
        m.mode = 0x3c0; // singles flushed, the rest kept
        let at = place(rng, &mut m, Spread::Far, 4, 0);
        for &at in &at {
            m.store(Space::Lds, 0, at, 4, [0x0040_0000, 0x0080_0001, 0x3f80_0000][rng.random_range(0..3)]);
        }
        m.vgpr[DATA].iter_mut().for_each(|v| *v = [0x8040_0000, 0x8080_0000, 1][rng.random_range(0..3)]);
        card.check(&lines[0], &m, code, |m| {
            let flush = |v: u32| if v & 0x7f80_0000 == 0 { v & 0x8000_0000 } else { v };
            for l in m.active() {
                let old = m.load(Space::Lds, l, at[l], 4) as u32;
                let sum = flush(add(flush(old), flush(m.vgpr[DATA][l])));
                m.store(Space::Lds, l, at[l], 4, sum.into());
                m.vgpr[DST][l] = old;
            }
        });
    });
}

/// Operations whose operand is in LDS; the model.
fn from_lds() -> Vec<(String, u32, Change)> {
    let mut all: Vec<(String, u32, Change)> = Vec::new();
    for (name, bits, f, two) in atomics() {
        let (verb, ty) = name.split_once("%_").expect("a type");
        let there = !two && verb != "wrxchg" && name != "add%_f64";
        if there {
            all.push((format!("ds_{verb}_src2_{ty}"), bits, f));
        }
        if verb == "wrxchg" {
            all.push((format!("ds_write_src2_{ty}"), bits, f));
        }
    }
    all
}

#[test]
fn operands_in_lds() {
    let cases = from_lds();
    let mut lines = Vec::new();
    for offset in [20, 0x7ff8, 0x8000] {
        lines.extend(cases.iter().map(|c| format!("{} v1 offset:{offset}", c.0)));
    }
    each(&lines, |rng, card, wave64, i, code| {
        let (_, bits, f) = cases[i % cases.len()];
        let mut m = card.machine(rng, wave64);
        few(rng, &mut m);
        // A and B from the two halves of LDS, so that no lane changes another's operand.
        let bytes = bits as usize / 8;
        let a = Spread::Far.offsets(rng, m.lanes, 8, LDS / 2);
        let way: i64 = [20 * 4, -8 * 4, 0][i / cases.len()];
        let mut b = Vec::new();
        for (l, &a) in a.iter().enumerate() {
            let far = (LDS / 2) as u64;
            if i / cases.len() == 2 {
                let to = far + a;
                let dwords = (to - a) / 4;
                m.vgpr[ADDR][l] = (a | dwords << 17) as u32;
                b.push(to);
            } else {
                m.vgpr[ADDR][l] = (a + far / 2) as u32;
                b.push((a + far / 2).wrapping_add_signed(way) / bytes as u64 * bytes as u64);
            }
        }
        card.check(&lines[i], &m, code, |m| {
            for l in m.active() {
                let at = if i / cases.len() == 2 { a[l] } else { a[l] + (LDS / 4) as u64 };
                let operand = m.load(Space::Lds, l, b[l], bytes);
                let old = m.load(Space::Lds, l, at, bytes);
                m.store(Space::Lds, l, at, bytes, f(bits, old, operand, 0));
            }
        });
    });
}

#[test]
fn counted_lanes() {
    let lines = ["ds_append v16 offset:8", "ds_consume v16 offset:8", "ds_nop"].map(String::from);
    each(&lines, |rng, card, wave64, i, code| {
        let mut m = card.machine(rng, wave64);
        m.sgpr[124] = (4 * rng.random_range(0..1000)) | 0xabc_0000;
        let at = u64::from(m.sgpr[124] & 0xffff) + 8;
        card.check(&lines[i], &m, code, |m| {
            if i == 2 || m.exec == 0 {
                return;
            }
            let old = m.load(Space::Lds, 0, at, 4) as u32;
            let on = m.active().len() as u32;
            let new = if i == 0 { old.wrapping_add(on) } else { old.wrapping_sub(on) };
            m.store(Space::Lds, 0, at, 4, new.into());
            for l in m.active() {
                m.vgpr[DST][l] = old;
            }
        });
    });
}

#[test]
fn a_dword_for_each_lane() {
    let lines = ["ds_read_addtid_b32 v16 offset:12", "ds_write_addtid_b32 v4 offset:12"].map(String::from);
    each(&lines, |rng, card, wave64, i, code| {
        let mut m = card.machine(rng, wave64);
        m.sgpr[124] = (4 * rng.random_range(0..1000)) | 0xabc_0000;
        let first = u64::from(m.sgpr[124] & 0xffff) + 12;
        card.check(&lines[i], &m, code, |m| {
            let at = |l: usize| (Space::Lds, first + 4 * l as u64);
            if i == 0 { model_load(m, LOADS[4], DST, at) } else { model_store(m, STORES[2], DATA, at) }
        });
    });
}

/// Which lane each reads: 32 of them, worked by hand from the manual's pseudo-code.
fn source(control: u32, l: u32) -> u32 {
    let bits = |v: u32| [v & 1, v >> 1 & 1, v >> 2 & 1, v >> 3 & 1, v >> 4 & 1];
    if control >= 0xe000 {
        let mask = control & 31;
        let b = bits(l);
        let reversed = b[0] * 16 + b[1] * 8 + b[2] * 4 + b[3] * 2 + b[4];
        let ones: u32 = bits(mask).iter().sum();
        (reversed / (1 << ones)) | (l & mask)
    } else if control >= 0xc000 {
        let by = control / 32 % 32;
        let mask = control % 32;
        let turned = if control / 1024 % 2 == 1 { l + 32 - by } else { l + by };
        (l & mask) | (turned & (31 - mask))
    } else if control >= 0x8000 {
        l / 4 * 4 + (control / 4u32.pow(l % 4)) % 4
    } else {
        let (and, or, xor) = (control % 32, control / 32 % 32, control / 1024 % 32);
        ((l & and) | or) ^ xor
    }
}

#[test]
fn swizzles() {
    let mut controls =
        vec![0, 0x1f, 0x041f, 0x8000, 0x80e4, 0x801b, 0xc020, 0xc420, 0xc7e3, 0xe000, 0xe003, 0xe01f, 0xe010];
    let mut rng = rng();
    controls.extend((0..60).map(|_| rng.random_range(0..0x10000)));
    let lines: Vec<String> = controls.iter().map(|c| format!("ds_swizzle_b32 v16, v4 offset:{c}")).collect();
    each(&lines, |rng, card, wave64, i, code| {
        let m = card.machine(rng, wave64);
        card.check(&lines[i], &m, code, |m| {
            let before = m.clone();
            for l in m.active() {
                let from = l / 32 * 32 + source(controls[i], l as u32 % 32) as usize;
                m.vgpr[DST][l] = if m.exec >> from & 1 == 1 { before.vgpr[DATA][from] } else { 0 };
            }
        });
    });
}

#[test]
fn permutations() {
    let lines =
        ["ds_permute_b32 v16, v1, v4 offset:12", "ds_bpermute_b32 v16, v1, v4 offset:12"].map(String::from);
    each(&lines, |rng, card, wave64, i, code| {
        for close in [false, true] {
            let mut m = card.machine(rng, wave64);
            if close {
                m.vgpr[ADDR].iter_mut().for_each(|a| *a = rng.random_range(0..256));
            }
            card.check(&lines[i], &m, code, |m| {
                let before = m.clone();
                let other =
                    |l: usize| l / 32 * 32 + (before.vgpr[ADDR][l].wrapping_add(12) / 4 % 32) as usize;
                for l in before.active() {
                    m.vgpr[DST][l] = if i == 0 {
                        before
                            .active()
                            .into_iter()
                            .rfind(|&from| other(from) == l)
                            .map_or(0, |from| before.vgpr[DATA][from])
                    } else if before.exec >> other(l) & 1 == 1 {
                        before.vgpr[DATA][other(l)]
                    } else {
                        0
                    };
                }
            });
        }
    });
}
