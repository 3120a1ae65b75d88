//! The real binary where the machine is against it: no driver, no space, no folder, broken caches, signals,
//! neighbours.

mod common;

use common::{LINE, folder, nowhere, refused, stderr, stdout, vulkan, wave32, with_drivers};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

#[test]
fn reports_into_folders_that_are_not_there_are_refused_and_make_none() {
    let folder = folder("nowhere");
    let missing = folder.join("not/there");
    let file = missing.join("x.json");
    let file = file.to_str().unwrap();
    for args in [
        &["verify", LINE, "--device", "cpu", "--json", file][..],
        &["verify", LINE, "--device", "cpu", "--html", file],
        &["bench", LINE, "--device", "cpu", "--json", file],
        &["bench", LINE, "--device", "cpu", "--svg", file],
    ] {
        let output = wave32().args(args).output().unwrap();
        refused(&output, 2, &args.join(" "));
        assert!(stderr(&output).contains("make it first"), "{}", stderr(&output));
        assert!(!folder.join("not").exists(), "{args:?} made a folder");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The last line is the error; there is no panic.
fn ended_badly(output: &Output, words: &str) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let last = text.trim_end().lines().last().unwrap_or_default();
    assert!(last.starts_with("error: ") && last.contains(words), "{text}");
    assert!(!text.contains("internal error"), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_after_the_table() {
    for args in [
        ["verify", LINE, "--device", "cpu", "--json", "/dev/full"],
        ["verify", LINE, "--device", "cpu", "--html", "/dev/full"],
        ["bench", LINE, "--device", "cpu", "--json", "/dev/full"],
    ] {
        ended_badly(&wave32().args(args).output().unwrap(), "/dev/full");
    }
}

#[test]
fn bench_refuses_what_it_cannot_use() {
    for (args, code) in [
        (&["bench", LINE, "--device", "gpu"][..], 3),
        (&["bench", LINE, "--device", "vulkan:x"], 3),
        (&["bench", LINE, "--device", "vulkan:99"], 3),
        (&["bench", LINE, "--device", "vulkan"], 3),
        (&["bench", "no-such-suite", "--device", "cpu"], 2),
        (&["bench", LINE, "--device", "cpu", "--reps", "0"], 2),
        (&["bench", LINE, "--device", "cpu", "--deadline", "0"], 2),
        (&["bench", LINE, "--device", "cpu", "--solver", "magic"], 2),
        (&["bench", LINE, "--device", "cpu", "--max-gflop", "1e-9"], 2),
        (&["bench", "--compare", &nowhere("a.json"), &nowhere("b.json")], 2),
        (&["explain"], 2),
        (&["verify", "--device", "cpu", "--", "--json"], 2),
        (&["devices", "--frobnicate"], 2),
    ] {
        let output = wave32().args(args).output().unwrap();
        refused(&output, code, &args.join(" "));
    }
}

#[cfg(unix)]
#[test]
fn a_signal_leaves_a_partial_bench_report() {
    let folder = folder("bench-signal");
    for name in ["-INT", "-TERM"] {
        let json = folder.join(format!("r{name}.json"));
        let child = wave32()
            .args(["bench", "seeds", "nets", "--device", "cpu", "--json"])
            .arg(&json)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_secs(2));
        let begin = Instant::now();
        common::signal_twice(name, child.id());
        let output = child.wait_with_output().unwrap();
        assert!(begin.elapsed() < Duration::from_secs(20), "took {:?} to stop", begin.elapsed());
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stdout(&output).contains("interrupted with"), "{}", stdout(&output));
        let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert!(report["ended_early"].as_str().unwrap().starts_with("interrupted with"), "{report:#}");
        assert!(!report["rows"].as_array().unwrap().is_empty());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Verifies one problem on the best Vulkan device, the pipeline cache under `cache`.
fn on_vulkan(cache: &Path) -> Command {
    let mut command = with_drivers();
    command.args(["verify", LINE, "--direction", "fwd", "--device", "vulkan"]).env("XDG_CACHE_HOME", cache);
    command
}

fn passes(mut command: Command, what: &str) {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{what}: {}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("ALL RIGHT: 1 passed"), "{what}: {}", stdout(&output));
}

/// The pipeline cache's file, the only one there.
fn cache_file(cache: &Path) -> std::path::PathBuf {
    let mut files: Vec<_> =
        std::fs::read_dir(cache.join("wave32")).unwrap().map(|f| f.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

#[test]
fn broken_and_missing_caches_cost_only_time() {
    if !vulkan() {
        return;
    }
    let folder = folder("cache");
    passes(on_vulkan(&folder), "no cache yet");
    let file = cache_file(&folder);
    let good = std::fs::read(&file).unwrap();
    for (bytes, what) in [
        (&b"garbage, not a cache"[..], "garbage"),
        (&good[..good.len() / 2], "a half"),
        (&good[..7], "seven bytes"),
        (&b""[..], "nothing"),
    ] {
        std::fs::write(&file, bytes).unwrap();
        passes(on_vulkan(&folder), what);
        assert!(std::fs::read(cache_file(&folder)).unwrap().len() > 100, "{what}: rewritten");
    }
    // A file where the folder should be: nobody, root included, can write below it.
    let blocked = folder.join("file");
    std::fs::write(&blocked, b"in the way").unwrap();
    passes(on_vulkan(&blocked), "cache folder that cannot be made");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn two_at_once_share_one_cache() {
    if !vulkan() {
        return;
    }
    let folder = folder("two");
    let start = || on_vulkan(&folder).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let children: Vec<_> = (0..3).map(|_| start()).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    }
    cache_file(&folder);
    std::fs::remove_dir_all(&folder).unwrap();
}
