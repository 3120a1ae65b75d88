//! Float arithmetic: operations by format (RDNA ISA 12.8 to 12.11).

use super::arith::{
    add, fma, ldexp, mad, mad_legacy, max, max3, med3, min, min3, mul, mul_legacy, nan_of, sub,
};
use super::format::{Exact, F16, F32, F64, Format, exponent, flushed, input, is_nan, is_small, output};
use super::mode::Mode;
use crate::lanes::lanes;

/// A whole number near `x`.
#[inline(always)]
fn whole<F: Format>(m: Mode, x: u64, near: impl Fn(f64) -> f64) -> u64 {
    let x = input::<F>(m, x);
    nan_of::<F>(&[x]).unwrap_or_else(|| F::of_exact(near(F::to_f64(x))))
}

/// What is above the whole number below, less than 1 even where that rounds to 1.
fn fract<F: Format>(m: Mode, x: u64) -> u64 {
    let part = sub::<F>(m, x, whole::<F>(m, x, f64::floor));
    if part == F::ONE { part - 1 } else { part }
}

/// The significand in 1/2 to 1.
fn frexp_mant<F: Format>(m: Mode, x: u64) -> u64 {
    let x = input::<F>(m, x);
    if is_nan::<F>(x) {
        return x | F::QUIET;
    }
    let magnitude = x & !F::SIGN;
    if magnitude == F::INF || magnitude == 0 {
        return x;
    }
    ldexp::<F>(m.keeping::<F>(), x, -frexp_exp::<F>(m, x))
}

/// The exponent that goes with [`frexp_mant`]; 0 of zeros, infinities and NaNs.
fn frexp_exp<F: Format>(m: Mode, x: u64) -> i32 {
    let x = input::<F>(m, x);
    let magnitude = x & !F::SIGN;
    if magnitude >= F::INF || magnitude == 0 {
        return 0;
    }
    if !is_small::<F>(x) {
        return exponent::<F>(x) + F::MIN_EXP;
    }
    let e = Exact::of::<F>(x);
    128 - e.significand.leading_zeros() as i32 + e.exp
}

