//! The frame itself: branches, calls, halves in turn, messages, hints.

use crate::common;

use common::{Bench, assemble, assemble_program, have, random_wave, rng};
use std::sync::Mutex;
use wave32_exec::{Signals, Stop};
use wave32_isa::Opcode;

#[test]
fn a_loop_counts() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let code = assemble_program(
        "s_mov_b32 s0, 0\ns_movk_i32 s1, 100\nloop:\ns_add_u32 s0, s0, s1\ns_addk_i32 s1, -1\n\
         s_cmp_lg_u32 s1, 0\ns_cbranch_scc1 loop\n",
        false,
    );
    let mut solo = random_wave(&mut rng(), false);
    let report = Bench::new().run(&code, &mut solo).expect("runs");
    assert_eq!((solo.wave.sgpr[0], solo.wave.sgpr[1]), (5050, 0));
    assert_eq!(report.instructions, 2 + 4 * 100 + 1);
}

/// Whether a branch is taken.
type Condition = fn(scc: bool, vcc: u64, exec: u64) -> bool;
const BRANCHES: [(&str, Condition); 11] = [
    ("s_branch", |_, _, _| true),
    ("s_cbranch_scc0", |scc, _, _| !scc),
    ("s_cbranch_scc1", |scc, _, _| scc),
    ("s_cbranch_vccz", |_, vcc, _| vcc == 0),
    ("s_cbranch_vccnz", |_, vcc, _| vcc != 0),
    ("s_cbranch_execz", |_, _, exec| exec == 0),
    ("s_cbranch_execnz", |_, _, exec| exec != 0),
    ("s_cbranch_cdbgsys", |_, _, _| false),
    ("s_cbranch_cdbguser", |_, _, _| false),
    ("s_cbranch_cdbgsys_or_user", |_, _, _| false),
    ("s_cbranch_cdbgsys_and_user", |_, _, _| false),
];

/// Each conditional branch over all states that it may ask for.
#[test]
fn branches_are_taken_when_their_condition_holds() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let rng = &mut rng();
    let bench = Bench::new();
    for (name, holds) in BRANCHES {
        let text = format!("s_movk_i32 s0, 1\n{name} past\ns_movk_i32 s0, 2\npast:\ns_movk_i32 s1, 3\n");
        let code = assemble_program(&text, false);
        for wave64 in [false, true] {
            for round in 0..16 {
                let mut solo = random_wave(rng, wave64);
                let pick = |bit: u32| if round >> bit & 1 == 1 { 1 << (7 * bit) } else { 0 };
                let (low, high) = ([pick(0), pick(1)], [pick(2), pick(3)]);
                solo.wave.sgpr[106..108].copy_from_slice(&low);
                solo.wave.sgpr[126..128].copy_from_slice(&high);
                let wide = |m: [u32; 2]| u64::from(m[0]) | if wave64 { u64::from(m[1]) << 32 } else { 0 };
                let taken = holds(solo.wave.scc, wide(low), wide(high));
                bench.run(&code, &mut solo).expect("runs");
                let expected = [if taken { 1 } else { 2 }, 3];
                assert_eq!(solo.wave.sgpr[..2], expected, "{name} {wave64} {low:?} {high:?}");
            }
        }
    }
}

#[test]
fn calls_save_where_to_return() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let text = "
        s_getpc_b64 s[4:5]
    here:
        s_add_u32 s6, s4, double-here
        s_addc_u32 s7, s5, 0
        s_movk_i32 s0, 21
        s_swappc_b64 s[6:7], s[6:7]
        s_call_b64 s[8:9], double
        s_branch end
    double:
        s_add_u32 s0, s0, s0
        s_cmp_eq_u32 s0, 42
        s_cbranch_scc0 second
        s_setpc_b64 s[6:7]
    second:
        s_setpc_b64 s[8:9]
    end:
    ";
    let mut solo = random_wave(&mut rng(), false);
    Bench::new().run(&assemble_program(text, false), &mut solo).expect("runs");
    let w = &solo.wave.sgpr;
    assert_eq!(w[0], 84);
    // From behind getpc: swappc ends 24 bytes on (two literal-free adds may be 4 or 8 bytes), the call 4 bytes later.
    assert_eq!(w[8] - w[6], 4);
    assert_eq!((w[5], w[7], w[9]), (0, 0, 0));
}

