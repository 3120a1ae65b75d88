//! What integer and bit operations mean: exact whole numbers, loops over bits, bytes in arrays.

use super::machine::Lane;
use super::ops::{bytes, integer, number, of_bytes};

/// Operations on bits.
pub fn bits(name: &str, l: &Lane) -> Option<i128> {
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
pub fn whole(name: &str, l: &Lane) -> Option<i128> {
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
        "mul_hi" => (s[0] * s[1]) >> 32,
        "mul_u32" | "mul_i32" => narrow(0, 24) * narrow(1, 24),
        "mul_hi_u32" | "mul_hi_i32" => (narrow(0, 24) * narrow(1, 24)) >> 32,
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
