//! How fast the executor is: a tiled matrix product (64x64 a workgroup, 4x4 a lane, as the convolution kernels have
//! it), compiled by clang-19, in lane-instructions a second of processor time, which a busy machine disturbs least. Arguments:
//! what (`singles`, `plain`, `flushed`, `counted`, `strict`; `all`), threads (1), rows and columns of the result (128), depth
//! (128). `flushed` is the mode of RADV's shaders, which flush f32 denormals.
//!
//!     RUSTFLAGS=-Ctarget-cpu=native cargo run --release -p wave32-exec --example speed

#[path = "../tests/common/mod.rs"]
mod common;

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use wave32_exec::{CodeObject, Dispatch, Executor, HeapMemory, Options};
use wave32_isa::Target;

const GEMM: &str = "
extern \"C\" __global__ __attribute__((amdgpu_flat_work_group_size(256, 256)))
void gemm(const float *a, const float *b, float *c, uint n, uint depth) {
    __shared__ float as[16][64], bs[16][64];
    uint t = tid, x = t % 16, y = t / 16;
    uint row = __builtin_amdgcn_workgroup_id_y() * 64, column = gid * 64;
    float sum[4][4] = {};
    for (uint k = 0; k < depth; k += 16) {
        for (uint i = 0; i < 4; i++) {
            as[t % 16][t / 16 + 16 * i] = a[(row + t / 16 + 16 * i) * depth + k + t % 16];
            bs[t / 64 + 4 * i][t % 64] = b[(k + t / 64 + 4 * i) * n + column + t % 64];
        }
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\");
        __builtin_amdgcn_s_barrier();
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\");
        for (uint kk = 0; kk < 16; kk++)
            for (uint i = 0; i < 4; i++)
                for (uint j = 0; j < 4; j++)
                    sum[i][j] += as[kk][4 * y + i] * bs[kk][4 * x + j];
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\");
        __builtin_amdgcn_s_barrier();
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\");
    }
    for (uint i = 0; i < 4; i++)
        for (uint j = 0; j < 4; j++) c[(row + 4 * y + i) * n + column + 4 * x + j] = sum[i][j];
}";

/// The processor time that this process took so far.
fn now() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().expect("not negative")
}

/// The shortest of many runs, which other processes on the machine disturb least.
fn shortest(mut run: impl FnMut() -> Duration) -> f64 {
    let mut all = Duration::ZERO;
    let mut best = Duration::MAX;
    while all < Duration::from_millis(300) {
        let time = run();
        all += time;
        best = best.min(time);
    }
    best.as_secs_f64()
}

/// Nanoseconds of each of these, in a loop on one wave; addresses in v2 are 4 bytes apart, in v3 16, in v4 all alike.
const SINGLE: [&str; 26] = [
    "s_add_u32 s4, s5, s6",
    "v_mov_b32 v20, v21",
    "v_fmac_f32 v20, v21, v22",
    "v_fmac_f32 v20, s5, v22",
    "v_fma_f32 v20, v21, v22, v23",
    "v_mul_f32 v20, v21, v22",
    "v_add_nc_u32 v20, v21, v22",
    "v_add_co_u32 v20, vcc_lo, v21, v22",
    "v_lshl_add_u32 v20, v21, 2, v22",
    "v_mad_u64_u32 v[20:21], null, v22, v23, v[24:25]",
    "v_cmp_lt_u32 vcc_lo, v21, v22",
    "v_cndmask_b32 v20, v21, v22, vcc_lo",
    "v_fma_mix_f32 v20, v21, v22, v23 op_sel_hi:[1,1,0]",
    "v_pk_fma_f16 v20, v21, v22, v23",
    "v_exp_f32 v20, v21",
    "ds_read_b32 v20, v2",
    "ds_read_b32 v20, v4",
    "ds_read_b128 v[20:23], v3",
    "ds_read_b128 v[20:23], v4",
    "ds_read2_b32 v[20:21], v2 offset1:8",
    "ds_write_b32 v2, v20",
    "ds_write_b128 v3, v[20:23]",
    "global_load_dword v20, v2, s[2:3]",
    "global_load_dwordx4 v[20:23], v3, s[2:3]",
    "global_load_dword v20, v5, s[2:3]",
    "global_store_dword v2, v20, s[2:3]",
];