/// Of an address with its sign in the upper 16 bits, as RADV's, programs read 48 bits.
#[test]
fn the_program_counter_has_48_bits() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    const HIGH: u64 = 0xffff_8000_0010_0000;
    let mut bench = Bench::new();
    let text = "s_getpc_b64 s[4:5]\ns_call_b64 s[6:7], past\npast:\ns_endpgm\n";
    let code = assemble_program(text, false);
    bench.memory.alloc_as(4096, |region| region.base = HIGH);
    bench.memory.store(HIGH, &code.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
    let mut solo = random_wave(&mut rng(), false);
    bench.executor.run_wave(&bench.memory, HIGH, &mut solo, &bench.options, &()).expect("runs");
    assert_eq!(solo.wave.sgpr[4..8], [0x10_0004, 0x8000, 0x10_0008, 0x8000]);
}

/// A subvector loop runs its body once for each half of EXEC that has lanes, the other half off.
#[test]
fn subvector_loops() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let text = "
        s_mov_b32 s0, 0
        s_mov_b64 s[2:3], 0
        s_subvector_loop_begin s10, past
    body:
        s_add_u32 s0, s0, 1
        s_or_b64 s[2:3], s[2:3], exec
        s_add_u32 s4, s4, exec_lo
        s_add_u32 s5, s5, exec_hi
        s_subvector_loop_end s10, body
    past:
    ";
    let code = assemble_program(text, true);
    let bench = Bench::new();
    let rng = &mut rng();
    for _ in 0..50 {
        let mut solo = random_wave(rng, true);
        let (low, high) = (solo.wave.sgpr[126], solo.wave.sgpr[127]);
        (solo.wave.sgpr[4], solo.wave.sgpr[5]) = (0, 0);
        bench.run(&code, &mut solo).expect("runs");
        let w = &solo.wave.sgpr;
        assert_eq!(w[0], u32::from(low != 0) + u32::from(high != 0), "passes for {low:#x} {high:#x}");
        assert_eq!([w[2], w[3], w[4], w[5]], [low, high, low, high]);
        assert_eq!([w[126], w[127]], [low, high], "EXEC is as before");
    }
}

/// What changes nothing: hints, waits for what has happened already, a barrier alone, a breakpoint.
const HINTS: [&str; 22] = [
    "s_nop 3",
    "s_waitcnt 0",
    "s_waitcnt_vscnt null, 0x0",
    "s_waitcnt_vmcnt null, 0x0",
    "s_waitcnt_expcnt null, 0x0",
    "s_waitcnt_lgkmcnt null, 0x0",
    "s_waitcnt_depctr 0",
    "s_wait_idle",
    "s_setprio 1",
    "s_inst_prefetch 0x3",
    "s_clause 0x2",
    "s_wakeup",
    "s_incperflevel 1",
    "s_decperflevel 1",
    "s_ttracedata",
    "s_ttracedata_imm 1",
    "s_version 1",
    "v_nop",
    "s_sleep 1",
    "s_icache_inv",
    "s_barrier",
    "s_trap 3",
];

#[test]
fn hints_do_nothing() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let lines = HINTS.map(String::from);
    let code = assemble(&lines, false).concat();
    let mut solo = random_wave(&mut rng(), false);
    let before = solo.wave.clone();
    Bench::new().run(&code, &mut solo).expect("runs");
    assert_eq!((solo.wave.sgpr, solo.wave.scc, solo.wave.mode), (before.sgpr, before.scc, before.mode));
    assert_eq!(solo.wave.vgpr, before.vgpr);
}

#[derive(Default)]
struct Heard(Mutex<Vec<u32>>);

