//! What an instruction reads and writes, which counters it raises: worked by hand from the RDNA 1.0 ISA manual,
//! chapters 4 to 12. The words are the LLVM assembler's.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use wave32_isa::{Access, Arg, DecodeError, Inst, Opcode, Operand, Target, decode};

fn inst(words: &[u32]) -> Inst {
    decode(words, Target::Gfx1010, false).unwrap_or_else(|error| panic!("{words:08x?}: {error}"))
}

/// `w v[0:1]`; in parentheses what the text does not name.
fn described(arg: &Arg) -> String {
    let access = match arg.access {
        Access::R => "r",
        Access::W => "w",
        Access::Rw => "rw",
    };
    let registers = |file: &str, first: usize| match arg.dwords {
        1 => format!("{file}{first}"),
        n => format!("{file}[{first}:{}]", first + usize::from(n) - 1),
    };
    let name = match arg.operand {
        Operand::OFF => return "off".to_owned(),
        Operand::VCC => "vcc_lo".to_owned(),
        Operand::EXEC => "exec_lo".to_owned(),
        Operand::M0 => "m0".to_owned(),
        Operand::NULL => "null".to_owned(),
        Operand::LITERAL => "literal".to_owned(),
        operand => match (operand.as_vgpr(), operand.as_sgpr()) {
            (Some(vgpr), _) => registers("v", vgpr),
            (_, Some(sgpr)) => registers("s", sgpr),
            _ => operand.0.to_string(),
        },
    };
    if arg.printed { format!("{access} {name}") } else { format!("({access} {name})") }
}

