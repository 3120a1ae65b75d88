//! The steps that compilers divide by: `v_div_scale`, `v_div_fmas`, `v_div_fixup` (RDNA ISA 12.11).

use super::arith::{ldexp, nan_of, of_f64, scaled_fma};
use super::format::{F16, F32, F64, Format, exponent, is_nan, is_small};
use super::mode::{Mode, Round};
use crate::lanes::{Kinds, by_lane, kind_of, lanes};
use crate::{Args, Wave};

lanes! {
    v_div_fixup_f16: F16(F16, F16, F16) |m, a, b, c| fixup::<F16>(m, a, b, c);
    v_div_fixup_f32: F32(F32, F32, F32) |m, a, b, c| fixup::<F32>(m, a, b, c);
    v_div_fixup_f64: F64(F64, F64, F64) |m, a, b, c| fixup::<F64>(m, a, b, c);
}

/// Powers of two that keep the steps of a division clear of overflow and denormals.
struct Scale {
    /// What numerator or denominator is scaled by.
    by: i32,
    /// Quotients that may come near the largest float.
    huge: i32,
    /// Numerators whose remainders would be denormal, by biased exponent.
    tiny: i32,
}

const fn scale_of<F: Format>() -> Scale {
    match F::WIDTH {
        32 => Scale { by: 64, huge: 96, tiny: 23 },
        _ => Scale { by: 128, huge: 768, tiny: 53 },
    }
}

/// `v_div_scale`: scales `x`, which is the denominator or the numerator, and says whether `v_div_fmas` has to scale
/// the quotient back. The manual's "1/D denormal and N/D denormal" case scales the denominator down, not up as its
/// pseudo-code has it: up, it would overflow.
pub(super) fn scale<F: Format>(m: Mode, x: u64, denominator: u64, numerator: u64) -> (u64, bool) {
    let Scale { by, huge, tiny } = scale_of::<F>();
    let (d, n) = (exponent::<F>(denominator), exponent::<F>(numerator));
    let bias = exponent::<F>(F::ONE);
    // Nothing near an edge: neither source, nor reciprocal, nor quotient.
    if n > tiny && (2..2 * bias - 2).contains(&d) && (2 - bias..huge).contains(&(n - d)) && n <= 2 * bias {
        return (x, false);
    }
    let m = m.keeping::<F>().rounding::<F>(Round::Nearest);
    let zero = |x: u64| x & !F::SIGN == 0;
    if zero(denominator) || zero(numerator) {
        return (F::NAN, false);
    }
    let by_power = |n| ldexp::<F>(m, x, n);
    let (is_denominator, is_numerator) = (x == denominator, x == numerator);
    let denormal = |x: u64| is_small::<F>(x) && !zero(x);
    let reciprocal_denormal = denormal(divided::<F>(F::ONE, denominator));
    // What underflows is rounded as denormals are.
    let quotient_denormal = is_small::<F>(divided::<F>(numerator, denominator));
    if n - d >= huge {
        (if is_denominator { by_power(by) } else { x }, true)
    } else if denormal(denominator) {
        (by_power(by), false)
    } else if reciprocal_denormal && quotient_denormal {
        (if is_denominator { by_power(-by) } else { x }, true)
    } else if reciprocal_denormal {
        (by_power(-by), false)
    } else if quotient_denormal {
        (if is_numerator { by_power(by) } else { x }, true)
    } else if n <= tiny {
        (by_power(by), false)
    } else {
        (x, false)
    }
}

/// A quotient as the host rounds it.
fn divided<F: Format>(a: u64, b: u64) -> u64 {
    let quotient = F::to_f64(a) / F::to_f64(b);
    of_f64::<F>(Round::Nearest, quotient)
}

/// `v_div_fmas`: the last step of a division, scaled back in the lanes that `v_div_scale` set in VCC: down a quotient
/// that is small, up one that is large.
pub(super) fn fmas<F: Format>(wave: &mut Wave, args: &Args) {
    let Scale { by, .. } = scale_of::<F>();
    let scaled = wave.mask_of(args.src[3]);
    let kind = kind_of::<F>();
    by_lane(wave, args, Kinds { dst: kind, src: [kind; 3] }, |m, [a, b, c], lane| {
        let back = if exponent::<F>(c) > exponent::<F>(F::ONE) { by } else { -by };
        scaled_fma::<F>(m, a, b, c, if scaled >> lane & 1 != 0 { back } else { 0 })
    });
}

/// `v_div_fixup`: the quotient, or what numerator and denominator alone decide.
fn fixup<F: Format>(m: Mode, quotient: u64, denominator: u64, numerator: u64) -> u64 {
    let sign = (denominator ^ numerator) & F::SIGN;
    if let Some(nan) = nan_of::<F>(&[numerator, denominator]) {
        return nan;
    }
    let [d, n, q] = [denominator, numerator, quotient].map(|x| x & !F::SIGN);
    if (d == 0 && n == 0) || (d == F::INF && n == F::INF) {
        return F::NAN;
    }
    if d == 0 || n == F::INF {
        return sign | F::INF;
    }
    if d == F::INF || n == 0 {
        return sign;
    }
    let underflow = match F::WIDTH {
        32 => -150,
        64 => -1075,
        _ => i32::MIN,
    };
    if exponent::<F>(n) - exponent::<F>(d) < underflow {
        return ldexp::<F>(m, sign | F::ONE, -5000);
    }
    // Steps that overflow leave a NaN: so did the quotient.
    if is_nan::<F>(q) {
        return ldexp::<F>(m, sign | F::ONE, 5000);
    }
    sign | q
}
