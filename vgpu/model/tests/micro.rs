//! The model against kernels whose clocks can be counted by hand.

#[path = "../../exec/tests/common/mod.rs"]
mod common;

use common::{assemble_program, have};
use wave32_exec::{Descriptor, Dispatch, Executor};
use wave32_isa::Target;
use wave32_model::{Bound, Effort, LaunchTime, ModelCard, Tensors, launch};

/// A kernel as text, and how it is launched. It starts with the arguments' address in s[0:1], the workgroup in s2, the
/// work-item in v0.
struct Micro {
    text: String,
    groups: u32,
    threads: u16,
    lds: u32,
    wave64: bool,
    /// Bytes of the tensors whose addresses are the arguments.
    tensors: Vec<u64>,
}

impl Micro {
    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), groups: 1, threads: 32, lds: 0, wave64: false, tensors: Vec::new() }
    }

    fn run(&self, card: &ModelCard, effort: Effort) -> LaunchTime {
        let mut code = assemble_program(&self.text, self.wave64);
        code.push(0xbf81_0000); // s_endpgm
        let bytes: Vec<u8> = code.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut memory = Tensors::new(0);
        let entry = memory.heap.alloc_from(&bytes);
        let tensors: Vec<(u64, u64)> = self.tensors.iter().map(|&bytes| (memory.add(bytes), bytes)).collect();
        let arguments: Vec<u8> = tensors.iter().flat_map(|t| t.0.to_le_bytes()).chain([0; 8]).collect();
        const VGPRS: u32 = 32;
        const WGP_MODE: u32 = 1 << 29;
        let granule = if self.wave64 { 4 } else { 8 };
        let dispatch = Dispatch {
            name: "micro".into(),
            descriptor: Descriptor {
                rsrc1: (VGPRS / granule - 1) | WGP_MODE,
                rsrc2: 2 << 1 | 1 << 7,
                properties: 1 << 3 | u16::from(!self.wave64) << 10,
                ..Descriptor::default()
            },
            kernel_object: entry,
            grid: [self.groups * u32::from(self.threads), 1, 1],
            workgroup: [self.threads, 1, 1],
            group_segment: self.lds,
            kernarg: memory.heap.alloc_from(&arguments),
            ..Dispatch::default()
        };
        let executor = Executor::new(Target::Gfx1010, Some(1));
        launch(&executor, &memory, &dispatch, &tensors, card, effort)
            .unwrap_or_else(|e| panic!("{}: {e}", self.text))
    }

    /// Clocks on one WGP, everything simulated.
    fn clocks(&self) -> f64 {
        self.run(&card(), Effort::ALL).clocks
    }
}

/// A few workgroups.
const FEW: Effort = Effort { recorded: 5_000, simulated: 50_000 };

fn card() -> ModelCard {
    ModelCard::usual()[0]
}

fn times(n: usize, body: &str) -> String {
    format!(".rept {n}\n{body}\n.endr\n")
}

/// Within 2 % of what was counted, and `slack` clocks for what comes before and after.
fn close(what: &str, modelled: f64, counted: f64, slack: f64) {
    println!("{what}: modelled {modelled}, counted {counted}");
    assert!((modelled - counted).abs() <= 0.02 * counted + slack, "{what}: {modelled}, counted {counted}");
}

const INDEPENDENT: &str = "v_fma_f32 v1, v8, v9, v10\nv_fma_f32 v2, v8, v9, v10\nv_fma_f32 v3, v8, v9, v10\n\
     v_fma_f32 v4, v8, v9, v10\nv_fma_f32 v5, v8, v9, v10\nv_fma_f32 v6, v8, v9, v10\nv_fma_f32 v7, v8, v9, v10\n\
     v_fma_f32 v11, v8, v9, v10";

/// Of a wave that runs long the first part is simulated; the rest goes at its pace, and what it reads counts.
#[test]
fn long_waves() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    const BYTES: u64 = 4 << 20;
    let looped = |rounds: u32| Micro {
        tensors: vec![BYTES],
        ..Micro::new(format!(
            "{POINTER}s_mov_b32 s8, {rounds}\nv_lshlrev_b32 v1, 2, v0\nagain:\nglobal_load_dword v2, v1, s[4:5]\n\
             v_add_nc_u32 v1, 0x80, v1\ns_waitcnt vmcnt(0)\n{}s_sub_u32 s8, s8, 1\ns_cmp_lg_u32 s8, 0\n\
             s_cbranch_scc1 again\n",
            times(30, "v_fma_f32 v3, v3, v3, v3")
        ))
    };
    let (short, long) = (looped(2048).run(&card(), Effort::ALL), looped(16384).run(&card(), Effort::ALL));
    assert!(short.instructions_per_group < 100_000 && long.instructions_per_group > 500_000);
    close("eight times the rounds", long.clocks, 8.0 * short.clocks, 100.0);
    assert_eq!((short.dram_bytes, long.dram_bytes), (2048 * 128, 16384 * 128));
}

