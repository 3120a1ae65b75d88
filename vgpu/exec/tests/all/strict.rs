//! The strict card: planted mistakes are found where they are, their mended twins and compilers' code are not.

use crate::common;

use common::{compile, have, program::Program, rng};
use rand::Rng;
use wave32_exec::{Finding, HeapMemory, Location, Stop};

const GROUP: u16 = 64;

/// Runs `kernel` of `src` under the strict card on two workgroups of two waves, with a buffer of `bytes` as its first
/// argument and another, not zero, as its second.
fn run(
    src: &str,
    flags: &[&str],
    kernel: &str,
    buffer: impl Fn(&mut HeapMemory) -> u64,
) -> Result<Vec<u32>, Stop> {
    let mut p = Program::new(&compile(src, flags), 1);
    p.options.strict = true;
    let buffer = buffer(&mut p.memory);
    let input = p.memory.alloc_words(&(0..4096).map(|i| i * 7 + 1).collect::<Vec<u32>>());
    p.run(kernel, [2 * u32::from(GROUP), 1, 1], [GROUP, 1, 1], &[buffer, input])?;
    Ok(p.memory.load_words(buffer, 128))
}

fn buffer(memory: &mut HeapMemory) -> u64 {
    memory.alloc(4096)
}

/// The finding in `bad`, whose mended twin `good` runs to its end at every level.
fn planted(bad: &str, good: &str, place: impl Fn(&mut HeapMemory) -> u64) -> (Location, Finding) {
    let source = |body: &str| format!("extern \"C\" __global__ void k(uint *out, uint *in) {{ {body} }}");
    for level in ["-O1", "-O3"] {
        if let Err(stop) = run(&source(good), &[level], "k", buffer) {
            panic!("{level}: the mended kernel: {stop}");
        }
    }
    match run(&source(bad), &["-O1"], "k", place) {
        Err(Stop::Strict { place, finding }) => {
            assert_eq!(place.kernel, "k");
            (place, finding)
        }
        other => panic!("not found: {other:?}"),
    }
}

fn mnemonic(place: &Location) -> &str {
    place.instruction.split(' ').next().expect("a word")
}

const ITEM: &str = "uint i = gid * 64 + tid;";

#[test]
fn a_missing_waitcnt() {
    if !have(&["clang-19"]) {
        return;
    }
    let body = |wait: &str| {
        format!(
            "{ITEM} uint x; asm volatile(\"global_load_dword %0, %1, off\\n{wait}\" : \"=&v\"(x) : \"v\"(in + i)); out[i] = x;"
        )
    };
    let (place, finding) = planted(&body(""), &body("s_waitcnt vmcnt(0)"), buffer);
    assert!(matches!(finding, Finding::MissingWaitcnt { vector: true, counter: "vmcnt", .. }), "{finding:?}");
    assert_eq!((mnemonic(&place), place.lane), ("global_store_dword", Some(0)));
    assert!(place.offset > 0);
}

#[test]
fn a_wait_for_too_little() {
    if !have(&["clang-19"]) {
        return;
    }
    // Two loads: one may be left for the first's result, none for the second's.
    let body = |used: usize| {
        format!(
            "{ITEM} uint x, y; asm volatile(\"global_load_dword %0, %2, off\\nglobal_load_dword %1, %2, off offset:4\\n\
             s_waitcnt vmcnt(1)\\nglobal_store_dword %3, %{used}, off\\ns_waitcnt vmcnt(0)\"
             : \"=&v\"(x), \"=&v\"(y) : \"v\"(in + i), \"v\"(out + i));"
        )
    };
    let (place, finding) = planted(&body(1), &body(0), buffer);
    assert!(matches!(finding, Finding::MissingWaitcnt { vector: true, counter: "vmcnt", .. }), "{finding:?}");
    assert_eq!(mnemonic(&place), "global_store_dword");
}

