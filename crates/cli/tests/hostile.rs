//! What others made: endless files, pipes, names that speak to the terminal, drivers that print without end, and a
//! system that gives no more threads.
#![cfg(target_os = "linux")]

mod common;

use common::{LINE, build, folder, in_shell, refused, stderr, stdout, wave32, with_drivers};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Ends by itself soon; the limit is far above what a busy machine needs, and far below what a hang takes.
#[track_caller]
fn soon(command: &mut Command, what: &str) -> Output {
    let begin = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("{what}: no end in a minute: {}", stderr(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

fn mkfifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn endless_and_huge_files_are_refused() {
    let folder = folder("endless");
    let sparse = folder.join("sparse");
    std::fs::File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
    let onnx = folder.join("sparse.onnx");
    std::fs::File::create(&onnx).unwrap().set_len(1 << 40).unwrap();
    for file in [Path::new("/dev/zero"), Path::new("/dev/urandom"), &sparse, &onnx] {
        let file = file.to_str().unwrap();
        for args in [
            &["verify", file, "--device", "cpu"][..],
            &["bench", file, "--device", "cpu"],
            &["check", file],
            &["probe", file],
            &["bench", "--compare", file, file],
        ] {
            let what = args.join(" ");
            let output = soon(wave32().args(args), &what);
            refused(&output, 2, &what);
            let text = stderr(&output);
            assert!(text.contains("larger than") || text.contains("zero bytes"), "{what}: {text}");
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_pipe_of_lines_is_read() {
    let folder = folder("pipe");
    let pipe = folder.join("lines");
    mkfifo(&pipe);
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::write(pipe, format!("{LINE} -F 1\n")).unwrap()
    });
    let output = soon(wave32().args(["verify", "--device", "cpu"]).arg(&pipe), "a pipe");
    writer.join().unwrap();
    assert!(stdout(&output).contains("ALL RIGHT: 1 passed"), "{}{}", stdout(&output), stderr(&output));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn marks_of_windows_editors_are_dropped_or_named() {
    let folder = folder("marks");
    let text = format!("{LINE} -F 1\r\n");
    let with_mark = folder.join("bom.txt");
    std::fs::write(&with_mark, format!("\u{feff}{text}")).unwrap();
    for word in [with_mark.to_str().unwrap(), &format!("\u{feff}{LINE} -F 1")] {
        let output = wave32().args(["verify", "--device", "cpu", word]).output().unwrap();
        assert!(stdout(&output).contains("ALL RIGHT: 1 passed"), "{}{}", stdout(&output), stderr(&output));
    }
    for (mark, bytes) in [(0xfeffu16, u16::to_le_bytes as fn(u16) -> [u8; 2]), (0xfeff, u16::to_be_bytes)] {
        let wide: Vec<u8> = std::iter::once(mark).chain(text.encode_utf16()).flat_map(bytes).collect();
        let file = folder.join("utf16.txt");
        std::fs::write(&file, wide).unwrap();
        for command in ["verify", "check"] {
            let output = wave32().arg(command).arg(&file).output().unwrap();
            refused(&output, 2, command);
            assert!(stderr(&output).contains("UTF-16; save it as UTF-8"), "{}", stderr(&output));
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// No character that a terminal acts on, but line ends and tabs.
#[track_caller]
fn harmless(output: &Output, what: &str) {
    let text = stdout(output) + &stderr(output);
    let bad = text.chars().find(|&c| c.is_control() && !matches!(c, '\n' | '\t') || c == '\u{202e}');
    assert_eq!(bad, None, "{what}: {text:?}");
}

/// A protobuf field of bytes.
fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 128);
    [&[tag << 3 | 2, bytes.len() as u8], bytes].concat()
}

#[test]
fn names_of_others_do_not_speak_to_the_terminal() {
    let folder = folder("names");
    // A graph with one convolution of an unknown input, whose name clears the screen, breaks the line and turns the text.
    let name = "evil\u{1b}[2J\nFAKE 0 convolutions\u{9b}31m\u{202e}";
    let node = [field(1, b"x"), field(1, b"w"), field(2, b"y"), field(3, name.as_bytes()), field(4, b"Conv")];
    let model = field(7, &field(1, &node.concat()));
    let file = folder.join("m.onnx");
    std::fs::write(&file, model).unwrap();
    let output = wave32().arg("check").arg(&file).output().unwrap();
    harmless(&output, "check");
    let text = stdout(&output);
    assert!(text.contains("evil\\u{1b}[2J\\nFAKE") && !text.contains("\nFAKE"), "{text}");
    for args in
        [&["verify", "\u{1b}[31mred\u{7}"][..], &["explain", "a\u{1b}]0;title\u{7}b"], &["\u{1b}[31m"]]
    {
        let output = wave32().args(args).output().unwrap();
        refused(&output, 2, "an argument");
        harmless(&output, "an argument");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_was_pasted_by_mistake_is_not_repeated_whole() {
    let huge = "nonsense".repeat(12_500);
    let words = "conv of nothing ".repeat(6_000);
    for args in [
        &["verify", &huge][..],
        &["verify", &words],
        &["explain", &huge],
        &["check", &huge],
        &["probe", &huge],
        &["verify", LINE, "--device", &huge],
        &["explain", LINE, "--card", &huge],
        &["env", "--card", &huge],
        &["run", "--route", "cpu", "--", &huge],
        &[&huge],
    ] {
        let output = wave32().args(args).output().unwrap();
        let text = stderr(&output);
        assert!(!output.status.success() && text.len() < 10_000, "{} bytes: {:.300}", text.len(), text);
        assert_eq!(text.trim_end().lines().count(), 1, "{text:.300}");
    }
}

#[test]
fn an_empty_card_is_not_the_default_one() {
    for command in ["check", "explain"] {
        for card in ["", " "] {
            let output = wave32().args([command, LINE, "--card", card]).output().unwrap();
            refused(&output, 2, command);
            assert!(stderr(&output).contains("empty"), "{}", stderr(&output));
        }
    }
}

/// Where the system gives no thread, in a shell with that limit.
fn limited(limit: &str, args: &[&str]) -> Output {
    soon(&mut in_shell(&format!("{limit}; exec \"$@\""), args), &args.join(" "))
}

#[test]
fn no_more_threads_is_told_in_one_line() {
    // A thread's stack is data, which is limited here to what the program itself needs.
    for limit in ["ulimit -d 4000", "ulimit -d 10000", "ulimit -u 1"] {
        for args in [
            &["devices"][..],
            &["doctor"],
            &["verify", LINE, "--device", "cpu"],
            &["verify", LINE],
            &["run", "--route", "cpu", "--hang-timeout", "60", "--", "true"],
        ] {
            let output = limited(limit, args);
            let (text, what) = (stderr(&output), format!("{limit}: {}", args.join(" ")));
            assert!(!text.contains("internal error") && !text.contains("panicked"), "{what}: {text}");
            assert!(
                output.status.code().is_some_and(|code| code < 128),
                "{what}: {:?} {text}",
                output.status
            );
            if !output.status.success() {
                let all = text + &stdout(&output);
                let said = all.contains("ulimit") || all.contains("memory") || args[0] == "doctor";
                assert!(said, "{what}: {all}");
            }
        }
    }
}

#[test]
fn a_driver_that_prints_without_end_takes_no_memory_of_ours() {
    let folder = folder("flood");
    let (source, library) = (folder.join("flood.c"), folder.join("libflood.so"));
    // Loaded as AMD's runtime: it writes to standard output, never a line, until nobody reads it.
    let text = "#include <string.h>\n#include <unistd.h>\n__attribute__((constructor)) static void flood(void) {\n\
                static char bytes[65536]; memset(bytes, 'x', sizeof bytes);\n\
                for (int i = 0; i < 32768; i++) if (write(1, bytes, sizeof bytes) < 0) _exit(1);\n_exit(1); }\n";
    std::fs::write(&source, text).unwrap();
    build(&[], &library, &source);
    let mut command = wave32();
    command.arg("devices").env("WAVE32_HIP_LIBRARY", &library).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (begin, mut most) = (Instant::now(), 0);
    while child.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < Duration::from_secs(100), "no end");
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
        most = most.max(kib.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    assert!(stdout(&output).contains("route rocm\n  none: "), "{}{}", stdout(&output), stderr(&output));
    // Two GiB were written.
    assert!(most > 0 && most < 300 << 10, "{most} KiB");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_pipe_in_the_place_of_the_pipeline_cache_is_not_waited_for() {
    let folder = folder("cache-pipe");
    let run = || {
        let mut command = with_drivers();
        command.args(["verify", LINE, "--direction", "fwd", "--device", "vulkan"]);
        soon(command.env("XDG_CACHE_HOME", &folder), "verify")
    };
    let first = run();
    if first.status.code() == Some(3) && std::env::var_os("WAVE32_REQUIRE_VULKAN").is_none() {
        return eprintln!("skipped: no Vulkan device");
    }
    let files: Vec<_> =
        std::fs::read_dir(folder.join("wave32")).unwrap().map(|entry| entry.unwrap().path()).collect();
    for file in &files {
        std::fs::remove_file(file).unwrap();
        mkfifo(file);
    }
    let again = run();
    assert!(stdout(&again).contains("ALL RIGHT: 1 passed"), "{}{}", stdout(&again), stderr(&again));
    std::fs::remove_dir_all(&folder).unwrap();
}