#[test]
fn vector_arithmetic() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let n = 1000.0;
    let one = |body: &str| Micro::new(times(1000, body));
    for (body, each) in [
        ("v_fma_f32 v1, v1, v1, v1", 5.0),
        ("v_fma_f32 v1, v2, v3, v4", 1.0),
        ("v_pk_fma_f16 v1, v2, v3, v4", 1.0),
        ("v_fma_mix_f32 v1, v2, v3, v4", 1.0),
        ("v_exp_f32 v1, v2", 4.0),
        ("v_exp_f32 v1, v1", 10.0),
        ("v_mul_lo_u32 v1, v2, v3", 4.0),
        ("v_fma_f64 v[2:3], v[4:5], v[6:7], v[8:9]", 16.0),
        ("v_fma_f64 v[2:3], v[2:3], v[6:7], v[8:9]", 22.0),
        ("s_add_u32 s4, s4, s5", 2.0),
        ("s_add_u32 s4, s5, s6\nv_fma_f32 v1, v2, v3, v4", 2.0), // one wave issues one instruction a clock
    ] {
        close(body, one(body).clocks(), n * each, 10.0);
    }
    let wave64 = Micro { wave64: true, threads: 64, ..one("v_fma_f32 v1, v2, v3, v4") };
    close("wave64", wave64.clocks(), n * 2.0, 10.0);
    // Waves fill each other's latency: five chains a SIMD are as fast as one, ten take twice as long. A workgroup's waves
    // go round the four SIMDs.
    for (waves, each) in [(4, 5.0), (20, 5.0), (32, 8.0)] {
        let m = Micro { threads: 32 * waves, ..one("v_fma_f32 v1, v1, v1, v1") };
        close(&format!("{waves} waves of dependent FMAs"), m.clocks(), n * each, 10.0);
    }
    let full = Micro { threads: 512, ..Micro::new(times(125, INDEPENDENT)) };
    close("16 waves of independent FMAs", full.clocks(), 4.0 * n, 10.0);
    assert_eq!(full.run(&card(), Effort::ALL).bound, Bound::Tail, "one workgroup leaves the other WGPs idle");
    let everywhere = Micro { groups: 18, ..full };
    assert_eq!(everywhere.run(&card(), Effort::ALL).bound, Bound::Valu);
    // Scalar and vector instructions of different waves go in the same clock.
    let mixed = "s_add_u32 s4, s5, s6\nv_fma_f32 v1, v2, v3, v4";
    let m = Micro { threads: 256, ..one(mixed) };
    close("two waves a SIMD, scalar and vector", m.clocks(), 2.0 * n, 10.0);
}

#[test]
fn banks_of_registers_cost_clocks_at_the_high_end() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let card = card();
    for (body, conflicts) in [
        ("v_fma_f32 v1, v2, v3, v4", 0.0),
        ("v_fma_f32 v1, v2, v6, v4", 1.0),
        ("v_fma_f32 v1, v2, v6, v10", 2.0),
        ("v_fma_f32 v1, v2, v2, v2", 0.0), // one register is read once
    ] {
        let time = Micro::new(times(1000, body)).run(&card, Effort::ALL).time;
        close(body, time.low * card.clock, 1000.0, 10.0);
        close(body, time.high * card.game_clock, 1000.0 * (1.0 + conflicts), 10.0);
    }
}

#[test]
fn lds_banks() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    for (read, stride, each) in [
        ("ds_read_b32 v2, v1", 4, 1.0),
        ("ds_read_b32 v2, v1", 8, 2.0),
        ("ds_read_b32 v2, v1", 16, 4.0),
        ("ds_read_b32 v2, v1", 128, 32.0),
        ("ds_read_b64 v[2:3], v1", 8, 2.0),
        ("ds_read_b128 v[2:5], v1", 16, 4.0),
        ("ds_write_b32 v1, v2", 4, 1.0),
        ("ds_write_b128 v1, v[4:7]", 16, 4.0),
    ] {
        let text = format!("v_mul_u32_u24 v1, {stride}, v0\n{}s_waitcnt lgkmcnt(0)\n", times(1000, read));
        let text = text.replace("v_mul_u32_u24 v1, 128", "v_mul_u32_u24 v1, 0x80");
        let m = Micro { lds: 8192, ..Micro::new(text) };
        close(&format!("{read}, lanes {stride} bytes apart"), m.clocks(), 1000.0 * each, 60.0);
    }
    // Both halves of a WGP's LDS work at once, one for each workgroup.
    let text =
        format!("v_mul_u32_u24 v1, 16, v0\n{}s_waitcnt lgkmcnt(0)\n", times(1000, "ds_read_b32 v2, v1"));
    let two = Micro { lds: 8192, groups: 2 * 18, ..Micro::new(text) };
    close("two workgroups, four-way conflicts", two.clocks(), 4000.0, 60.0);
}