#[test]
fn a_missing_wait_for_lds() {
    if !have(&["clang-19"]) {
        return;
    }
    let body = |wait: &str| {
        format!(
            "{ITEM} __shared__ uint a[64]; a[tid] = i; __builtin_amdgcn_s_waitcnt(0); uint x;
             asm volatile(\"ds_read_b32 %0, %1\\n{wait}\" : \"=&v\"(x) : \"v\"(tid * 4), \"v\"(a)); out[i] = x;"
        )
    };
    let (place, finding) = planted(&body(""), &body("s_waitcnt lgkmcnt(0)"), buffer);
    assert!(
        matches!(finding, Finding::MissingWaitcnt { vector: true, counter: "lgkmcnt", .. }),
        "{finding:?}"
    );
    assert_eq!(place.lane, Some(0));
}

#[test]
fn a_missing_wait_for_scalar_memory() {
    if !have(&["clang-19"]) {
        return;
    }
    // Scalar loads return in any order: none may be left.
    let body = |left: u32| {
        format!(
            "{ITEM} uint x, y; asm volatile(\"s_load_dword %0, %2, 0x0\\ns_load_dword %1, %2, 0x4\\n\
             s_waitcnt lgkmcnt({left})\" : \"=&s\"(x), \"=&s\"(y) : \"s\"(in)); out[i] = x;
             asm volatile(\"s_waitcnt lgkmcnt(0)\");"
        )
    };
    let (_, finding) = planted(&body(1), &body(0), buffer);
    assert!(
        matches!(finding, Finding::MissingWaitcnt { vector: false, counter: "lgkmcnt", .. }),
        "{finding:?}"
    );
}

#[test]
fn a_load_overtaken_by_a_write() {
    if !have(&["clang-19"]) {
        return;
    }
    let body = |wait: &str| {
        format!(
            "{ITEM} uint x; asm volatile(\"global_load_dword %0, %1, off\\n{wait}\\nv_mov_b32 %0, 1\\n\
             s_waitcnt vmcnt(0)\" : \"=&v\"(x) : \"v\"(in + i)); out[i] = x;"
        )
    };
    let (place, finding) = planted(&body(""), &body("s_waitcnt vmcnt(0)"), buffer);
    assert!(matches!(finding, Finding::MissingWaitcnt { vector: true, .. }), "{finding:?}");
    assert_eq!(mnemonic(&place), "v_mov_b32_e32");
}

#[test]
fn an_lds_write_under_way_at_a_barrier() {
    if !have(&["clang-19"]) {
        return;
    }
    let body = |wait: &str| {
        format!(
            "{ITEM} __shared__ uint a[64]; asm volatile(\"ds_write_b32 %0, %1\\n{wait}\\ns_barrier\" :: \"v\"(tid * 4), \"v\"(i), \"v\"(a)
             : \"memory\"); out[i] = a[63 - tid];"
        )
    };
    let (place, finding) = planted(&body(""), &body("s_waitcnt lgkmcnt(0)"), buffer);
    assert!(matches!(finding, Finding::MissingWaitcnt { counter: "lgkmcnt", .. }), "{finding:?}");
    assert_eq!(mnemonic(&place), "s_barrier");
    // One LDS in order: the wait is not needed.
    let source = format!("extern \"C\" __global__ void k(uint *out, uint *in) {{ {} }}", body(""));
    run(&source, &["-O1", "-mcumode"], "k", buffer).expect("in CU mode it is in order");
}

const BARRIER: &str = "__builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\"); __builtin_amdgcn_s_barrier();
                       __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\");";

#[test]
fn an_lds_race() {
    if !have(&["clang-19"]) {
        return;
    }
    let body = |barrier: &str| {
        format!("{ITEM} __shared__ volatile uint a[64]; a[tid] = i; {barrier} out[i] = a[tid ^ 32];")
    };
    // Both waves write, then the first reads what the second ... is yet to write, as it runs alone until a barrier.
    let initialised = "__shared__ volatile uint a[64]; a[tid] = 0; a[tid] = 0;";
    let bad = body("")
        .replace("__shared__ volatile uint a[64];", &format!("{initialised} a[tid ^ 32] = 0; {BARRIER}"));
    let good = body(BARRIER).replace("__shared__ volatile uint a[64];", &format!("{initialised} {BARRIER}"));
    let (place, finding) = planted(&bad, &good, buffer);
    let Finding::LdsRace { address, other_wave } = finding else { panic!("{finding:?}") };
    assert_eq!((place.wave, other_wave, place.lane), (1, 0, Some(0)));
    assert!(address < 256, "{address} {place}");
}

#[test]
fn uninitialised_lds() {
    if !have(&["clang-19"]) {
        return;
    }
    let body = |from: u32| {
        format!(
            "{ITEM} __shared__ volatile uint a[64]; if (tid != {from}) a[tid] = i; {BARRIER} out[i] = a[tid];"
        )
    };
    let (place, finding) = planted(&body(41), &body(64), buffer);
    assert!(matches!(finding, Finding::UninitialisedVgpr { lds: Some(164), .. }), "{finding:?}");
    assert_eq!((mnemonic(&place), place.wave, place.lane), ("global_store_dword", 1, Some(9)));
}

#[test]
fn beyond_declared_lds() {
    if !have(&["clang-19"]) {
        return;
    }
    let body = |to: u32| {
        format!(
            "{ITEM} __shared__ uint a[64]; asm volatile(\"ds_write_b32 %0, %1\\ns_waitcnt lgkmcnt(0)\" ::
             \"v\"(tid == 5 ? {to} : tid * 4), \"v\"(i), \"v\"(a)); out[i] = 0;"
        )
    };
    let (place, finding) = planted(&body(256), &body(20), buffer);
    assert_eq!(finding, Finding::LdsOutOfBounds { address: 256, bytes: 4 });
    assert_eq!(place.lane, Some(5));
}

#[test]
fn uninitialised_registers() {
    if !have(&["clang-19"]) {
        return;
    }
    // Stored, with arithmetic before.
    let body = |set: &str| {
        format!(
            "{ITEM} uint x; asm volatile(\"{set}\\nv_add_nc_u32 v40, 1, v40\\nv_mov_b32 %0, v40\" : \"=v\"(x) :: \"v40\"); out[i] = x;"
        )
    };
    let (place, finding) = planted(&body(""), &body("v_mov_b32 v40, 2"), buffer);
    assert!(matches!(finding, Finding::UninitialisedVgpr { .. }), "{finding:?}");
    assert_eq!((mnemonic(&place), place.lane), ("global_store_dword", Some(0)));

    // An address, in one lane.
    let body = |lanes: u32| {
        format!(
            "{ITEM} uint x = in[i]; if (tid < {lanes}) asm volatile(\"v_mov_b32 v41, %0\" :: \"v\"(tid * 4) : \"v41\");
             asm volatile(\"global_store_dword v41, %0, %1\" :: \"v\"(x), \"s\"(out) : \"v41\", \"memory\");"
        )
    };
    let (place, finding) = planted(&body(29), &body(64), buffer);
    assert_eq!(finding, Finding::UninitialisedVgpr { register: 41, lds: None });
    assert_eq!(place.lane, Some(29));

    // A branch on a scalar.
    let body = |set: &str| {
        format!(
            "{ITEM} uint x = 0; asm volatile(\"{set}\\ns_cmp_eq_u32 s50, 3\\ns_cbranch_scc0 1f\\nv_mov_b32 %0, 1\\n1:\"
             : \"+v\"(x) :: \"s50\", \"scc\"); out[i] = x;"
        )
    };
    let (place, finding) = planted(&body(""), &body("s_mov_b32 s50, 3"), buffer);
    assert!(matches!(finding, Finding::UninitialisedSgpr { .. }), "{finding:?}");
    assert_eq!(mnemonic(&place), "s_cbranch_scc0");

    // EXEC.
    let body = |set: &str| {
        format!(
            "{ITEM} asm volatile(\"{set}\\ns_mov_b32 s51, exec_lo\\ns_mov_b32 exec_lo, s50\\ns_mov_b32 exec_lo, s51\"
             ::: \"s50\", \"s51\"); out[i] = 1;"
        )
    };
    let (place, finding) = planted(&body(""), &body("s_mov_b32 s50, 3"), buffer);
    assert_eq!((mnemonic(&place), finding), ("s_mov_b32", Finding::UninitialisedSgpr { register: 50 }));
}

#[test]
fn fine_grained_memory_and_host_atomics() {
    if !have(&["clang-19"]) {
        return;
    }
    let store = format!("{ITEM} out[i] = in[i];");
    let fine = |memory: &mut HeapMemory| memory.alloc_as(4096, |r| r.coherent = true);
    let (place, finding) = planted(&store, &store, fine);
    assert!(matches!(finding, Finding::FineGrained { .. }), "{finding:?}");
    assert_eq!((mnemonic(&place), place.lane), ("global_store_dword", Some(0)));

    // Host memory too; but the runtime's own copies may.
    let source = format!("extern \"C\" __global__ void k(uint *out, uint *in) {{ {store} }}");
    let mut p = Program::new(&compile(&source, &["-O1"]), 1);
    p.options.strict = true;
    let pinned = p.memory.alloc_as(4096, |r| (r.coherent, r.host) = (true, true));
    let input = p.memory.alloc(4096);
    let stop = p.run("k", [64, 1, 1], [GROUP, 1, 1], &[pinned, input]).expect_err("fine-grained");
    assert!(matches!(stop, Stop::Strict { finding: Finding::FineGrained { .. }, .. }), "{stop}");
    p.trusted = true;
    p.run("k", [64, 1, 1], [GROUP, 1, 1], &[pinned, input]).expect("a copy of the runtime's");

    let add = format!("{ITEM} __atomic_fetch_add(&out[i % 8], 1, __ATOMIC_RELAXED);");
    let host = |memory: &mut HeapMemory| memory.alloc_as(4096, |r| r.host = true);
    let (place, finding) = planted(&add, &add, host);
    assert!(matches!(finding, Finding::HostAtomic { .. }), "{finding:?}");
    assert!(mnemonic(&place).contains("atomic"), "{place}");
}

#[test]
fn misalignment() {
    if !have(&["clang-19"]) {
        return;
    }
    // gfx10.1 in WGP mode does not load several dwords rightly that are not naturally aligned.
    let body = |at: u32| {
        format!(
            "{ITEM} __shared__ uint a[128]; a[tid] = i; a[tid + 64] = i; {BARRIER} ulong x;
             asm volatile(\"ds_read_b64 %0, %1\\ns_waitcnt lgkmcnt(0)\" : \"=&v\"(x) : \"v\"(tid / 32 * 32 + {at}), \"v\"(a));
             out[i] = x;"
        )
    };
    let (place, finding) = planted(&body(4), &body(8), buffer);
    assert!(matches!(finding, Finding::Misaligned { bytes: 8, .. }), "{finding:?}");
    assert_eq!(mnemonic(&place), "ds_read_b64");
    let cu_mode = format!("extern \"C\" __global__ void k(uint *out, uint *in) {{ {} }}", body(4));
    run(&cu_mode, &["-O1", "-mcumode"], "k", buffer).expect("in CU mode it does");

    let body = |at: u32| {
        format!(
            "{ITEM} asm volatile(\"global_atomic_add %0, %1, off offset:{at}\" :: \"v\"(out + i), \"v\"(1) : \"memory\");"
        )
    };
    let (place, finding) = planted(&body(2), &body(4), buffer);
    assert!(matches!(finding, Finding::Misaligned { bytes: 4, .. }), "{finding:?}");
    assert_eq!(place.lane, Some(0));
}

#[test]
fn beyond_a_buffer() {
    if !have(&["clang-19"]) {
        return;
    }
    let body = |bytes: u32| {
        format!(
            "{ITEM} ulong at = (ulong)out; uint x; asm volatile(\"s_mov_b32 s40, %1\\ns_mov_b32 s41, %2\\ns_movk_i32 s42, {bytes}\\n\
             s_mov_b32 s43, 0x31014000\\nbuffer_load_dword %0, %3, s[40:43], 0 offen\\ns_waitcnt vmcnt(0)\" : \"=&v\"(x)
             : \"s\"((uint)at), \"s\"((uint)(at >> 32)), \"v\"(i * 4) : \"s40\", \"s41\", \"s42\", \"s43\"); out[i] = x;"
        )
    };
    let (place, finding) = planted(&body(40), &body(1024), buffer);
    assert!(matches!(finding, Finding::BufferOutOfRange { bytes: 4, .. }), "{finding:?}");
    assert_eq!((mnemonic(&place), place.lane), ("buffer_load_dword", Some(10)));
    // A program may ask for it: it gets zeros there.
    let source = format!("extern \"C\" __global__ void k(uint *out, uint *in) {{ {} }}", body(40));
    let mut p = Program::new(&compile(&source, &["-O1"]), 1);
    (p.options.strict, p.options.robust) = (true, true);
    let out = p.memory.alloc_words(&[7; 1024]);
    p.run("k", [2 * u32::from(GROUP), 1, 1], [GROUP, 1, 1], &[out, out]).expect("no finding");
    assert_eq!(p.memory.load_words(out, 12), [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0]);
}

/// In plain mode too, as a card reports it.
#[test]
fn an_out_of_bounds_store() {
    if !have(&["clang-19"]) {
        return;
    }
    let kernel = |beyond: u32| {
        format!(
            "extern \"C\" __global__ void k(uint *out, uint *in) {{ {ITEM} out[i + (i == 77) * {beyond}] = in[i]; }}"
        )
    };
    for strict in [false, true] {
        let run = |src: &str| {
            let mut p = Program::new(&compile(src, &["-O3"]), 1);
            p.options.strict = strict;
            let out = p.memory.alloc_words(&(0..128).collect::<Vec<u32>>());
            let input = p.memory.alloc_words(&(0..128).map(|i| i * 7 + 1).collect::<Vec<u32>>());
            let done = p.run("k", [128, 1, 1], [GROUP, 1, 1], &[out, input]);
            done.map(|_| p.memory.load_words(out, 128)).map_err(|stop| (out, stop))
        };
        // The last place inside is inside.
        let mut want: Vec<u32> = (0..128).map(|i| i * 7 + 1).collect();
        want[77] = 77;
        want[127] = 77 * 7 + 1;
        let got = run(&kernel(50)).expect("the mended kernel");
        assert!(got[..127] == want[..127] && (got[127] == want[127] || got[127] == 127 * 7 + 1), "{got:?}");
        let (out, stop) = run(&kernel(100_000)).expect_err("beyond the allocation");
        let Stop::MemoryFault { place, address, bytes, write } = stop else { panic!("{stop}") };
        assert_eq!((address, bytes, write), (out + 4 * 100_077, 4, true));
        assert_eq!((place.workgroup, place.wave, place.lane), ([1, 0, 0], 0, Some(13)));
        assert!(place.kernel == "k" && mnemonic(&place) == "global_store_dword");
    }
}

/// Kernels of many kinds; each writes `out[i]` from `in`.
const KERNELS: &str = r#"
struct padded { char c; double d; short s; int i; };
__device__ __attribute__((noinline)) uint fib(uint n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__device__ __attribute__((noinline)) padded make(uint x) { padded p; p.c = x; p.d = x * 0.5; p.s = -x; p.i = x; return p; }
__device__ __attribute__((noinline)) uint many(uint a, uint b, uint c, uint d, float e, double f) {
    uint t[9]; for (uint j = 0; j < 9; j++) t[(j + a) % 9] = b * j + c; return t[d % 9] + (uint)e + (uint)f;
}
#define BARRIER __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); __builtin_amdgcn_s_barrier(); __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
#define KERNEL(name) extern "C" __global__ void name(uint *out, uint *in)
#define I uint i = gid * 64 + tid;
KERNEL(recursion) { I out[i] = fib(in[i] % 9); }
KERNEL(padding) { I padded p = make(in[i]); padded q[3]; q[in[i] % 3] = p; ((padded *)out)[i] = q[in[i] % 3]; }
KERNEL(padding_through_lds) { I __shared__ padded a[64]; padded p = make(in[i]); a[tid].d = p.d; a[tid].i = p.i; BARRIER
    out[i] = a[63 - tid].i + (uint)a[63 - tid].d; }
KERNEL(calls) { I out[i] = many(in[i], i, 3, in[i + 1], 2.5f * i, 0.25 * i); }
KERNEL(divergence) { I uint x = in[i], y; if (x & 1) y = x * 3; else if (x & 2) y = in[x % 64]; else y = 7;
    for (uint j = 0; j < x % 11; j++) { if (j & x) continue; y += j * x; if (y > 100000) break; } out[i] = y; }
KERNEL(maybe_set) { I uint x = in[i], y; if (x & 4) y = x; uint z = 0; if (x & 8) z = 1; if (x & 4) z += y * 3; out[i] = z; }
KERNEL(reduction) { I __shared__ uint a[64]; a[tid] = in[i]; BARRIER
    for (uint s = 32; s; s /= 2) { if (tid < s) a[tid] += a[tid + s]; BARRIER } out[i] = a[0] + i; }
KERNEL(tiles) { I __shared__ float a[2][64]; float sum = 0; for (uint t = 0; t < 6; t++) { a[t & 1][tid] = (float)in[(i + t * 64) % 1024]; BARRIER
    for (uint k = 0; k < 64; k++) sum += a[t & 1][k]; BARRIER } out[i] = (uint)sum; }
KERNEL(one_barrier_a_tile) { I __shared__ float a[2][64]; float sum = 0; for (uint t = 0; t < 6; t++) { a[t & 1][tid] = (float)in[(i + t * 64) % 1024]; BARRIER
    for (uint k = 0; k < 64; k++) sum += a[t & 1][k]; } out[i] = (uint)sum; }
KERNEL(histogram) { I __shared__ uint h[16]; if (tid < 16) h[tid] = 0; BARRIER __atomic_fetch_add(&h[in[i] % 16], 1, __ATOMIC_RELAXED);
    BARRIER out[i] = h[tid % 16]; }
KERNEL(flag) { I __shared__ uint any; any = 0; BARRIER if (in[i] % 5 == 0) any = 1; BARRIER out[i] = any; }
KERNEL(shuffle) { I int x = in[i]; for (int d = 1; d < 32; d *= 2) x += __builtin_amdgcn_ds_bpermute((tid ^ d) << 2, x);
    x += __builtin_amdgcn_ds_swizzle(x, 0x041f) + __builtin_amdgcn_mov_dpp(x, 0x111, 15, 15, 1); out[i] = x; }
KERNEL(partly) { I if (tid < 40) { int x = in[i]; x += __builtin_amdgcn_ds_bpermute((tid ^ 1) << 2, x); x += __builtin_amdgcn_readfirstlane(x);
    out[i] = x + __builtin_amdgcn_update_dpp(x, x, 0x1b, 15, 15, 0); } }
KERNEL(halves) { I typedef _Float16 h2 __attribute__((ext_vector_type(2))); h2 a = {(_Float16)(in[i] % 50), (_Float16)3}; h2 b = a * a + a;
    _Float16 *o = (_Float16 *)out; o[2 * i] = b.x; o[2 * i + 1] = b.y - (_Float16)1; }
KERNEL(bytes) { I unsigned char *c = (unsigned char *)in; unsigned char *o = (unsigned char *)out;
    for (uint k = 0; k < 4; k++) o[4 * i + k] = c[4 * i + 3 - k] + k; }
KERNEL(vectors) { I typedef uint u4 __attribute__((ext_vector_type(4))); typedef uint u3 __attribute__((ext_vector_type(3)));
    u4 v = ((u4 *)in)[i]; u3 w = v.xyz * v.w; ((u3 *)out)[i / 4] = w; }
KERNEL(doubles) { I double x = in[i]; double y = x / 3.0 + __builtin_sqrt(x); out[i] = (uint)(y * 100.0); }
KERNEL(longs) { I ulong x = in[i]; x = x * x * 77 / (in[i + 1] | 1) + (x << (i % 40)); out[i] = x ^ (x >> 32); }
KERNEL(cases) { I switch (in[i] % 6) { case 0: out[i] = 5; break; case 1: out[i] = in[i] * 2; break; case 2: case 3: out[i] = tid; break;
    default: out[i] = fib(in[i] % 5); } }
KERNEL(spills) { I uint t[64]; for (uint k = 0; k < 64; k++) t[k] = in[(i + k) % 1024]; uint s = 0;
    for (uint r = 0; r < 8; r++) for (uint k = 0; k < 64; k++) s += t[k] * t[(k + r) % 64]; out[i] = s; }
KERNEL(global_atomics) { I __atomic_fetch_add(&out[i % 4], in[i], __ATOMIC_RELAXED); uint e = 0;
    __atomic_compare_exchange_n(&out[64 + i % 4], &e, 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); }
KERNEL(early) { I if (gid == 0 && tid >= 32) return; __shared__ uint a[64]; a[tid] = i; BARRIER out[i] = a[tid]; }
KERNEL(pointers) { I __shared__ uint a[64]; uint p[4] = {1, 2, 3, 4}; a[tid] = in[i]; uint *q = in[i] % 3 ? (in[i] % 3 == 1 ? &a[tid] : &p[i % 4]) : &in[i];
    *q += 1; out[i] = *q; }
"#;

/// Compilers' code does nothing that the strict card objects to, and the card changes no result.
#[test]
fn compiled_kernels_have_no_findings() {
    if !have(&["clang-19"]) {
        return;
    }
    let names: Vec<&str> =
        KERNELS.split("KERNEL(").skip(2).map(|rest| rest.split(')').next().expect("a name")).collect();
    assert!(names.len() > 20, "{names:?}");
    let mut rng = rng();
    let input: Vec<u32> = (0..4096).map(|_| rng.random_range(0..5000)).collect();
    let poison: Vec<u32> = (0..4096).map(|_| rng.random()).collect();
    for level in ["-O0", "-O1", "-O3"] {
        for mode in [&["-mno-wavefrontsize64"][..], &["-mwavefrontsize64"], &["-mcumode"]] {
            let elf = compile(KERNELS, &[&[level], mode].concat());
            for name in &names {
                let [plain, strict] = [false, true].map(|strict| {
                    let mut p = Program::new(&elf, 1);
                    p.options.strict = strict;
                    let (out, input) = (p.memory.alloc_words(&poison), p.memory.alloc_words(&input));
                    p.stack = 4096;
                    p.run(name, [128, 1, 1], [GROUP, 1, 1], &[out, input])
                        .unwrap_or_else(|stop| panic!("{level} {mode:?} strict {strict}: {stop}"));
                    p.memory.load_words(out, 4096)
                });
                assert!(plain == strict, "{level} {mode:?} {name}: the strict card's result differs");
                assert!(plain != poison, "{level} {mode:?} {name}: nothing written");
            }
        }
    }
}
