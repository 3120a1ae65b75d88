//! MUBUF and MTBUF against the model: addresses, swizzle, range checks, formats.

use super::machine::*;
use crate::common::{assemble, have, rng};
use half::f16;
use rand::{Rng, rngs::StdRng};
use wave32_exec::SCRATCH_BASE;

/// Registers: index and offset v[0:1], data from v4 on, which is the destination too; V# s[12:15], offset s20.
const DATA: usize = 4;

/// A buffer's description, and how an instruction goes about it.
#[derive(Debug, Clone)]
struct Case {
    text: String,
    idxen: bool,
    offen: bool,
    offset: u32,
    stride: u32,
    swizzled: bool,
    records: u32,
    index_stride: u32,
    add_lane: bool,
    check: u32,
    format: u32,
    select: [u32; 4],
    scratch: bool,
}

impl Case {
    fn random(rng: &mut StdRng, op: &str, data: &str, bytes: usize) -> Self {
        let (idxen, offen) = (rng.random(), rng.random());
        let vaddr = match (idxen, offen) {
            (false, false) => "off",
            (true, true) => "v[0:1]",
            _ => "v0",
        };
        let offset = rng.random_range(0..5) * 16 + if bytes < 4 { rng.random_range(0..4) } else { 0 };
        let flags =
            [(idxen, " idxen"), (offen, " offen")].iter().filter(|f| f.0).map(|f| f.1).collect::<String>();
        Self {
            text: format!("{op} {data}, {vaddr}, s[12:15], s20{flags} offset:{offset}%"),
            idxen,
            offen,
            offset,
            stride: [0, 4, 16, 64][rng.random_range(0..4)],
            swizzled: rng.random_range(0..3) == 0,
            records: [0, 7, 40, 500, 4000, u32::MAX][rng.random_range(0..6)],
            index_stride: rng.random_range(0..4),
            add_lane: rng.random(),
            check: rng.random_range(0..4),
            format: 20,
            select: [4, 5, 6, 7],
            scratch: false,
        }
    }

    /// V# and addresses, so that what is in range is in memory.
    fn prepare(&self, rng: &mut StdRng, m: &mut Machine) {
        let base = if self.scratch { SCRATCH_BASE } else { m.base };
        let [x, y, z, w] = self.select;
        m.sgpr[12] = base as u32;
        m.sgpr[13] = (base >> 32) as u32 | self.stride << 16 | u32::from(self.swizzled) << 31;
        m.sgpr[14] = self.records;
        m.sgpr[15] = x | y << 3 | z << 6 | w << 9 | self.format << 12;
        m.sgpr[15] |= self.index_stride << 21 | u32::from(self.add_lane) << 23 | 1 << 24 | self.check << 28;
        m.sgpr[20] = [0, 64, 128][rng.random_range(0..3)];
        for l in 0..m.lanes {
            m.vgpr[0][l] = rng.random_range(0..16);
            m.vgpr[1][l] = rng.random_range(0..16) * 8;
            if !self.idxen {
                m.vgpr[0][l] *= 8;
            }
        }
    }

    /// Where byte `at` of a lane's element lies; nowhere out of range.
    fn place(&self, m: &Machine, l: usize, at: u32) -> Option<u64> {
        let index = if self.idxen { m.vgpr[0][l] } else { 0 } + if self.add_lane { l as u32 } else { 0 };
        let offset = self.offset + if self.offen { m.vgpr[usize::from(self.idxen)][l] } else { 0 } + at;
        let wide = [8, 16, 32, 64][self.index_stride as usize];
        let linear = if self.swizzled {
            let (row, column) = (index / wide, index % wide);
            (row * self.stride + offset / 4 * 4) * wide + column * 4 + offset % 4
        } else {
            index * self.stride + offset
        };
        let fits = match self.check {
            0 => index < self.records && offset < self.stride,
            1 => index < self.records,
            2 => self.records > 0,
            _ => linear < self.records,
        };
        fits.then_some(u64::from(linear) + u64::from(m.sgpr[20]))
    }

