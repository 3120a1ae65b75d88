//! The sequences that LLVM divides by, instruction for instruction, equal the host's IEEE division.

use crate::common;

use common::{assemble, have, rng};
use rand::Rng;
use rand::rngs::StdRng;
use wave32_exec::Wave;
use wave32_isa::{Inst, Target, decode};

/// v0 is divided by v1; the quotient lies in v0. LLVM keeps denormals while it iterates.
const SINGLE: [&str; 11] = [
    "v_div_scale_f32 v2, s4, v1, v1, v0",
    "v_div_scale_f32 v3, vcc_lo, v0, v1, v0",
    "v_rcp_f32_e32 v4, v2",
    "v_fma_f32 v5, -v2, v4, 1.0",
    "v_fma_f32 v4, v5, v4, v4",
    "v_mul_f32_e32 v5, v3, v4",
    "v_fma_f32 v6, -v2, v5, v3",
    "v_fma_f32 v5, v6, v4, v5",
    "v_fma_f32 v2, -v2, v5, v3",
    "v_div_fmas_f32 v2, v2, v4, v5",
    "v_div_fixup_f32 v0, v2, v1, v0",
];

/// v[0:1] is divided by v[2:3].
const DOUBLE: [&str; 11] = [
    "v_div_scale_f64 v[4:5], s4, v[2:3], v[2:3], v[0:1]",
    "v_rcp_f64_e32 v[6:7], v[4:5]",
    "v_fma_f64 v[8:9], -v[4:5], v[6:7], 1.0",
    "v_fma_f64 v[6:7], v[6:7], v[8:9], v[6:7]",
    "v_fma_f64 v[8:9], -v[4:5], v[6:7], 1.0",
    "v_fma_f64 v[6:7], v[6:7], v[8:9], v[6:7]",
    "v_div_scale_f64 v[8:9], vcc_lo, v[0:1], v[2:3], v[0:1]",
    "v_mul_f64 v[10:11], v[8:9], v[6:7]",
    "v_fma_f64 v[4:5], -v[4:5], v[10:11], v[8:9]",
    "v_div_fmas_f64 v[4:5], v[4:5], v[6:7], v[10:11]",
    "v_div_fixup_f64 v[0:1], v[4:5], v[2:3], v[0:1]",
];

fn sequence(lines: &[&str], wave64: bool) -> Vec<Inst> {
    let lines: Vec<String> =
        lines
            .iter()
            .map(|line| {
                if wave64 { line.replace("vcc_lo", "vcc").replace("s4", "s[4:5]") } else { line.to_string() }
            })
            .collect();
    let codes = assemble(&lines, wave64);
    codes.iter().map(|code| decode(code, Target::Gfx1010, wave64).expect("decodes")).collect()
}

/// Numbers of every class, and some near each edge of the exponent; `fraction` bits of it.
fn edge(rng: &mut StdRng, width: u32, fraction: u32) -> u64 {
    let top = (1u64 << (width - 1 - fraction)) - 1;
    let exponent = match rng.random_range(0..8) {
        0 => 0,
        1 => top,
        2 => 1,
        3 => top - 1,
        4 => rng.random_range(0..64),
        5 => top - rng.random_range(0..64),
        _ => rng.random_range(0..=top),
    };
    let mantissa = match rng.random_range(0..4) {
        0 => 0,
        1 => 1,
        2 => (1 << fraction) - 1,
        _ => rng.random_range(0..1u64 << fraction),
    };
    u64::from(rng.random::<bool>()) << (width - 1) | exponent << fraction | mantissa
}

#[test]
fn singles_divide_as_ieee() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let mut rng = rng();
    let codes = [false, true].map(|wave64| sequence(&SINGLE, wave64));
    for round in 0..3000 {
        let wave64 = round % 2 == 1;
        let code = &codes[usize::from(wave64)];
        let mut wave = Wave::new(8, wave64);
        for row in &mut wave.vgpr {
            row.iter_mut().for_each(|x| *x = edge(&mut rng, 32, 23) as u32);
        }
        let before = wave.clone();
        code.iter().for_each(|inst| assert!(wave.execute_vector(inst), "{inst:?}"));
        for half in 0..1 + usize::from(wave64) {
            for lane in 0..32 {
                let [n, d] = [0, 1].map(|r| f32::from_bits(before.vgpr[half * 8 + r][lane]));
                let (got, want) = (f32::from_bits(wave.vgpr[half * 8][lane]), n / d);
                let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
                assert!(
                    same,
                    "{n:e} / {d:e} ({:#x} / {:#x}): {got:e}, IEEE {want:e}",
                    n.to_bits(),
                    d.to_bits()
                );
            }
        }
    }
}

#[test]
fn doubles_divide_as_ieee() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let mut rng = rng();
    let codes = [false, true].map(|wave64| sequence(&DOUBLE, wave64));
    for round in 0..3000 {
        let wave64 = round % 2 == 1;
        let code = &codes[usize::from(wave64)];
        let mut wave = Wave::new(12, wave64);
        for half in 0..1 + usize::from(wave64) {
            for lane in 0..32 {
                for r in [0, 2] {
                    let x = edge(&mut rng, 64, 52);
                    wave.vgpr[half * 12 + r][lane] = x as u32;
                    wave.vgpr[half * 12 + r + 1][lane] = (x >> 32) as u32;
                }
            }
        }
        let double = |wave: &Wave, row: usize, lane: usize| {
            f64::from_bits(u64::from(wave.vgpr[row][lane]) | u64::from(wave.vgpr[row + 1][lane]) << 32)
        };
        let before = wave.clone();
        code.iter().for_each(|inst| assert!(wave.execute_vector(inst), "{inst:?}"));
        for half in 0..1 + usize::from(wave64) {
            for lane in 0..32 {
                let [n, d] = [0, 2].map(|r| double(&before, half * 12 + r, lane));
                let (got, want) = (double(&wave, half * 12, lane), n / d);
                let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
                assert!(
                    same,
                    "{n:e} / {d:e} ({:#x} / {:#x}): {got:e}, IEEE {want:e}",
                    n.to_bits(),
                    d.to_bits()
                );
            }
        }
    }
}
