//! Standard output and standard error that are full, closed or read by nobody: never an abort, never exit code 0 with
//! output that was lost. And files that reports go to.
#![cfg(target_os = "linux")]

mod common;

use common::{LINE, folder, in_shell, nowhere, stderr, stdout, wave32};
use std::fs::{File, OpenOptions};
use std::process::{Output, Stdio};

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

/// Standard error whose reader is gone.
fn broken() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// With its standard error closed before it starts.
fn closed(args: &[&str]) -> Output {
    in_shell("exec \"$@\" 2>&-", args).output().unwrap()
}

#[test]
fn standard_error_that_takes_nothing_changes_no_exit_code() {
    let missing = nowhere("");
    let folder = folder("stderr");
    let html = folder.join("page.html");
    let cases: [(&[&str], i32); 8] = [
        (&["explain", "nonsense"], 2),
        (&["run", "--route", "cpu", "--", &missing], 127),
        (&["verify", LINE, "--direction", "fwd", "--device", "cpu", "--html", html.to_str().unwrap()], 0),
        (&["verify", LINE, "--device", "vulkan"], 3),
        (&["probe", "seeds", "--library", &missing], 3),
        (&["bench", "no-such-suite"], 2),
        (&["--frobnicate"], 2),
        (&[], 2),
    ];
    for (args, code) in cases {
        for (how, output) in [
            ("full", wave32().args(args).stderr(full()).output().unwrap()),
            ("unread", wave32().args(args).stderr(broken()).output().unwrap()),
            ("closed", closed(args)),
        ] {
            assert_eq!(output.status.code(), Some(code), "{how}: {args:?}: {:?}", output.status);
        }
    }
    assert!(std::fs::read_to_string(&html).unwrap().contains("ALL RIGHT"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn output_that_is_lost_is_an_error() {
    let home = folder("lost-home");
    let lines = home.join("lines.txt");
    std::fs::write(&lines, LINE).unwrap();
    let lines = lines.to_str().unwrap();
    let cases: [&[&str]; 19] = [
        &["--help"],
        &["--version"],
        &["devices"],
        &["devices", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["explain", LINE],
        &["explain", LINE, "--json"],
        &["check", lines],
        &["check", lines, "--json"],
        &["env", "--route", "cpu"],
        &["env", "--route", "cpu", "--json"],
        &["verify", LINE, "--direction", "fwd", "--device", "cpu"],
        &["verify", LINE, "--direction", "fwd", "--device", "cpu", "--json", "-"],
        &["bench", LINE, "--direction", "fwd", "--device", "cpu", "--reps", "1"],
        &["run", "--route", "cpu", "--dry-run", "--", "true"],
        &["undo", "--list"],
        &["miopen", "status", "--json"],
        &["apply", "--route", "cpu", "--to", "bash", "--yes"],
    ];
    for args in cases {
        let output = wave32().args(args).env("HOME", &home).stdout(full()).output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {text}");
        let last = text.trim_end().lines().last().unwrap_or_default();
        assert!(last.starts_with("error: cannot write to standard output: "), "{args:?}: {text}");
    }
    assert!(!home.join(".bashrc").exists(), "what could not be shown was done");
    // A reader that left wants no more, and that is no error.
    let output = wave32().args(["explain", LINE]).stdout(broken()).output().unwrap();
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    std::fs::remove_dir_all(&home).unwrap();
}

#[test]
fn a_report_is_kept_where_the_table_cannot_be_shown() {
    let folder = folder("kept");
    let json = folder.join("r.json");
    let args = ["verify", LINE, "--direction", "fwd", "--device", "cpu", "--json"];
    let output = wave32().args(args).arg(&json).stdout(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["rows"][0]["outcome"]["verdict"], "PASS");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_minus_is_standard_output_for_every_report() {
    let folder = folder("minus");
    let verify = ["verify", LINE, "--direction", "fwd", "--device", "cpu"];
    let bench = ["bench", LINE, "--direction", "fwd", "--device", "cpu", "--reps", "1"];
    for (args, flag, begin) in
        [(&verify[..], "--html", "<!doctype html>"), (&verify, "--json", "{"), (&bench, "--svg", "<svg")]
    {
        let output = wave32().args(args).args([flag, "-"]).current_dir(&folder).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{flag}: {}", stderr(&output));
        assert!(stdout(&output).starts_with(begin), "{flag}: {}", stdout(&output));
        assert!(stderr(&output).contains("cpu"), "{flag}: the table is missing: {}", stderr(&output));
    }
    for (args, other) in [(&verify[..], "--html"), (&bench, "--svg")] {
        let output = wave32().args(args).args(["--json", "-", other, "-"]).output().unwrap();
        common::refused(&output, 2, other);
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "a file was made");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_report_follows_no_link_that_was_laid() {
    let folder = folder("links");
    let (victim, report) = (folder.join("victim"), folder.join("r.json"));
    std::fs::write(&victim, "mine").unwrap();
    std::os::unix::fs::symlink(&victim, &report).unwrap();
    let output = wave32()
        .args(["verify", LINE, "--direction", "fwd", "--device", "cpu", "--json"])
        .arg(&report)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
    assert!(std::fs::symlink_metadata(&report).unwrap().is_file());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_report_to_what_is_open_already_does_not_replace_it() {
    // As /dev/stdout is: a link that leads through /proc to the file that standard output is.
    let folder = folder("open");
    let (link, out) = (folder.join("stdout"), folder.join("out.txt"));
    std::os::unix::fs::symlink("/proc/self/fd/1", &link).unwrap();
    let output = wave32()
        .args(["verify", LINE, "--direction", "fwd", "--device", "cpu", "--json"])
        .arg(&link)
        .stdout(OpenOptions::new().append(true).create(true).open(&out).unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(link.is_symlink(), "it was replaced");
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(text.contains("ALL RIGHT") && text.contains("\"rows\""), "{text}");
    std::fs::remove_dir_all(&folder).unwrap();
}