#[test]
#[rustfmt::skip]
fn operands_are_as_the_manual_says() {
    let cases: &[(&[u32], &str, &str)] = &[
        (&[0x0602_0602], "v_add_f32_e32 v1, s2, v3", "w v1, r s2, r v3"),
        (&[0x5602_0702], "v_fmac_f32_e32 v1, v2, v3", "rw v1, r v2, r v3"),
        (&[0xd54c_0000, 0x8418_0902], "v_fma_f64 v[0:1], v[2:3], s[4:5], -v[6:7]", "w v[0:1], r v[2:3], r s[4:5], r v[6:7]"),
        (&[0x7c02_0501], "v_cmp_lt_f32_e32 vcc_lo, v1, v2", "w vcc_lo, r v1, r v2"),
        (&[0xd401_0005, 0x0002_0501], "v_cmp_lt_f32_e64 s5, v1, v2", "w s5, r v1, r v2"),
        (&[0x7c22_0501], "v_cmpx_lt_f32_e32 v1, v2", "r v1, r v2, (w exec_lo)"),
        (&[0x0200_0501], "v_cndmask_b32_e32 v0, v1, v2, vcc_lo", "w v0, r v1, r v2, r vcc_lo"),
        (&[0xd501_0000, 0x001e_0501], "v_cndmask_b32_e64 v0, v1, v2, s7", "w v0, r v1, r v2, r s7"),
        (&[0xd70f_0300, 0x0002_0501], "v_add_co_u32 v0, s3, v1, v2", "w v0, w s3, r v1, r v2"),
        (&[0x5000_0501], "v_add_co_ci_u32_e32 v0, vcc_lo, v1, v2, vcc_lo", "w v0, w vcc_lo, r v1, r v2, r vcc_lo"),
        (&[0xd528_0300, 0x0012_0501], "v_add_co_ci_u32_e64 v0, s3, v1, v2, s4", "w v0, w s3, r v1, r v2, r s4"),
        (&[0xd56d_6a00, 0x0406_0501], "v_div_scale_f32 v0, vcc_lo, v1, v2, v1", "w v0, w vcc_lo, r v1, r v2, r v1"),
        (&[0xd56f_0000, 0x040e_0501], "v_div_fmas_f32 v0, v1, v2, v3", "w v0, r v1, r v2, r v3, (r vcc_lo)"),
        (&[0xd576_0200, 0x041a_0903], "v_mad_u64_u32 v[0:1], s2, v3, v4, v[6:7]", "w v[0:1], w s2, r v3, r v4, r v[6:7]"),
        (&[0x7e06_0504], "v_readfirstlane_b32 s3, v4", "w s3, r v4"),
        (&[0xd760_0003, 0x0000_f904], "v_readlane_b32 s3, v4, m0", "w s3, r v4, r m0"),
        (&[0xd761_0004, 0x0000_0a03], "v_writelane_b32 v4, s3, s5", "w v4, r s3, r s5"),
        (&[0x7e02_cb02], "v_swap_b32 v1, v2", "rw v1, rw v2"),
        (&[0x7e02_8702], "v_movrels_b32_e32 v1, v2", "w v1, r v2, (r m0)"),
        (&[0x7e02_02fb], "v_mov_b32_e32 v1, src_vccz", "w v1, r 251, (r vcc_lo)"),
        (&[0x7e02_02fe], "v_mov_b32_e32 v1, src_lds_direct", "w v1, r 254, (r m0)"),
        (&[0x5a02_0702, 0x4049_0fdb], "v_fmaak_f32 v1, v2, v3, 0x40490fdb", "w v1, r v2, r v3, r literal"),
        (&[0x7802_0702], "v_pk_fmac_f16 v1, v2, v3", "rw v1, r v2, r v3"),
        (&[0xcc21_0001, 0x0412_0702], "v_fma_mixlo_f16 v1, v2, v3, v4", "w v1, r v2, r v3, r v4"),
        (&[0xd777_0001, 0x0010_0702], "v_permlane16_b32 v1, v2, s3, s4", "w v1, r v2, r s3, r s4"),
        (&[0x7e02_02fa, 0xff01_1102], "v_mov_b32_dpp v1, v2 row_shr:1 row_mask:0xf bank_mask:0xf", "w v1, r v2"),
        (&[0x0602_06f9, 0x0606_1502], "v_add_f32_sdwa v1, v2, v3 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:DWORD", "w v1, r v2, r v3"),
        (&[0x8000_ff01, 0x1234_5678], "s_add_u32 s0, s1, 0x12345678", "w s0, r s1, r literal"),
        (&[0xbe80_3c6a], "s_and_saveexec_b32 s0, vcc_lo", "w s0, r vcc_lo, (rw exec_lo)"),
        (&[0xbf87_0004], "s_cbranch_vccnz 4", "(r vcc_lo)"),
        (&[0xbf88_0004], "s_cbranch_execz 4", "(r exec_lo)"),
        (&[0xb104_0007], "s_cmovk_i32 s4, 0x7", "rw s4"),
        (&[0xb784_0007], "s_addk_i32 s4, 0x7", "rw s4"),
        (&[0xbe84_2e06], "s_movrels_b32 s4, s6", "w s4, r s6, (r m0)"),
        (&[0xbe84_1d06], "s_bitset1_b32 s4, s6", "rw s4, r s6"),
        (&[0xbe9e_2104], "s_swappc_b64 s[30:31], s[4:5]", "w s[30:31], r s[4:5]"),
        (&[0xb981_f801], "s_setreg_b32 hwreg(HW_REG_MODE), s1", "r s1"),
        (&[0xbbfd_0000], "s_waitcnt_vscnt null, 0x0", "r null"),
        (&[0xbf90_0001], "s_sendmsg sendmsg(MSG_INTERRUPT)", "(r m0)"),
        (&[0xbf81_0000], "s_endpgm", ""),
        (&[0xf408_0202, 0xfa00_0010], "s_load_dwordx4 s[8:11], s[4:5], 0x10", "w s[8:11], r s[4:5], off"),
        (&[0xf400_0202, 0x0e00_0000], "s_load_dword s8, s[4:5], s7", "w s8, r s[4:5], r s7"),
        (&[0xf424_0202, 0xfa00_0000], "s_buffer_load_dwordx2 s[8:9], s[4:7], null", "w s[8:9], r s[4:7], off"),
        (&[0xf609_0202, 0xfa00_0000], "s_atomic_add s8, s[4:5], null glc", "rw s8, r s[4:5], off"),
        (&[0xf605_0202, 0xfa00_0000], "s_atomic_cmpswap s[8:9], s[4:5], null glc", "r s[8:9], r s[4:5], off, (w s8)"),
        (&[0xdc34_8ff8, 0x007d_0002], "global_load_dwordx2 v[0:1], v[2:3], off offset:-8", "w v[0:1], r v[2:3], off"),
        (&[0xdc30_8000, 0x0004_0002], "global_load_dword v0, v2, s[4:5]", "w v0, r v2, r s[4:5]"),
        (&[0xdc94_8000, 0x007d_0002], "global_load_short_d16_hi v0, v[2:3], off", "w v0, r v[2:3], off"),
        (&[0xdc7c_8000, 0x007d_0402], "global_store_dwordx3 v[2:3], v[4:6], off", "r v[2:3], r v[4:6], off"),
        (&[0xdcc9_8000, 0x007d_0402], "global_atomic_add v0, v[2:3], v4, off glc", "w v0, r v[2:3], r v4, off"),
        (&[0xdcc4_8000, 0x007d_0402], "global_atomic_cmpswap v[2:3], v[4:5], off", "r v[2:3], r v[4:5], off"),
        (&[0xdc30_0000, 0x007d_0002], "flat_load_dword v0, v[2:3]", "w v0, r v[2:3]"),
        (&[0xdc70_0000, 0x007d_0402], "flat_store_dword v[2:3], v4", "r v[2:3], r v4"),
        (&[0xdc30_4010, 0x0004_0000], "scratch_load_dword v0, off, s4 offset:16", "w v0, off, r s4"),
        (&[0xdc70_4000, 0x007d_0401], "scratch_store_dword v1, v4, off", "r v1, r v4, off"),
        (&[0xe030_1004, 0x0301_0001], "buffer_load_dword v0, v1, s[4:7], s3 offen offset:4", "w v0, r v1, r s[4:7], r s3"),
        (&[0xe030_3000, 0x8001_0001], "buffer_load_dword v0, v[1:2], s[4:7], 0 idxen offen", "w v0, r v[1:2], r s[4:7], r 128"),
        (&[0xe031_1000, 0x8001_0001], "buffer_load_dword v1, s[4:7], 0 offen lds", "r v1, r s[4:7], r 128, (r m0)"),
        (&[0xe030_0000, 0x8081_0000], "buffer_load_dword v[0:1], off, s[4:7], 0 tfe", "w v[0:1], off, r s[4:7], r 128"),
        (&[0xe074_0000, 0x8001_0000], "buffer_store_dwordx2 v[0:1], off, s[4:7], 0", "r v[0:1], off, r s[4:7], r 128"),
        (&[0xe0c8_4000, 0x8001_0000], "buffer_atomic_add v0, off, s[4:7], 0 glc", "rw v0, off, r s[4:7], r 128"),
        (&[0xe0c4_4000, 0x8001_0000], "buffer_atomic_cmpswap v[0:1], off, s[4:7], 0 glc", "r v[0:1], off, r s[4:7], r 128, (w v0)"),
        (&[0xe8e9_0000, 0x8001_0000], "tbuffer_load_format_xy v[0:1], off, s[4:7], 0 format:[BUF_FMT_16_16_FLOAT]", "w v[0:1], off, r s[4:7], r 128"),
        (&[0xd8dc_0201, 0x0000_0002], "ds_read2_b32 v[0:1], v2 offset0:1 offset1:2", "w v[0:1], r v2"),
        (&[0xd938_0100, 0x0006_0402], "ds_write2_b64 v2, v[4:5], v[6:7] offset1:1", "r v2, r v[4:5], r v[6:7]"),
        (&[0xd8c0_0000, 0x0003_0201], "ds_cmpst_rtn_b32 v0, v1, v2, v3", "w v0, r v1, r v2, r v3"),
        (&[0xd8f8_0000, 0x0000_0000], "ds_append v0", "w v0, (r m0)"),
        (&[0xdacc_0000, 0x0000_0201], "ds_bpermute_b32 v0, v1, v2", "w v0, r v1, r v2"),
        (&[0xd802_0000, 0x0000_0201], "ds_add_u32 v1, v2 gds", "r v1, r v2"),
    ];
    for &(words, text, operands) in cases {
        let inst = inst(words);
        assert_eq!(inst.text(), text);
        assert_eq!(usize::from(inst.len), 4 * words.len(), "{text}");
        let found: Vec<_> = inst.args().iter().map(described).collect();
        assert_eq!(found.join(", "), operands, "{text}");
    }
}

