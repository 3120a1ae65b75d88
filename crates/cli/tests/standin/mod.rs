//! A HIP runtime, a MIOpen and a program that uses them, for tests without a card: see the C files.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the libraries in a folder of the test's own; the MIOpen's path.
pub fn libraries(folder: &Path) -> PathBuf {
    let miopen = folder.join("libMIOpen.so.1");
    let shared = ["-shared", "-fPIC"];
    cc(
        "hip.c",
        &folder.join("libamdhip64.so"),
        &[&shared[..], &["-pthread", "-Wl,-soname,libamdhip64.so"]].concat(),
    );
    let link = format!("-L{}", folder.display());
    let hip = [
        link.as_str(),
        "-Wl,--no-as-needed",
        "-lamdhip64",
        "-Wl,-rpath,$ORIGIN",
        "-Wl,-soname,libMIOpen.so.1",
    ];
    cc("miopen.c", &miopen, &[&shared[..], &hip].concat());
    miopen
}

/// Builds the libraries and the program; the program's path. It finds them beside it.
pub fn program(folder: &Path) -> PathBuf {
    libraries(folder);
    let net = folder.join("net");
    let link = format!("-L{}", folder.display());
    cc("net.c", &net, &[&link, "-l:libMIOpen.so.1", "-lamdhip64", "-Wl,-rpath,$ORIGIN"]);
    net
}

fn cc(source: &str, to: &Path, flags: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin").join(source);
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-o"]).arg(to).arg(source).args(flags);
    let output = cc.output().expect("a C compiler, `cc`, is needed for this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
