//! Typed accesses of MUBUF and MTBUF: every format, converted as its name says.

use super::buffer::{DATA, registers};
use super::machine::*;
use crate::common::{assemble, have, rng};
use half::f16;
use rand::{Rng, rngs::StdRng};

/// Typed accesses of MUBUF; the last is none of MTBUF's.
pub const KINDS: [&str; 9] = ["x", "xy", "xyz", "xyzw", "d16_x", "d16_xy", "d16_xyz", "d16_xyzw", "d16_hi_x"];

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