#[test]
fn masks_are_as_wide_as_the_wave() {
    // v_add_co_ci_u32_e64 v0, s[4:5], v1, v2, s[6:7]
    let words = [0xd528_0400, 0x001a_0501];
    let inst = decode(&words, Target::Gfx1010, true).expect("an instruction");
    assert_eq!(inst.text(), "v_add_co_ci_u32_e64 v0, s[4:5], v1, v2, s[6:7]");
    let masks: Vec<_> = [1, 4].iter().map(|&i: &usize| (inst.arg[i].operand.0, inst.arg[i].dwords)).collect();
    assert_eq!(masks, [(4, 2), (6, 2)]);
    // s_cbranch_vccz: both halves of VCC.
    let branch = decode(&[0xbf86_0000], Target::Gfx1010, true).expect("an instruction");
    assert_eq!(branch.args()[0].dwords, 2);
}

#[test]
fn counters_are_as_the_manual_says() {
    let cases: &[(&[u32], &str)] = &[
        (&[0xf408_0202, 0xfa00_0010], "lgkm"),     // s_load_dwordx4
        (&[0xbf90_0001], "lgkm"),                  // s_sendmsg
        (&[0xd8dc_0201, 0x0000_0002], "lgkm"),     // ds_read2_b32
        (&[0xd802_0000, 0x0000_0201], "lgkm exp"), // ds_add_u32 gds
        (&[0xdc34_8ff8, 0x007d_0002], "vm"),       // global_load_dwordx2
        (&[0xdc78_8000, 0x007d_0402], "vs"),       // global_store_dwordx4
        (&[0xdcc9_8000, 0x007d_0402], "vm"),       // global_atomic_add glc
        (&[0xdcc8_8000, 0x007d_0402], "vs"),       // global_atomic_add
        (&[0xdc30_0000, 0x007d_0002], "vm lgkm"),  // flat_load_dword
        (&[0xdc70_0000, 0x007d_0402], "vs lgkm"),  // flat_store_dword
        (&[0xe030_1004, 0x0301_0001], "vm"),       // buffer_load_dword
        (&[0xe070_0000, 0x8001_0000], "vs"),       // buffer_store_dword
        (&[0xe1c4_0000, 0x0000_0000], ""),         // buffer_gl0_inv
        (&[0x0602_0602], ""),                      // v_add_f32
        (&[0xbf8c_0000], ""),                      // s_waitcnt
    ];
    for &(words, expected) in cases {
        let inst = inst(words);
        let counters = inst.counters();
        let named = [
            (counters.vmcnt, "vm"),
            (counters.vscnt, "vs"),
            (counters.lgkmcnt, "lgkm"),
            (counters.expcnt, "exp"),
        ];
        let found: Vec<_> = named.iter().filter(|(raised, _)| *raised).map(|(_, name)| *name).collect();
        assert_eq!(found.join(" "), expected, "{}", inst.text());
    }
}

