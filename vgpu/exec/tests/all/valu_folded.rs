//! LLVM's constant folder is a model of its own: where it folds an `amdgcn` builtin of constants, the instruction must
//! give the same bits.

use crate::common;

use common::{assemble, have, rng};
use rand::Rng;
use rand::rngs::StdRng;
use std::process::Command;
use wave32_exec::Wave;
use wave32_isa::{Target, decode};

/// A builtin with constant arguments, and the instruction for it: sources in v1, v2, v3 (pairs from v2 on of doubles),
/// the result in v0.
struct Case {
    /// C, `A`, `B`, `C` standing for the arguments.
    builtin: &'static str,
    /// Types of result and arguments: f single, d double, h half, i 32 bits, b a bit.
    types: &'static str,
    instruction: &'static str,
}

const fn case(builtin: &'static str, types: &'static str, instruction: &'static str) -> Case {
    Case { builtin, types, instruction }
}

const CASES: &[Case] = &[
    case("__builtin_amdgcn_fractf(A)", "ff", "v_fract_f32_e32 v0, v1"),
    case("__builtin_amdgcn_fract(A)", "dd", "v_fract_f64_e32 v[0:1], v[2:3]"),
    case("__builtin_amdgcn_rcpf(A)", "ff", "v_rcp_f32_e32 v0, v1"),
    case("__builtin_amdgcn_rcp(A)", "dd", "v_rcp_f64_e32 v[0:1], v[2:3]"),
    case("__builtin_amdgcn_fmed3f(A, B, C)", "ffff", "v_med3_f32 v0, v1, v2, v3"),
    case("__builtin_amdgcn_cubeid(A, B, C)", "ffff", "v_cubeid_f32 v0, v1, v2, v3"),
    case("__builtin_amdgcn_cubesc(A, B, C)", "ffff", "v_cubesc_f32 v0, v1, v2, v3"),
    case("__builtin_amdgcn_cubetc(A, B, C)", "ffff", "v_cubetc_f32 v0, v1, v2, v3"),
    case("__builtin_amdgcn_cubema(A, B, C)", "ffff", "v_cubema_f32 v0, v1, v2, v3"),
    case("__builtin_amdgcn_frexp_mantf(A)", "ff", "v_frexp_mant_f32_e32 v0, v1"),
    case("__builtin_amdgcn_frexp_mant(A)", "dd", "v_frexp_mant_f64_e32 v[0:1], v[2:3]"),
    case("__builtin_amdgcn_frexp_expf(A)", "if", "v_frexp_exp_i32_f32_e32 v0, v1"),
    case("__builtin_amdgcn_frexp_exp(A)", "id", "v_frexp_exp_i32_f64_e32 v0, v[2:3]"),
    case("__builtin_amdgcn_ubfe(A, B, C)", "iiii", "v_bfe_u32 v0, v1, v2, v3"),
    case("__builtin_amdgcn_sbfe(A, B, C)", "iiii", "v_bfe_i32 v0, v1, v2, v3"),
    case("__builtin_amdgcn_perm(A, B, C)", "iiii", "v_perm_b32 v0, v1, v2, v3"),
    case("__builtin_amdgcn_alignbit(A, B, C)", "iiii", "v_alignbit_b32 v0, v1, v2, v3"),
    case("__builtin_amdgcn_classf(A, B)", "bfi", "v_cmp_class_f32 s0, v1, v2"),
    case("__builtin_amdgcn_cvt_pkrtz(A, B)", "iff", "v_cvt_pkrtz_f16_f32_e64 v0, v1, v2"),
    case("__builtin_ldexpf(A, (int)B)", "ffi", "v_ldexp_f32 v0, v1, v2"),
    case("__builtin_fmaf(A, B, C)", "ffff", "v_fma_f32 v0, v1, v2, v3"),
    case("__builtin_floorf(A)", "ff", "v_floor_f32_e32 v0, v1"),
    case("__builtin_ceilf(A)", "ff", "v_ceil_f32_e32 v0, v1"),
    case("__builtin_truncf(A)", "ff", "v_trunc_f32_e32 v0, v1"),
    case("__builtin_roundevenf(A)", "ff", "v_rndne_f32_e32 v0, v1"),
    case("__builtin_popcount(A) + B", "iii", "v_bcnt_u32_b32 v0, v1, v2"),
    case("__builtin_bitreverse32(A)", "ii", "v_bfrev_b32_e32 v0, v1"),
    case("A * B", "fff", "v_mul_f32_e32 v0, v1, v2"),
    case("A + B", "fff", "v_add_f32_e32 v0, v1, v2"),
    case("A - B", "fff", "v_sub_f32_e32 v0, v1, v2"),
    case("(float)(int)A", "fi", "v_cvt_f32_i32_e32 v0, v1"),
    case("(float)A", "fi", "v_cvt_f32_u32_e32 v0, v1"),
    case("(float)A", "fd", "v_cvt_f32_f64_e32 v0, v[2:3]"),
];

fn literal(kind: char, x: u64) -> String {
    match kind {
        'f' => format!("__builtin_bit_cast(float, {}u)", x as u32),
        'd' => format!("__builtin_bit_cast(double, {x}ul)"),
        _ => format!("{}u", x as u32),
    }
}

