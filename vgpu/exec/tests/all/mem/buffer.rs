//! MUBUF against the model: addresses, swizzle, range checks, scratch.

use super::machine::*;
use crate::common::{assemble, have, rng};
use rand::{Rng, rngs::StdRng};
use wave32_exec::SCRATCH_BASE;

/// Registers: index and offset v[0:1], data from v4 on, which is the destination too; V# s[12:15], offset s20.
pub const DATA: usize = 4;

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

pub fn registers(dwords: usize) -> String {
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
    for (prefix, kinds) in [("buffer", &super::typed::KINDS[..]), ("tbuffer", &super::typed::KINDS[..8])] {
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
