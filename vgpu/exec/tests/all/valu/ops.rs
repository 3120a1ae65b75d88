//! What each operation of a lane means: from the manual's description, with APFloat, host arithmetic and loops over bits.

use rustc_apfloat::Round;
use std::cmp::Ordering;
use wave32_isa::Ty;

use super::floats::{Fmt, M};
use super::integers::{bits, whole};
use super::machine::{Lane, Out, finished};
use super::numbers::{arithmetic, div_scale, special};

/// The format in a name, and the name without it.
pub fn float(name: &str) -> Option<(&str, Fmt)> {
    let (base, suffix) = name.rsplit_once('_')?;
    let format = match suffix {
        "f16" => Fmt::H,
        "f32" => Fmt::S,
        "f64" => Fmt::D,
        _ => return None,
    };
    Some((base, format))
}

/// Width and sign of the integers in a name, and the name without them.
pub fn integer(name: &str) -> Option<(&str, u32, bool)> {
    let (base, suffix) = name.rsplit_once('_')?;
    let width = suffix[1..].parse().ok()?;
    matches!(&suffix[..1], "u" | "i" | "b").then_some((base, width, suffix.starts_with('i')))
}

pub fn number(x: u128, width: u32, signed: bool) -> i128 {
    let x = (x & ((1 << width) - 1)) as i128;
    if signed && x >> (width - 1) != 0 { x - (1 << width) } else { x }
}

pub fn bytes(x: u128) -> [i128; 4] {
    (x as u32).to_le_bytes().map(i128::from)
}

pub fn of_bytes(b: [i128; 4]) -> i128 {
    i128::from(u32::from_le_bytes(b.map(|x| x as u8)))
}

/// The result of an operation; `None` if there is no model of it here.
pub fn eval(name: &str, l: &Lane) -> Option<Out> {
    let name = name.strip_prefix("v_")?;
    let exact = |value: i128| Some(Out { value, ..Out::default() });
    if let Some(holds) = compare(name, l) {
        return exact(holds.into());
    }
    if let Some(out) = carrying(name, l).or_else(|| special(name, l)) {
        return Some(out);
    }
    packed(name, l)
        .or_else(|| conversion(name, l))
        .or_else(|| arithmetic(name, l))
        .or_else(|| bits(name, l))
        .or_else(|| whole(name, l))
        .and_then(exact)
}

fn compare(name: &str, l: &Lane) -> Option<bool> {
    let rest = name.strip_prefix("cmp_").or_else(|| name.strip_prefix("cmpx_"))?;
    let (a, b) = (l.s[0], l.s[1]);
    let (condition, order) = if let Some((condition, f)) = float(rest) {
        if condition == "class" {
            let a = a as u64;
            let class = match () {
                () if f.is_signalling(a) => 0,
                () if f.is_nan(a) => 1,
                () if f.is_inf(a) => [9, 2][usize::from(f.negative(a))],
                () if f.is_zero(a) => [6, 5][usize::from(f.negative(a))],
                () if f.is_denormal(a) => [7, 4][usize::from(f.negative(a))],
                () => [8, 3][usize::from(f.negative(a))],
            };
            return Some(b >> class & 1 != 0);
        }
        (condition, f.cmp(l.m, a as u64, b as u64))
    } else {
        let (condition, width, signed) = integer(rest)?;
        (condition, Some(number(a, width, signed).cmp(&number(b, width, signed))))
    };
    let is = |o| order == Some(o);
    let (lt, eq, gt) = (is(Ordering::Less), is(Ordering::Equal), is(Ordering::Greater));
    Some(match condition {
        "f" => false,
        "lt" => lt,
        "eq" => eq,
        "le" => lt || eq,
        "gt" => gt,
        "lg" => lt || gt,
        "ge" => gt || eq,
        "o" => order.is_some(),
        "u" => order.is_none(),
        "nge" => !(gt || eq),
        "nlg" => !(lt || gt),
        "ngt" => !gt,
        "nle" => !(lt || eq),
        "neq" | "ne" => !eq,
        "nlt" => !lt,
        "tru" | "t" => true,
        other => panic!("condition {other}"),
    })
}

