//! What the tests share: the drop-in linked as it ships, C programs linked to it as its clients are, and the virtual card
//! that runs them under AMD's own HIP runtime.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

mod run;

use run::linked;
pub use run::{DEADLINE, Ended, Run, hip, launcher, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The drop-in: `WAVE32_MIOPEN_LIB`, or linked from this build's archive.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if let Some(library) = std::env::var_os("WAVE32_MIOPEN_LIB") {
            return library.into();
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rocm");
        linked("wave32_miopen", folder.join("lib/libMIOpen.so.1"), |_, archive| {
            let script = here().join("../../scripts/rocm.sh");
            let status = Command::new("sh").arg(script).args([&folder, archive]).status();
            assert!(status.unwrap().success(), "scripts/rocm.sh failed");
        })
    })
}

/// A program of `tests/c`, linked to the drop-in and to HIP by their sonames.
pub fn program(name: &str) -> PathBuf {
    let source = here().join("tests/c").join(format!("{name}.c"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
    std::fs::create_dir_all(&folder).unwrap();
    // By a name of its own, then renamed: tests of one file run side by side.
    let (program, new) =
        (folder.join(name), folder.join(format!("{name}.{:?}", std::thread::current().id())));
    let mut compile = Command::new("cc");
    compile
        .args(["-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-pthread", "-o"])
        .arg(&new)
        .arg(source);
    compile.arg(library()).args(hip()).args(["-lm", "-ldl"]);
    let ended = run(compile);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    std::fs::rename(&new, &program).unwrap();
    program
}

/// A list of layers of `tests/c`.
pub fn list(name: &str) -> PathBuf {
    here().join("tests/c").join(name)
}

/// A program of `tests/c` on the strict card, in a home that is empty.
pub fn on_card(launcher: &Path, program: &Path, args: &[&str]) -> Run {
    on_card_within(launcher, program, args, DEADLINE)
}

/// The same with a deadline of its own.
pub fn on_card_within(launcher: &Path, program: &Path, args: &[&str], deadline: Duration) -> Run {
    let folder = library().parent().unwrap().as_os_str();
    Run::of(launcher, program, args, &[("LD_LIBRARY_PATH", folder)], deadline)
}
