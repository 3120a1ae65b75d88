//! Reciprocals, roots, exponentials and angles (RDNA ISA 12.8). The hardware approximates to about one unit in the
//! last place with tables of its own; here the result of the host's double arithmetic is rounded to the format, so the
//! bits are not the hardware's. Singles flush denormals, in and out, whatever MODE says.

use super::arith::{nan_of, of_f64};
use super::format::{F16, F32, F64, Format, exponent, input, output};
use super::mode::{Mode, Round};
use crate::lanes::lanes;

lanes! {
    v_rcp_f16: F16(F16) |m, a, _, _| through::<F16>(m, a, f64::recip);
    v_rsq_f16: F16(F16) |m, a, _, _| through::<F16>(m, a, |x| x.sqrt().recip());
    v_sqrt_f16: F16(F16) |m, a, _, _| through::<F16>(m, a, f64::sqrt);
    v_exp_f16: F16(F16) |m, a, _, _| through::<F16>(m, a, f64::exp2);
    v_log_f16: F16(F16) |m, a, _, _| through::<F16>(m, a, f64::log2);
    v_sin_f16: F16(F16) |m, a, _, _| through::<F16>(m, a, |x| turn(x, 0));
    v_cos_f16: F16(F16) |m, a, _, _| through::<F16>(m, a, |x| turn(x, 1));
    v_rcp_f32: F32(F32) |m, a, _, _| single(m, a, f64::recip);
    v_rcp_iflag_f32: F32(F32) |m, a, _, _| single(m, a, f64::recip);
    v_rsq_f32: F32(F32) |m, a, _, _| single(m, a, |x| x.sqrt().recip());
    v_sqrt_f32: F32(F32) |m, a, _, _| single(m, a, f64::sqrt);
    v_exp_f32: F32(F32) |m, a, _, _| single(m, a, f64::exp2);
    v_log_f32: F32(F32) |m, a, _, _| single(m, a, f64::log2);
    v_sin_f32: F32(F32) |m, a, _, _| single(m, a, |x| turn(x, 0));
    v_cos_f32: F32(F32) |m, a, _, _| single(m, a, |x| turn(x, 1));
    v_rcp_f64: F64(F64) |m, a, _, _| through::<F64>(m, a, f64::recip);
    v_rsq_f64: F64(F64) |m, a, _, _| through::<F64>(m, a, |x| x.sqrt().recip());
    v_sqrt_f64: F64(F64) |m, a, _, _| through::<F64>(m, a, f64::sqrt);
    v_trig_preop_f64: F64(F64, U32) |m, a, b, _| trig_preop(m, a, b);
}

/// A function of doubles, rounded to nearest.
fn through<F: Format>(m: Mode, x: u64, f: impl Fn(f64) -> f64) -> u64 {
    let x = input::<F>(m, x);
    if let Some(nan) = nan_of::<F>(&[x]) {
        return nan;
    }
    let y = f(F::to_f64(x));
    if y.is_nan() { F::NAN } else { output::<F>(m, of_f64::<F>(Round::Nearest, y)) }
}

/// The same of singles, flushing, rounded by the host.
#[inline(always)]
fn single(m: Mode, x: u64, f: impl Fn(f64) -> f64) -> u64 {
    let m = m.flushing::<F32>();
    let x = input::<F32>(m, x);
    if let Some(nan) = nan_of::<F32>(&[x]) {
        return nan;
    }
    let y = f(F32::to_f64(x));
    if y.is_nan() { F32::NAN } else { output::<F32>(m, F32::of_exact(y)) }
}

/// The sine of `x` turns and `quarters` quarter turns more; exact at quarters.
fn turn(x: f64, quarters: i64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    if x == 0.0 && quarters == 0 {
        return x; // of its sign
    }
    let x = x % 1.0; // exact
    let nearest = (x * 4.0).round_ties_even();
    let angle = (x - nearest / 4.0) * std::f64::consts::TAU;
    match (nearest as i64 + quarters).rem_euclid(4) {
        0 => angle.sin(),
        1 => angle.cos(),
        2 => -angle.sin(),
        _ => -angle.cos(),
    }
}

/// 53 bits of 2/pi, to reduce a large angle by: the segment that the second source names, further along for angles
/// so large that the first bits give whole turns.
fn trig_preop(m: Mode, x: u64, segment: u64) -> u64 {
    let e = exponent::<F64>(x);
    let shift = (segment & 31) as i32 * 53 + (e - 1077).max(0);
    // Bits of the fraction, 1201 in all, after the first `shift`; zeros past the end.
    let bit = |i: i32| {
        let i = i as usize;
        if i < 1201 { TWO_OVER_PI[i / 64] >> (63 - i % 64) & 1 } else { 0 }
    };
    let bits = (0..53).fold(0, |bits, i| bits << 1 | bit(shift + i));
    let scale = -53 - shift + if e >= 1968 { 128 } else { 0 };
    super::arith::ldexp::<F64>(m, (bits as f64).to_bits(), scale)
}

/// 2/pi, the first bit worth 1/2.
const TWO_OVER_PI: [u64; 19] = [
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
    0x5603_3046_fc7b_6bab,
];
