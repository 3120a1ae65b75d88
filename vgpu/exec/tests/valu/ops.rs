//! What each operation of a lane means: from the manual's description, with APFloat, host arithmetic and loops over bits.

use rustc_apfloat::Round;
use std::cmp::Ordering;
use wave32_isa::Ty;

use crate::angles;
use crate::floats::{Fmt, M};
use crate::machine::{Lane, Out, finished};

/// The format in a name, and the name without it.
fn float(name: &str) -> Option<(&str, Fmt)> {
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
fn integer(name: &str) -> Option<(&str, u32, bool)> {
    let (base, suffix) = name.rsplit_once('_')?;
    let width = suffix[1..].parse().ok()?;
    matches!(&suffix[..1], "u" | "i" | "b").then_some((base, width, suffix.starts_with('i')))
}

fn number(x: u128, width: u32, signed: bool) -> i128 {
    let x = (x & ((1 << width) - 1)) as i128;
    if signed && x >> (width - 1) != 0 { x - (1 << width) } else { x }
}

fn bytes(x: u128) -> [i128; 4] {
    (x as u32).to_le_bytes().map(i128::from)
}

fn of_bytes(b: [i128; 4]) -> i128 {
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

/// The biased exponent.
fn exponent(f: Fmt, x: u64) -> i32 {
    ((x & f.inf()) / (f.inf() & f.inf().wrapping_neg())) as i32
}

fn div_scale(f: Fmt, [s0, s1, s2]: [u64; 3]) -> (u64, bool) {
    let usual = M(0xf0);
    let (step, huge, tiny) = if f == Fmt::S { (64, 96, 23) } else { (128, 768, 53) };
    let one = Fmt::D.to(usual, 1f64.to_bits(), f);
    let times = |n: i32| f.scale(usual, s0, n);
    let reciprocal = f.is_denormal(f.div(usual, one, s1));
    let quotient = f.is_denormal(f.div(usual, s2, s1));
    match () {
        () if f.is_zero(s1) || f.is_zero(s2) => (f.nan(), false),
        () if exponent(f, s2) - exponent(f, s1) >= huge => (if s0 == s1 { times(step) } else { s0 }, true),
        () if f.is_denormal(s1) => (times(step), false),
        () if reciprocal && quotient => (if s0 == s1 { times(-step) } else { s0 }, true),
        () if reciprocal => (times(-step), false),
        () if quotient => (if s0 == s2 { times(step) } else { s0 }, true),
        () if exponent(f, s2) <= tiny => (times(step), false),
        () => (s0, false),
    }
}

/// Operations whose results are the hardware's approximations, and their cousins.
fn special(name: &str, l: &Lane) -> Option<Out> {
    let (base, f) = float(name)?;
    let x = *l.s.first()? as u64;
    if base == "trig_preop" {
        return Some(Out { value: angles::trig_preop(l.m, x, l.s[1] as u32).into(), ..Out::default() });
    }
    // Singles flush denormals whatever the mode.
    let m = if f == Fmt::S { l.m.flushing(f) } else { l.m };
    let x = f.take(m, x);
    let y = f.f64(x);
    let (value, ulps) = match base {
        "rcp" | "rcp_iflag" => (1.0 / y, 1),
        "rsq" => (1.0 / y.sqrt(), 1),
        "sqrt" => (y.sqrt(), 1),
        "exp" => (angles::exp2(y), 1),
        "log" => (angles::log2(y), 1),
        "sin" => (angles::sin_turns(y, 0), 1),
        "cos" => (angles::sin_turns(y, 1), 1),
        _ => return None,
    };
    let value = match () {
        () if f.is_nan(x) => f.quiet(x),
        () if value.is_nan() => f.nan(),
        () => f.give(m, Fmt::D.to(m.nearest().keeping(f), value.to_bits(), f)),
    };
    Some(Out { value: value.into(), ulps, ..Out::default() })
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

fn arithmetic(name: &str, l: &Lane) -> Option<i128> {
    let (base, f) = float(name)?;
    let m = l.m;
    let s: Vec<u64> = l.s.iter().map(|&x| x as u64).collect();
    let order = |x: u64, y: u64, larger: bool| f.extreme(m, x, y, larger);
    // Not fused, denormals flushed.
    let mad = |product: &dyn Fn(M, u64, u64) -> u64| {
        let m = m.flushing(f);
        f.add(m, product(m, s[0], s[1]), s[2])
    };
    let legacy = |m: M, a: u64, b: u64| {
        let zero = |x: u64| f.is_zero(f.take(m, x));
        if zero(a) || zero(b) { 0 } else { f.mul(m, a, b) }
    };
    let value = match base {
        "add" => f.add(m, s[0], s[1]),
        "sub" => f.sub(m, s[0], s[1]),
        "subrev" => f.sub(m, s[1], s[0]),
        "mul" => f.mul(m, s[0], s[1]),
        "mul_legacy" => legacy(m, s[0], s[1]),
        "fma" | "fmac" | "fmaak" | "fmamk" => f.fma(m, s[0], s[1], s[2]),
        "mad" | "mac" | "madak" | "madmk" => mad(&|m, a, b| f.mul(m, a, b)),
        "mad_legacy" | "mac_legacy" => mad(&legacy),
        "min" => order(s[0], s[1], false),
        "max" => order(s[0], s[1], true),
        "min3" => order(order(s[0], s[1], false), s[2], false),
        "max3" => order(order(s[0], s[1], true), s[2], true),
        "med3" if s.iter().any(|&x| f.is_nan(x)) => order(order(s[0], s[1], false), s[2], false),
        "med3" => {
            let top = order(order(s[0], s[1], true), s[2], true);
            let is_top = |x: u64| f.take(m, x) == top;
            match () {
                () if is_top(s[0]) => order(s[1], s[2], true),
                () if is_top(s[1]) => order(s[0], s[2], true),
                () => order(s[0], s[1], true),
            }
        }
        "floor" => f.to_integral(m, s[0], Round::TowardNegative),
        "ceil" => f.to_integral(m, s[0], Round::TowardPositive),
        "trunc" => f.to_integral(m, s[0], Round::TowardZero),
        "rndne" => f.to_integral(m, s[0], Round::NearestTiesToEven),
        "fract" => {
            let x = f.sub(m, s[0], f.to_integral(m, s[0], Round::TowardNegative));
            if f.f64(x) == 1.0 { x - 1 } else { x }
        }
        "ldexp" => {
            let width = if f == Fmt::H { 16 } else { 32 };
            f.scale(m, s[0], number(l.s[1], width, true) as i32)
        }
        "frexp_mant" => {
            let x = f.take(m, s[0]);
            if f.is_nan(x) {
                f.quiet(x)
            } else if f.is_inf(x) || f.is_zero(x) {
                x
            } else {
                f.scale(M(0xf0), x, -frexp(f, x))
            }
        }
        "frexp_exp_i16" | "frexp_exp_i32" => {
            let x = f.take(m, s[0]);
            return Some(if f.is_nan(x) || f.is_inf(x) || f.is_zero(x) { 0 } else { frexp(f, x).into() });
        }
        "div_fmas" => {
            let finite = s[..3].iter().all(|&x| !f.is_nan(x) && !f.is_inf(x));
            if s[3] != 0 && finite { scaled_fma(f, m, &s) } else { f.fma(m, s[0], s[1], s[2]) }
        }
        "div_fixup" => fixup(f, m, &s),
        "cubeid" | "cubesc" | "cubetc" | "cubema" => cube(base, m, &s),
        "mullit" => {
            let [b, c] = [1, 2].map(|i| f.f64(f.take(m, s[i])));
            let least = f64::from(f32::MIN);
            if b == least || b == f64::NEG_INFINITY || b.is_nan() || c <= 0.0 || c.is_nan() {
                u64::from(f32::MIN.to_bits())
            } else {
                f.mul(m, s[0], s[1])
            }
        }
        _ => return None,
    };
    Some(value.into())
}

/// The exponent that leaves 1/2 to 1.
fn frexp(f: Fmt, x: u64) -> i32 {
    let mut n = 0;
    let mut y = f.f64(x).abs();
    if y < 1e-300 {
        y *= 2f64.powi(600);
        n -= 600;
    }
    while y >= 1.0 {
        y /= 2.0;
        n += 1;
    }
    while y < 0.5 {
        y *= 2.0;
        n -= 1;
    }
    n
}

/// `(a * b + c)` times the power that undoes `v_div_scale`, by scaling what is added before it is rounded.
fn scaled_fma(f: Fmt, m: M, s: &[u64]) -> u64 {
    let step = if f == Fmt::S { 64 } else { 128 };
    let [a, b, c] = [s[0], s[1], s[2]].map(|x| f.take(m, x));
    let bias = exponent(f, Fmt::D.to(M(0xf0), 1f64.to_bits(), f));
    let by = if exponent(f, c) > bias { step } else { -step };
    angles::exact_fma(f, m, a, b, c, by)
}

fn fixup(f: Fmt, m: M, s: &[u64]) -> u64 {
    let (q, d, n) = (s[0], s[1], s[2]);
    let sign = if f.negative(d) != f.negative(n) { f.sign() } else { 0 };
    let limit = match f {
        Fmt::H => i32::MIN,
        Fmt::S => -150,
        Fmt::D => -1075,
    };
    match () {
        () if f.is_nan(n) => f.quiet(n),
        () if f.is_nan(d) => f.quiet(d),
        () if f.is_zero(d) && f.is_zero(n) || f.is_inf(d) && f.is_inf(n) => f.nan(),
        () if f.is_zero(d) || f.is_inf(n) => sign | f.inf(),
        () if f.is_inf(d) || f.is_zero(n) => sign,
        () if exponent(f, n) - exponent(f, d) < limit => {
            // Far below the smallest denormal: what rounding makes of that.
            let up = match m.round(f) {
                Round::TowardPositive => sign == 0,
                Round::TowardNegative => sign != 0,
                _ => false,
            };
            f.give(m, sign | u64::from(up))
        }
        // Compilers' division is IEEE's: finite operands have no quotient that is not a number.
        () if f.is_nan(q) => sign | f.inf(),
        () => sign | q & !f.sign(),
    }
}

fn cube(base: &str, m: M, s: &[u64]) -> u64 {
    let v: Vec<f32> = s[..3].iter().map(|&x| f32::from_bits(Fmt::S.take(m, x) as u32)).collect();
    let (x, y, z) = (v[0], v[1], v[2]);
    let (id, sc, tc, ma) = if z.abs() >= x.abs() && z.abs() >= y.abs() {
        if z < 0.0 { (5.0, -x, -y, z) } else { (4.0, x, -y, z) }
    } else if y.abs() >= x.abs() {
        if y < 0.0 { (3.0, x, -z, y) } else { (2.0, x, z, y) }
    } else if x < 0.0 {
        (1.0, z, -y, x)
    } else {
        (0.0, -z, -y, x)
    };
    let bits = |x: f32| u64::from(x.to_bits());
    match base {
        "cubeid" => bits(id),
        "cubesc" => Fmt::S.give(m, bits(sc)),
        "cubetc" => Fmt::S.give(m, bits(tc)),
        _ => Fmt::S.mul(m, bits(ma), bits(2.0)),
    }
}

fn bits(name: &str, l: &Lane) -> Option<i128> {
    let s = l.s;
    let n: Vec<i128> = s.iter().map(|&x| x as i128).collect();
    let word = |x: u128| x as u32;
    // One bit of the result at a time.
    let by_bit = |f: &dyn Fn(u32) -> bool| (0..32).fold(0i128, |x, i| x | i128::from(f(i)) << i);
    let at = |x: u128, i: u32| x >> i & 1 != 0;
    Some(match name {
        "mov_b32" => n[0],
        "not_b32" => by_bit(&|i| !at(s[0], i)),
        "and_b32" => by_bit(&|i| at(s[0], i) && at(s[1], i)),
        "or_b32" => by_bit(&|i| at(s[0], i) || at(s[1], i)),
        "xor_b32" => by_bit(&|i| at(s[0], i) != at(s[1], i)),
        "xnor_b32" => by_bit(&|i| at(s[0], i) == at(s[1], i)),
        "and_or_b32" => by_bit(&|i| at(s[0], i) && at(s[1], i) || at(s[2], i)),
        "or3_b32" => by_bit(&|i| at(s[0], i) || at(s[1], i) || at(s[2], i)),
        "xor3_b32" => by_bit(&|i| at(s[0], i) ^ at(s[1], i) ^ at(s[2], i)),
        "bfi_b32" => by_bit(&|i| if at(s[0], i) { at(s[1], i) } else { at(s[2], i) }),
        "bfrev_b32" => by_bit(&|i| at(s[0], 31 - i)),
        "bfm_b32" => by_bit(&|i| {
            let (width, offset) = (word(s[0]) % 32, word(s[1]) % 32);
            (offset..offset + width).contains(&i)
        }),
        "bfe_u32" | "bfe_i32" => {
            let (offset, width) = (word(s[1]) % 32, word(s[2]) % 32);
            let signed = name == "bfe_i32";
            by_bit(&|i| match () {
                () if width == 0 => false,
                () if i >= width && !signed => false,
                () => {
                    let place = offset + i.min(width - 1);
                    // Past the top: the sign, or nothing.
                    if place > 31 { signed && at(s[0], 31) } else { at(s[0], place) }
                }
            })
        }
        "alignbit_b32" => {
            let shift = word(s[2]) % 32;
            by_bit(&|i| at(s[1] | s[0] << 32, i + shift))
        }
        "alignbyte_b32" => {
            let both = [bytes(s[1]), bytes(s[0])].concat();
            of_bytes(std::array::from_fn(|i| both[i + s[2] as usize % 4]))
        }
        "perm_b32" => {
            let both = [bytes(s[1]), bytes(s[0])].concat();
            of_bytes(bytes(s[2]).map(|sel| match sel {
                0..=7 => both[sel as usize],
                8..=11 => {
                    if both[(sel as usize - 8) * 2 + 1] >= 128 {
                        255
                    } else {
                        0
                    }
                }
                12 => 0,
                _ => 255,
            }))
        }
        "pack_b32_f16" => n[0] | n[1] << 16,
        "sat_pk_u8_i16" => {
            let sat = |x: u128| number(x, 16, true).clamp(0, 255);
            sat(s[0]) | sat(s[0] >> 16) << 8
        }
        "ffbh_u32" => (0..32).find(|i| at(s[0], 31 - i)).map_or(-1, i128::from),
        "ffbl_b32" => (0..32).find(|&i| at(s[0], i)).map_or(-1, i128::from),
        "ffbh_i32" => (1..32).find(|i| at(s[0], 31 - i) != at(s[0], 31)).map_or(-1, i128::from),
        "bcnt_u32_b32" => (0..32).filter(|&i| at(s[0], i)).count() as i128 + n[1],
        "mbcnt_lo_u32_b32" | "mbcnt_hi_u32_b32" => {
            let first = if name.contains("lo") { 0 } else { 32 };
            (0..32).filter(|&i| at(s[0], i) && (i + first) < l.lane as u32).count() as i128 + n[1]
        }
        "cndmask_b32" => {
            if s[2] != 0 {
                n[1]
            } else {
                n[0]
            }
        }
        "lshlrev_b32" => n[1] << (n[0] % 32),
        "lshrrev_b32" => n[1] >> (n[0] % 32),
        "ashrrev_i32" => number(s[1], 32, true) >> (n[0] % 32),
        "lshlrev_b16" => n[1] << (n[0] % 16),
        "lshrrev_b16" => n[1] >> (n[0] % 16),
        "ashrrev_i16" => number(s[1], 16, true) >> (n[0] % 16),
        "lshlrev_b64" => n[1] << (n[0] % 64),
        "lshrrev_b64" => n[1] >> (n[0] % 64),
        "ashrrev_i64" => number(s[1], 64, true) >> (n[0] % 64),
        "lshl_add_u32" => (n[0] << (n[1] % 32)) + n[2],
        "add_lshl_u32" => (n[0] + n[1]) << (n[2] % 32),
        "lshl_or_b32" => (n[0] << (n[1] % 32)) | n[2],
        _ => return None,
    })
}

/// Whole numbers, by the name's type.
fn whole(name: &str, l: &Lane) -> Option<i128> {
    let n: Vec<i128> = l.s.iter().map(|&x| x as i128).collect();
    let differences = |masked: bool, a: u128| {
        let pairs = bytes(a).into_iter().zip(bytes(l.s[1]));
        pairs.filter(|(_, b)| !masked || *b != 0).map(|(a, b)| a.max(b) - a.min(b)).sum::<i128>()
    };
    match name {
        "sad_u8" => return Some(differences(false, l.s[0]) + n[2]),
        "sad_hi_u8" => return Some((differences(false, l.s[0]) << 16) + n[2]),
        "msad_u8" => return Some(differences(true, l.s[0]) + n[2]),
        "sad_u16" => {
            let d = |shift: u32| ((n[0] >> shift & 0xffff) - (n[1] >> shift & 0xffff)).abs();
            return Some(d(0) + d(16) + n[2]);
        }
        "sad_u32" => return Some((n[0] - n[1]).abs() + n[2]),
        "lerp_u8" => {
            let (a, b, c) = (bytes(l.s[0]), bytes(l.s[1]), bytes(l.s[2]));
            return Some(of_bytes(std::array::from_fn(|i| (a[i] + b[i] + c[i] % 2) / 2)));
        }
        "qsad_pk_u16_u8" | "mqsad_pk_u16_u8" | "mqsad_u32_u8" => {
            let width = if name == "mqsad_u32_u8" { 32 } else { 16 };
            let top = (1i128 << width) - 1;
            return Some((0..4).fold(0, |all, i| {
                let old = (l.s[2] >> (i * width)) as i128 & top;
                let sum = differences(name.starts_with('m'), l.s[0] >> (8 * i)) + old;
                all | (if l.clamp { sum.min(top) } else { sum & top }) << (i * width)
            }));
        }
        _ => {}
    }
    let (base, width, signed) = integer(name)?;
    let s: Vec<i128> = l.s.iter().map(|&x| number(x, width, signed)).collect();
    let narrow = |i: usize, width: u32| number(l.s[i], width, signed);
    Some(match base {
        "add_nc" => s[0] + s[1],
        "sub_nc" => s[0] - s[1],
        "subrev_nc" => s[1] - s[0],
        "add3" => s[0] + s[1] + s[2],
        "xad" => (s[0] ^ s[1]) + s[2],
        "mul_lo" => s[0] * s[1],
        "mul_hi" => s[0] * s[1] >> 32,
        "mul_u32" | "mul_i32" => narrow(0, 24) * narrow(1, 24),
        "mul_hi_u32" | "mul_hi_i32" => narrow(0, 24) * narrow(1, 24) >> 32,
        "mad_u32" | "mad_i32" => narrow(0, width) * narrow(1, width) + narrow(2, 32),
        "mad" => s[0] * s[1] + s[2],
        "min" => s[0].min(s[1]),
        "max" => s[0].max(s[1]),
        "min3" => s[0].min(s[1]).min(s[2]),
        "max3" => s[0].max(s[1]).max(s[2]),
        "med3" => {
            let mut all = [s[0], s[1], s[2]];
            all.sort();
            all[1]
        }
        _ => return None,
    })
}