    /// No two active lanes share a byte, and all bytes in range are in the allocation.
    fn is_tame(&self, m: &Machine, bytes: usize) -> bool {
        let room = if self.scratch { SCRATCH * m.lanes } else { MEMORY };
        let mut seen = std::collections::BTreeSet::new();
        m.active().into_iter().all(|l| {
            (0..bytes as u32)
                .filter_map(|at| self.place(m, l, at))
                .all(|at| at < room as u64 && seen.insert(at))
        })
    }

    fn byte<'a>(&self, m: &'a mut Machine, at: u64) -> &'a mut u8 {
        if !self.scratch {
            return &mut m.memory[at as usize];
        }
        // Dwords of all lanes side by side.
        let (dword, lane) = (at / 4 / m.lanes as u64, at / 4 % m.lanes as u64);
        &mut m.scratch[lane as usize][(dword * 4 + at % 4) as usize]
    }

    /// Little-endian, a dword at most; whether it is in range goes by its first byte, as whole dwords are.
    fn load(&self, m: &mut Machine, l: usize, at: u32, bytes: usize) -> u32 {
        if self.place(m, l, at).is_none() {
            return 0;
        }
        (0..bytes as u32).fold(0, |v, i| {
            // A dword that starts in range is there as a whole.
            let place =
                self.place(m, l, at + i).unwrap_or_else(|| self.place(m, l, at).unwrap() + u64::from(i));
            v | u32::from(*self.byte(m, place)) << (8 * i)
        })
    }

    fn store(&self, m: &mut Machine, l: usize, at: u32, bytes: usize, value: u32) {
        if let Some(first) = self.place(m, l, at) {
            for i in 0..bytes as u32 {
                let place = self.place(m, l, at + i).unwrap_or(first + u64::from(i));
                *self.byte(m, place) = (value >> (8 * i)) as u8;
            }
        }
    }
}

fn registers(dwords: usize) -> String {
    if dwords == 1 { format!("v{DATA}") } else { format!("v[{DATA}:{}]", DATA + dwords - 1) }
}

/// Runs cases until `count` of each are tame.
fn sweep(
    count: usize,
    bytes: usize,
    tail: &str,
    make: impl Fn(&mut StdRng) -> Case,
    model: impl Fn(&Case, &mut Machine),
) {
    let mut rng = rng();
    let card = Card::new();
    for wave64 in [false, true] {
        let cases: Vec<Case> = (0..count).map(|_| make(&mut rng)).collect();
        let lines: Vec<String> = cases.iter().map(|c| c.text.replace('%', tail)).collect();
        for ((case, line), code) in cases.iter().zip(&lines).zip(assemble(&lines, wave64)) {
            let mut case = case.clone();
            for _ in 0..50 {
                let mut m = card.machine(&mut rng, wave64);
                if case.scratch {
                    case.index_stride = if wave64 { 3 } else { 2 };
                    case.records = (SCRATCH * m.lanes) as u32;
                }
                case.prepare(&mut rng, &mut m);
                if case.scratch {
                    m.sgpr[20] *= m.lanes as u32 / 8;
                }
                // Dwords that are cut off by the end belong to nobody's rules: not tried.
                let whole = (0..bytes as u32).step_by(4).all(|at| {
                    let all = |l| {
                        let here = case.place(&m, l, at).is_some();
                        (at..(at + 4).min(bytes as u32)).all(|b| case.place(&m, l, b).is_some() == here)
                    };
                    m.active().into_iter().all(all)
                });
                if case.is_tame(&m, bytes) && whole {
                    card.check(&format!("{line}: {case:?}"), &m, &code, |m| model(&case, m));
                    break;
                }
            }
        }
    }
}

fn load_case(case: &Case, m: &mut Machine, load: Load) {
    let before = m.clone();
    for l in before.active() {
        for k in 0..load.1.div_ceil(4) {
            let value = case.load(&mut before.clone(), l, 4 * k as u32, load.1.min(4));
            m.vgpr[DATA + k][l] = load.2(value, before.vgpr[DATA + k][l]);
        }
    }
}

fn store_case(case: &Case, m: &mut Machine, store: Store) {
    for l in m.active() {
        for k in 0..store.1.div_ceil(4) {
            let value = store.2(m.vgpr[DATA + k][l]);
            case.store(m, l, 4 * k as u32, store.1.min(4), value);
        }
    }
}