fn carrying(name: &str, l: &Lane) -> Option<Out> {
    let s: Vec<i128> = l.s.iter().map(|&x| x as i128).collect();
    let sum = |exact: i128| Some(Out { value: exact, carry: !(0..1 << 32).contains(&exact), ulps: 0 });
    match name {
        "add_co_u32" => sum(s[0] + s[1]),
        "sub_co_u32" => sum(s[0] - s[1]),
        "subrev_co_u32" => sum(s[1] - s[0]),
        "add_co_ci_u32" => sum(s[0] + s[1] + s[2]),
        "sub_co_ci_u32" => sum(s[0] - s[1] - s[2]),
        "subrev_co_ci_u32" => sum(s[1] - s[0] - s[2]),
        "mad_u64_u32" => {
            let exact = s[0] * s[1] + s[2];
            let over = exact > i128::from(u64::MAX);
            let value = if over && l.clamp { i128::from(u64::MAX) } else { exact };
            Some(Out { value, carry: over, ulps: 0 })
        }
        "mad_i64_i32" => {
            let exact = number(l.s[0], 32, true) * number(l.s[1], 32, true) + number(l.s[2], 64, true);
            let held = exact.clamp(i64::MIN.into(), i64::MAX.into());
            Some(Out { value: if l.clamp { held } else { exact }, carry: exact != held, ulps: 0 })
        }
        "div_scale_f32" | "div_scale_f64" => {
            let (_, f) = float(name)?;
            let (value, carry) = div_scale(f, [l.s[0] as u64, l.s[1] as u64, l.s[2] as u64]);
            Some(Out { value: value.into(), carry, ulps: 0 })
        }
        _ => None,
    }
}

fn packed(name: &str, l: &Lane) -> Option<i128> {
    if let Some(to) = name.strip_prefix("fma_mix") {
        let s: Vec<u64> = (0..3).map(|i| mixed(l, i)).collect();
        let sum = Fmt::S.fma(l.m, s[0], s[1], s[2]);
        return Some(if to == "_f32" { sum } else { Fmt::S.to(l.m, sum, Fmt::H) }.into());
    }
    if let Some(kind) = name.strip_prefix("dot2c_").or_else(|| name.strip_prefix("dot2_")) {
        let parts = |i: usize| [half(l, i, 0, kind == "f32_f16"), half(l, i, 1, kind == "f32_f16")];
        let (a, b) = (parts(0), parts(1));
        if kind == "f32_f16" {
            let single = |x: u64| Fmt::H.to(l.m, x, Fmt::S);
            let first = Fmt::S.fma(l.m, single(a[0]), single(b[0]), l.s[2] as u64);
            return Some(Fmt::S.fma(l.m, single(a[1]), single(b[1]), first).into());
        }
        let signed = kind.starts_with('i');
        let n = |x: u64| number(x.into(), 16, signed);
        return Some(n(a[0]) * n(b[0]) + n(a[1]) * n(b[1]) + number(l.s[2], 32, signed));
    }
    if let Some((width, kind)) = [("dot4_", 8), ("dot4c_", 8), ("dot8_", 4)]
        .iter()
        .find_map(|(prefix, width)| name.strip_prefix(prefix).map(|kind| (*width, kind)))
    {
        let signed = kind.starts_with('i');
        let part = |x: u128, i: u32| number(x >> (i * width), width, signed);
        let sum: i128 = (0..32 / width).map(|i| part(l.s[0], i) * part(l.s[1], i)).sum();
        return Some(sum + number(l.s[2], 32, signed));
    }
    let base = name.strip_prefix("pk_")?;
    let base = match base {
        "fmac_f16" => "fma_f16".to_string(),
        "add_u16" | "add_i16" | "sub_u16" | "sub_i16" => base.replace('_', "_nc_"),
        _ => base.to_string(),
    };
    let (ty, is_float) = match &base[base.len() - 3..] {
        "f16" => (Ty::F16, true),
        "i16" => (Ty::I16, false),
        _ => (Ty::U16, false),
    };
    let result = |which: u32| {
        let s: Vec<u128> = (0..l.s.len()).map(|i| half(l, i, which, is_float).into()).collect();
        let one = Lane { s: &s, m: l.m, clamp: l.clamp, lane: l.lane, inst: l.inst };
        let value =
            arithmetic(&base, &one).or_else(|| bits(&base, &one)).or_else(|| whole(&base, &one)).unwrap();
        let mut inst = *l.inst;
        inst.mods.omod = 0;
        finished(l.m, &inst, ty, value) & 0xffff
    };
    Some(result(0) | result(1) << 16)
}

/// A half of a packed source, for the low (0) or high (1) result.
fn half(l: &Lane, i: usize, which: u32, is_float: bool) -> u64 {
    let mods = &l.inst.mods;
    // The short encodings know no choice.
    let packed = l.inst.form == wave32_isa::Form::Vop3p;
    let (high, negated) = match (packed, which) {
        (false, _) => (which == 1, false),
        (true, 0) => (mods.op_sel >> i & 1 != 0, mods.neg >> i & 1 != 0),
        (true, _) => (mods.op_sel_hi >> i & 1 != 0, mods.abs >> i & 1 != 0),
    };
    let x = (l.s[i] >> if high { 16 } else { 0 }) as u64 & 0xffff;
    if is_float && negated { x ^ 0x8000 } else { x }
}

