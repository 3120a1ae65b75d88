//! A program that calls the card with null, wild, misaligned, huge and overlapping arguments: each call answers with an
//! errno, as the kernel driver's do, and nothing ends the process.

#[allow(dead_code)] // the other tests use the rest
mod card;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use card::{launcher, missing, run};

const DEADLINE: Duration = Duration::from_secs(120);

/// The program, compiled; none without a compiler.
fn program(folder: &Path) -> Option<PathBuf> {
    if missing("cc") {
        return None;
    }
    let out = folder.join("kfd_misuse");
    // The kernel's header wants one that Debian leaves to libdrm, for the names of integers only.
    std::fs::create_dir(folder.join("drm")).unwrap();
    std::fs::write(folder.join("drm/drm.h"), "#include <linux/types.h>\n").unwrap();
    let mut command = Command::new("cc");
    command.args(["-O1", "-Wall", "-Werror", "-I"]).arg(folder).arg("-o").arg(&out);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/kfd_misuse.c")).arg("-ldl");
    let ended = run(command, DEADLINE);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    Some(out)
}

fn seed() -> String {
    std::env::var("WAVE32_SEED").unwrap_or_else(|_| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        (now.as_nanos() as u32).to_string()
    })
}

#[test]
fn every_wrong_call_is_an_errno() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(folder.path()) else { return };
    for card in ["rx5600xt", "rx5500xt-4gb"] {
        let mut command = launcher();
        command.args(["run", "--card", card, "--"]).arg(&program).arg(seed());
        let ended = run(command, DEADLINE);
        assert!(ended.code == Some(0) && ended.stdout.ends_with("passed\n"), "{ended:?}");
    }
}

/// What the card says, traces of each call here, goes to a pipe that nobody reads, or to a full disk.
#[test]
fn a_lost_stderr_is_no_reason_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(folder.path()) else { return };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for stderr in [Stdio::from(writer), Stdio::from(full)] {
        let mut command = launcher();
        command.env("WAVE32_VGPU_TRACE", "1").args(["run", "--"]).arg(&program).arg(seed());
        let output = command.stdin(Stdio::null()).stderr(stderr).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.ends_with("passed\n"), "{:?}: {said}", output.status);
    }
}
