//! The real binary on recorded machines and on this one.
#![cfg(unix)]

mod common;
#[path = "../../doctor/tests/common/mod.rs"]
mod tree;

use common::{nowhere, refused, stderr, stdout, wave32, with_drivers};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn recorded(name: &str) -> tempfile::TempDir {
    let trees = Path::new(env!("CARGO_MANIFEST_DIR")).join("../doctor/tests/trees");
    let text = std::fs::read_to_string(trees.join(name).join("tree.txt")).unwrap();
    let root = tempfile::tempdir().unwrap();
    tree::build(root.path(), &text);
    root
}

fn root(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().to_path_buf()
}

#[test]
fn exit_codes_tell_whether_something_is_wrong() {
    for (name, code) in [("clean-native-debian", 0), ("no-gpu", 0), ("rocm6-patched", 1), ("rx5500xt", 1)] {
        let folder = recorded(name);
        let output = wave32().args(["doctor", "--root"]).arg(root(&folder)).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{name}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{name}");
        assert!(stdout(&output).contains("Best here: "), "{name}");
    }
}

#[test]
fn json_holds_verdicts_findings_and_facts() {
    let folder = recorded("rocm57-spoofed");
    // The caller's environment is not the recorded machine's.
    let mut command = wave32();
    command.env("MIOPEN_DEVICE_ARCH", "gfx1030").args(["doctor", "--json", "--root"]).arg(root(&folder));
    let output = command.output().unwrap();
    let value: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(value["verdicts"][0]["state"], "risky");
    assert_eq!(value["best"], "vulkan");
    assert_eq!(value["findings"][0]["fix"]["kind"], "unset-variable");
    assert_eq!(value["facts"]["gpus"][0]["target"], "gfx1010");
    assert!(!stdout(&output).contains("MIOPEN_DEVICE_ARCH\""));
}

#[test]
fn this_machine_is_told_quickly() {
    let start = Instant::now();
    let output = with_drivers().args(["doctor", "--json"]).output().unwrap();
    assert!(start.elapsed() < Duration::from_secs(20), "a busy machine is given time, a hang is not");
    let value: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(value["verdicts"][2]["state"], "ready", "the CPU always works");
    assert_eq!(value["facts"]["live"], true);
    assert!(matches!(output.status.code(), Some(0 | 1)));
}

/// Machines that their owner described: the set under which each worked, and on the first not the one that hung there.
#[test]
fn a_spoof_that_is_asked_for_gets_what_worked_on_such_a_machine() {
    for (name, gemm, implicit) in
        [("rocm52-torch222", "0", "1"), ("rocm52-torch113", "0", "1"), ("rocm57-spoofed", "1", "0")]
    {
        let folder = recorded(name);
        let env = |args: &[&str]| {
            let mut command = wave32();
            command.args(["env", "--route", "rocm", "--shell", "sh", "--root"]).arg(root(&folder)).args(args);
            command.output().unwrap()
        };
        assert_eq!(env(&[]).status.code(), Some(3), "{name}: asked for by name only");
        let output = env(&["--allow-spoof"]);
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", stderr(&output));
        let exports = |name: &str, value: &str| {
            text.lines().any(|line| line.replace('\'', "").starts_with(&format!("export {name}={value}")))
        };
        assert!(exports("HSA_OVERRIDE_GFX_VERSION", "10.3.0"), "{name}: {text}");
        assert!(exports("MIOPEN_DEBUG_CONV_GEMM", gemm), "{name}: {text}");
        assert!(exports("MIOPEN_DEBUG_CONV_IMPLICIT_GEMM", implicit), "{name}: {text}");
        assert_eq!(exports("MIOPEN_DEBUG_CONV_WINOGRAD", "0"), gemm == "1", "{name}: {text}");
    }
    // What is said counts more than what is seen.
    let folder = recorded("rocm52-torch222");
    let mut command = wave32();
    command.args(["env", "--route", "rocm", "--allow-spoof", "--rocm", "5.7", "--root"]).arg(root(&folder));
    assert!(
        stdout(&command.args(["--shell", "sh"]).output().unwrap()).contains("MIOPEN_DEBUG_CONV_WINOGRAD")
    );
}

#[test]
fn a_plan_is_printed_and_nothing_is_run() {
    let folder = recorded("rocm57-spoofed");
    let output = wave32().args(["build-torch", "--plan", "--root"]).arg(root(&folder)).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "headers and tools are missing there");
    for words in ["PYTORCH_ROCM_ARCH=gfx1010", "v2.2.2", "MISSING hipcc", "MISSING rocBLAS code for gfx1010"]
    {
        assert!(stdout(&output).contains(words), "{words}\n{}", stdout(&output));
    }
    let folder = recorded("no-gpu");
    let plan = |args: &[&str]| {
        wave32().args(["build-torch", "--root"]).arg(root(&folder)).args(args).output().unwrap()
    };
    refused(&plan(&["--plan"]), 3, "no card");
    refused(&plan(&["--plan", "--target", "1010"]), 2, "no target");
    refused(&plan(&[]), 2, "no --plan");
    assert_eq!(plan(&["--plan", "--target", "gfx1012"]).status.code(), Some(1));
}

#[test]
fn a_fix_is_shown_made_and_undone() {
    let folder = recorded("rocm57-spoofed");
    let state = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let mut command = wave32();
        command.env("HOME", "/home/ada").env("XDG_STATE_HOME", state.path()).args(words);
        command.arg("--root").arg(root(&folder)).output().unwrap()
    };
    let cache = folder.path().join("home/ada/.cache/miopen/2.20.0.a1b2c3");
    refused_without_consent(&run(&["doctor", "--fix"]));
    assert!(cache.exists());
    let output = run(&["doctor", "--fix", "--yes"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("left to you:") && !cache.exists(), "{}", stdout(&output));
    assert_eq!(run(&["undo", "--yes"]).status.code(), Some(0));
    assert!(cache.exists());
}

/// Nobody is there to be asked.
#[track_caller]
fn refused_without_consent(output: &std::process::Output) {
    assert_eq!(output.status.code(), Some(2), "{}", stderr(output));
    assert!(stderr(output).contains("--yes"), "{}", stderr(output));
}

#[test]
fn a_record_that_is_no_file_or_endless_is_refused() {
    let folder = recorded("no-gpu");
    let file = folder.path().join("wave32-machine.json");
    let _ = std::fs::remove_file(&file);
    let run = || wave32().args(["doctor", "--root"]).arg(root(&folder)).output().unwrap();
    let begin = Instant::now();
    let made = std::process::Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(made.success());
    refused(&run(), 2, "a FIFO");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    refused(&run(), 2, "a folder");
    std::fs::remove_dir(&file).unwrap();
    std::fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
    refused(&run(), 2, "a sparse file");
    std::fs::remove_file(&file).unwrap();
    // Its own /dev/zero is meant, which a recorded tree does not have.
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    assert_eq!(run().status.code(), Some(0), "{}", stderr(&run()));
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn roots_that_are_none_are_refused() {
    refused(&wave32().args(["doctor", "--root", &nowhere("")]).output().unwrap(), 2, "no folder");
    refused(&wave32().args(["doctor", "--root", "/etc/passwd"]).output().unwrap(), 2, "a file");
}