#[test]
fn branches_go_where_their_distance_says() {
    let at = 0x1000;
    assert_eq!(inst(&[0xbf82_0003]).branch_target(at), Some(0x1010)); // s_branch 3
    assert_eq!(inst(&[0xbf82_ffff]).branch_target(at), Some(0x1000)); // to itself
    assert_eq!(inst(&[0xbf85_8000]).branch_target(0x20_0000), Some(0x20_0004 - 0x2_0000));
    assert_eq!(inst(&[0xbe80_2004]).branch_target(at), None); // s_setpc_b64
    for (words, branches, ends) in
        [([0xbf82_0003], true, false), ([0xbf81_0000], false, true), ([0xbe80_2004], true, false)]
    {
        let op = inst(&words).op;
        assert_eq!((op.is_branch(), op.is_end()), (branches, ends), "{}", op.name());
    }
}

#[test]
fn what_is_no_instruction_says_why() {
    let refused = |words: &[u32], target| decode(words, target, false).expect_err("no instruction");
    let gfx1010 = Target::Gfx1010;
    assert_eq!(refused(&[], gfx1010), DecodeError::Truncated { words: 1 });
    assert_eq!(refused(&[0xd503_0000], gfx1010), DecodeError::Truncated { words: 2 });
    assert_eq!(refused(&[0x0602_06ff], gfx1010), DecodeError::Truncated { words: 2 });
    assert_eq!(refused(&[0xf000_0000, 0], gfx1010), DecodeError::Graphics("MIMG"));
    assert_eq!(refused(&[0xf800_0000, 0], gfx1010), DecodeError::Graphics("EXP"));
    assert_eq!(refused(&[0xc800_0000], gfx1010), DecodeError::Graphics("VINTRP"));
    assert!(matches!(refused(&[0x0000_0000], gfx1010), DecodeError::Unknown { code: 0, .. }));
    // v_dot2_f32_f16: Navi 12 and 14 have it.
    let dot2 = [0xcc13_4001, 0x1c0e_0702];
    let error = refused(&dot2, gfx1010);
    assert_eq!(error.to_string(), "v_dot2_f32_f16 is not in Gfx1010");
    assert!(decode(&dot2, Target::Gfx1012, false).is_ok());
}