impl Signals for Heard {
    fn interrupt(&self, m0: u32) {
        self.0.lock().expect("heard").push(m0);
    }
}

#[test]
fn messages_reach_the_host() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let code = assemble_program("s_mov_b32 m0, 0x123\ns_sendmsg sendmsg(MSG_INTERRUPT)\ns_endpgm\n", false);
    let mut bench = Bench::new();
    let at = bench.memory.alloc_words(&code);
    let heard = Heard::default();
    let mut solo = random_wave(&mut rng(), false);
    bench.executor.run_wave(&bench.memory, at, &mut solo, &bench.options, &heard).expect("runs");
    assert_eq!(*heard.0.lock().expect("heard"), [0x123]);
}

/// What no compute kernel holds: a trap handler's, a debugger's, graphics'; what the assembler pads code with.
const UNKNOWN: [&str; 9] = [
    "s_rfe_b64 s[4:5]",
    "s_sethalt 1",
    "s_sendmsghalt sendmsg(MSG_INTERRUPT)",
    "s_endpgm_ordered_ps_done",
    "s_setkill 1",
    "s_endpgm_saved",
    "s_code_end",
    "s_sendmsg sendmsg(MSG_GS_ALLOC_REQ)",
    "s_getreg_b32 s0, hwreg(63)",
];

/// What is not implemented, and what is no instruction, stops with the mnemonic or the reason; not before it is reached.
#[test]
fn nothing_is_guessed() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let bench = Bench::new();
    let lines = UNKNOWN.map(String::from);
    for (line, code) in lines.iter().zip(assemble(&lines, false)) {
        let mut solo = random_wave(&mut rng(), false);
        let stop = bench.run(&code, &mut solo).expect_err(line);
        let Stop::IllegalInstruction { place, .. } = &stop else { panic!("{line}: {stop}") };
        let mnemonic = line.split(' ').next().expect("a word");
        assert!(place.instruction.starts_with(mnemonic), "{line}: {stop}");
        // Jumped over, it harms nobody.
        let mut over = vec![0xbf82_0000 | code.len() as u32];
        over.extend(&code);
        bench.run(&over, &mut solo).unwrap_or_else(|stop| panic!("{line}: {stop}"));
    }
    let mut solo = random_wave(&mut rng(), false);
    let stop = bench.run(&[0xffff_ffff], &mut solo).expect_err("no instruction");
    assert!(matches!(&stop, Stop::IllegalInstruction { place, .. } if place.offset == 0), "{stop}");
    // VGPRs that the wave has not got.
    let code = assemble(&["v_mov_b32 v64, 0".into()], false).concat();
    let stop = bench.run(&code, &mut solo).expect_err("a wave of 64 VGPRs");
    assert!(stop.to_string().contains("v64"), "{stop}");
}

#[test]
fn running_off_the_code_faults() {
    let mut bench = Bench::new();
    let at = bench.memory.alloc_words(&[0xbf80_0000; 8]); // s_nop
    let mut solo = random_wave(&mut rng(), false);
    let stop =
        bench.executor.run_wave(&bench.memory, at, &mut solo, &bench.options, &()).expect_err("no end");
    assert!(matches!(stop, Stop::MemoryFault { address, write: false, .. } if address == at + 32), "{stop}");
}

/// Every SOPP operation is in one of these tests.
#[test]
fn all_of_sopp_is_covered() {
    let first = |line: &&'static str| line.split(' ').next().unwrap_or(line);
    let mut tested: Vec<&str> = HINTS.iter().chain(&UNKNOWN).map(first).collect();
    tested.extend(BRANCHES.map(|(name, _)| name));
    // Every test's end, messages, and MODE's switches (`tests/salu.rs`).
    tested.extend(["s_endpgm", "s_sendmsg", "s_round_mode", "s_denorm_mode"]);
    let sopp = Opcode::ALL.iter().filter(|op| op.row().form == wave32_isa::Form::Sopp);
    let missing: Vec<&str> = sopp.map(|op| op.name()).filter(|name| !tested.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