/// Operations that these tests run.
pub fn tested() -> Vec<String> {
    let mut all = Vec::new();
    all.extend(LOADS.map(|load| format!("buffer_load_{}", load.0)));
    all.extend(STORES.map(|store| format!("buffer_store_{}", store.0)));
    all.extend(ATOMICS.map(|a| format!("buffer_atomic_{}", a.0)));
    all.extend(ATOMICS.map(|a| format!("buffer_atomic_{}_x2", a.0)));
    for (prefix, kinds) in [("buffer", &KINDS[..]), ("tbuffer", &KINDS[..8])] {
        for verb in ["load", "store"] {
            all.extend(kinds.iter().map(|kind| format!("{prefix}_{verb}_format_{kind}")));
        }
    }
    all.extend(["buffer_gl0_inv", "buffer_gl1_inv"].map(String::from));
    all
}

#[test]
fn loads() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    for load in LOADS {
        let op = format!("buffer_load_{}", load.0);
        let data = registers(load.1.div_ceil(4));
        sweep(24, load.1, "", |rng| Case::random(rng, &op, &data, load.1), |c, m| load_case(c, m, load));
    }
}

#[test]
fn stores() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    for store in STORES {
        let op = format!("buffer_store_{}", store.0);
        let data = registers(store.1.div_ceil(4));
        sweep(40, store.1, "", |rng| Case::random(rng, &op, &data, store.1), |c, m| store_case(c, m, store));
    }
}

/// The scratch buffer as kernels get it: what one lane stores at an offset, it loads there, of any alignment.
#[test]
fn scratch() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let tamed = |mut case: Case| {
        (case.scratch, case.swizzled, case.add_lane, case.idxen) = (true, true, true, false);
        (case.stride, case.check) = (0, 2);
        let (head, tail) = case.text.split_once(", s[12:15]").expect("a buffer");
        let head = head
            .split_once(", v0")
            .or(head.split_once(", v[0:1]"))
            .or(head.split_once(", off"))
            .expect("v")
            .0;
        let vaddr = if case.offen { "v0" } else { "off" };
        case.text = format!("{head}, {vaddr}, s[12:15]{}", tail.replace(" idxen", ""));
        case
    };
    for load in LOADS {
        let op = format!("buffer_load_{}", load.0);
        let data = registers(load.1.div_ceil(4));
        let make = |rng: &mut StdRng| tamed(Case::random(rng, &op, &data, 1));
        sweep(12, load.1, "", make, |c, m| load_case(c, m, load));
    }
    for store in STORES {
        let op = format!("buffer_store_{}", store.0);
        let data = registers(store.1.div_ceil(4));
        let make = |rng: &mut StdRng| tamed(Case::random(rng, &op, &data, 1));
        sweep(12, store.1, "", make, |c, m| store_case(c, m, store));
    }
}

#[test]
fn atomics() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    for (name, f) in ATOMICS {
        for bits in [32, 64] {
            let dwords = bits as usize / 32;
            let pair = name.ends_with("cmpswap");
            let op = format!("buffer_atomic_{name}{}", if bits == 64 { "_x2" } else { "" });
            let data = registers(if pair { 2 * dwords } else { dwords });
            for returns in [false, true] {
                let make = |rng: &mut StdRng| {
                    let mut case = Case::random(rng, &op, &data, 16);
                    if bits == 64 {
                        // Eight bytes are naturally aligned in such a buffer only.
                        case.swizzled = false;
                        case.stride = case.stride / 8 * 8;
                    }
                    case
                };
                sweep(6, 4 * dwords, if returns { " glc" } else { "" }, make, |case, m| {
                    let before = m.clone();
                    for l in m.active() {
                        let at = [0, 4].map(|at| case.place(m, l, at));
                        let inside = at[0].is_some() && (bits == 32 || at[1].is_some());
                        let value = |r| if bits == 64 { before.pair(r, l) } else { before.vgpr[r][l].into() };
                        let b = if pair { value(DATA + dwords) } else { 0 };
                        let mut old = 0;
                        if inside {
                            old = (0..dwords as u32)
                                .fold(0, |v, k| v | u64::from(case.load(m, l, 4 * k, 4)) << (32 * k));
                            let new = f(bits, old, value(DATA), b);
                            for k in 0..dwords as u32 {
                                case.store(m, l, 4 * k, 4, (new >> (32 * k)) as u32);
                            }
                        }
                        if returns {
                            m.vgpr[DATA][l] = old as u32;
                            if bits == 64 {
                                m.vgpr[DATA + 1][l] = (old >> 32) as u32;
                            }
                        }
                    }
                });
            }
        }
    }
}

