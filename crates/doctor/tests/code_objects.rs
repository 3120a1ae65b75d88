//! Listing targets, on fat binaries and code objects that clang makes here.
//!
//! A clang that is missing is said on the output; `WAVE32_REQUIRE_COMPILERS=1` makes that a failure.
#![cfg(unix)]

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use wave32_doctor::code_objects::{self, CodeObjects};
use wave32_doctor::system::{Process, System};

const KERNEL: &str = "__attribute__((amdgpu_kernel)) void one(float *x) { *x = 1; }\n";
const TARGETS: [&str; 2] = ["gfx1010", "gfx1030"];

fn read(folder: &Path, name: &str) -> CodeObjects {
    let system = System::new(folder.to_path_buf(), Process::default(), false);
    code_objects::read(&system, &format!("/{name}")).unwrap()
}

fn listed(folder: &Path, name: &str) -> Vec<String> {
    let found = read(folder, name);
    assert!(found.complete, "{name}");
    found.targets.into_iter().collect()
}

/// The clang to use; none, and a word about it, where there is none with AMDGPU support.
fn clang() -> Option<String> {
    let named = std::env::var("WAVE32_CLANG").ok();
    let names = named.into_iter().chain(["clang-19".to_string(), "clang".to_string()]);
    let works = |name: &String| {
        let out = Command::new(name).arg("-print-targets").output();
        out.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("amdgcn"))
    };
    let found = names.into_iter().find(works);
    if found.is_none() {
        println!("not checked: no clang with AMDGPU support; install clang-19 and lld-19");
        assert!(std::env::var_os("WAVE32_REQUIRE_COMPILERS").is_none(), "no clang with AMDGPU support");
    }
    found
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A code object for one target, as Tensile's libraries hold them.
fn object(clang: &str, folder: &Path, target: &str) -> String {
    let name = format!("one-{target}.hsaco");
    std::fs::write(folder.join("one.c"), KERNEL).unwrap();
    let mcpu = format!("-mcpu={target}");
    let args = [
        "--target=amdgcn-amd-amdhsa",
        &mcpu,
        "-nogpulib",
        "-O1",
        "-mcode-object-version=4",
        "one.c",
        "-o",
        &name,
    ];
    run(Command::new(clang).current_dir(folder).args(args));
    name
}

#[test]
fn code_objects_tell_their_target() {
    let Some(clang) = clang() else { return };
    let folder = tempfile::tempdir().unwrap();
    for target in [
        "gfx906", "gfx1010", "gfx1012", "gfx1030", "gfx1032", "gfx1035", "gfx1036", "gfx1100", "gfx1151",
        "gfx1201",
    ] {
        let name = object(&clang, folder.path(), target);
        assert_eq!(listed(folder.path(), &name), [target]);
    }
}

/// A library with this in its section for fat binaries, as the HIP driver of clang makes it.
fn library(clang: &str, folder: &Path, name: &str, fat: &[u8]) {
    std::fs::write(folder.join("fat.bin"), fat).unwrap();
    let source = ".section .hip_fatbin,\"a\",@progbits\n.p2align 12\n.incbin \"fat.bin\"\n";
    std::fs::write(folder.join("fat.s"), source).unwrap();
    let args = ["-shared", "-nostdlib", "-fuse-ld=lld", "fat.s", "-o", name];
    run(Command::new(clang).current_dir(folder).args(args));
}

/// `CCOB`, version, method (1 is zstd), sizes, hash, data.
fn compress(version: u16, method: u16, plain: &[u8]) -> Vec<u8> {
    let data = match method {
        1 => zstd::bulk::compress(plain, 3).unwrap(),
        _ => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            std::io::Write::write_all(&mut encoder, plain).unwrap();
            encoder.finish().unwrap()
        }
    };
    let mut out = b"CCOB".to_vec();
    out.extend(version.to_le_bytes());
    out.extend(method.to_le_bytes());
    let header = [20, 24, 32][usize::from(version) - 1];
    match version {
        1 => out.extend((plain.len() as u32).to_le_bytes()),
        2 => [header + data.len(), plain.len()].iter().for_each(|n| out.extend((*n as u32).to_le_bytes())),
        _ => [header + data.len(), plain.len()].iter().for_each(|n| out.extend((*n as u64).to_le_bytes())),
    }
    out.extend([7; 8]);
    out.extend(data);
    out.resize(out.len().next_multiple_of(4096), 0);
    out
}

#[test]
fn fat_libraries_of_real_code_objects_are_read() {
    let Some(clang) = clang() else { return };
    let folder = tempfile::tempdir().unwrap();
    let objects = |targets: &[&'static str]| -> Vec<(&'static str, Vec<u8>)> {
        let one = |t: &&'static str| {
            (*t, std::fs::read(folder.path().join(object(&clang, folder.path(), t))).unwrap())
        };
        targets.iter().map(one).collect()
    };
    let first = common::bundle_of(&objects(&TARGETS));
    let second = common::bundle_of(&objects(&["gfx1010", "gfx1100"]));
    library(&clang, folder.path(), "plain.so", &first);
    assert_eq!(listed(folder.path(), "plain.so"), TARGETS);
    // Two translation units: two bundles in one section.
    library(&clang, folder.path(), "two.so", &[first.clone(), second.clone()].concat());
    assert_eq!(listed(folder.path(), "two.so"), ["gfx1010", "gfx1030", "gfx1100"]);
    for version in 1..=3 {
        for method in 0..=1 {
            let fat = [compress(version, method, &first), compress(version, method, &second)].concat();
            library(&clang, folder.path(), "ccob.so", &fat);
            assert_eq!(
                listed(folder.path(), "ccob.so"),
                ["gfx1010", "gfx1030", "gfx1100"],
                "{version} {method}"
            );
        }
    }
}

