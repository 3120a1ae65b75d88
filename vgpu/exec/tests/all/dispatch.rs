//! Whole kernels, compiled by clang, over workgroups and threads.

use crate::common;

use common::{compile, have, program::Program, rng};
use rand::Rng;
use std::time::Duration;
use wave32_exec::{CodeObject, HeapMemory, Stop};

const LEVELS: [&str; 2] = ["-O0", "-O3"];

#[test]
fn ids_reach_every_work_item_once() {
    if !have(&["clang-19"]) {
        return;
    }
    let src = "extern \"C\" __global__ void ids(uint *out, uint nx, uint ny) {
        uint x = __builtin_amdgcn_workgroup_id_x() * 16 + __builtin_amdgcn_workitem_id_x();
        uint y = __builtin_amdgcn_workgroup_id_y() * 4 + __builtin_amdgcn_workitem_id_y();
        uint z = __builtin_amdgcn_workgroup_id_z() * 2 + __builtin_amdgcn_workitem_id_z();
        __atomic_fetch_add(&out[(z * ny + y) * nx + x], x + 1000 * y + 1000000 * z + 1, __ATOMIC_RELAXED);
    }";
    for level in LEVELS {
        for size in ["-mno-wavefrontsize64", "-mwavefrontsize64"] {
            let elf = compile(src, &[level, size]);
            for threads in [1, 4] {
                let mut p = Program::new(&elf, threads);
                // Edges where workgroups are partial in all three dimensions.
                let [nx, ny, nz] = [37, 9, 5];
                let out = p.memory.alloc(4 * u64::from(nx * ny * nz));
                let args = [out, u64::from(nx) | u64::from(ny) << 32];
                let report = p.run("ids", [nx, ny, nz], [16, 4, 2], &args).unwrap_or_else(|s| panic!("{s}"));
                let expected: Vec<u32> = (0..nx * ny * nz)
                    .map(|i| i % nx + 1000 * (i / nx % ny) + 1_000_000 * (i / nx / ny) + 1)
                    .collect();
                assert_eq!(p.memory.load_words(out, expected.len()), expected, "{level} {size} {threads}");
                assert_eq!(report.workgroups, 3 * 3 * 3);
            }
        }
    }
}

#[test]
fn barriers_scratch_calls_and_recursion() {
    if !have(&["clang-19"]) {
        return;
    }
    let src = "
    __device__ __attribute__((noinline)) uint ack(uint m, uint n) {
        if (m == 0) return n + 1;
        if (n == 0) return ack(m - 1, 1);
        return ack(m - 1, ack(m, n - 1));
    }
    typedef uint (*fn)(uint, uint);
    __device__ __attribute__((noinline)) uint add(uint a, uint b) { return a + b; }
    __device__ __attribute__((noinline)) uint mul(uint a, uint b) { return a * b; }
    __device__ fn table[2] = {add, mul};
    extern \"C\" __global__ void all(uint *in, uint *out) {
        __shared__ uint sums[256];
        uint t = tid;
        sums[t] = in[gid * 256 + t];
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\");
        __builtin_amdgcn_s_barrier();
        for (uint step = 128; step > 0; step /= 2) {
            if (t < step) sums[t] += sums[t + step];
            __builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\");
            __builtin_amdgcn_s_barrier();
            __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\");
        }
        uint local[16];
        for (uint i = 0; i < 16; i++) local[i] = in[(gid * 256 + t + i) % 1024];
        uint picked = local[in[gid * 256 + t] % 16];
        out[gid * 256 + t] = table[t & 1](picked, sums[0]) + ack(2, t % 3);
    }";
    let rng = &mut rng();
    for level in LEVELS {
        let mut p = Program::new(&compile(src, &[level]), 2);
        let input: Vec<u32> = (0..1024).map(|_| rng.random()).collect();
        let (inp, out) = (p.memory.alloc_words(&input), p.memory.alloc(4096));
        p.options.coverage = true;
        let report =
            p.run("all", [1024, 1, 1], [256, 1, 1], &[inp, out]).unwrap_or_else(|s| panic!("{level}: {s}"));
        let expected: Vec<u32> = (0..1024)
            .map(|i| {
                let group = &input[i / 256 * 256..][..256];
                let sum = group.iter().fold(0u32, |a, b| a.wrapping_add(*b));
                let picked = input[(i + input[i] as usize % 16) % 1024];
                let t = i % 256;
                let called = if t % 2 == 0 { picked.wrapping_add(sum) } else { picked.wrapping_mul(sum) };
                called.wrapping_add(2 * (t as u32 % 3) + 3) // ackermann(2, n)
            })
            .collect();
        assert_eq!(p.memory.load_words(out, 1024), expected, "{level}");
        let names: Vec<&str> = report.coverage.iter().map(|op| op.name()).collect();
        for name in ["s_swappc_b64", "s_setpc_b64", "s_barrier", "s_endpgm"] {
            assert!(names.contains(&name), "{level}: {name} in {names:?}");
        }
    }
}

