//! What the tests of the binary share.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const LINE: &str = "MIOpenDriver conv -n 1 -c 8 -H 12 -W 12 -k 8 -y 3 -x 3 -p 1 -q 1";

/// The binary with the policy's variables cleared, and with the drivers that are installed.
pub fn with_drivers() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wave32"));
    for name in ["WAVE32_INJECT", "WAVE32_SOLVER", "WAVE32_SKIP", "WAVE32_WORKSPACE", "WAVE32_CONFIG"] {
        command.env_remove(name);
    }
    command
}

/// The binary, with no driver to be found.
pub fn wave32() -> Command {
    let mut command = with_drivers();
    for name in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "WAVE32_HIP_LIBRARY"] {
        command.env(name, nowhere(""));
    }
    command
}

/// `program` with the environment that a command has.
pub fn in_environment_of(command: &Command, program: &str) -> Command {
    let mut other = Command::new(program);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}

/// [`wave32`] with these arguments, which a shell's `script` has as `"$@"`.
pub fn in_shell(script: &str, args: &[&str]) -> Command {
    let command = wave32();
    let mut shell = in_environment_of(&command, "sh");
    shell.args(["-c", script, "sh"]).arg(command.get_program()).args(args);
    shell
}

/// Builds a C program.
pub fn cc(args: &[&str], to: &Path, from: &Path) {
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-o"]).args([to, from]);
    let output = cc.args(args).output().expect("a C compiler, `cc`, is needed for this test");
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Builds a C library.
pub fn build(args: &[&str], to: &Path, from: &Path) {
    cc(&[&["-shared", "-fPIC"], args].concat(), to, from);
}

/// Builds the HIP runtime that stands in for AMD's.
pub fn build_hip(to: &Path) {
    build(&["-pthread"], to, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../hip/tests/standin/hip.c"));
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A path where nothing is: a machine may well have a /nonexistent.
pub fn nowhere(below: &str) -> String {
    let path = std::env::temp_dir().join(format!("wave32-cli-no-such-path-{}", std::process::id()));
    assert!(!path.exists(), "{}", path.display());
    path.join(below).to_str().unwrap().trim_end_matches('/').into()
}

/// A folder of this test alone.
pub fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("wave32-cli-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// One line on standard error, no panic, the exit code.
#[track_caller]
pub fn refused(output: &Output, code: i32, what: &str) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{what}: {text}");
    assert!(text.starts_with("error: ") && text.trim_end().lines().count() == 1, "{what}: {text}");
    assert!(!text.contains("internal error"), "{what}: {text}");
}

/// Sends the process a signal.
#[cfg(unix)]
pub fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

/// Sends the process a signal, twice at once as `timeout` and some shells do.
#[cfg(unix)]
pub fn signal_twice(name: &str, pid: u32) {
    for _ in 0..2 {
        signal(name, pid);
    }
}

/// True where a Vulkan device can be used; `WAVE32_REQUIRE_VULKAN` makes its absence a failure.
pub fn vulkan() -> bool {
    let output = with_drivers().args(["devices", "--json"]).output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let usable = found["vulkan"].as_array().unwrap().iter().any(|d| d["device"]["unusable"].is_null());
    assert!(usable || std::env::var_os("WAVE32_REQUIRE_VULKAN").is_none(), "{found:#}");
    if !usable {
        eprintln!("skipped: no Vulkan device");
    }
    usable
}