const KINDS: [&str; 9] = ["x", "xy", "xyz", "xyzw", "d16_x", "d16_xy", "d16_xyz", "d16_xyzw", "d16_hi_x"];

/// Formats by LLVM's name: bits from the lowest component on, how they are read.
fn formats() -> Vec<(String, Vec<u32>, &'static str)> {
    let six = ["UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT"];
    let seven = ["UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT", "FLOAT"];
    let three = ["UINT", "SINT", "FLOAT"];
    let mut all = Vec::new();
    let mut add = |name: &str, numbers: &[&'static str]| {
        // The name has the highest component first.
        let bits: Vec<u32> = name.split('_').rev().map(|b| b.parse().unwrap()).collect();
        all.extend(numbers.iter().map(|n| (format!("BUF_FMT_{name}_{n}"), bits.clone(), *n)));
    };
    add("8", &six);
    add("16", &seven);
    add("8_8", &six);
    add("32", &three);
    add("16_16", &seven);
    add("10_11_11", &seven);
    add("11_11_10", &seven);
    add("10_10_10_2", &six);
    add("2_10_10_10", &six);
    add("8_8_8_8", &six);
    add("32_32", &three);
    add("16_16_16_16", &seven);
    add("32_32_32", &three);
    add("32_32_32_32", &three);
    all
}

/// A component of `n` bits as 32 bits.
fn decode(raw: u32, n: u32, number: &str) -> u32 {
    let wide = 1u64 << n;
    let signed = if u64::from(raw) >= wide / 2 { i64::from(raw) - wide as i64 } else { i64::from(raw) };
    let float = |v: f64| (v as f32).to_bits();
    match number {
        "UNORM" => float(f64::from(raw) / (wide - 1) as f64),
        "SNORM" => float((signed as f64 / (wide / 2 - 1) as f64).max(-1.0)),
        "USCALED" => float(f64::from(raw)),
        "SSCALED" => float(signed as f64),
        "UINT" => raw,
        "SINT" => signed as u32,
        _ if n == 32 => raw,
        _ if n == 16 => f16::from_bits(raw as u16).to_f32().to_bits(),
        _ => {
            // Five bits of exponent, no sign.
            let mantissa = n - 5;
            let (e, f) = (raw >> mantissa, raw & ((1 << mantissa) - 1));
            let f = f64::from(f) / f64::from(1u32 << mantissa);
            match e {
                0 => float(f * 2f64.powi(-14)),
                31 if f == 0.0 => f32::INFINITY.to_bits(),
                31 => f32::NAN.to_bits(),
                _ => float((1.0 + f) * 2f64.powi(e as i32 - 15)),
            }
        }
    }
}

/// A register's 16 bits for a component.
fn narrow(value: u32, number: &str) -> u32 {
    if number.ends_with("INT") {
        value % 65536
    } else {
        f16::from_f32(f32::from_bits(value)).to_bits().into()
    }
}

/// Whether two components are equal: NaNs are.
fn equal(a: u32, b: u32, narrow: bool, number: &str) -> bool {
    let nan = |v: u32| if narrow { f16::from_bits(v as u16).is_nan() } else { f32::from_bits(v).is_nan() };
    a == b || (!number.ends_with("INT") && nan(a) && nan(b))
}

struct Typed {
    line: String,
    format: usize,
    components: usize,
    d16: bool,
    high: bool,
    select: [u32; 4],
}

