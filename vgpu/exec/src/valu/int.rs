//! Integers and bits (RDNA ISA 12.7, 12.8, 12.10, 12.11). Results are exact 64-bit integers: write-back cuts or clamps.

use crate::lanes::lanes;

lanes! { integers
    v_mov_b32: B32(B32) |_, a, _, _| a;
    v_not_b32: B32(B32) |_, a, _, _| !a;
    v_bfrev_b32: B32(B32) |_, a, _, _| (a as u32).reverse_bits() as i64;
    v_ffbh_u32: B32(B32) |_, a, _, _| if a == 0 { -1 } else { i64::from((a as u32).leading_zeros()) };
    v_ffbl_b32: B32(B32) |_, a, _, _| if a == 0 { -1 } else { i64::from((a as u32).trailing_zeros()) };
    v_ffbh_i32: B32(I32) |_, a, _, _| {
        let turned = (a ^ a >> 63) as u32;
        if turned == 0 { -1 } else { i64::from(turned.leading_zeros()) }
    };

    v_add_nc_u32: U32(U32, U32) |_, a, b, _| a + b;
    v_sub_nc_u32: U32(U32, U32) |_, a, b, _| a - b;
    v_subrev_nc_u32: U32(U32, U32) |_, a, b, _| b - a;
    v_add_nc_i32: I32(I32, I32) |_, a, b, _| a + b;
    v_sub_nc_i32: I32(I32, I32) |_, a, b, _| a - b;
    v_add_nc_u16: U16(U16, U16) |_, a, b, _| a + b;
    v_sub_nc_u16: U16(U16, U16) |_, a, b, _| a - b;
    v_add_nc_i16: I16(I16, I16) |_, a, b, _| a + b;
    v_sub_nc_i16: I16(I16, I16) |_, a, b, _| a - b;
    v_add3_u32: B32(U32, U32, U32) |_, a, b, c| a + b + c;
    v_xad_u32: B32(U32, U32, U32) |_, a, b, c| (a ^ b) + c;

    v_mul_u32_u24: U32(U32, U32) |_, a, b, _| (a & 0xff_ffff) * (b & 0xff_ffff);
    v_mul_i32_i24: I32(I32, I32) |_, a, b, _| low24(a) * low24(b);
    v_mul_hi_u32_u24: U32(U32, U32) |_, a, b, _| ((a & 0xff_ffff) * (b & 0xff_ffff)) >> 32;
    v_mul_hi_i32_i24: I32(I32, I32) |_, a, b, _| (low24(a) * low24(b)) >> 32;
    v_mad_u32_u24: U32(U32, U32, U32) |_, a, b, c| (a & 0xff_ffff) * (b & 0xff_ffff) + c;
    v_mad_i32_i24: I32(I32, I32, I32) |_, a, b, c| low24(a) * low24(b) + c;
    v_mul_lo_u32: B32(B32, B32) |_, a, b, _| (a as u32).wrapping_mul(b as u32) as i64;
    v_mul_lo_i32: B32(B32, B32) |_, a, b, _| (a as u32).wrapping_mul(b as u32) as i64;
    v_mul_hi_u32: B32(U32, U32) |_, a, b, _| ((a as u64).wrapping_mul(b as u64) >> 32) as i64;
    v_mul_hi_i32: B32(I32, I32) |_, a, b, _| (a * b) >> 32;
    v_mul_lo_u16: U16(U16, U16) |_, a, b, _| a * b;
    v_mad_u16: U16(U16, U16, U16) |_, a, b, c| a * b + c;
    v_mad_i16: I16(I16, I16, I16) |_, a, b, c| a * b + c;
    v_mad_u32_u16: U32(U16, U16, U32) |_, a, b, c| a * b + c;
    v_mad_i32_i16: I32(I16, I16, I32) |_, a, b, c| a * b + c;

    v_lshlrev_b32: B32(B32, B32) |_, a, b, _| b << (a & 31);
    v_lshrrev_b32: B32(B32, B32) |_, a, b, _| b >> (a & 31);
    v_ashrrev_i32: B32(B32, I32) |_, a, b, _| b >> (a & 31);
    v_lshlrev_b16: U16(U16, U16) |_, a, b, _| b << (a & 15);
    v_lshrrev_b16: U16(U16, U16) |_, a, b, _| b >> (a & 15);
    v_ashrrev_i16: I16(U16, I16) |_, a, b, _| b >> (a & 15);
    v_lshlrev_b64: B64(B32, B64) |_, a, b, _| b << (a & 63);
    v_lshrrev_b64: B64(B32, B64) |_, a, b, _| (b as u64 >> (a & 63)) as i64;
    v_ashrrev_i64: B64(B32, B64) |_, a, b, _| b >> (a & 63);
    v_lshl_add_u32: B32(B32, B32, B32) |_, a, b, c| (a << (b & 31)).wrapping_add(c);
    v_add_lshl_u32: B32(B32, B32, B32) |_, a, b, c| (a + b) << (c & 31);
    v_lshl_or_b32: B32(B32, B32, B32) |_, a, b, c| a << (b & 31) | c;

    v_and_b32: B32(B32, B32) |_, a, b, _| a & b;
    v_or_b32: B32(B32, B32) |_, a, b, _| a | b;
    v_xor_b32: B32(B32, B32) |_, a, b, _| a ^ b;
    v_xnor_b32: B32(B32, B32) |_, a, b, _| !(a ^ b);
    v_and_or_b32: B32(B32, B32, B32) |_, a, b, c| a & b | c;
    v_or3_b32: B32(B32, B32, B32) |_, a, b, c| a | b | c;
    v_xor3_b32: B32(B32, B32, B32) |_, a, b, c| a ^ b ^ c;
    v_bfe_u32: B32(B32, B32, B32) |_, a, b, c| a >> (b & 31) & ((1i64 << (c & 31)) - 1);
    v_bfe_i32: B32(I32, B32, B32) |_, a, b, c| bfe_i32(a, b & 31, c & 31);
    v_bfi_b32: B32(B32, B32, B32) |_, a, b, c| a & b | !a & c;
    v_bfm_b32: B32(B32, B32) |_, a, b, _| ((1i64 << (a & 31)) - 1) << (b & 31);
    v_bcnt_u32_b32: B32(B32, B32) |_, a, b, _| i64::from((a as u32).count_ones()) + b;
    v_alignbit_b32: B32(B32, B32, B32) |_, a, b, c| ((a as u64) << 32 | b as u64) as i64 >> (c & 31);
    v_alignbyte_b32: B32(B32, B32, B32) |_, a, b, c| ((a as u64) << 32 | b as u64) as i64 >> (8 * (c & 3));
    v_perm_b32: B32(B32, B32, B32) |_, a, b, c| perm((a as u64) << 32 | b as u64, c as u32);
    v_pack_b32_f16: B32(F16, F16) |_, a, b, _| a | b << 16;
    v_sat_pk_u8_i16: B32(B32) |_, a, _, _| {
        let saturated = |x: i64| (x as i16).clamp(0, 255) as i64;
        saturated(a) | saturated(a >> 16) << 8
    };

    v_min_u32: B32(U32, U32) |_, a, b, _| a.min(b);
    v_max_u32: B32(U32, U32) |_, a, b, _| a.max(b);
    v_min_i32: B32(I32, I32) |_, a, b, _| a.min(b);
    v_max_i32: B32(I32, I32) |_, a, b, _| a.max(b);
    v_min_u16: U16(U16, U16) |_, a, b, _| a.min(b);
    v_max_u16: U16(U16, U16) |_, a, b, _| a.max(b);
    v_min_i16: I16(I16, I16) |_, a, b, _| a.min(b);
    v_max_i16: I16(I16, I16) |_, a, b, _| a.max(b);
    v_min3_u32: B32(U32, U32, U32) |_, a, b, c| a.min(b).min(c);
    v_max3_u32: B32(U32, U32, U32) |_, a, b, c| a.max(b).max(c);
    v_med3_u32: B32(U32, U32, U32) |_, a, b, c| med3(a, b, c);
    v_min3_i32: B32(I32, I32, I32) |_, a, b, c| a.min(b).min(c);
    v_max3_i32: B32(I32, I32, I32) |_, a, b, c| a.max(b).max(c);
    v_med3_i32: B32(I32, I32, I32) |_, a, b, c| med3(a, b, c);
    v_min3_u16: U16(U16, U16, U16) |_, a, b, c| a.min(b).min(c);
    v_max3_u16: U16(U16, U16, U16) |_, a, b, c| a.max(b).max(c);
    v_med3_u16: U16(U16, U16, U16) |_, a, b, c| med3(a, b, c);
    v_min3_i16: I16(I16, I16, I16) |_, a, b, c| a.min(b).min(c);
    v_max3_i16: I16(I16, I16, I16) |_, a, b, c| a.max(b).max(c);
    v_med3_i16: I16(I16, I16, I16) |_, a, b, c| med3(a, b, c);

    v_lerp_u8: B32(B32, B32, B32) |_, a, b, c| bytes(|i| (byte(a, i) + byte(b, i) + (byte(c, i) & 1)) >> 1);
    v_sad_u8: U32(U32, U32, U32) |_, a, b, c| sad(a, b) + c;
    v_sad_hi_u8: U32(U32, U32, U32) |_, a, b, c| (sad(a, b) << 16) + c;
    v_sad_u16: U32(U32, U32, U32) |_, a, b, c| {
        ((a & 0xffff) - (b & 0xffff)).abs() + ((a >> 16) - (b >> 16)).abs() + c
    };
    v_sad_u32: U32(U32, U32, U32) |_, a, b, c| (a - b).abs() + c;
    v_msad_u8: U32(U32, U32, U32) |_, a, b, c| msad(a, b) + c;
    v_qsad_pk_u16_u8: B64(B64, B32, B64) |m, a, b, c| quads(a, c, m.clamp(), |a| sad(a, b));
    v_mqsad_pk_u16_u8: B64(B64, B32, B64) |m, a, b, c| quads(a, c, m.clamp(), |a| msad(a, b));

    // Masked lanes: the second of two 32-bit choices. Modifiers are those of floats.
    v_cndmask_b32: B32(F32, F32, Mask) |_, a, b, c| if c != 0 { b } else { a };
}

