//! The strict card between waves of a workgroup: who used which byte of LDS, and which barriers they wait at.

use crate::common;

use common::{compile, have, program::Program, rng};
use rand::{Rng, rngs::StdRng};
use wave32_exec::{Finding, Location, Stop};

/// Two waves.
const GROUP: u16 = 64;
/// Bytes of LDS.
const LDS: usize = 2048;

const BARRIER: &str = "__builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\"); __builtin_amdgcn_s_barrier();
                       __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\");";

/// Runs `kernel` of one workgroup under the strict card.
fn run(elf: &[u8], kernel: &str, input: &[u32]) -> Result<Vec<u32>, (Location, Finding)> {
    let mut p = Program::new(elf, 1);
    p.options.strict = true;
    let out = p.memory.alloc_words(&[0xdead_beef; 256]);
    let input = p.memory.alloc_words(input);
    match p.run(kernel, [GROUP.into(), 1, 1], [GROUP, 1, 1], &[out, input]) {
        Ok(_) => Ok(p.memory.load_words(out, GROUP.into())),
        Err(Stop::Strict { place, finding }) => Err((place, finding)),
        Err(stop) => panic!("{kernel}: {stop}"),
    }
}

/// An access: its name, bytes, and the lines of assembly that do it.
#[derive(Clone, Copy)]
struct Access {
    name: &'static str,
    bytes: usize,
    lines: &'static str,
}

const ACCESSES: [Access; 11] = [
    Access { name: "w8", bytes: 1, lines: "ds_write_b8 %0, %1" },
    Access { name: "w16", bytes: 2, lines: "ds_write_b16 %0, %1" },
    Access { name: "w32", bytes: 4, lines: "ds_write_b32 %0, %1" },
    Access { name: "w64", bytes: 8, lines: "ds_write_b64 %0, %2" },
    Access { name: "w128", bytes: 16, lines: "ds_write_b128 %0, %3" },
    Access { name: "r8", bytes: 1, lines: "ds_read_u8 v40, %0" },
    Access { name: "r16", bytes: 2, lines: "ds_read_i16 v40, %0" },
    Access { name: "r32", bytes: 4, lines: "ds_read_b32 v40, %0" },
    Access { name: "r64", bytes: 8, lines: "ds_read_b64 v[40:41], %0" },
    Access { name: "r128", bytes: 16, lines: "ds_read_b128 v[40:43], %0" },
    Access { name: "a32", bytes: 4, lines: "ds_or_b32 %0, %1" },
];

impl Access {
    /// As C; what is stored differs from what is there in every byte, whatever lanes met: a store of what is there is no
    /// race.
    fn body(&self, value: &str) -> String {
        format!(
            "{{ v2 two = {{{value}, {value}}}; v4 four = {{{value}, {value}, {value}, {value}}};
             asm volatile(\"{}\\ns_waitcnt lgkmcnt(0)\" :: \"v\"(at), \"v\"({value}), \"v\"(two), \"v\"(four), \"v\"(a)
             : \"memory\", \"v40\", \"v41\", \"v42\", \"v43\"); }}",
            self.lines
        )
    }
}

/// Where a wave's lanes go: multiples of the size, in a row, in eights, one place, or anywhere.
fn places(rng: &mut StdRng, bytes: usize) -> Vec<u32> {
    let slots = LDS / bytes;
    let one = |rng: &mut StdRng, room: usize| rng.random_range(0..slots - room);
    let all: Vec<usize> = match rng.random_range(0..4) {
        0 => {
            let first = one(rng, 32);
            (0..32).map(|l| first + l).collect()
        }
        1 => {
            let (firsts, step) = ([0; 4].map(|_| one(rng, 8)), rng.random_range(0..2));
            (0..32).map(|l| firsts[l / 8] + l % 8 * step).collect()
        }
        2 => vec![one(rng, 0); 32],
        _ => (0..32).map(|_| one(rng, 0)).collect(),
    };
    all.into_iter().map(|slot| (slot * bytes) as u32).collect()
}

/// The first wave does one thing, the second another with no barrier between: a race exactly where they share a byte,
/// one of them writing it.
#[test]
fn races_are_told_by_the_byte() {
    if !have(&["clang-19"]) {
        return;
    }
    let mut source = "typedef uint v2 __attribute__((ext_vector_type(2))); typedef uint v4 __attribute__((ext_vector_type(4)));\n".to_string();
    let pairs: Vec<(Access, Access)> =
        ACCESSES.iter().flat_map(|a| ACCESSES.iter().map(|b| (*a, *b))).collect();
    for (a, b) in &pairs {
        source += &format!(
            "extern \"C\" __global__ void {}_{}(uint *out, uint *in) {{ __shared__ uint a[{}];
             for (uint j = tid; j < {}; j += 64) a[j] = 0; {BARRIER} uint at = in[tid]; uint x = 0x55555555, y = 0xaaaaaaaa;
             if (tid < 32) {} else {} out[tid] = at; }}\n",
            a.name, b.name, LDS / 4, LDS / 4, a.body("x"), b.body("y")
        );
    }
    let elf = compile(&source, &["-O1"]);
    let mut rng = rng();
    let (mut races, mut clean) = (0, 0);
    for (first, second) in &pairs {
        for _ in 0..6 {
            let at = [places(&mut rng, first.bytes), places(&mut rng, second.bytes)].concat();
            let kernel = format!("{}_{}", first.name, second.name);
            let bytes = |lane: usize, access: &Access| at[lane] as usize..at[lane] as usize + access.bytes;
            let mut touched = [false; LDS];
            (0..32).for_each(|lane| touched[bytes(lane, first)].fill(true));
            let writes = [first, second].iter().any(|a| a.name.starts_with('w'));
            let met = (32..64).find_map(|lane| {
                bytes(lane, second).find(|&byte| writes && touched[byte]).map(|byte| (lane, byte))
            });
            match (run(&elf, &kernel, &at), met) {
                (Ok(out), None) => {
                    assert_eq!(out, at, "{kernel}");
                    clean += 1;
                }
                (Err((place, finding)), Some((lane, byte))) => {
                    let race = Finding::LdsRace { address: byte as u32, other_wave: 0 };
                    assert_eq!(
                        (finding, place.wave, place.lane),
                        (race, 1, Some(lane as u32 - 32)),
                        "{kernel} {at:?}"
                    );
                    races += 1;
                }
                (got, want) => panic!("{kernel}: {got:?}, not {want:?}; places {at:?}"),
            }
        }
    }
    println!("{races} races, {clean} without");
    assert!(races > 0 && clean > 0, "of {} runs", 6 * pairs.len());
}