/// A number of the kind; no NaNs, whose bits LLVM does not promise, and no denormals, which `v_rcp_f32` flushes.
fn argument(kind: char, rng: &mut StdRng) -> u64 {
    loop {
        let x = match (kind, rng.random_range(0..4)) {
            ('f', 0) => u64::from(
                [0.0f32, -0.0, 1.0, -1.0, 0.5, f32::INFINITY, f32::MAX][rng.random_range(0..7)].to_bits(),
            ),
            ('f', 1) => u64::from(rng.random_range(-4.0f32..4.0).to_bits()),
            ('d', 0) => {
                [0.0f64, -0.0, 1.0, -1.0, 0.5, f64::INFINITY, f64::MAX][rng.random_range(0..7)].to_bits()
            }
            ('d', 1) => rng.random_range(-4.0f64..4.0).to_bits(),
            ('i', 0) => rng.random_range(0..40),
            ('d', _) => rng.random(),
            _ => rng.random::<u32>().into(),
        };
        let plain = match kind {
            'f' => f32::from_bits(x as u32).is_normal() || matches!(x, 0 | 0x8000_0000 | 0x7f80_0000),
            'd' => f64::from_bits(x).is_normal() || matches!(x, 0 | 0x7ff0_0000_0000_0000),
            _ => true,
        };
        if plain {
            return x;
        }
    }
}

/// The folded results, in order; `None` where LLVM did not fold.
fn folded(functions: &[String]) -> Vec<Option<u64>> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let source = dir.path().join("folded.c");
    let head = "#pragma STDC FP_CONTRACT OFF\n";
    std::fs::write(&source, head.to_string() + &functions.join("\n")).expect("written");
    let output = Command::new("clang-19")
        .args([
            "-target",
            "amdgcn-amd-amdhsa",
            "-mcpu=gfx1010",
            "-O2",
            "-S",
            "-emit-llvm",
            "-nogpulib",
            "-o",
            "-",
        ])
        .arg(&source)
        .output()
        .expect("clang-19 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    text.split("\ndefine ")
        .skip(1)
        .map(|body| {
            let returned = body.lines().find_map(|line| line.trim().strip_prefix("ret i64 "))?;
            returned.parse::<i64>().ok().map(|x| x as u64)
        })
        .collect()
}

#[test]
fn instructions_give_what_llvm_folds() {
    if !have(&["clang-19", "llvm-mc-19"]) {
        return;
    }
    const EACH: usize = 40;
    let mut rng = rng();
    let (mut functions, mut arguments) = (Vec::new(), Vec::new());
    for case in CASES {
        for _ in 0..EACH {
            let kinds: Vec<char> = case.types.chars().collect();
            let values: Vec<u64> = kinds[1..].iter().map(|&kind| argument(kind, &mut rng)).collect();
            let mut call = case.builtin.to_string();
            // Longer names first: an argument's text holds none of these letters after it was replaced.
            for (name, (kind, x)) in ["A", "B", "C"].iter().zip(kinds[1..].iter().zip(&values)) {
                let parts: Vec<&str> = call.split(name).collect();
                call = parts.join(&literal(*kind, *x));
            }
            let cast = match kinds[0] {
                'f' => format!("__builtin_bit_cast(unsigned, (float)({call}))"),
                'd' => format!("__builtin_bit_cast(unsigned long, (double)({call}))"),
                'i' if case.builtin.contains("pkrtz") => format!("__builtin_bit_cast(unsigned, {call})"),
                _ => format!("(unsigned)({call})"),
            };
            functions.push(format!("unsigned long f{}(void) {{ return {cast}; }}", functions.len()));
            arguments.push(values);
        }
    }
    let results = folded(&functions);
    assert_eq!(results.len(), functions.len());
    let lines: Vec<String> = CASES.iter().map(|case| case.instruction.to_string()).collect();
    let codes = assemble(&lines, false);
    let mut wrong = Vec::new();
    for ((case, code), (values, results)) in
        CASES.iter().zip(codes).zip(arguments.chunks(EACH).zip(results.chunks(EACH)))
    {
        let inst = decode(&code, Target::Gfx1010, false).expect("decodes");
        let mut compared = 0;
        for (values, want) in values.iter().zip(results) {
            let Some(want) = *want else { continue };
            let mut wave = Wave::new(8, false);
            wave.vgpr.iter_mut().flat_map(|row| row.iter_mut()).for_each(|x| *x = rng.random());
            wave.sgpr[0] = rng.random();
            let wide = case.types[1..].contains('d');
            for (i, x) in values.iter().enumerate() {
                wave.vgpr[if wide { 2 } else { 1 } + i].fill(*x as u32);
                if wide {
                    wave.vgpr[3 + i].fill((x >> 32) as u32);
                }
            }
            assert!(wave.execute_vector(&inst), "{}", case.instruction);
            let got = match &case.types[..1] {
                "d" => u64::from(wave.vgpr[0][7]) | u64::from(wave.vgpr[1][7]) << 32,
                "b" => u64::from(wave.sgpr[0] >> 7 & 1),
                _ => u64::from(wave.vgpr[0][7]),
            };
            let nan = |x: u64| match &case.types[..1] {
                "f" => f32::from_bits(x as u32).is_nan(),
                "d" => f64::from_bits(x).is_nan(),
                _ => false,
            };
            // The hardware flushes what LLVM does not.
            let flushed =
                case.instruction.starts_with("v_rcp_f32") && f32::from_bits(want as u32).is_subnormal();
            if got != want && !(nan(got) && nan(want)) && !flushed {
                wrong.push(format!("{} of {values:x?}: {got:#x}, LLVM {want:#x}", case.builtin));
            }
            compared += 1;
        }
        println!("{:45} {compared} of {EACH} folded", case.builtin);
        if compared == 0 {
            wrong.push(format!("LLVM folds no {}", case.builtin));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
