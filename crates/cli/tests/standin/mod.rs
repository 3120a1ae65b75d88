//! A HIP runtime, a MIOpen and a program that uses them, for tests without a card: see the C files.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};

/// Builds the libraries in a folder of the test's own; the MIOpen's path.
pub fn libraries(folder: &Path) -> PathBuf {
    let miopen = folder.join("libMIOpen.so.1");
    crate::common::build_hip(&folder.join("libamdhip64.so"));
    let link = format!("-L{}", folder.display());
    let hip = [
        link.as_str(),
        "-Wl,--no-as-needed",
        "-lamdhip64",
        "-Wl,-rpath,$ORIGIN",
        "-Wl,-soname,libMIOpen.so.1",
    ];
    crate::common::build(&hip, &miopen, &source("miopen.c"));
    miopen
}

/// Builds the libraries and the program; the program's path. It finds them beside it.
pub fn program(folder: &Path) -> PathBuf {
    libraries(folder);
    let net = folder.join("net");
    let link = format!("-L{}", folder.display());
    crate::common::cc(
        &[&link, "-l:libMIOpen.so.1", "-lamdhip64", "-Wl,-rpath,$ORIGIN"],
        &net,
        &source("net.c"),
    );
    net
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin").join(name)
}
