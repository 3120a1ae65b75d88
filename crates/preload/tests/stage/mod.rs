//! What the tests share: programs are compiled here and run with a deadline, with and without the library.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Seconds that a compiler or a program may take, on a busy machine too.
const DEADLINE: &str = "300";

/// How a program ended: exit status, stdout, stderr.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    pub fn passed(&self) -> bool {
        self.code == Some(0) && self.out.ends_with("passed\n")
    }
}

/// The command, ended after the deadline.
pub fn timed(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", DEADLINE]).arg(program);
    // What this process has of them is not meant.
    for name in ["WAVE32_COARSE", "WAVE32_LOG", "LD_PRELOAD", "HSA_FORCE_FINE_GRAIN_PCIE"] {
        command.env_remove(name);
    }
    command
}

pub fn ended(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    Ended {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The library, which cargo puts beside this test.
pub fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("libwave32_preload.so");
    assert!(library.is_file(), "{} is missing", library.display());
    library
}

/// The launcher of the virtual card: `WAVE32_VGPU`, or where `make vgpu-host` puts it. None if HIP's compiler or the card
/// is missing, which is an error where they must be there.
pub fn launcher() -> Option<PathBuf> {
    let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
    let launcher =
        std::env::var_os("WAVE32_VGPU").map_or_else(|| target.join("vgpu/wave32-vgpu"), PathBuf::from);
    let hipcc = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|folder| folder.join("hipcc").is_file());
    let found = launcher.is_file() && hipcc;
    if !found {
        let must = std::env::var_os("WAVE32_REQUIRE_COMPILERS").is_some();
        assert!(!must, "hipcc or {} is missing: make vgpu-host", launcher.display());
        eprintln!("skipped: hipcc or {} is missing (make vgpu-host)", launcher.display());
    }
    found.then_some(launcher)
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

fn stock() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vgpu/tests/hip")
}

fn compile(command: &mut Command, source: &Path, out: &Path) {
    let ended = ended(command.arg(source).arg("-o").arg(out));
    assert_eq!(ended.code, Some(0), "{}: {}", source.display(), ended.err);
}

/// Compiles a program of `programs`, or one of the virtual card's own, for gfx1010 into `folder`.
pub fn hip(folder: &Path, name: &str) -> PathBuf {
    let file = format!("{name}.hip");
    let own = programs().join(&file);
    let source = if own.is_file() { own } else { stock().join(&file) };
    let text = std::fs::read_to_string(&source).unwrap();
    let flags = text.lines().find_map(|line| line.strip_prefix("// flags: ")).unwrap_or_default();
    let out = folder.join(name);
    let mut command = timed("hipcc");
    command.env("HIP_PLATFORM", "amd").args([
        "--offload-arch=gfx1010",
        "-O1",
        "-std=c++17",
        "-Wall",
        "-Werror",
    ]);
    compile(command.args(flags.split_whitespace()).arg("-I").arg(stock()), &source, &out);
    out
}

/// Compiles a C program with these options; `-shared` makes a library of it.
pub fn c(folder: &Path, name: &str, out: &str, before: &[&str], after: &[&str]) -> PathBuf {
    let out = folder.join(out);
    let mut command = timed("cc");
    command.args(["-O1", "-Wall", "-Werror", "-fPIC"]).args(before);
    command.arg(programs().join(format!("{name}.c"))).args(after);
    let ended = ended(command.arg("-o").arg(&out));
    assert_eq!(ended.code, Some(0), "{name}: {}", ended.err);
    out
}