/// Waves that write each their own bytes of the same dwords, as programs with arrays of bytes do, then read the others'.
#[test]
fn bytes_side_by_side_are_no_race() {
    if !have(&["clang-19"]) {
        return;
    }
    let kernel = |ty: &str, barrier: &str| {
        format!(
            "extern \"C\" __global__ void k(uint *out, uint *in) {{ __shared__ volatile {ty} a[64];
             uint at = tid % 32 * 2 + tid / 32; a[at] = in[tid]; {barrier} out[tid] = a[63 - at]; }}"
        )
    };
    let input: Vec<u32> = (1..65).collect();
    for ty in ["unsigned char", "unsigned short"] {
        for level in ["-O1", "-O3"] {
            let out = run(&compile(&kernel(ty, BARRIER), &[level]), "k", &input);
            let want: Vec<u32> = (0..64).map(|t| input[63 - t]).collect();
            assert_eq!(out, Ok(want), "{ty} {level}");
        }
        let (place, finding) = run(&compile(&kernel(ty, ""), &["-O1"]), "k", &input).expect_err("no barrier");
        // The first wave stores what it read before the second wrote it.
        assert!(matches!(finding, Finding::UninitialisedVgpr { lds: Some(_), .. }), "{finding:?}");
        assert_eq!(place.wave, 0);
    }
}

/// `bad` waits at different barriers, `good` does not.
fn planted(bad: &str, good: &str) {
    let kernel = |body: &str| {
        let body = body.replace("BARRIER", BARRIER);
        format!(
            "extern \"C\" __global__ void k(uint *out, uint *in) {{ __shared__ volatile uint a[64]; {body} out[tid] = a[tid ^ 32]; }}"
        )
    };
    let input: Vec<u32> = (0..64).collect();
    for level in ["-O1", "-O3"] {
        let out = run(&compile(&kernel(good), &[level]), "k", &input);
        let want: Vec<u32> = (0..64).map(|t| t ^ 32).collect();
        assert_eq!(out, Ok(want), "{level}");
    }
    let (place, finding) =
        run(&compile(&kernel(bad), &["-O1"]), "k", &input).expect_err("different barriers");
    let Finding::BarrierDivergence { other_wave, other_offset } = finding else { panic!("{finding:?}") };
    assert_eq!((place.instruction.as_str(), place.wave, other_wave), ("s_barrier", 1, 0));
    assert!(place.offset != other_offset && place.kernel == "k", "{place}: {finding}");
}

#[test]
fn barriers_on_both_ways() {
    if have(&["clang-19"]) {
        planted(
            "if (tid < 32) { a[tid] = in[tid]; BARRIER } else { a[tid] = in[tid]; out[tid + 64] = 1; BARRIER }",
            "if (tid < 32) { a[tid] = in[tid]; } else { a[tid] = in[tid]; out[tid + 64] = 1; } BARRIER",
        );
    }
}

#[test]
fn barriers_in_loops_of_different_lengths() {
    if have(&["clang-19"]) {
        let body = |rounds: &str| {
            format!(
                "for (uint r = 0; r < {rounds}; r++) {{ a[tid] = r; BARRIER out[tid + 64] = a[tid]; }} a[tid] = in[tid]; BARRIER"
            )
        };
        planted(&body("in[1] + tid / 32"), &body("in[2]"));
    }
}

/// Lanes are off at a barrier that all of them come to: clang leaves EXEC narrowed where nothing else needs it.
#[test]
fn lanes_off_at_a_barrier_are_no_divergence() {
    if !have(&["clang-19"]) {
        return;
    }
    let kernel = format!(
        "extern \"C\" __global__ void k(uint *out, uint *in) {{ if (tid < in[64]) {{ if (in[tid] & 1) out[tid + 64] = 5; {BARRIER} }} out[tid] = in[tid]; }}"
    );
    let input: Vec<u32> = (0..65).collect();
    for level in ["-O1", "-O3"] {
        let out = run(&compile(&kernel, &[level]), "k", &input);
        assert_eq!(out.as_deref(), Ok(&input[..64]), "{level}");
    }
}
