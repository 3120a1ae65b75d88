//! What tests of instructions share: an assembler, a compiler, random registers.
#![allow(dead_code)] // each program uses a part

pub mod program;

use rand::{Rng, SeedableRng, rngs::StdRng};
use std::process::Command;
use wave32_exec::{Executor, HeapMemory, Lds, Options, Report, Solo, Stop, Wave};
use wave32_isa::Target;

/// Where `programs` is missing the test is skipped with a line; `WAVE32_REQUIRE_COMPILERS=1` makes that a failure.
pub fn have(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|p| Command::new(p).arg("--version").output().is_err());
    if let Some(program) = missing {
        assert!(std::env::var_os("WAVE32_REQUIRE_COMPILERS").is_none(), "{program} is not installed");
        println!("skipped: {program} is not installed");
    }
    missing.is_none()
}

/// A generator with a fresh seed, which is printed: a failing test shows it.
pub fn rng() -> StdRng {
    let seed = std::env::var("WAVE32_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random);
    println!("seed {seed}: WAVE32_SEED={seed} repeats this");
    StdRng::seed_from_u64(seed)
}

/// The code of each instruction, assembled for `target` by LLVM.
pub fn assemble_for(target: &str, lines: &[String], wave64: bool) -> Vec<Vec<u32>> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let source = dir.path().join("lines.s");
    std::fs::write(&source, lines.join("\n") + "\n").expect("written");
    let size = if wave64 { "-wavefrontsize32,+wavefrontsize64" } else { "+wavefrontsize32,-wavefrontsize64" };
    let output = Command::new("llvm-mc-19")
        .args([
            "--triple=amdgcn-amd-amdhsa",
            &format!("--mcpu={target}"),
            &format!("-mattr={size}"),
            "--show-encoding",
        ])
        .arg(&source)
        .output()
        .expect("llvm-mc-19 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let code = |line: &str| {
        let (_, bytes) = line.split_once("encoding: [")?;
        let bytes: Vec<u8> = bytes
            .trim_end()
            .trim_end_matches(']')
            .split(',')
            .map(|b| u8::from_str_radix(b.trim_start_matches("0x"), 16).expect("a byte"))
            .collect();
        Some(bytes.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().expect("4 bytes"))).collect())
    };
    let codes: Vec<Vec<u32>> = text.lines().filter_map(code).collect();
    assert_eq!(codes.len(), lines.len(), "one instruction a line");
    codes
}

/// See [`assemble_for`]; for gfx1010.
pub fn assemble(lines: &[String], wave64: bool) -> Vec<Vec<u32>> {
    assemble_for("gfx1010", lines, wave64)
}

/// A program with labels, assembled for gfx1010.
pub fn assemble_program(text: &str, wave64: bool) -> Vec<u32> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (source, object) = (dir.path().join("program.s"), dir.path().join("program.o"));
    std::fs::write(&source, text).expect("written");
    let size = if wave64 { "-wavefrontsize32,+wavefrontsize64" } else { "+wavefrontsize32,-wavefrontsize64" };
    let output = Command::new("llvm-mc-19")
        .args([
            "--triple=amdgcn-amd-amdhsa",
            "--mcpu=gfx1010",
            &format!("-mattr={size}"),
            "-filetype=obj",
            "-o",
        ])
        .args([&object, &source])
        .output()
        .expect("llvm-mc-19 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let elf = std::fs::read(&object).expect("an object file");
    use object::{Object as _, ObjectSection as _};
    let file = object::File::parse(&*elf).expect("an ELF file");
    let text = file.section_by_name(".text").expect("code").data().expect("its bytes").to_vec();
    text.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().expect("4 bytes"))).collect()
}