#[test]
fn random_words_never_panic() {
    let seed = std::env::var("WAVE32_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(rand::random);
    println!("WAVE32_TEST_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut decoded, mut characters) = (0, 0);
    for i in 0..2_000_000 {
        let words: [u32; 3] = rng.random();
        let words = &words[..rng.random_range(0..=3)];
        let target = [Target::Gfx1010, Target::Gfx1011, Target::Gfx1012][i % 3];
        if let Ok(inst) = decode(words, target, rng.random()) {
            decoded += 1;
            characters += inst.text().len() + inst.args().len();
            assert!(usize::from(inst.len) <= 4 * words.len(), "{words:08x?}");
        }
    }
    assert!(decoded > 200_000 && characters > decoded, "{decoded} decoded");
}

#[test]
fn every_operation_is_of_one_class() {
    for &op in Opcode::ALL {
        let memory = op.is_load() || op.is_store() || op.is_atomic();
        assert!(!(memory && op.is_valu()), "{}", op.name());
        let kinds = [op.is_load(), op.is_store(), op.is_atomic()];
        assert!(kinds.iter().filter(|kind| **kind).count() <= 1, "{}", op.name());
        if op.is_vmem() && !op.name().ends_with("_inv") {
            assert!(memory, "{}", op.name());
        }
        assert!(!op.is_transcendental() || op.is_valu(), "{}", op.name());
    }
    assert_eq!(Opcode::s_addc_u32.scc(), (true, true));
    assert_eq!(Opcode::s_cselect_b32.scc(), (true, false));
    assert_eq!(Opcode::s_and_b32.scc(), (false, true));
    assert_eq!(Opcode::s_mul_i32.scc(), (false, false));
    assert_eq!(Opcode::s_brev_b32.scc(), (false, false));
}