/// Every kind in every format, as instruction's format (MTBUF) or buffer's (MUBUF, with a random selection).
fn typed(verb: &str, rng: &mut StdRng) -> Vec<Typed> {
    let mut all = Vec::new();
    for (f, (name, bits, _)) in formats().iter().enumerate() {
        for kind in KINDS {
            for of_instruction in [false, true] {
                let d16 = kind.starts_with("d16");
                let high = kind.starts_with("d16_hi");
                let components = kind.rsplit('_').next().unwrap().len();
                if (high && of_instruction) || (verb == "store" && bits.len() > components) {
                    continue;
                }
                let data = registers(if d16 { components.div_ceil(2) } else { components });
                let mut select = [4, 5, 6, 7];
                let line = if of_instruction {
                    format!("tbuffer_{verb}_format_{kind} {data}, off, s[12:15], 0 format:[{name}] idxen")
                } else {
                    if verb == "load" {
                        select = [0; 4].map(|_| [0, 1, 4, 5, 6, 7][rng.random_range(0..6)]);
                    }
                    format!("buffer_{verb}_format_{kind} {data}, off, s[12:15], 0 idxen")
                };
                let line = line.replace(", off,", ", v0,");
                all.push(Typed { line, format: f + 1, components, d16, high, select });
            }
        }
    }
    all
}

/// A structured buffer of 16-byte records, one for each index.
fn describe(m: &mut Machine, typed: &Typed) {
    let [x, y, z, w] = typed.select;
    let base = m.base;
    m.sgpr[12..16].copy_from_slice(&[
        base as u32,
        (base >> 32) as u32 | 16 << 16,
        100,
        x | y << 3 | z << 6 | w << 9 | (typed.format as u32) << 12 | 1 << 24,
    ]);
    for l in 0..m.lanes {
        m.vgpr[0][l] = (l * 37 % 64) as u32;
    }
}

#[test]
fn typed_loads() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let mut rng = rng();
    let card = Card::new();
    let formats = formats();
    for wave64 in [false, true] {
        let all = typed("load", &mut rng);
        let lines: Vec<String> = all.iter().map(|t| t.line.clone()).collect();
        for (t, code) in all.iter().zip(assemble(&lines, wave64)) {
            let (_, bits, number) = &formats[t.format - 1];
            let mut m = card.machine(&mut rng, wave64);
            describe(&mut m, t);
            let got = card.run(&m, &code).unwrap_or_else(|stop| panic!("{}: {stop:?}", t.line));
            for l in 0..m.lanes {
                let mut bit = 16 * 8 * m.vgpr[0][l];
                let one = if number.ends_with("INT") { 1 } else { 1f32.to_bits() };
                let mut colour = [0, 0, 0, one];
                for (c, n) in colour.iter_mut().zip(bits) {
                    let raw = (0..*n).map(|i| {
                        let b = bit + i;
                        u32::from(m.memory[b as usize / 8] >> (b % 8) & 1) << i
                    });
                    *c = decode(raw.sum(), *n, number);
                    bit += n;
                }
                for k in 0..t.components {
                    let value = match t.select[k] {
                        0 => 0,
                        1 => one,
                        s => colour[s as usize - 4],
                    };
                    let (r, shift) =
                        if t.d16 { (k / 2, 16 * (k % 2) + 16 * usize::from(t.high)) } else { (k, 0) };
                    let was = m.vgpr[DATA + r][l] >> shift;
                    let is = got.vgpr[DATA + r][l] >> shift;
                    let (was, is) = if t.d16 { (was % 65536, is % 65536) } else { (was, is) };
                    let want = if m.exec >> l & 1 == 0 {
                        was
                    } else if t.d16 {
                        narrow(value, number)
                    } else {
                        value
                    };
                    assert!(
                        equal(is, want, t.d16, number),
                        "{} lane {l} component {k}: {is:#x}, not {want:#x}",
                        t.line
                    );
                }
                if t.d16 && (t.components % 2 == 1) {
                    let keep = if t.high { 0xffff } else { 0xffff_0000 };
                    let r = DATA + t.components / 2;
                    assert_eq!(got.vgpr[r][l] & keep, m.vgpr[r][l] & keep, "{}: the other half", t.line);
                }
            }
        }
    }
}

