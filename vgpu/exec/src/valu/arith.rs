//! Float arithmetic on one lane, in any format and mode: the host's where MODE asks for what the host does, else
//! exact and rounded once. NaNs come out quiet, the first of the sources winning.

use super::format::{Exact, F32, F64, Format, input, is_nan, is_signalling, output};
use super::mode::{Mode, Round};

/// The first NaN of the sources, quieted.
#[inline(always)]
pub fn nan_of<F: Format>(sources: &[u64]) -> Option<u64> {
    sources.iter().find(|&&x| is_nan::<F>(x)).map(|&x| x | F::QUIET)
}

fn is_inf<F: Format>(x: u64) -> bool {
    x & !F::SIGN == F::INF
}

fn is_zero<F: Format>(x: u64) -> bool {
    x & !F::SIGN == 0
}

/// `a + b`.
pub fn add<F: Format>(m: Mode, a: u64, b: u64) -> u64 {
    fma::<F>(m, a, F::ONE, b)
}

/// `a - b`.
pub fn sub<F: Format>(m: Mode, a: u64, b: u64) -> u64 {
    add::<F>(m, a, if is_nan::<F>(b) { b } else { b ^ F::SIGN })
}

/// `a * b`.
pub fn mul<F: Format>(m: Mode, a: u64, b: u64) -> u64 {
    let (a, b) = (input::<F>(m, a), input::<F>(m, b));
    if let Some(nan) = nan_of::<F>(&[a, b]) {
        return nan;
    }
    let sign = (a ^ b) & F::SIGN;
    if is_inf::<F>(a) || is_inf::<F>(b) {
        return if is_zero::<F>(a) || is_zero::<F>(b) { F::NAN } else { sign | F::INF };
    }
    output::<F>(m, Exact::of::<F>(a).times(Exact::of::<F>(b)).round::<F>(m.round::<F>()))
}

/// `a * b + c`, rounded once.
pub fn fma<F: Format>(m: Mode, a: u64, b: u64, c: u64) -> u64 {
    scaled_fma::<F>(m, a, b, c, 0)
}

/// `(a * b + c) * 2^scale`, rounded once: `v_div_fmas`.
pub fn scaled_fma<F: Format>(m: Mode, a: u64, b: u64, c: u64, scale: i32) -> u64 {
    let [a, b, c] = [a, b, c].map(|x| input::<F>(m, x));
    if let Some(nan) = nan_of::<F>(&[a, b, c]) {
        return nan;
    }
    let sign = (a ^ b) & F::SIGN;
    let product_inf = is_inf::<F>(a) || is_inf::<F>(b);
    if product_inf && (is_zero::<F>(a) || is_zero::<F>(b)) {
        return F::NAN;
    }
    if product_inf || is_inf::<F>(c) {
        let product = sign | F::INF;
        return match (product_inf, is_inf::<F>(c)) {
            (true, true) if product != c => F::NAN,
            (true, _) => product,
            _ => c,
        };
    }
    let round = m.round::<F>();
    let mut sum = Exact::of::<F>(a).times(Exact::of::<F>(b)).plus(Exact::of::<F>(c), round);
    sum.exp += scale;
    output::<F>(m, sum.round::<F>(round))
}

/// `a * b + c`, rounded twice and always flushing denormals: `v_mad_f32`.
pub fn mad(m: Mode, a: u64, b: u64, c: u64) -> u64 {
    let m = m.flushing::<F32>();
    // A NaN addend comes after the factors' in `add` too, and after an invalid product.
    add::<F32>(m, mul::<F32>(m, a, b), c)
}

/// The product where zero times anything is zero: DirectX 9.
pub fn mul_legacy(m: Mode, a: u64, b: u64) -> u64 {
    if is_zero::<F32>(input::<F32>(m, a)) || is_zero::<F32>(input::<F32>(m, b)) {
        return 0;
    }
    mul::<F32>(m, a, b)
}

/// `mul_legacy` plus `c`, denormals flushed.
pub fn mad_legacy(m: Mode, a: u64, b: u64, c: u64) -> u64 {
    let m = m.flushing::<F32>();
    add::<F32>(m, mul_legacy(m, a, b), c)
}

/// Bits that order as the numbers do, minus zero below plus zero.
#[inline(always)]
fn ordered<F: Format>(x: u64) -> i64 {
    let x = ((x << (64 - F::WIDTH)) as i64) >> (64 - F::WIDTH);
    if x < 0 { x ^ i64::MAX } else { x }
}

