//! Every scalar ALU operation against a model written from the manual's words, in wide integers and bit by bit; the
//! whole register file is compared, SCC and EXEC with it.

use crate::common;
mod model;

use common::{Bench, assemble, have, random_wave, rng};
use model::{Seen, model};
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use std::collections::BTreeSet;
use wave32_exec::{PRIVATE_BASE, SHARED_BASE, Wave};
use wave32_isa::{Form, Opcode};

/// Rounds for each operation.
const ROUNDS: usize = 60;

/// Not here: the run loop does them (`tests/wave.rs`), or nothing is to be done (`tests/wave.rs`: hints).
const ELSEWHERE: &[&str] = &[
    "s_getpc_b64",
    "s_setpc_b64",
    "s_swappc_b64",
    "s_call_b64",
    "s_subvector_loop_begin",
    "s_subvector_loop_end",
    "s_waitcnt_vscnt",
    "s_waitcnt_vmcnt",
    "s_waitcnt_expcnt",
    "s_waitcnt_lgkmcnt",
    "s_version",
    // hardware registers, below
    "s_getreg_b32",
    "s_setreg_b32",
    "s_setreg_imm32_b32",
];
/// Returns from a trap handler, which only the driver may install: stops as not implemented.
const MISSING: &[&str] = &["s_rfe_b64"];

/// A source: its text, and what it reads.
enum Source {
    Register(usize),
    Integer(i64),
    Literal(u32),
    Float(f32),
    Special(&'static str),
}

impl Source {
    /// Any, of 32 or 64 bits; registers even, so that a pair fits.
    fn random(rng: &mut StdRng, literals: bool) -> Self {
        match rng.random_range(0..10) {
            0 => Self::Integer(rng.random_range(-16..=64)),
            1 if literals => Self::Literal(rng.random_range(65..u32::MAX - 16)),
            2 => Self::Float(*[0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0].choose(rng).expect("one")),
            3 => {
                let all =
                    ["vcc", "exec", "scc", "src_vccz", "src_execz", "src_shared_base", "src_private_base"];
                Self::Special(all.choose(rng).expect("one"))
            }
            _ => Self::Register(rng.random_range(0..20) * 2),
        }
    }

    fn text(&self, wide: bool) -> String {
        match self {
            Self::Register(r) if wide => format!("s[{r}:{}]", r + 1),
            Self::Register(r) => format!("s{r}"),
            Self::Integer(i) => i.to_string(),
            Self::Literal(l) => format!("{l:#x}"),
            Self::Float(f) => format!("{f:?}"),
            Self::Special("scc") => "src_scc".into(),
            Self::Special(name @ ("vcc" | "exec")) if !wide => format!("{name}_lo"),
            Self::Special(name) => (*name).into(),
        }
    }

