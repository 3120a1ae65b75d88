//! Conversions (RDNA ISA 12.8, 12.11). To integers they saturate, and NaN becomes 0.

use super::arith::{convert, of_integer};
use super::format::{F16, F32, F64, Format, half_of_single, input, single_of_half};
use super::mode::{Mode, Round};
use crate::lanes::lanes;

lanes! {
    v_cvt_f32_f16: F32(F16) |m, a, _, _| convert::<F16, F32>(m, a),
        usual F16: u64::from(single_of_half(a as u32).to_bits());
    v_cvt_f16_f32: F16(F32) |m, a, _, _| convert::<F32, F16>(m, a),
        usual F16: u64::from(half_of_single(f32::from_bits(a as u32)));
    v_cvt_f64_f32: F64(F32) |m, a, _, _| convert::<F32, F64>(m, a);
    v_cvt_f32_f64: F32(F64) |m, a, _, _| convert::<F64, F32>(m, a);

    v_cvt_f32_i32: F32(I32) |m, a, _, _| of_integer::<F32>(m.round::<F32>(), a as i64),
        usual F32: u64::from((a as i32 as f32).to_bits());
    v_cvt_f32_u32: F32(U32) |m, a, _, _| of_integer::<F32>(m.round::<F32>(), a as i64),
        usual F32: u64::from((a as u32 as f32).to_bits());
    v_cvt_f64_i32: F64(I32) |_, a, _, _| f64::from(a as i32).to_bits();
    v_cvt_f64_u32: F64(U32) |_, a, _, _| f64::from(a as u32).to_bits();
    v_cvt_f16_i16: F16(I16) |m, a, _, _| of_integer::<F16>(m.round::<F16>(), a as i64);
    v_cvt_f16_u16: F16(U16) |m, a, _, _| of_integer::<F16>(m.round::<F16>(), a as i64);
    v_cvt_f32_ubyte0: F32(U32) |_, a, _, _| u64::from((a as u8 as f32).to_bits());
    v_cvt_f32_ubyte1: F32(U32) |_, a, _, _| u64::from(((a >> 8) as u8 as f32).to_bits());
    v_cvt_f32_ubyte2: F32(U32) |_, a, _, _| u64::from(((a >> 16) as u8 as f32).to_bits());
    v_cvt_f32_ubyte3: F32(U32) |_, a, _, _| u64::from(((a >> 24) as u8 as f32).to_bits());
    // Four bits with sign, in sixteenths.
    v_cvt_off_f32_i4: F32(U32) |_, a, _, _| {
        let n = (a << 60) as i64 >> 60;
        u64::from((n as f32 / 16.0).to_bits())
    };

    v_cvt_i32_f32: B32(F32) |_, a, _, _| u64::from(f32::from_bits(a as u32) as i32 as u32);
    v_cvt_u32_f32: B32(F32) |_, a, _, _| u64::from(f32::from_bits(a as u32) as u32);
    v_cvt_i32_f64: B32(F64) |_, a, _, _| u64::from(f64::from_bits(a) as i32 as u32);
    v_cvt_u32_f64: B32(F64) |_, a, _, _| u64::from(f64::from_bits(a) as u32);
    v_cvt_i16_f16: I16(F16) |_, a, _, _| i64::from(single_of_half(a as u32) as i16) as u64;
    v_cvt_u16_f16: U16(F16) |_, a, _, _| u64::from(single_of_half(a as u32) as u16);
    // Half is added exactly before it rounds down.
    v_cvt_rpi_i32_f32: B32(F32) |m, a, _, _| floored(F32::to_f64(input::<F32>(m, a)) + 0.5);
    v_cvt_flr_i32_f32: B32(F32) |m, a, _, _| floored(F32::to_f64(input::<F32>(m, a)));

    v_cvt_norm_i16_f16: I16(F16) |m, a, _, _| i64::from(snorm::<F16>(m, a) as i16) as u64;
    v_cvt_norm_u16_f16: U16(F16) |m, a, _, _| unorm::<F16>(m, a);
    v_cvt_pknorm_i16_f16: B32(F16, F16) |m, a, b, _| snorm::<F16>(m, a) | snorm::<F16>(m, b) << 16;
    v_cvt_pknorm_u16_f16: B32(F16, F16) |m, a, b, _| unorm::<F16>(m, a) | unorm::<F16>(m, b) << 16;
    v_cvt_pknorm_i16_f32: B32(F32, F32) |m, a, b, _| snorm::<F32>(m, a) | snorm::<F32>(m, b) << 16;
    v_cvt_pknorm_u16_f32: B32(F32, F32) |m, a, b, _| unorm::<F32>(m, a) | unorm::<F32>(m, b) << 16;

    // Towards zero whatever MODE says.
    v_cvt_pkrtz_f16_f32: B32(F32, F32) |m, a, b, _| {
        let m = m.rounding::<F16>(Round::Zero);
        convert::<F32, F16>(m, a) | convert::<F32, F16>(m, b) << 16
    };
    v_cvt_pk_u16_u32: B32(U32, U32) |_, a, b, _| a.min(0xffff) | b.min(0xffff) << 16;
    v_cvt_pk_i16_i32: B32(I32, I32) |_, a, b, _| {
        let cut = |x: u64| u64::from((x as i64).clamp(-0x8000, 0x7fff) as u16);
        cut(a) | cut(b) << 16
    };
    // A byte, cut towards zero, into one of the four of the third source.
    v_cvt_pk_u8_f32: B32(F32, U32, U32) |_, a, b, c| {
        let shift = 8 * (b & 3);
        c & !(0xff << shift) | u64::from(f32::from_bits(a as u32) as u8) << shift
    };
}

fn floored(x: f64) -> u64 {
    u64::from(x.floor() as i32 as u32)
}

/// -1 to 1 as 16 bits with sign, to nearest; NaN as 0.
fn snorm<F: Format>(m: Mode, x: u64) -> u64 {
    let x = F::to_f64(input::<F>(m, x));
    u64::from((x.clamp(-1.0, 1.0) * 32767.0).round_ties_even() as i16 as u16)
}

/// 0 to 1 as 16 bits, to nearest; NaN as 0.
fn unorm<F: Format>(m: Mode, x: u64) -> u64 {
    let x = F::to_f64(input::<F>(m, x));
    u64::from((x.clamp(0.0, 1.0) * 65535.0).round_ties_even() as u16)
}