#[inline(always)]
fn pick<F: Format>(m: Mode, a: u64, b: u64, first: impl Fn(i64, i64) -> bool) -> u64 {
    let (a, b) = (input::<F>(m, a), input::<F>(m, b));
    let number = if first(ordered::<F>(a), ordered::<F>(b)) { a } else { b };
    // Of a number and a NaN the number; of two NaNs the second.
    let chosen = if is_nan::<F>(a) {
        b
    } else if is_nan::<F>(b) {
        a
    } else {
        number
    };
    let signalling_b = if is_signalling::<F>(b) { b | F::QUIET } else { chosen };
    let signalling = if is_signalling::<F>(a) { a | F::QUIET } else { signalling_b };
    if m.ieee() { signalling } else { chosen }
}

/// The smaller; of a number and a NaN the number, but in IEEE mode a signalling NaN, quieted (RDNA ISA 12.8,
/// `V_MIN_F32`).
#[inline(always)]
pub fn min<F: Format>(m: Mode, a: u64, b: u64) -> u64 {
    pick::<F>(m, a, b, |a, b| a < b)
}

/// The larger, see [`min`].
#[inline(always)]
pub fn max<F: Format>(m: Mode, a: u64, b: u64) -> u64 {
    pick::<F>(m, a, b, |a, b| a > b)
}

/// The smallest.
#[inline(always)]
pub fn min3<F: Format>(m: Mode, a: u64, b: u64, c: u64) -> u64 {
    min::<F>(m, min::<F>(m, a, b), c)
}

/// The largest.
#[inline(always)]
pub fn max3<F: Format>(m: Mode, a: u64, b: u64, c: u64) -> u64 {
    max::<F>(m, max::<F>(m, a, b), c)
}

/// The one between; with a NaN among them the smallest. Without branches, for loops over it.
///
/// As the ISA manual and LLVM's constant folder have it: the first that equals the largest is taken away, and zeros of
/// either sign are equal there, so that the sign of a zero between depends on the order.
#[inline(always)]
pub fn med3<F: Format>(m: Mode, a: u64, b: u64, c: u64) -> u64 {
    let nan = is_nan::<F>(a) | is_nan::<F>(b) | is_nan::<F>(c);
    let smallest = min3::<F>(m, a, b, c);
    let [a, b, c] = [a, b, c].map(|x| ordered::<F>(input::<F>(m, x)));
    let top = a.max(b).max(c);
    let minus_zero = ordered::<F>(F::SIGN);
    let equals_top = |x: i64| (x == top) | ((top == 0) & (x == minus_zero));
    let rest = if equals_top(b) { a.max(c) } else { a.max(b) };
    let between = if equals_top(a) { b.max(c) } else { rest };
    // What orders, turned back.
    let bits = (if between < 0 { between ^ i64::MAX } else { between }) as u64;
    if nan { smallest } else { bits & (F::SIGN | (F::SIGN - 1)) }
}

/// `x * 2^n`.
pub fn ldexp<F: Format>(m: Mode, x: u64, n: i32) -> u64 {
    let x = input::<F>(m, x);
    if let Some(nan) = nan_of::<F>(&[x]) {
        return nan;
    }
    if is_inf::<F>(x) {
        return x;
    }
    let mut exact = Exact::of::<F>(x);
    exact.exp += n.clamp(-5000, 5000); // further than any format reaches
    output::<F>(m, exact.round::<F>(m.round::<F>()))
}

/// A float of one format in another.
pub fn convert<A: Format, B: Format>(m: Mode, x: u64) -> u64 {
    let x = input::<A>(m, x);
    let sign = if x & A::SIGN != 0 { B::SIGN } else { 0 };
    if is_nan::<A>(x) {
        let fraction = x & ((1 << A::FRACTION) - 1);
        let moved = if A::FRACTION > B::FRACTION {
            fraction >> (A::FRACTION - B::FRACTION)
        } else {
            fraction << (B::FRACTION - A::FRACTION)
        };
        return sign | B::INF | B::QUIET | moved;
    }
    if is_inf::<A>(x) {
        return sign | B::INF;
    }
    output::<B>(m, Exact::of::<A>(x).round::<B>(m.round::<B>()))
}

/// The float nearest by `round` to an integer.
pub fn of_integer<F: Format>(round: Round, x: i64) -> u64 {
    Exact { negative: x < 0, significand: u128::from(x.unsigned_abs()), exp: 0 }.round::<F>(round)
}

/// The float of a double by `round`: NaNs lose what does not fit.
pub fn of_f64<F: Format>(round: Round, x: f64) -> u64 {
    let m = Mode::USUAL.rounding::<F>(round);
    convert::<F64, F>(m, x.to_bits())
}