    fn value(&self, wave: &Wave, wide: bool, signed: bool) -> u64 {
        let mask = |r: usize| {
            let high = if wave.wave64 { wave.sgpr[r + 1] } else { 0 };
            u64::from(wave.sgpr[r]) | u64::from(high) << 32
        };
        let value = match self {
            Self::Register(r) => u64::from(wave.sgpr[*r]) | u64::from(wave.sgpr[r + 1]) << 32,
            Self::Integer(i) => *i as u64,
            Self::Literal(l) if signed => i64::from(*l as i32) as u64,
            Self::Literal(l) => u64::from(*l),
            Self::Float(f) if wide => f64::from(*f).to_bits(),
            Self::Float(f) => u64::from(f.to_bits()),
            Self::Special("vcc") => u64::from(wave.sgpr[106]) | u64::from(wave.sgpr[107]) << 32,
            Self::Special("exec") => u64::from(wave.sgpr[126]) | u64::from(wave.sgpr[127]) << 32,
            Self::Special("scc") => u64::from(wave.scc),
            Self::Special("src_vccz") => u64::from(mask(106) == 0),
            Self::Special("src_execz") => u64::from(mask(126) == 0),
            Self::Special("src_shared_base") if wide => SHARED_BASE,
            Self::Special("src_shared_base") => SHARED_BASE >> 32,
            Self::Special(_) if wide => PRIVATE_BASE,
            Self::Special(_) => PRIVATE_BASE >> 32,
        };
        if wide { value } else { value & 0xffff_ffff }
    }
}

/// An instruction to try.
struct Case {
    op: Opcode,
    text: String,
    dst: Option<usize>,
    wide: bool,
    sources: Vec<(Source, bool)>,
    imm: i16,
}

/// Which operands are 64 bits wide: destination, sources.
fn widths(op: Opcode) -> (bool, Vec<bool>) {
    let row = op.row();
    let of = |slot: &wave32_isa::Slot| match slot {
        wave32_isa::Slot::Value(_, dwords) => Some(*dwords == 2),
        _ => None,
    };
    (row.dst.first().and_then(of).unwrap_or(false), row.src.iter().filter_map(of).collect())
}

fn case(op: Opcode, rng: &mut StdRng) -> Case {
    let (wide, sources) = widths(op);
    let sopk = op.row().form == Form::Sopk;
    let mut literal = false;
    let sources: Vec<(Source, bool)> = sources
        .into_iter()
        .map(|wide| {
            let source = if sopk {
                Source::Register(2 * rng.random_range(0..20))
            } else {
                Source::random(rng, !literal)
            };
            literal |= matches!(source, Source::Literal(_));
            (source, wide)
        })
        .collect();
    // EXEC and VCC are destinations too, but a mask that the instruction writes on its own account would clash.
    let masks: &[usize] = if op.name().contains("exec") { &[106] } else { &[106, 126] };
    let dst = (!op.row().dst.is_empty()).then(|| match rng.random_range(0..8) {
        0 => *masks.choose(rng).expect("one"),
        _ => rng.random_range(0..20) * 2,
    });
    let name = |code: usize| match (code, wide) {
        (106, true) => "vcc".to_string(),
        (106, false) => "vcc_lo".into(),
        (126, true) => "exec".into(),
        (126, false) => "exec_lo".into(),
        (r, true) => format!("s[{r}:{}]", r + 1),
        (r, false) => format!("s{r}"),
    };
    let imm: i16 = if rng.random() { rng.random() } else { rng.random_range(-3..3) };
    let mut operands: Vec<String> = dst.map(name).into_iter().collect();
    operands.extend(sources.iter().map(|(s, wide)| s.text(*wide)));
    if sopk {
        operands.push(format!("{:#x}", imm as u16));
    }
    Case { op, text: format!("{} {}", op.name(), operands.join(", ")), dst, wide, sources, imm }
}

fn operations() -> Vec<Opcode> {
    let scalar = |op: &&Opcode| matches!(op.row().form, Form::Sop1 | Form::Sop2 | Form::Sopc | Form::Sopk);
    Opcode::ALL.iter().filter(scalar).copied().collect()
}

fn is_relative(op: Opcode) -> bool {
    op.name().starts_with("s_movrel")
}

#[test]
fn every_operation_does_what_the_manual_says() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let rng = &mut rng();
    let skipped =
        |op: &Opcode| ELSEWHERE.contains(&op.name()) || MISSING.contains(&op.name()) || is_relative(*op);
    let operations: Vec<Opcode> = operations().into_iter().filter(|op| !skipped(op)).collect();
    let cases: Vec<Case> =
        operations.iter().flat_map(|op| (0..ROUNDS).map(|_| *op)).map(|op| case(op, rng)).collect();
    let codes = assemble(&cases.iter().map(|c| c.text.clone()).collect::<Vec<_>>(), false);
    let bench = Bench::new();
    let mut tested = BTreeSet::new();
    for (case, code) in cases.iter().zip(codes) {
        let wave64 = rng.random();
        let mut solo = random_wave(rng, wave64);
        let before = solo.wave.clone();
        let text = &case.text;
        bench.run(&code, &mut solo).unwrap_or_else(|stop| panic!("{text}: {stop:?}"));
        let signed = case.op.name().contains("_i64");
        let mut values = case.sources.iter().map(|(s, wide)| s.value(&before, *wide, signed));
        let pair = |code: usize| u64::from(before.sgpr[code]) | u64::from(before.sgpr[code + 1]) << 32;
        let narrow = |v: u64| if case.op.name().ends_with("b32") { v & 0xffff_ffff } else { v };
        let old = case.dst.map_or(0, pair);
        let seen = Seen {
            a: values.next().unwrap_or(0),
            b: values.next().unwrap_or(0),
            old: if case.wide { old } else { old & 0xffff_ffff },
            imm: case.imm,
            scc: before.scc,
            exec: narrow(pair(126)),
        };
        let effect = model(case.op.name(), &seen).unwrap_or_else(|| panic!("{text}: no model"));
        let mut expected = before.clone();
        if let (Some(code), Some(value)) = (case.dst, effect.dst) {
            expected.sgpr[code] = value as u32;
            if case.wide {
                expected.sgpr[code + 1] = (value >> 32) as u32;
            }
        }
        if let Some(exec) = effect.exec {
            expected.sgpr[126] = exec as u32;
            if case.op.name().ends_with("64") {
                expected.sgpr[127] = (exec >> 32) as u32;
            }
        }
        expected.scc = effect.scc.unwrap_or(before.scc);
        assert_eq!(solo.wave.sgpr, expected.sgpr, "{text}: a {:#x} b {:#x} {effect:x?}", seen.a, seen.b);
        assert_eq!(solo.wave.scc, expected.scc, "SCC of {text}: a {:#x} b {:#x}", seen.a, seen.b);
        assert_eq!((solo.wave.mode, &solo.wave.vgpr), (before.mode, &before.vgpr), "{text}");
        tested.insert(case.op);
    }
    let relative = operations_relative();
    assert_eq!(tested.len() + relative.len() + ELSEWHERE.len() + MISSING.len(), self::operations().len());
}