fn singles() {
    let codes = common::assemble(&SINGLE.map(String::from), false);
    let mut bench = common::Bench::new();
    let memory = bench.memory.alloc(1 << 20);
    for (text, code) in SINGLE.iter().zip(codes) {
        let mut words = vec![0xb000_0000 | 200]; // s_movk_i32 s0, 200
        (0..50).for_each(|_| words.extend(&code));
        words.extend([0xb780_ffff, 0xbf07_8000]); // s_addk_i32 s0, -1; s_cmp_lg_u32 s0, 0
        words.push(0xbf85_0000 | (words.len() as i32).wrapping_neg() as u16 as u32); // s_cbranch_scc1
        let best = shortest(|| {
            let mut solo = common::random_wave(&mut rand::SeedableRng::seed_from_u64(1), false);
            solo.wave.sgpr[126] = u32::MAX;
            for lane in 0..32 {
                for (row, step) in [(2, 4), (3, 16), (4, 0), (5, 5236)] {
                    solo.wave.vgpr[row][lane] = lane as u32 * step;
                }
                for row in 20..26 {
                    solo.wave.vgpr[row][lane] = 0x3c00_3c00;
                }
            }
            (solo.wave.sgpr[2], solo.wave.sgpr[3]) = (memory as u32, (memory >> 32) as u32);
            let started = now();
            bench.run(&words, &mut solo).unwrap_or_else(|stop| panic!("{text}: {stop}"));
            now() - started
        });
        println!("{:6.1} ns  {text}", best * 1e9 / (200.0 * 50.0));
    }
}

fn main() {
    let what = std::env::args().nth(1).unwrap_or("all".into());
    if ["all", "singles"].contains(&&*what) {
        singles();
    }
    let mut args = std::env::args().skip(2).map(|a| a.parse().expect("a number"));
    let threads = args.next().unwrap_or(1);
    let n: u32 = args.next().unwrap_or(128) as u32;
    let depth: u32 = args.next().unwrap_or(128) as u32;
    let object =
        CodeObject::parse(&common::compile(GEMM, &["-O3", "-ffp-contract=fast"])).expect("a code object");
    let mut memory = HeapMemory::new();
    let base = object.load(&mut memory);
    let matrix = |seed: u32| (0..n * depth).map(|i| ((i * 7 + seed) % 13) as f32).collect::<Vec<_>>();
    let words = |m: &[f32]| m.iter().map(|f| f.to_bits()).collect::<Vec<_>>();
    let (a, b) = (matrix(1), matrix(5));
    let (pa, pb, pc) =
        (memory.alloc_words(&words(&a)), memory.alloc_words(&words(&b)), memory.alloc(4 * u64::from(n * n)));
    let bytes: Vec<u8> =
        [pa, pb, pc, u64::from(n) | u64::from(depth) << 32].iter().flat_map(|a| a.to_le_bytes()).collect();
    let kernarg = memory.alloc_from(&bytes);
    let (descriptor, at) = &object.kernels["gemm"];
    let dispatch = Dispatch {
        name: "gemm".into(),
        descriptor: descriptor.clone(),
        kernel_object: base + at,
        grid: [n / 64 * 256, n / 64, 1],
        workgroup: [256, 1, 1],
        group_segment: descriptor.group_segment,
        kernarg,
        ..Dispatch::default()
    };
    let executor = Executor::new(Target::Gfx1010, Some(threads));
    let plain = Options::default();
    let mut flushed = dispatch.clone();
    flushed.descriptor.rsrc1 &= !(3 << 16);
    let modes = [
        ("plain", &dispatch, plain.clone()),
        ("flushed", &flushed, plain.clone()),
        ("counted", &dispatch, Options { count: true, coverage: true, ..plain.clone() }),
        ("strict", &dispatch, Options { strict: true, ..plain.clone() }),
    ];
    executor.run(&memory, &dispatch, &plain, &()).unwrap_or_else(|stop| panic!("{stop}"));
    for (name, dispatch, options) in modes.into_iter().filter(|(name, ..)| ["all", name].contains(&&*what)) {
        let mut instructions = 0;
        let best = shortest(|| {
            let started = now();
            let report =
                executor.run(&memory, dispatch, &options, &()).unwrap_or_else(|stop| panic!("{stop}"));
            instructions = report.instructions;
            now() - started
        });
        let rate = instructions as f64 / best;
        println!(
            "{name:8} {:6.1} M wave-instructions, {:5.2} G lane-instructions, {:5.2} useful GFLOP a second of a core",
            rate / 1e6,
            rate * 32.0 / 1e9,
            2.0 * f64::from(n).powi(2) * f64::from(depth) / best / 1e9
        );
    }
    let c = memory.load_words(pc, (n * n) as usize);
    let wrong = (0..n as usize * 7).map(|i| i * 31 % (n * n) as usize).filter(|&i| {
        let (row, column) = (i / n as usize, i % n as usize);
        let sum: f32 =
            (0..depth as usize).map(|k| a[row * depth as usize + k] * b[k * n as usize + column]).sum();
        c[i] != sum.to_bits()
    });
    assert_eq!(wrong.count(), 0, "small integers: the sums are exact");
}