/// The arguments' first pointer into s[4:5].
const POINTER: &str = "s_load_dwordx4 s[4:7], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n";

#[test]
fn loads_that_wait_for_one_another() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    // Constants of the table: hits in L0 90 clocks; DRAM 206 ns and its line's turn; the address is added to in between.
    let chase = |step: &str| {
        let body = "global_load_dword v2, v1, s[4:5]\ns_waitcnt vmcnt(0)\nv_add3_u32 v1, v1, v2, s8";
        format!("{POINTER}v_mov_b32 v1, 0\ns_movk_i32 s8, {step}\n{}", times(200, body))
    };
    let hits = Micro { tensors: vec![1 << 30], ..Micro::new(chase("0")) };
    close("chase in L0", hits.clocks(), 200.0 * (90.0 + 5.0), 700.0);
    let misses = Micro { tensors: vec![1 << 30], ..Micro::new(chase("0x1000")) };
    let dram = 206e-9 * card().clock;
    close("chase in DRAM", misses.clocks(), 200.0 * (dram + 5.0 + 2.0), 700.0);
    assert_eq!(misses.run(&card(), Effort::ALL).bound, Bound::Tail);
}

/// Each work-item copies 16 bytes, from the first tensor to where `to` points: `bytes` in all.
fn copy(to: &str, bytes: u64, tensors: Vec<u64>) -> Micro {
    let text = format!(
        "{POINTER}s_lshl_b32 s8, s2, 12\nv_lshl_add_u32 v1, v0, 4, s8\n\
         global_load_dwordx4 v[4:7], v1, s[4:5]\ns_waitcnt vmcnt(0)\nglobal_store_dwordx4 v1, v[4:7], {to}\n"
    );
    Micro { groups: (bytes >> 12) as u32, threads: 256, tensors, ..Micro::new(text) }
}

#[test]
fn a_copy_runs_at_the_bandwidth() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    // 64 MiB there and back.
    let bytes = 64 << 20;
    let m = copy("s[6:7]", bytes, vec![bytes, bytes]);
    for card in ModelCard::usual() {
        let time = m.run(&card, FEW);
        let counted = 2.0 * bytes as f64 / (card.bandwidth * 0.85);
        println!(
            "{}: {:.1} us, counted {:.1} us, {:?}",
            card.name,
            time.time.low * 1e6,
            counted * 1e6,
            time.bound
        );
        assert!((time.time.low / counted - 1.0).abs() < 0.05, "{}: {time:?}", card.name);
        assert_eq!(time.bound, Bound::Dram);
        assert_eq!(time.dram_bytes, 2 * bytes);
    }
}

#[test]
fn what_is_read_and_written_in_place_moves_twice() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    let bytes = 64 << 20;
    let m = copy("s[4:5]", bytes, vec![bytes]);
    assert_eq!(m.run(&card(), FEW).dram_bytes, 2 * bytes);
}

#[test]
fn barriers_wait_for_the_slowest() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    // A wave on each SIMD: 50 clocks of dependent work, in whose shade the barrier lies.
    let body = format!("{}s_barrier", times(10, "v_fma_f32 v1, v1, v1, v1"));
    let even = Micro { threads: 128, ..Micro::new(times(100, &body)) };
    close("four waves in step", even.clocks(), 100.0 * 50.0, 20.0);
    // Waves 1 to 3 skip the work: they wait for wave 0.
    let skip = "v_readfirstlane_b32 s9, v0\ns_cmp_lg_u32 s9, 0\n";
    let body = format!("s_cbranch_scc1 1f\n{}1:\ns_barrier", times(10, "v_fma_f32 v1, v1, v1, v1"));
    let uneven = Micro { threads: 128, ..Micro::new(format!("{skip}{}", times(100, &body))) };
    // Behind a branch not taken 8 clocks, nine latencies, the last FMA's clock, the barrier's.
    close("three wait for one", uneven.clocks(), 100.0 * (8.0 + 9.0 * 5.0 + 1.0 + 1.0), 60.0);
}

#[test]
fn one_workgroup_too_many_takes_another_round() {
    if !have(&["llvm-mc-19"]) {
        return;
    }
    // 64 KiB of LDS: two workgroups fit a WGP.
    let fma = times(1000, "v_fma_f32 v1, v1, v1, v1");
    for card in ModelCard::usual() {
        let slots = card.wgps as u32 * 2;
        let run = |groups| {
            let time = Micro { groups, lds: 65536, ..Micro::new(fma.as_str()) }.run(&card, FEW);
            (time.clocks, time.resident, time.bound)
        };
        let (exact, resident, _) = run(slots);
        assert_eq!(resident, 2);
        close("all slots filled", exact, 5000.0, 10.0);
        let (over, _, _) = run(slots + 1);
        close("one more", over, 10_000.0, 20.0);
        let (many, _, _) = run(slots * 50);
        close("50 rounds, of which a few are simulated", many, 250_000.0, 500.0);
    }
}