/// A source of `v_fma_mix` as a single.
fn mixed(l: &Lane, i: usize) -> u64 {
    let mods = &l.inst.mods;
    let bit = |x: u8| x >> i & 1 != 0;
    let x = l.s[i] as u64;
    let mut y = match (bit(mods.op_sel_hi), bit(mods.op_sel)) {
        (false, _) => x & 0xffff_ffff,
        (true, high) => Fmt::H.to(l.m, x >> if high { 16 } else { 0 } & 0xffff, Fmt::S),
    };
    if bit(mods.abs) {
        y &= 0x7fff_ffff;
    }
    if bit(mods.neg) { y ^ 0x8000_0000 } else { y }
}

fn norm(f: Fmt, m: M, x: u128, signed: bool) -> i128 {
    let x = f.take(m, x as u64);
    if f.is_nan(x) {
        return 0;
    }
    let (low, scale) = if signed { (-1.0, 32767.0) } else { (0.0, 65535.0) };
    let scaled = f.f64(x).max(low).min(1.0) * scale;
    Fmt::D.to_int(scaled.to_bits(), 32, true, Round::NearestTiesToEven)
}

fn conversion(name: &str, l: &Lane) -> Option<i128> {
    let s = l.s;
    let rest = name.strip_prefix("cvt_")?;
    let pack = |a: i128, b: i128| a & 0xffff | (b & 0xffff) << 16;
    let x = *s.first()? as u64;
    Some(match rest {
        "off_f32_i4" => {
            let sixteenths = number(s[0], 4, true) as f64 / 16.0;
            Fmt::D.to(M(0xf0), sixteenths.to_bits(), Fmt::S).into()
        }
        "f32_ubyte0" | "f32_ubyte1" | "f32_ubyte2" | "f32_ubyte3" => {
            let i: usize = rest[9..].parse().unwrap();
            Fmt::S.of_int(M(0), bytes(s[0])[i]).into()
        }
        "rpi_i32_f32" => {
            let sum = Fmt::D.add(M(0xf0), Fmt::S.to(l.m, x, Fmt::D), 0.5f64.to_bits());
            Fmt::D.to_int(sum, 32, true, Round::TowardNegative)
        }
        "flr_i32_f32" => Fmt::S.to_int(x, 32, true, Round::TowardNegative).max(
            // A flushed denormal below zero is no longer below zero.
            if Fmt::S.is_zero(Fmt::S.take(l.m, x)) { 0 } else { i128::MIN },
        ),
        "norm_i16_f16" => norm(Fmt::H, l.m, s[0], true),
        "norm_u16_f16" => norm(Fmt::H, l.m, s[0], false),
        "pknorm_i16_f16" => pack(norm(Fmt::H, l.m, s[0], true), norm(Fmt::H, l.m, s[1], true)),
        "pknorm_u16_f16" => pack(norm(Fmt::H, l.m, s[0], false), norm(Fmt::H, l.m, s[1], false)),
        "pknorm_i16_f32" => pack(norm(Fmt::S, l.m, s[0], true), norm(Fmt::S, l.m, s[1], true)),
        "pknorm_u16_f32" => pack(norm(Fmt::S, l.m, s[0], false), norm(Fmt::S, l.m, s[1], false)),
        "pkrtz_f16_f32" => {
            let to = |x: u128| i128::from(Fmt::S.to(M(l.m.0 | 12), x as u64, Fmt::H));
            pack(to(s[0]), to(s[1]))
        }
        "pk_u16_u32" => pack((s[0] as i128).min(65535), (s[1] as i128).min(65535)),
        "pk_i16_i32" => {
            let to = |x: u128| number(x, 32, true).clamp(-32768, 32767);
            pack(to(s[0]), to(s[1]))
        }
        "pk_u8_f32" => {
            let mut all = bytes(s[2]);
            all[s[1] as usize % 4] = Fmt::S.to_int(x, 8, false, Round::TowardZero);
            of_bytes(all)
        }
        _ => {
            let (to, from) = rest.split_once('_')?;
            let fmt = |s: &str| match s {
                "f16" => Some(Fmt::H),
                "f32" => Some(Fmt::S),
                "f64" => Some(Fmt::D),
                _ => None,
            };
            let width = |s: &str| (s[1..].parse().unwrap(), s.starts_with('i'));
            match (fmt(to), fmt(from)) {
                (Some(to), Some(from)) => from.to(l.m, x, to).into(),
                (Some(to), None) => {
                    let (width, signed) = width(from);
                    to.of_int(l.m, number(s[0], width, signed)).into()
                }
                (None, Some(from)) => {
                    let (width, signed) = width(to);
                    from.to_int(x, width as usize, signed, Round::TowardZero)
                }
                _ => return None,
            }
        }
    })
}