fn low24(x: i64) -> i64 {
    x << 40 >> 40
}

fn bfe_i32(x: i64, offset: i64, width: i64) -> i64 {
    if width == 0 { 0 } else { x >> offset << (64 - width) >> (64 - width) }
}

fn med3(a: i64, b: i64, c: i64) -> i64 {
    a.max(b).min(a.min(b).max(c))
}

fn byte(x: i64, i: u32) -> i64 {
    x >> (8 * i) & 0xff
}

fn bytes(f: impl Fn(u32) -> i64) -> i64 {
    f(0) | f(1) << 8 | f(2) << 16 | f(3) << 24
}

/// Sum of absolute differences of bytes.
fn sad(a: i64, b: i64) -> i64 {
    (0..4).map(|i| (byte(a, i) - byte(b, i)).abs()).sum()
}

/// The same, over the bytes that are not zero in the reference `b`.
pub(super) fn msad(a: i64, b: i64) -> i64 {
    (0..4).filter(|&i| byte(b, i) != 0).map(|i| (byte(a, i) - byte(b, i)).abs()).sum()
}

/// Four windows of `a`, a byte apart, each summed onto its 16 bits of `c`.
fn quads(a: i64, c: i64, clamp: bool, sum: impl Fn(i64) -> i64) -> i64 {
    (0..4).fold(0, |all, i| {
        let total = sum(a >> (8 * i) & 0xffff_ffff) + (c >> (16 * i) & 0xffff);
        let total = if clamp { total.min(0xffff) } else { total & 0xffff };
        all | total << (16 * i)
    })
}

/// Bytes of `data` by selector; 8 to 11 are signs of its 16-bit words, 12 is zero, above that ones.
fn perm(data: u64, select: u32) -> i64 {
    bytes(|i| {
        let at = |byte: u32| (data >> (8 * byte) & 0xff) as i64;
        match select >> (8 * i) & 0xff {
            s @ 0..=7 => at(s),
            s @ 8..=11 => 0xff * (at(2 * (s - 8) + 1) >> 7),
            12 => 0,
            _ => 0xff,
        }
    })
}