/// Every workgroup waits until all have come: possible only where those that wait make room.
#[test]
fn workgroups_may_wait_for_each_other() {
    if !have(&["clang-19"]) {
        return;
    }
    let src = "extern \"C\" __global__ void meet(uint *count, uint groups) {
        if (tid == 0) {
            __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
            while (__atomic_load_n(count, __ATOMIC_RELAXED) < groups) { SLEEP; }
        }
        __builtin_amdgcn_s_barrier();
        __atomic_fetch_add(count + 1, 1, __ATOMIC_RELAXED);
    }";
    for sleep in ["-DSLEEP=", "-DSLEEP=__builtin_amdgcn_s_sleep(1)"] {
        let elf = compile(src, &["-O2", sleep]);
        for threads in [1, 2] {
            let mut p = Program::new(&elf, threads);
            let count = p.memory.alloc(8);
            p.run("meet", [64 * 64, 1, 1], [64, 1, 1], &[count, 64])
                .unwrap_or_else(|s| panic!("{sleep}: {s}"));
            assert_eq!(p.memory.load_words(count, 2), [64, 64 * 64], "{sleep} {threads}");
        }
    }
}

#[test]
fn what_does_not_end_is_stopped() {
    if !have(&["clang-19"]) {
        return;
    }
    let src = "extern \"C\" __global__ void spin(volatile uint *flag) { while (!*flag) {} }";
    let mut p = Program::new(&compile(src, &["-O2"]), 2);
    p.options.deadline = Duration::from_millis(200);
    let flag = p.memory.alloc(4);
    let started = std::time::Instant::now();
    let stop = p.run("spin", [1 << 20, 1, 1], [64, 1, 1], &[flag]).expect_err("no end");
    assert!(matches!(&stop, Stop::Deadline { place } if place.kernel == "spin"), "{stop}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn stops_name_kernel_instruction_and_lane() {
    if !have(&["clang-19"]) {
        return;
    }
    let src = "extern \"C\" __global__ void over(uint *out) { out[gid * 64 + tid] = 1; }
        extern \"C\" __global__ void trap(uint *out) { if (gid == 1) __builtin_trap(); }";
    let mut p = Program::new(&compile(src, &["-O2"]), 1);
    let out = p.memory.alloc(4 * 100);
    let stop = p.run("over", [128, 1, 1], [64, 1, 1], &[out]).expect_err("past the end");
    let Stop::MemoryFault { place, address, bytes: 4, write: true } = &stop else { panic!("{stop}") };
    assert_eq!((place.workgroup, place.wave, place.lane), ([1, 0, 0], 1, Some(4)), "{stop}");
    assert_eq!(*address, out + 400);
    assert!(place.instruction.starts_with("global_store_dword"), "{stop}");
    let stop = p.run("trap", [128, 1, 1], [64, 1, 1], &[out]).expect_err("a trap");
    assert!(matches!(&stop, Stop::Trap { place, id: 2 } if place.workgroup == [1, 0, 0]), "{stop}");
}

/// Code that changes between dispatches, or while memory moves, is decoded anew.
#[test]
fn changed_code_is_noticed() {
    if !have(&["clang-19"]) {
        return;
    }
    let elf =
        |n: u32| compile(&format!("extern \"C\" __global__ void put(uint *out) {{ *out = {n}; }}"), &["-O2"]);
    let mut p = Program::new(&elf(1000), 1);
    let out = p.memory.alloc(4);
    p.run("put", [1; 3], [1; 3], &[out]).expect("runs");
    assert_eq!(p.memory.load_words(out, 1), [1000]);
    let second = CodeObject::parse(&elf(2000)).expect("a code object");
    let mut elsewhere = HeapMemory::new();
    let base = second.load(&mut elsewhere);
    let (old, new) = (&p.object.kernels["put"], &second.kernels["put"]);
    assert_eq!(old.1, new.1, "the same layout");
    let entry = |base: u64| base.wrapping_add(old.1).wrapping_add_signed(old.0.entry);
    p.memory.store(entry(p.base), &elsewhere.load(entry(base), 64));
    p.run("put", [1; 3], [1; 3], &[out]).expect("runs");
    assert_eq!(p.memory.load_words(out, 1), [2000]);
}

#[test]
fn impossible_dispatches_are_refused() {
    if !have(&["clang-19"]) {
        return;
    }
    let mut p = Program::new(&compile("extern \"C\" __global__ void none() {}", &["-O2"]), 1);
    for workgroup in [[0, 1, 1], [1025, 1, 1], [64, 64, 1]] {
        let stop = p.run("none", [64, 1, 1], workgroup, &[]).expect_err("impossible");
        assert!(matches!(stop, Stop::Dispatch { .. }), "{stop}");
    }
    let report = p.run("none", [0, 1, 1], [64, 1, 1], &[]).expect("nothing to do");
    assert_eq!(report.workgroups, 0);
}