lanes! {
    v_add_f16: F16(F16, F16) |m, a, b, _| add::<F16>(m, a, b), usual F16: F16::add_nearest(a, b);
    v_sub_f16: F16(F16, F16) |m, a, b, _| sub::<F16>(m, a, b), usual F16: F16::add_nearest(a, b ^ F16::SIGN);
    v_subrev_f16: F16(F16, F16) |m, a, b, _| sub::<F16>(m, b, a), usual F16: F16::add_nearest(b, a ^ F16::SIGN);
    v_mul_f16: F16(F16, F16) |m, a, b, _| mul::<F16>(m, a, b), usual F16: F16::mul_nearest(a, b);
    v_fma_f16: F16(F16, F16, F16) |m, a, b, c| fma::<F16>(m, a, b, c), usual F16: F16::fma_nearest(a, b, c);
    v_fmac_f16: F16(F16, F16, F16) |m, a, b, c| fma::<F16>(m, a, b, c), usual F16: F16::fma_nearest(a, b, c);
    v_fmaak_f16: F16(F16, F16, F16) |m, a, b, c| fma::<F16>(m, a, b, c), usual F16: F16::fma_nearest(a, b, c);
    v_fmamk_f16: F16(F16, F16, F16) |m, a, b, c| fma::<F16>(m, a, b, c), usual F16: F16::fma_nearest(a, b, c);
    v_min_f16: F16(F16, F16) |m, a, b, _| min::<F16>(m, a, b);
    v_max_f16: F16(F16, F16) |m, a, b, _| max::<F16>(m, a, b);
    v_min3_f16: F16(F16, F16, F16) |m, a, b, c| min3::<F16>(m, a, b, c);
    v_max3_f16: F16(F16, F16, F16) |m, a, b, c| max3::<F16>(m, a, b, c);
    v_med3_f16: F16(F16, F16, F16) |m, a, b, c| med3::<F16>(m, a, b, c);
    v_floor_f16: F16(F16) |m, a, _, _| whole::<F16>(m, a, f64::floor), usual F16: F16::of_exact(F16::to_f64(a).floor());
    v_ceil_f16: F16(F16) |m, a, _, _| whole::<F16>(m, a, f64::ceil), usual F16: F16::of_exact(F16::to_f64(a).ceil());
    v_trunc_f16: F16(F16) |m, a, _, _| whole::<F16>(m, a, f64::trunc), usual F16: F16::of_exact(F16::to_f64(a).trunc());
    v_rndne_f16: F16(F16) |m, a, _, _| whole::<F16>(m, a, f64::round_ties_even), usual F16: F16::of_exact(F16::to_f64(a).round_ties_even());
    v_fract_f16: F16(F16) |m, a, _, _| fract::<F16>(m, a);
    v_ldexp_f16: F16(F16, I16) |m, a, b, _| ldexp::<F16>(m, a, b as i32);
    v_frexp_mant_f16: F16(F16) |m, a, _, _| frexp_mant::<F16>(m, a);
    v_frexp_exp_i16_f16: I16(F16) |m, a, _, _| i64::from(frexp_exp::<F16>(m, a)) as u64;
    v_add_f32: F32(F32, F32) |m, a, b, _| add::<F32>(m, a, b), usual F32: F32::add_nearest(a, b);
    v_sub_f32: F32(F32, F32) |m, a, b, _| sub::<F32>(m, a, b), usual F32: F32::add_nearest(a, b ^ F32::SIGN);
    v_subrev_f32: F32(F32, F32) |m, a, b, _| sub::<F32>(m, b, a), usual F32: F32::add_nearest(b, a ^ F32::SIGN);
    v_mul_f32: F32(F32, F32) |m, a, b, _| mul::<F32>(m, a, b), usual F32: F32::mul_nearest(a, b);
    v_fma_f32: F32(F32, F32, F32) |m, a, b, c| fma::<F32>(m, a, b, c), usual F32: F32::fma_nearest(a, b, c);
    v_fmac_f32: F32(F32, F32, F32) |m, a, b, c| fma::<F32>(m, a, b, c), usual F32: F32::fma_nearest(a, b, c);
    v_fmaak_f32: F32(F32, F32, F32) |m, a, b, c| fma::<F32>(m, a, b, c), usual F32: F32::fma_nearest(a, b, c);
    v_fmamk_f32: F32(F32, F32, F32) |m, a, b, c| fma::<F32>(m, a, b, c), usual F32: F32::fma_nearest(a, b, c);
    v_min_f32: F32(F32, F32) |m, a, b, _| min::<F32>(m, a, b);
    v_max_f32: F32(F32, F32) |m, a, b, _| max::<F32>(m, a, b);
    v_min3_f32: F32(F32, F32, F32) |m, a, b, c| min3::<F32>(m, a, b, c);
    v_max3_f32: F32(F32, F32, F32) |m, a, b, c| max3::<F32>(m, a, b, c);
    v_med3_f32: F32(F32, F32, F32) |m, a, b, c| med3::<F32>(m, a, b, c);
    v_floor_f32: F32(F32) |m, a, _, _| whole::<F32>(m, a, f64::floor), usual F32: F32::of_exact(F32::to_f64(a).floor());
    v_ceil_f32: F32(F32) |m, a, _, _| whole::<F32>(m, a, f64::ceil), usual F32: F32::of_exact(F32::to_f64(a).ceil());
    v_trunc_f32: F32(F32) |m, a, _, _| whole::<F32>(m, a, f64::trunc), usual F32: F32::of_exact(F32::to_f64(a).trunc());
    v_rndne_f32: F32(F32) |m, a, _, _| whole::<F32>(m, a, f64::round_ties_even), usual F32: F32::of_exact(F32::to_f64(a).round_ties_even());
    v_fract_f32: F32(F32) |m, a, _, _| fract::<F32>(m, a);
    v_ldexp_f32: F32(F32, I32) |m, a, b, _| ldexp::<F32>(m, a, b as i32);
    v_frexp_mant_f32: F32(F32) |m, a, _, _| frexp_mant::<F32>(m, a);
    v_frexp_exp_i32_f32: I32(F32) |m, a, _, _| i64::from(frexp_exp::<F32>(m, a)) as u64;
    v_add_f64: F64(F64, F64) |m, a, b, _| add::<F64>(m, a, b), usual F64: F64::add_nearest(a, b);
    v_mul_f64: F64(F64, F64) |m, a, b, _| mul::<F64>(m, a, b), usual F64: F64::mul_nearest(a, b);
    v_fma_f64: F64(F64, F64, F64) |m, a, b, c| fma::<F64>(m, a, b, c), usual F64: F64::fma_nearest(a, b, c);
    v_min_f64: F64(F64, F64) |m, a, b, _| min::<F64>(m, a, b);
    v_max_f64: F64(F64, F64) |m, a, b, _| max::<F64>(m, a, b);
    v_floor_f64: F64(F64) |m, a, _, _| whole::<F64>(m, a, f64::floor), usual F64: F64::of_exact(F64::to_f64(a).floor());
    v_ceil_f64: F64(F64) |m, a, _, _| whole::<F64>(m, a, f64::ceil), usual F64: F64::of_exact(F64::to_f64(a).ceil());
    v_trunc_f64: F64(F64) |m, a, _, _| whole::<F64>(m, a, f64::trunc), usual F64: F64::of_exact(F64::to_f64(a).trunc());
    v_rndne_f64: F64(F64) |m, a, _, _| whole::<F64>(m, a, f64::round_ties_even), usual F64: F64::of_exact(F64::to_f64(a).round_ties_even());
    v_fract_f64: F64(F64) |m, a, _, _| fract::<F64>(m, a);
    v_ldexp_f64: F64(F64, I32) |m, a, b, _| ldexp::<F64>(m, a, b as i32);
    v_frexp_mant_f64: F64(F64) |m, a, _, _| frexp_mant::<F64>(m, a);
    v_frexp_exp_i32_f64: I32(F64) |m, a, _, _| i64::from(frexp_exp::<F64>(m, a)) as u64;
    v_mac_f32: F32(F32, F32, F32) |m, a, b, c| mad(m, a, b, c), usual F32: mad_nearest(a, b, c);
    v_mad_f32: F32(F32, F32, F32) |m, a, b, c| mad(m, a, b, c), usual F32: mad_nearest(a, b, c);
    v_madmk_f32: F32(F32, F32, F32) |m, a, b, c| mad(m, a, b, c), usual F32: mad_nearest(a, b, c);
    v_madak_f32: F32(F32, F32, F32) |m, a, b, c| mad(m, a, b, c), usual F32: mad_nearest(a, b, c);
    v_mac_legacy_f32: F32(F32, F32, F32) |m, a, b, c| mad_legacy(m, a, b, c), usual F32: mad_legacy_nearest(a, b, c);
    v_mad_legacy_f32: F32(F32, F32, F32) |m, a, b, c| mad_legacy(m, a, b, c), usual F32: mad_legacy_nearest(a, b, c);
    v_mul_legacy_f32: F32(F32, F32) |m, a, b, _| mul_legacy(m, a, b), usual F32: mul_legacy_nearest(a, b);
    v_mullit_f32: F32(F32, F32, F32) |m, a, b, c| mullit(m, a, b, c);
    v_cubeid_f32: F32(F32, F32, F32) |m, a, b, c| cube(m, [a, b, c], Cube::Id);
    v_cubesc_f32: F32(F32, F32, F32) |m, a, b, c| cube(m, [a, b, c], Cube::Sc);
    v_cubetc_f32: F32(F32, F32, F32) |m, a, b, c| cube(m, [a, b, c], Cube::Tc);
    v_cubema_f32: F32(F32, F32, F32) |m, a, b, c| cube(m, [a, b, c], Cube::Ma);
}

