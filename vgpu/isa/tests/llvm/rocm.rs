//! AMD's own gfx10.1 code at hand: the kernels inside ROCr; the device libraries and HIP's copy kernels, compiled here.
//! What is not there is said; `WAVE32_REQUIRE_HIP` makes that a failure.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use wave32_isa::{Form, Opcode, Target, decode};

use crate::code::{self, Code};
use crate::oracle;

const ROCR: &str = "/usr/lib/x86_64-linux-gnu/libhsa-runtime64.so.1";
const COMGR: &str = "/usr/lib/x86_64-linux-gnu/libamd_comgr.so.2";
const BITCODE: &str = "/usr/lib/x86_64-linux-gnu/amdgcn/bitcode";

/// Whether the file is there.
fn present(path: &str) -> bool {
    let found = Path::new(path).exists();
    if !found {
        assert!(std::env::var_os("WAVE32_REQUIRE_HIP").is_none(), "{path} is required and not there");
        eprintln!("skipped: no {path}");
    }
    found
}

#[test]
fn kernels_inside_rocr_are_as_llvm_says() {
    if !oracle::present() || !present(ROCR) {
        return;
    }
    let library = std::fs::read(ROCR).expect("read");
    let mut codes = embedded_objects(&library);
    let objects = codes.len();
    codes.extend(embedded_arrays(&library));
    let met = code::compare(&codes);
    met.print(&format!("ROCr: {objects} functions of image kernels, {} bare kernels", codes.len() - objects));
    assert!(objects > 0 && codes.len() > objects, "neither may be missing");
}

/// Code objects for gfx10.1 among those inside.
fn embedded_objects(library: &[u8]) -> Vec<Code> {
    let magic = |at: usize| library[at..].starts_with(b"\x7fELF") && library[at + 18] == 224;
    let starts = (0..library.len() - 64).step_by(16).filter(|&at| magic(at));
    let ours = starts.filter(|&at| matches!(library[at + 48], 0x33..=0x35));
    ours.flat_map(|at| {
        // The section headers end the file.
        let field = |offset: usize, bytes: usize| {
            library[at + offset..at + offset + bytes]
                .iter()
                .rev()
                .fold(0, |sum, &byte| sum << 8 | usize::from(byte))
        };
        let end = field(40, 8) + field(58, 2) * field(60, 2);
        code::functions(&format!("ROCr + {at:#x}"), &library[at..at + end])
    })
    .collect()
}

/// Its copy, fill and trap kernels are arrays of dwords: wave64, from a scalar memory instruction at a multiple of 32 bytes
/// to the last end of program before what is no code any more.
fn embedded_arrays(library: &[u8]) -> Vec<Code> {
    let mut found = Vec::new();
    let mut at = 0;
    while at + 4 <= library.len() {
        let words = code::words(&library[at..library.len().min(at + 4096)]);
        let starts = decode(&words, Target::Gfx1010, true).is_ok_and(|inst| inst.form == Form::Smem);
        let size = if starts { code_size(&words) } else { 0 };
        if size > 16 {
            let words = words[..size].to_vec();
            found.push(Code {
                name: format!("ROCr + {at:#x}"),
                target: Target::Gfx1010,
                wave64: true,
                words,
            });
        }
        at += (4 * size).next_multiple_of(32).max(32);
    }
    found
}

/// How many dwords up to the last end of program that decoding reaches; 0 if it reaches none.
fn code_size(words: &[u32]) -> usize {
    let (mut at, mut size) = (0, 0);
    while let Ok(inst) = decode(&words[at..], Target::Gfx1010, true) {
        at += usize::from(inst.len / 4);
        if inst.op == Opcode::s_endpgm {
            size = at;
        }
        if at >= words.len() {
            break;
        }
    }
    size
}

