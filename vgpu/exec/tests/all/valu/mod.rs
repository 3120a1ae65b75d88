//! Every vector ALU operation against a model of it that shares no code with the handlers: random encodings in all
//! forms, random registers and edge values, EXEC, modes, wave sizes; every register of the wave is compared.

mod angles;
mod floats;
mod integers;
mod machine;
mod numbers;
mod ops;
mod whole_wave;
mod words;

use floats::Fmt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use wave32_exec::Wave;
use wave32_isa::{Inst, Opcode, Target, Ty, decode};
use words::{ENCODINGS, Encoding, VGPRS};

fn seed() -> u64 {
    let seed = std::env::var("WAVE32_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random);
    println!("WAVE32_SEED={seed}");
    seed
}

/// Numbers at the edges of formats, and of the widths of integers.
fn edge(ty: Ty, rng: &mut StdRng) -> u64 {
    let small = rng.random_range(0..40) as u64;
    match ty {
        Ty::F64 => float_edge(Fmt::D, rng),
        Ty::F32 => float_edge(Fmt::S, rng),
        Ty::F16 => float_edge(Fmt::H, rng) | rng.random::<u64>() << 16,
        Ty::Pk16F => float_edge(Fmt::H, rng) | float_edge(Fmt::H, rng) << 16,
        _ => *[
            0,
            1,
            small,
            small.wrapping_neg(),
            0x7fff,
            0x8000,
            0xffff,
            0x8000_7fff,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            0xff_ffff,
            0x80_0000,
            i64::MAX as u64,
            1 << 63,
            1 << 32,
            u64::MAX,
        ]
        .choose(rng)
        .unwrap(),
    }
}

fn float_edge(f: Fmt, rng: &mut StdRng) -> u64 {
    let inf = f.inf();
    let ulp = 1u64;
    let smallest = inf & inf.wrapping_neg(); // normal
    let one = inf / 2 / smallest * smallest;
    let magnitude = match rng.random_range(0..16) {
        0 => 0,
        1 => ulp,
        2 => smallest - 1,
        3 => smallest,
        4 => smallest + 1,
        5 => inf - 1,
        6 => inf,
        7 => inf | smallest >> 1,                      // quiet
        8 => inf | rng.random_range(1..smallest >> 1), // signalling
        9 => one,
        10 => one - 1,
        11 => one + ulp,
        12 => one / 2 + rng.random_range(0..one),
        13 => rng.random_range(0..smallest), // denormal
        // Near one: what cancels.
        _ => one - 2 * smallest + rng.random_range(0..5 * smallest),
    };
    magnitude | if rng.random() { f.sign() } else { 0 }
}

fn value(ty: Ty, rng: &mut StdRng) -> u64 {
    match rng.random_range(0..8) {
        0..4 => edge(ty, rng),
        4 if ty == Ty::F32 => u64::from(rng.random_range(-300.0f32..300.0).to_bits()),
        4 if ty == Ty::F64 => rng.random_range(-300.0f64..300.0).to_bits(),
        5 => rng.random::<u64>() >> rng.random_range(0..64),
        _ => rng.random(),
    }
}

/// A wave whose registers hold random bits, the operands' what suits their types.
fn random_wave(inst: &Inst, wave64: bool, rng: &mut StdRng) -> Wave {
    let mut wave = Wave::new(VGPRS as usize, wave64);
    for x in wave.sgpr.iter_mut().chain(wave.vgpr.iter_mut().flat_map(|row| row.iter_mut())) {
        *x = rng.random();
    }
    wave.sgpr[125] = 0;
    let mask = |rng: &mut StdRng| match rng.random_range(0..6) {
        0 => 0,
        1 | 2 => u32::MAX,
        3 => 1 << rng.random_range(0..32),
        _ => rng.random(),
    };
    wave.sgpr[124] = match rng.random_range(0..4) {
        0 => rng.random(),
        _ => rng.random_range(0..8) | rng.random_range(0..8) << 16,
    };
    for arg in inst.args() {
        let Some(first) = arg.operand.as_vgpr() else {
            if let Some(r) = arg.operand.as_sgpr().filter(|&r| r < 108 && arg.ty != Ty::Mask) {
                let x = value(arg.ty, rng);
                wave.sgpr[r] = x as u32;
                wave.sgpr[r + 1] = (x >> 32) as u32;
            }
            continue;
        };
        for half in 0..1 + usize::from(wave64) {
            for lane in 0..32 {
                let x = value(arg.ty, rng);
                for d in 0..usize::from(arg.dwords) {
                    let word = if d < 2 { (x >> (32 * d)) as u32 } else { rng.random() };
                    wave.vgpr[half * wave.vgprs + first + d][lane] = word;
                }
            }
        }
    }
    // Equal sources now and then: `v_div_scale` asks.
    if let (Some(a), Some(b)) = (inst.arg[2].operand.as_vgpr(), inst.arg[3].operand.as_vgpr())
        && rng.random_bool(0.3)
        && inst.arg[2].dwords == inst.arg[3].dwords
    {
        for d in 0..usize::from(inst.arg[2].dwords) {
            wave.vgpr[b + d] = wave.vgpr[a + d];
        }
    }
    wave.sgpr[126] = mask(rng);
    wave.sgpr[127] = if wave64 { mask(rng) } else { 0 };
    wave.mode = match rng.random_range(0..5) {
        0 | 1 => 0x3f0,
        // Graphics compilers': singles flushed.
        4 => rng.random_range(0..4) << 8 | 0xc0,
        2 => rng.random_range(0..0x400) & !0xff | 0xf0,
        _ => rng.random_range(0..0x400),
    };
    wave
}

/// Executes by the model; `None` if there is none.
fn modelled(wave: &Wave, inst: &Inst) -> Option<(Wave, Vec<machine::Tolerance>)> {
    let mut after = wave.clone();
    let name = inst.op.name();
    let mut mov = |wave: &mut Wave, inst: &Inst| {
        machine::step(wave, inst, &|l| ops::eval("v_mov_b32", l).unwrap());
    };
    if whole_wave::step(&mut after, inst, &mut mov) {
        return Some((after, vec![]));
    }
    let known = std::cell::Cell::new(true);
    let tolerances = machine::step(&mut after, inst, &|l| {
        ops::eval(name, l).unwrap_or_else(|| {
            known.set(false);
            machine::Out::default()
        })
    });
    known.get().then_some((after, tolerances))
}

/// Brings results that may be inexact to the model's, where they are as near as allowed.
fn forgive(got: &mut Wave, want: &Wave, tolerances: &[machine::Tolerance]) {
    for t in tolerances {
        let at = |wave: &Wave, i: usize| wave.vgpr[t.lane / 32 * wave.vgprs + t.register + i][t.lane % 32];
        let bits = |wave: &Wave| match t.format {
            Fmt::D => u64::from(at(wave, 0)) | u64::from(at(wave, 1)) << 32,
            Fmt::S => at(wave, 0).into(),
            Fmt::H => (at(wave, 0) >> if t.high { 16 } else { 0 } & 0xffff).into(),
        };
        let ordered = |x: u64| {
            let magnitude = (x & !t.format.sign()) as i64;
            if t.format.negative(x) { -magnitude } else { magnitude }
        };
        let (a, b) = (bits(got), bits(want));
        if !t.format.is_nan(a) && !t.format.is_nan(b) && ordered(a).abs_diff(ordered(b)) <= t.ulps {
            for i in 0..usize::from(t.format == Fmt::D) + 1 {
                let word = at(want, i);
                let vgprs = got.vgprs;
                got.vgpr[t.lane / 32 * vgprs + t.register + i][t.lane % 32] = word;
            }
        }
    }
}

/// The first difference in words.
fn difference(before: &Wave, got: &Wave, want: &Wave, inst: &Inst) -> Option<String> {
    let registers = (0..128).filter(|&r| got.sgpr[r] != want.sgpr[r]);
    let scalar = registers.map(|r| format!("s{r}: {:#x}, model {:#x}", got.sgpr[r], want.sgpr[r])).next();
    let vector =
        (0..got.vgpr.len()).flat_map(|r| (0..32).map(move |lane| (r, lane))).find_map(|(r, lane)| {
            let (a, b) = (got.vgpr[r][lane], want.vgpr[r][lane]);
            (a != b).then(|| format!("row {r} of {} lane {lane}: {a:#010x}, model {b:#010x}", got.vgprs))
        });
    let what = scalar.or(vector)?;
    let lane: usize = what.split("lane ").nth(1).and_then(|s| s.split(':').next()?.parse().ok()).unwrap_or(0);
    let half =
        what.split("row ").nth(1).and_then(|s| s.split(' ').next()?.parse::<usize>().ok()).unwrap_or(0)
            / got.vgprs;
    let operands: Vec<String> = inst
        .args()
        .iter()
        .map(|a| match (a.operand.as_vgpr(), a.operand.as_sgpr()) {
            (Some(r), _) => (0..usize::from(a.dwords))
                .map(|d| format!("v{}={:#x}", r + d, before.vgpr[half * before.vgprs + r + d][lane]))
                .collect(),
            (_, Some(r)) => format!("s{r}={:#x}_{:08x}", before.sgpr[(r + 1) & 127], before.sgpr[r]),
            _ => format!("const {}", a.operand.0),
        })
        .collect();
    Some(format!(
        "{what}\n  operands {operands:?} literal {:#x}\n  mode {:#x} exec {:#x} {:#x} wave64 {}\n  {:?} {:?}",
        inst.literal, before.mode, before.sgpr[126], before.sgpr[127], before.wave64, inst.mods, inst.swizzle
    ))
}

/// What the manual leaves open: saturation of integers where it names none, lane numbers that are not the wave's,
/// constants of 128 bits.
fn undefined(inst: &Inst) -> bool {
    let name = inst.op.name();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let float = has(&["f16", "f32", "f64"]);
    let saturates = has(&["_nc_", "_co_", "mad", "sad", "24", "dot", "pk_", "min3", "max3", "med3"]);
    // `v_writelane_b32` reads no lanes at all.
    let uniform = if has(&["writelane"]) { 1 } else { 2 };
    let vgpr = |arg: &wave32_isa::Arg| arg.operand.as_vgpr().is_some();
    inst.mods.clamp && !float && !saturates
        || has(&["lane_", "lane1", "lanex"]) && inst.args().iter().skip(uniform).any(vgpr)
        || inst.args().iter().any(|arg| arg.dwords == 4 && !vgpr(arg))
}

/// Runs an operation so often in each of its forms; adds to `met` how often each was compared.
fn check(
    op: Opcode,
    rounds: usize,
    rng: &mut StdRng,
    met: &mut BTreeMap<(Opcode, Encoding), usize>,
    wrong: &mut Vec<String>,
) {
    for encoding in ENCODINGS {
        let mut done = 0;
        for _ in 0..rounds * 20 {
            let wave64 = rng.random();
            let words = words::words(op, encoding, rng);
            let Ok(inst) = decode(&words, Target::Gfx1012, wave64) else {
                if words.is_empty() { break } else { continue }
            };
            assert_eq!(inst.op, op, "{words:x?}");
            if undefined(&inst) {
                continue;
            }
            let before = random_wave(&inst, wave64, rng);
            let Some((want, tolerances)) = modelled(&before, &inst) else {
                return; // no model: the coverage test names it
            };
            if !tolerances.is_empty() && machine::places_a_part(&inst) {
                continue;
            }
            let mut got = before.clone();
            if !got.execute_vector(&inst) {
                wrong.push(format!("{} {encoding:?}: not bound: {inst:?}", op.name()));
                return;
            }
            forgive(&mut got, &want, &tolerances);
            if let Some(text) = difference(&before, &got, &want, &inst) {
                wrong.push(format!("{} {encoding:?} {words:x?}: {text}", op.name()));
                return;
            }
            done += 1;
            if done == rounds {
                break;
            }
        }
        if done > 0 {
            *met.entry((op, encoding)).or_default() += done;
        }
    }
}

/// Operations without a semantic test, each with its reason.
const UNTESTED: &[(&str, &str)] = &[];

#[test]
fn every_operation_is_its_model() {
    let seed = seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let rounds = std::env::var("WAVE32_ROUNDS").ok().and_then(|s| s.parse().ok()).unwrap_or(40);
    let (mut met, mut wrong) = (BTreeMap::new(), Vec::new());
    let filter = std::env::var("WAVE32_OP").unwrap_or_default();
    let all: Vec<Opcode> =
        Opcode::ALL.iter().copied().filter(|op| op.is_valu() && op.name().contains(&filter)).collect();
    for &op in &all {
        let run = std::panic::AssertUnwindSafe(|| check(op, rounds, &mut rng, &mut met, &mut wrong));
        if std::panic::catch_unwind(run).is_err() {
            wrong.push(format!("{}: panics", op.name()));
        }
    }
    let untested: Vec<&str> = all
        .iter()
        .filter(|&&op| !met.keys().any(|(o, _)| *o == op))
        .map(|op| op.name())
        .filter(|name| !UNTESTED.iter().any(|(listed, _)| listed == name))
        .collect();
    for encoding in ENCODINGS {
        let (ops, runs) =
            met.iter().filter(|((_, e), _)| *e == encoding).fold((0, 0), |(o, r), (_, n)| (o + 1, r + n));
        println!("{encoding:?}: {ops} operations, {runs} instructions");
    }
    for text in wrong.iter().take(40) {
        println!("{text}\n");
    }
    assert!(wrong.is_empty(), "{} operations differ from their models, seed {seed}", wrong.len());
    assert!(untested.is_empty(), "no semantic test of {untested:?}");
}
