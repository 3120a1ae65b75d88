//! Functions by their series, 2/pi by long division, and an fma of any exponent.

use rustc_apfloat::ieee::{Double, Quad, Single};
use rustc_apfloat::{Float, FloatConvert, Round, Status};
use std::f64::consts::{LN_2, PI};
use std::sync::LazyLock;

use super::floats::{Fmt, M};

/// 2 to the power of `x`: Taylor's series of the part behind the point.
pub fn exp2(x: f64) -> f64 {
    if x.is_nan() || x.abs() > 2000.0 {
        return if x < 0.0 { 0.0 } else { x * f64::INFINITY };
    }
    let part = (x - x.floor()) * LN_2;
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..30 {
        term *= part / f64::from(k);
        sum += term;
    }
    let n = x.floor() as i32;
    sum * 2f64.powi(n / 2) * 2f64.powi(n - n / 2)
}

/// Logarithm to base 2: the series of the hyperbolic arc tangent.
pub fn log2(x: f64) -> f64 {
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x.is_nan() || x < 0.0 || x.is_infinite() {
        return if x < 0.0 { f64::NAN } else { x };
    }
    let (mut m, mut n) = (x, 0);
    while m > 1.5 {
        m /= 2.0;
        n += 1;
    }
    while m < 0.75 {
        m *= 2.0;
        n -= 1;
    }
    let t = (m - 1.0) / (m + 1.0);
    let series: f64 = (0..40).map(|k| t.powi(2 * k + 1) / f64::from(2 * k + 1)).sum();
    f64::from(n) + 2.0 * series / LN_2
}

/// The sine of `x` turns and `quarters` quarters more: Taylor's series near a quarter.
pub fn sin_turns(x: f64, quarters: i32) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    let fourths = x.fract() * 4.0;
    let nearest = (fourths + 0.5).floor();
    let angle = (fourths - nearest) * PI / 2.0;
    let series = |first: u32| -> f64 {
        (0..14)
            .map(|k| {
                let n = 2 * k + first;
                let factorial: f64 = (1..=n).map(f64::from).product();
                let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
                sign * angle.powi(n as i32) / factorial
            })
            .sum()
    };
    match (nearest as i32 + quarters).rem_euclid(4) {
        0 => series(1),
        1 => series(0),
        2 => -series(1),
        _ => -series(0),
    }
}

/// Words of a fixed-point number, the last first.
type Big = Vec<u32>;
const WORDS: usize = 44;

fn divide_small(x: &Big, by: u32) -> Big {
    let (mut out, mut rest) = (x.clone(), 0u64);
    for word in out.iter_mut().rev() {
        let all = rest << 32 | u64::from(*word);
        *word = (all / u64::from(by)) as u32;
        rest = all % u64::from(by);
    }
    out
}

fn add(x: &Big, y: &Big, negative: bool) -> Big {
    let mut carry = 0i64;
    x.iter()
        .zip(y)
        .map(|(&a, &b)| {
            let sum = i64::from(a) + if negative { -i64::from(b) } else { i64::from(b) } + carry;
            carry = sum >> 32;
            sum as u32
        })
        .collect()
}

/// The arc tangent of 1/n, two words before the point.
fn arctan(n: u32) -> Big {
    let mut one = vec![0; WORDS];
    one[WORDS - 2] = 1;
    let mut term = divide_small(&one, n);
    let mut sum = term.clone();
    for k in 1.. {
        term = divide_small(&term, n * n);
        if term.iter().all(|&w| w == 0) {
            break;
        }
        sum = add(&sum, &divide_small(&term, 2 * k + 1), k % 2 == 1);
    }
    sum
}

fn less(x: &Big, y: &Big) -> bool {
    x.iter().rev().lt(y.iter().rev())
}

/// Bits of 2/pi behind the point: pi by Machin's formula, 2 divided by it bit by bit.
static TWO_OVER_PI: LazyLock<Vec<bool>> = LazyLock::new(|| {
    let times4 = |x: &Big| add(&add(x, x, false), &add(x, x, false), false);
    let quarter = add(&times4(&arctan(5)), &arctan(239), true);
    let pi = times4(&quarter);
    let mut rest = vec![0; WORDS];
    rest[WORDS - 2] = 2;
    (0..1201)
        .map(|_| {
            rest = add(&rest, &rest, false);
            let one = !less(&rest, &pi);
            if one {
                rest = add(&rest, &pi, true);
            }
            one
        })
        .collect()
});

/// `v_trig_preop_f64`: 53 bits of 2/pi.
pub fn trig_preop(m: M, x: u64, segment: u32) -> u64 {
    let e = (x >> 52 & 0x7ff) as i32;
    let mut shift = (segment & 31) as i32 * 53;
    if e > 1077 {
        shift += e - 1077;
    }
    let bits = (0..53).fold(0u64, |bits, i| {
        let bit = TWO_OVER_PI.get((shift + i) as usize).copied().unwrap_or(false);
        bits * 2 + u64::from(bit)
    });
    let scale = -53 - shift + if e >= 1968 { 128 } else { 0 };
    Fmt::D.scale(m, Fmt::D.of_int(M(0), bits.into()), scale)
}

/// `(a * b + c) * 2^by` of finite numbers: in quadruple precision, rounded to odd there and then once more.
pub fn exact_fma(f: Fmt, m: M, a: u64, b: u64, c: u64, by: i32) -> u64 {
    let mut loses = false;
    let [a4, b4, c4] = [a, b, c].map(|x| -> Quad {
        match f {
            Fmt::D => Double::from_bits(x.into()).convert(&mut loses).value,
            _ => Single::from_bits(x.into()).convert(&mut loses).value,
        }
    });
    let sum = a4.mul_add_r(b4, c4, Round::TowardZero);
    if sum.value.is_zero() && sum.status == Status::OK {
        return f.fma(m, a, b, c);
    }
    let odd = u128::from(sum.status.contains(Status::INEXACT));
    let scaled = Quad::from_bits(sum.value.to_bits() | odd).scalbn_r(by as _, Round::TowardZero);
    let bits = match f {
        Fmt::D => {
            let y: Double = scaled.convert_r(m.round(f), &mut loses).value;
            y.to_bits()
        }
        _ => {
            let y: Single = scaled.convert_r(m.round(f), &mut loses).value;
            y.to_bits()
        }
    };
    f.give(m, bits as u64)
}