/// What is stored reads back as the nearest value that the format has.
#[test]
fn typed_stores() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let mut rng = rng();
    let card = Card::new();
    let formats = formats();
    for wave64 in [false, true] {
        let all = typed("store", &mut rng);
        let lines: Vec<String> = all.iter().map(|t| t.line.clone()).collect();
        for (t, code) in all.iter().zip(assemble(&lines, wave64)) {
            let (_, bits, number) = &formats[t.format - 1];
            let mut m = card.machine(&mut rng, wave64);
            describe(&mut m, t);
            let edge = |rng: &mut StdRng| {
                [-2.0f32, -1.0, -0.3, 0.0, 0.25, 0.5, 1.0, 3.0, 1e9][rng.random_range(0..9)]
            };
            for r in 0..4 {
                for l in 0..m.lanes {
                    let value = edge(&mut rng);
                    m.vgpr[DATA + r][l] = match (number.ends_with("INT"), t.d16) {
                        (true, _) => rng.random::<u32>() >> rng.random_range(0..32),
                        (false, false) => value.to_bits(),
                        (false, true) => {
                            let low = u32::from(f16::from_f32(value).to_bits());
                            low | u32::from(f16::from_f32(edge(&mut rng)).to_bits()) << 16
                        }
                    };
                }
            }
            let got = card.run(&m, &code).unwrap_or_else(|stop| panic!("{}: {stop:?}", t.line));
            let size = bits.iter().sum::<u32>() as usize / 8;
            let mut untouched = m.memory.clone();
            for l in m.active() {
                let at = 16 * m.vgpr[0][l] as usize;
                untouched[at..at + size].copy_from_slice(&got.memory[at..at + size]);
                let mut bit = 8 * at as u32;
                for (k, n) in bits.iter().enumerate() {
                    let (r, shift) =
                        if t.d16 { (k / 2, 16 * (k % 2) + 16 * usize::from(t.high)) } else { (k, 0) };
                    let register = m.vgpr[DATA + r][l] >> shift;
                    let given = match (t.d16, *number) {
                        (false, _) => register,
                        (true, "UINT") => register % 65536,
                        (true, "SINT") => register as i16 as u32,
                        (true, _) => f16::from_bits(register as u16).to_f32().to_bits(),
                    };
                    let raw: u32 = (0..*n)
                        .map(|i| u32::from(got.memory[(bit + i) as usize / 8] >> ((bit + i) % 8) & 1) << i)
                        .sum();
                    bit += n;
                    let back = decode(raw, *n, number);
                    let text = format!("{} lane {l} component {k}: {given:#x} became {raw:#x}", t.line);
                    nearest(given, back, *n, number, &text);
                }
            }
            assert!(got.memory == untouched, "{}: other bytes", t.line);
        }
    }
}

/// `back` is what a format of `n` bits can say of `given`.
fn nearest(given: u32, back: u32, n: u32, number: &str, text: &str) {
    let top = (1u64 << n) - 1;
    let half = (1i64 << (n - 1)) - 1;
    let (x, y) = (f64::from(f32::from_bits(given)), f64::from(f32::from_bits(back)));
    match number {
        "UINT" => assert_eq!(back, given.min(top as u32), "{text}"),
        "SINT" => {
            assert_eq!(i64::from(back as i32), i64::from(given as i32).clamp(-half - 1, half), "{text}")
        }
        "UNORM" => assert!((x.clamp(0.0, 1.0) - y).abs() <= 0.5001 / top as f64, "{text}"),
        "SNORM" => assert!((x.clamp(-1.0, 1.0) - y).abs() <= 0.5001 / half as f64, "{text}"),
        "USCALED" => assert_eq!(x.clamp(0.0, top as f64).trunc(), y, "{text}"),
        "SSCALED" => assert_eq!(x.clamp(-half as f64 - 1.0, half as f64).trunc(), y, "{text}"),
        _ if n == 32 => assert_eq!(given, back, "{text}"),
        _ if n == 16 => {
            assert!(x == y || (x.abs() > 65504.0 && y.is_infinite()) || (x - y).abs() < 1e-3, "{text}")
        }
        // No sign, toward zero, the greatest finite value at most.
        _ => {
            let greatest = [64512.0, 65024.0][n as usize - 10];
            let x = if x.is_infinite() && y == x { 0.0 } else { x.clamp(0.0, greatest) };
            let y = if y.is_infinite() { 0.0 } else { y };
            assert!(y <= x && x - y <= x / 32.0, "{text}: {x} is not near {y}");
        }
    }
}

#[test]
fn cache_instructions_do_nothing() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let (mut rng, card) = (rng(), Card::new());
    let lines = ["buffer_gl0_inv", "buffer_gl1_inv"].map(String::from);
    for (line, code) in lines.iter().zip(assemble(&lines, false)) {
        card.check(line, &card.machine(&mut rng, false), &code, |_| {});
    }
}