/// A code object of HIP-like C++ for gfx1010: `src` is compiled with `flags` after the builtins' short names.
pub fn compile(src: &str, flags: &[&str]) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (source, object) = (dir.path().join("kernel.hip"), dir.path().join("kernel.co"));
    let head = "#define __global__ __attribute__((global))\n#define __device__ __attribute__((device))\n\
                #define __shared__ __attribute__((shared))\n\
                typedef unsigned int uint; typedef unsigned long ulong;\n\
                #define tid __builtin_amdgcn_workitem_id_x()\n#define gid __builtin_amdgcn_workgroup_id_x()\n";
    std::fs::write(&source, format!("{head}{src}")).expect("written");
    let output = Command::new("clang-19")
        .args(["-x", "hip", "--cuda-device-only", "--offload-arch=gfx1010", "-nogpuinc", "-nogpulib"])
        .args(["-mcode-object-version=4", "--no-gpu-bundle-output"])
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .output()
        .expect("clang-19 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(&object).expect("a code object")
}

/// An executor of one thread, and memory, in which single waves run.
pub struct Bench {
    pub executor: Executor<HeapMemory>,
    pub memory: HeapMemory,
    pub options: Options,
    code: u64,
}

/// Dwords of code that [`Bench::run`] takes.
const CODE: usize = 4096;

impl Bench {
    pub fn new() -> Self {
        Self::for_target(Target::Gfx1010)
    }

    pub fn for_target(target: Target) -> Self {
        let mut memory = HeapMemory::new();
        let code = memory.alloc(4 * CODE as u64);
        let options = Options { deadline: std::time::Duration::from_secs(10), ..Options::default() };
        Self { executor: Executor::new(target, Some(1)), memory, options, code }
    }

    /// Runs `code`, then `s_endpgm`, on a wave.
    pub fn run(&self, code: &[u32], solo: &mut Solo) -> Result<Report, Stop> {
        let mut words = code.to_vec();
        words.push(0xbf81_0000); // s_endpgm
        assert!(words.len() <= CODE);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.memory.store(self.code, &bytes);
        self.executor.run_wave(&self.memory, self.code, solo, &self.options, &())
    }
}

/// A wave with random registers and EXEC, 64 VGPRs, 64 KiB of random LDS and 256 bytes of scratch a lane.
pub fn random_wave(rng: &mut StdRng, wave64: bool) -> Solo {
    let mut wave = Wave::new(64, wave64);
    for register in wave.sgpr[..108].iter_mut() {
        *register = bits(rng);
    }
    for row in &mut wave.vgpr {
        row.iter_mut().for_each(|lane| *lane = bits(rng));
    }
    wave.sgpr[126] = exec(rng);
    wave.sgpr[127] = if wave64 { exec(rng) } else { 0 };
    wave.scc = rng.random();
    let mut lds = Lds::new(65536);
    lds.words.iter_mut().for_each(|word| *word = rng.random());
    let lanes = if wave64 { 64 } else { 32 };
    let scratch = (0..64 * lanes).map(|_| rng.random()).collect();
    Solo { wave, lds, scratch }
}

/// A lane mask: all, none, one lane, or any.
pub fn exec(rng: &mut StdRng) -> u32 {
    match rng.random_range(0..8) {
        0 => 0,
        1 => u32::MAX,
        2 => 1 << rng.random_range(0..32),
        _ => rng.random(),
    }
}

/// 32 bits: any, or such as integers and floats turn on.
pub fn bits(rng: &mut StdRng) -> u32 {
    const EDGES: [u32; 24] = [
        0,
        1,
        2,
        31,
        32,
        33,
        0x7fff_ffff,
        0x8000_0000,
        0x8000_0001,
        0xffff_ffff,
        0xffff_fffe,
        0x0000_ffff,
        0x0001_0000,
        0x3f80_0000,
        0xbf80_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0x7f80_0001,
        0x0000_0001,
        0x007f_ffff,
        0x0080_0000,
        0x7f7f_ffff,
        0x3c00_bc00,
    ];
    match rng.random_range(0..4) {
        0 => EDGES[rng.random_range(0..EDGES.len())],
        1 => rng.random_range(0..64),
        _ => rng.random(),
    }
}