/// `v_mad_f32` as the host rounds it, to nearest.
#[inline(always)]
fn mad_nearest(a: u64, b: u64, c: u64) -> u64 {
    let product = flushed::<F32>(F32::mul_nearest(flushed::<F32>(a), flushed::<F32>(b)));
    flushed::<F32>(F32::add_nearest(product, flushed::<F32>(c)))
}

/// `v_mul_legacy_f32` the same way.
#[inline(always)]
fn mul_legacy_nearest(a: u64, b: u64) -> u64 {
    let product = F32::mul_nearest(a, b);
    let zero = (a & (F32::SIGN - 1) == 0) | (b & (F32::SIGN - 1) == 0);
    if zero { 0 } else { product }
}

/// `v_mad_legacy_f32` the same way.
#[inline(always)]
fn mad_legacy_nearest(a: u64, b: u64, c: u64) -> u64 {
    let product = flushed::<F32>(mul_legacy_nearest(flushed::<F32>(a), flushed::<F32>(b)));
    flushed::<F32>(F32::add_nearest(product, flushed::<F32>(c)))
}

/// The specular term's product: the least float where the exponent or the power says that there is no light.
fn mullit(m: Mode, a: u64, b: u64, c: u64) -> u64 {
    const LEAST: u64 = F32::SIGN | (F32::INF - 1);
    let [b, c] = [b, c].map(|x| input::<F32>(m, x));
    let dark = b == LEAST || b == F32::SIGN | F32::INF || is_nan::<F32>(b);
    // A NaN is not above zero either.
    let lit = F32::to_f64(c) > 0.0;
    if dark || !lit { LEAST } else { mul::<F32>(m, a, b) }
}

/// Which of a cube map's coordinates.
enum Cube {
    /// The face: +x, -x, +y, -y, +z, -z.
    Id,
    /// S on the face.
    Sc,
    /// T on the face.
    Tc,
    /// Twice the major axis.
    Ma,
}

fn cube(m: Mode, s: [u64; 3], what: Cube) -> u64 {
    let s = s.map(|x| input::<F32>(m, x));
    let [x, y, z] = s.map(|x| f32::from_bits(x as u32));
    let axis = if z.abs() >= x.abs() && z.abs() >= y.abs() {
        2
    } else if y.abs() >= x.abs() {
        1
    } else {
        0
    };
    let below = [x, y, z][axis] < 0.0;
    let negated = |x: f32, n: bool| if n { -x } else { x };
    let value = match (what, axis) {
        (Cube::Id, _) => (2 * axis) as f32 + f32::from(u8::from(below)),
        (Cube::Sc, 2) => negated(x, below),
        (Cube::Sc, 1) => x,
        (Cube::Sc, _) => negated(z, !below),
        (Cube::Tc, 1) => negated(z, below),
        (Cube::Tc, _) => -y,
        (Cube::Ma, _) => return mul::<F32>(m, s[axis], u64::from(2f32.to_bits())),
    };
    output::<F32>(m, u64::from(value.to_bits()))
}
