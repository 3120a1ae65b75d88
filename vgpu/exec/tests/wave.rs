//! The frame itself: straight code, branches, calls.

mod common;

use common::{Bench, assemble_program, have, random_wave, rng};

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