#[test]
fn device_libraries_are_as_llvm_says() {
    if !oracle::present() || !present(BITCODE) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut codes = Vec::new();
    for (target, wave64) in [("1010", false), ("1010", true), ("1012", false)] {
        let mut libraries: Vec<PathBuf> =
            vec![format!("{BITCODE}/ocml.bc").into(), format!("{BITCODE}/ockl.bc").into()];
        let size = if wave64 { "on" } else { "off" };
        for option in [
            "daz_opt_off",
            "finite_only_off",
            "unsafe_math_off",
            "correctly_rounded_sqrt_on",
            "abi_version_400",
        ]
        .map(str::to_owned)
        .into_iter()
        .chain([format!("isa_version_{target}"), format!("wavefrontsize64_{size}")])
        {
            libraries.push(format!("{BITCODE}/oclc_{option}.bc").into());
        }
        let name = format!("libraries for gfx{target}, wave64 {size}");
        codes.extend(compile(folder.path(), &name, &maths(), target, wave64, &libraries));
        if present(COMGR) {
            libraries.insert(0, comgr_library(folder.path()));
            let name = format!("HIP's copies for gfx{target}, wave64 {size}");
            codes.extend(compile(folder.path(), &name, BLITS, target, wave64, &libraries));
        }
    }
    let met = code::compare(&codes);
    met.print(&format!("device libraries: {} kernels", codes.len()));
    assert!(codes.len() > 100, "the libraries are compiled");
}

/// Kernels that call the mathematics and the lane functions.
fn maths() -> String {
    let mut text = String::from("#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n");
    let unary = "sin cos tan sinpi exp exp2 log log2 log10 sqrt rsqrt cbrt ceil floor trunc rint round asin acos atan sinh \
                 cosh tanh erf tgamma lgamma logb expm1";
    let binary = "pow powr fmod hypot atan2 remainder nextafter fmin fmax fdim";
    for (ty, suffix) in [("float", "f32"), ("double", "f64"), ("half", "f16")] {
        for (names, arguments, parameters) in
            [(unary, "p[i]", ty.to_owned()), (binary, "p[i], p[i + 1]", format!("{ty}, {ty}"))]
        {
            for name in names.split_whitespace() {
                let function = format!("__ocml_{name}_{suffix}");
                writeln!(
                    text,
                    "{ty} {function}({parameters}); __kernel void k{function}(__global {ty} *p) {{ size_t i = \
                     get_local_id(0); p[i] = {function}({arguments}); }}"
                )
                .expect("strings take all");
            }
        }
    }
    for (ty, suffix) in [
        ("uint", "u32"),
        ("int", "i32"),
        ("ulong", "u64"),
        ("float", "f32"),
        ("double", "f64"),
        ("half", "f16"),
    ] {
        for name in ["add", "min", "max"] {
            for (kind, parameter, argument) in [("wfred", "", ""), ("wfscan", ", bool", ", true")] {
                let function = format!("__ockl_{kind}_{name}_{suffix}");
                writeln!(
                    text,
                    "{ty} {function}({ty}{parameter}); __kernel void k{function}(__global {ty} *p) {{ size_t i = \
                     get_local_id(0); p[i] = {function}(p[i]{argument}); }}"
                )
                .expect("strings take all");
            }
        }
    }
    text
}

