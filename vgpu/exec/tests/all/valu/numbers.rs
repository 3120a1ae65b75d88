//! What float operations mean.

use rustc_apfloat::Round;

use super::angles;
use super::floats::{Fmt, M};
use super::machine::{Lane, Out};
use super::ops::{float, number};

/// Arithmetic, in any format.
pub fn arithmetic(name: &str, l: &Lane) -> Option<i128> {
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
            // As numbers: zeros of either sign are equal.
            let is_top = |x: u64| f.f64(f.take(m, x)) == f.f64(top);
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
        () if f.is_nan(q) => {
            // Overflow, as rounding has it.
            let finite = match m.round(f) {
                Round::TowardZero => true,
                Round::TowardPositive => sign != 0,
                Round::TowardNegative => sign == 0,
                _ => false,
            };
            sign | (f.inf() - u64::from(finite))
        }
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

/// The biased exponent.
fn exponent(f: Fmt, x: u64) -> i32 {
    ((x & f.inf()) / (f.inf() & f.inf().wrapping_neg())) as i32
}

/// `v_div_scale`: the result, and whether the quotient has to be scaled back.
pub fn div_scale(f: Fmt, [s0, s1, s2]: [u64; 3]) -> (u64, bool) {
    let usual = M(0xf0);
    let (step, huge, tiny) = if f == Fmt::S { (64, 96, 23) } else { (128, 768, 53) };
    let one = Fmt::D.to(usual, 1f64.to_bits(), f);
    let times = |n: i32| f.scale(usual, s0, n);
    let reciprocal = f.is_denormal(f.div(usual, one, s1));
    let quotient = f.div(usual, s2, s1);
    let quotient = f.is_denormal(quotient) || f.is_zero(quotient);
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
pub fn special(name: &str, l: &Lane) -> Option<Out> {
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