fn operations_relative() -> Vec<Opcode> {
    operations().into_iter().filter(|op| is_relative(*op)).collect()
}

/// `s_movrel*`: M0 moves the source, the destination, or both by its halves.
#[test]
fn relative_moves() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let rng = &mut rng();
    let lines = [
        "s_movrels_b32 s2, s4",
        "s_movrels_b64 s[2:3], s[4:5]",
        "s_movreld_b32 s2, s4",
        "s_movreld_b64 s[2:3], s[4:5]",
        "s_movrelsd_2_b32 s2, s4",
    ]
    .map(String::from);
    assert_eq!(operations_relative().len(), lines.len());
    let codes = assemble(&lines, false);
    let bench = Bench::new();
    for _ in 0..ROUNDS {
        for (line, code) in lines.iter().zip(&codes) {
            let mut solo = random_wave(rng, false);
            let (by_source, by_destination) = (2 * rng.random_range(0..40), 2 * rng.random_range(0..40));
            let both = line.contains("movrelsd");
            solo.wave.sgpr[124] = if both { by_destination << 16 | by_source } else { by_source };
            let mut expected = solo.wave.clone();
            let (from, to) = match line {
                _ if both => (4 + by_source, 2 + by_destination),
                _ if line.contains("movrels_") => (4 + by_source, 2),
                _ => (4, 2 + by_source),
            };
            let count = if line.contains("b64") { 2 } else { 1 };
            for i in 0..count {
                expected.sgpr[to as usize + i] = solo.wave.sgpr[from as usize + i];
            }
            bench.run(code, &mut solo).expect("runs");
            assert_eq!(solo.wave.sgpr, expected.sgpr, "{line} by {by_source}, {by_destination}");
        }
    }
}

/// Fields of MODE and FLAT_SCRATCH are read back as written, and only they change; MODE's switches among the SOPP.
#[test]
fn hardware_registers() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let rng = &mut rng();
    let bench = Bench::new();
    let mut cases = Vec::new();
    for _ in 0..ROUNDS {
        let offset = rng.random_range(0..32);
        let width = rng.random_range(1..=32 - offset);
        for (index, name) in
            ["HW_REG_MODE", "HW_REG_FLAT_SCR_LO", "HW_REG_FLAT_SCR_HI"].into_iter().enumerate()
        {
            cases.push((index, name, offset, width, rng.random::<u32>()));
        }
    }
    let lines = |&(_, name, offset, width, value): &(usize, &str, u32, u32, u32)| {
        [
            format!("s_setreg_b32 hwreg({name}, {offset}, {width}), s5"),
            format!("s_getreg_b32 s6, hwreg({name}, {offset}, {width})"),
            format!("s_setreg_imm32_b32 hwreg({name}, {offset}, {width}), {value:#x}"),
            format!("s_getreg_b32 s7, hwreg({name})"),
        ]
    };
    let codes = assemble(&cases.iter().flat_map(lines).collect::<Vec<_>>(), false);
    for (case, code) in cases.iter().zip(codes.chunks_exact(4)) {
        let &(index, _, offset, width, value) = case;
        let mask = ((1u64 << width) - 1) as u32;
        let mut solo = random_wave(rng, false);
        solo.wave.mode = rng.random();
        solo.wave.flat_scratch = rng.random();
        let of = |w: &Wave| [w.mode, w.flat_scratch as u32, (w.flat_scratch >> 32) as u32];
        let (before, scc) = (of(&solo.wave), solo.wave.scc);
        bench.run(&code.concat(), &mut solo).expect("runs");
        let mut expected = before;
        expected[index] = (before[index] & !(mask << offset)) | (value & mask) << offset;
        assert_eq!(of(&solo.wave), expected, "{case:?}");
        assert_eq!(solo.wave.sgpr[6], solo.wave.sgpr[5] & mask, "{case:?}");
        assert_eq!((solo.wave.sgpr[7], solo.wave.scc), (expected[index], scc));
    }
    let modes: Vec<(u32, u32)> =
        (0..ROUNDS).map(|_| (rng.random_range(0..16), rng.random_range(0..16))).collect();
    let lines = |&(round, denormal): &(u32, u32)| {
        [format!("s_round_mode {round}"), format!("s_denorm_mode {denormal}")]
    };
    let codes = assemble(&modes.iter().flat_map(lines).collect::<Vec<_>>(), false);
    for ((round, denormal), code) in modes.iter().zip(codes.chunks_exact(2)) {
        let mut solo = random_wave(rng, false);
        solo.wave.mode = rng.random();
        let before = solo.wave.mode;
        bench.run(&code.concat(), &mut solo).expect("runs");
        assert_eq!(solo.wave.mode, (before & !0xff) | denormal << 4 | round);
    }
}