/// What the HIP driver itself makes, where its bundler is installed (Debian's clang-tools-19).
#[test]
fn what_the_hip_driver_makes_is_read() {
    let Some(clang) = clang() else { return };
    let folder = tempfile::tempdir().unwrap();
    let source = "__attribute__((device)) int one = 1;\n";
    std::fs::write(folder.path().join("one.hip"), source).unwrap();
    for (name, extra) in [("plain.o", "--no-offload-compress"), ("ccob.o", "--offload-compress")] {
        let mut command = Command::new(&clang);
        command.current_dir(folder.path());
        command.args([
            "-x",
            "hip",
            "-nogpulib",
            "-nogpuinc",
            "-fPIC",
            "-O1",
            "-c",
            "one.hip",
            "-o",
            name,
            extra,
        ]);
        command.args(TARGETS.map(|t| format!("--offload-arch={t}")));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("clang-offload-bundler") {
            println!("not checked: clang-offload-bundler is not installed (Debian: clang-tools-19)");
            return;
        }
        assert!(output.status.success(), "{said}");
        assert_eq!(listed(folder.path(), name), TARGETS, "{name}");
    }
}

#[test]
fn bundles_without_a_library_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("one.co", &common::bundle(&["gfx1010:xnack-", "gfx90a:sramecc+:xnack+", "gfx10-1-generic"]));
    assert_eq!(listed(folder.path(), "one.co"), ["gfx10-1-generic", "gfx1010", "gfx90a"]);
    // Bundles need not follow each other closely.
    let mut far = common::bundle(&["gfx1010"]);
    far.resize(3 << 20, 0);
    far.extend(common::bundle(&["gfx1100"]));
    write("far.co", &far);
    assert_eq!(listed(folder.path(), "far.co"), ["gfx1010", "gfx1100"]);
    common::build(
        folder.path(),
        "kpack /a.kpack gfx1010 gfx1201\npacked /liba.so\nlibrary /libb.so MIOPEN_FIND_MODE\n",
    );
    assert_eq!(listed(folder.path(), "a.kpack"), ["gfx1010", "gfx1201"]);
    assert!(read(folder.path(), "liba.so").packed_elsewhere);
    assert!(!read(folder.path(), "libb.so").packed_elsewhere);
    let system = System::new(folder.path().to_path_buf(), Process::default(), false);
    let names = ["MIOPEN_FIND_MODE", "MIOPEN_FIND", "MIOPEN_WORKSPACE_LIMIT_MB"];
    assert_eq!(code_objects::has_strings(&system, "/libb.so", &names), Some(vec![true, false, false]));
}

#[test]
fn a_gigabyte_costs_headers_only() {
    let folder = tempfile::tempdir().unwrap();
    common::build(folder.path(), "fat /lib.so gfx1010\n");
    // A bundle whose code object is 1 GiB of hole, and another behind it.
    let mut head = common::bundle(&["gfx1030"]);
    let size_at = 24 + 8 + 8;
    head[size_at..size_at + 8].copy_from_slice(&(1u64 << 30).to_le_bytes());
    let path = folder.path().join("large.co");
    std::fs::write(&path, &head).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len((1 << 30) + 8192).unwrap();
    use std::os::unix::fs::FileExt;
    file.write_all_at(&common::bundle(&["gfx1100"]), (1 << 30) + 4096).unwrap();
    let system = System::new(folder.path().to_path_buf(), Process::default(), false);
    system.limit(64 << 10, Duration::from_secs(60));
    let found = code_objects::read(&system, "/large.co").unwrap();
    let targets: Vec<&str> = found.targets.iter().map(String::as_str).collect();
    assert_eq!((targets, found.complete), (vec!["gfx1030", "gfx1100"], true));
    // With less than that to spend, what is missing is not called absent.
    system.limit(4096, Duration::from_secs(60));
    assert!(!code_objects::read(&system, "/large.co").unwrap().complete);
}

#[test]
fn damaged_files_never_panic_and_never_hang() {
    let folder = tempfile::tempdir().unwrap();
    common::build(
        folder.path(),
        "fat /lib.so gfx1010 gfx1030\ndefines /shim.so hipMalloc\nkpack /a.kpack gfx1010\n",
    );
    let system = System::new(folder.path().to_path_buf(), Process::default(), false);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for name in ["lib.so", "shim.so", "a.kpack"] {
        let whole = std::fs::read(folder.path().join(name)).unwrap();
        for round in 0..300 {
            let mut bytes = whole.clone();
            for _ in 0..=round % 7 {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let at = (random >> 33) as usize % bytes.len();
                bytes[at] = (random >> 8) as u8;
            }
            bytes.truncate(bytes.len() - (random >> 40) as usize % (bytes.len() / 2));
            std::fs::write(folder.path().join("damaged"), &bytes).unwrap();
            let _ = code_objects::read(&system, "/damaged");
            let _ = code_objects::has_strings(&system, "/damaged", &["A"]);
            let _ = code_objects::defines(&system, "/damaged", &["hipMalloc"]);
        }
    }
}