/// What HIP's runtime compiles when it starts: wrappers of functions that only comgr's library has.
const BLITS: &str = "
extern void __amd_fillBufferAligned(__global uchar*, __global ushort*, __global uint*, __global ulong*, __constant uchar*, uint, ulong, ulong);
extern void __amd_copyBuffer(__global uchar*, __global uchar*, ulong, ulong, ulong, uint);
extern void __amd_copyBufferAligned(__global uint*, __global uint*, ulong, ulong, ulong, uint);
extern void __amd_copyBufferRect(__global uchar*, __global uchar*, ulong4, ulong4, ulong4);
extern void __amd_copyBufferRectAligned(__global uint*, __global uint*, ulong4, ulong4, ulong4);
extern void __amd_streamOpsWrite(__global uint*, __global ulong*, ulong, ulong);
extern void __amd_streamOpsWait(__global uint*, __global ulong*, ulong, ulong, ulong);
__kernel void fill(__global uchar* a, __global ushort* b, __global uint* c, __global ulong* d, __constant uchar* p, uint s, ulong o, ulong n)
{ __amd_fillBufferAligned(a, b, c, d, p, s, o, n); }
__kernel void copy(__global uchar* a, __global uchar* b, ulong c, ulong d, ulong e, uint f) { __amd_copyBuffer(a, b, c, d, e, f); }
__kernel void copyAligned(__global uint* a, __global uint* b, ulong c, ulong d, ulong e, uint f) { __amd_copyBufferAligned(a, b, c, d, e, f); }
__kernel void rect(__global uchar* a, __global uchar* b, ulong4 c, ulong4 d, ulong4 e) { __amd_copyBufferRect(a, b, c, d, e); }
__kernel void rectAligned(__global uint* a, __global uint* b, ulong4 c, ulong4 d, ulong4 e) { __amd_copyBufferRectAligned(a, b, c, d, e); }
__kernel void write(__global uint* a, __global ulong* b, ulong c, ulong d) { __amd_streamOpsWrite(a, b, c, d); }
__kernel void wait(__global uint* a, __global ulong* b, ulong c, ulong d, ulong e) { __amd_streamOpsWait(a, b, c, d, e); }
";

/// The bitcode inside comgr that has HIP's copies: up to the next, less the zeros between.
fn comgr_library(folder: &Path) -> PathBuf {
    let library = std::fs::read(COMGR).expect("read");
    let starts: Vec<usize> =
        (0..library.len() - 4).step_by(16).filter(|&at| library[at..].starts_with(b"BC\xc0\xde")).collect();
    let end = |i: usize| starts.get(i + 1).copied().unwrap_or(library.len());
    let mut modules = starts.iter().enumerate().map(|(i, &start)| &library[start..end(i)]);
    let name = b"__amd_copyBufferRect";
    let module = modules.find(|module| module.windows(name.len()).any(|window| window == name));
    let module = module.expect("comgr has HIP's copies");
    let used = module.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let path = folder.join("comgr.bc");
    // Bitcode is whole dwords, of which the last bytes may be zero.
    let whole = (used..used + 8).find(|&size| {
        std::fs::write(&path, &module[..size]).expect("written");
        let check = Command::new("llvm-dis-19")
            .arg(&path)
            .args(["-o", "/dev/null"])
            .output()
            .expect("llvm-dis-19 starts");
        check.status.success()
    });
    whole.expect("the bitcode is whole");
    path
}

/// The functions of `text`, compiled against the libraries.
fn compile(
    folder: &Path,
    name: &str,
    text: &str,
    target: &str,
    wave64: bool,
    libraries: &[PathBuf],
) -> Vec<Code> {
    let (source, object) = (folder.join("source.cl"), folder.join("object.o"));
    std::fs::write(&source, text).expect("written");
    let mut clang = Command::new("clang-19");
    clang.args([
        "-x",
        "cl",
        "-cl-std=CL2.0",
        "-Xclang",
        "-finclude-default-header",
        "-target",
        "amdgcn-amd-amdhsa",
    ]);
    clang.args(["-nogpulib", "-O2", "-w", "-c", &format!("-mcpu=gfx{target}")]);
    clang.arg(if wave64 { "-mwavefrontsize64" } else { "-mno-wavefrontsize64" });
    for library in libraries {
        clang.args(["-Xclang", "-mlink-builtin-bitcode", "-Xclang"]).arg(library);
    }
    let output = clang.arg(&source).arg("-o").arg(&object).output().expect("clang-19 starts");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    code::functions(name, &std::fs::read(&object).expect("an object"))
}
