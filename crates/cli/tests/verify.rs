//! The real binary, with faults planted in its children, and with bad input.

mod common;

use common::{LINE, folder, refused, stderr, stdout, vulkan, wave32, with_drivers};
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Runs verify on the CPU with a JSON report; the exit code and the report.
fn report(plant: &str, args: &[&str]) -> (Option<i32>, Value) {
    let output = wave32()
        .args(["verify", "--device", "cpu", "--json", "-"])
        .args(args)
        .env("WAVE32_INJECT", plant)
        .output()
        .unwrap();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("no report ({e}): {}{}", stdout(&output), stderr(&output)));
    (output.status.code(), report)
}

fn verdicts(report: &Value) -> Vec<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap().to_string();
    report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (text(&r["line"]), text(&r["outcome"]["verdict"])))
        .collect()
}

#[test]
fn planted_faults_get_their_verdicts_and_the_rest_passes() {
    let lines: Vec<String> =
        (20..27).map(|h| format!("MIOpenDriver conv -n 1 -c 8 -H {h} -W 12 -k 8 -y 3 -x 3 -F 1")).collect();
    let mut args: Vec<&str> = lines.iter().map(String::as_str).collect();
    args.extend(["--deadline", "6", "--memory-cap", "300M", "--seed", "11"]);
    let plant = "hang:-H 20,crash:-H 21,wrong:-H 22,oom:-H 23,flaky:-H 24,lost:-H 25";
    let begin = Instant::now();
    let (code, report) = report(plant, &args);
    assert!(begin.elapsed() < Duration::from_secs(30), "took {:?}", begin.elapsed());
    assert_eq!(code, Some(1));
    let found: Vec<String> = verdicts(&report).into_iter().map(|(_, v)| v).collect();
    assert_eq!(found, ["HANG", "CRASH", "WRONG", "OUT_OF_MEMORY", "WRONG", "DEVICE_LOST", "PASS"]);
    let row = |i: usize| &report["rows"][i];
    assert!(
        row(4)["outcome"]["detail"].as_str().unwrap().contains("two runs differ in 1 outputs"),
        "{}",
        row(4)
    );
    assert!(row(2)["outcome"]["detail"].as_str().unwrap().contains("1 of "), "{}", row(2));
    for i in 0..6 {
        let repro = row(i)["repro"].as_str().unwrap();
        assert!(
            repro.starts_with("wave32 verify 'MIOpenDriver conv ")
                && repro.contains("--device cpu --seed 11"),
            "{repro}"
        );
    }
    assert!(row(6)["repro"].is_null());
}

#[test]
fn what_is_too_large_for_a_full_reference_is_proved_by_sums_and_samples() {
    // 0.11 GFLOP: above what the oracle computes in full.
    let large = "MIOpenDriver conv -n 4 -c 64 -H 20 -W 20 -k 64 -y 3 -x 3 -p 1 -q 1";
    for (plant, words) in [
        ("", ""),
        ("wrong:-H 20", "integer check: "),
        ("tile:-H 20", "integer check: "),
        ("channel:-H 20", "integer check: "),
    ] {
        let (code, report) = report(plant, &[large, "--repeat", "0"]);
        assert_eq!(code, Some(i32::from(!plant.is_empty())), "{plant}: {report:#}");
        for row in report["rows"].as_array().unwrap() {
            let outcome = &row["outcome"];
            let text = |key: &str| outcome[key].as_str().unwrap().to_string();
            assert_eq!(text("verdict"), if plant.is_empty() { "PASS" } else { "WRONG" }, "{plant}: {row}");
            assert!(text("detail").contains(words), "{plant}: {row}");
            assert!(text("exact_against").starts_with("exact sums over all "), "{row}");
            if plant.is_empty() {
                assert!(text("close_against").contains("it does not see"), "{row}");
                assert!(outcome["phases"]["runs_s"].as_f64().unwrap() > 0.0, "{row}");
            }
        }
    }
    let output = wave32().args(["verify", large, "--device", "cpu", "--direction", "fwd"]).output().unwrap();
    assert!(stdout(&output).contains("too large to be compared output by output"), "{}", stdout(&output));
}

#[test]
fn a_repro_reproduces() {
    let (_, first) = report("wrong:-H 12", &[LINE, "--direction", "wrw"]);
    let repro = first["rows"][0]["repro"].as_str().unwrap();
    // `wave32 verify 'LINE' --device cpu --seed N`, as a shell would split it.
    let [_, line, rest]: [&str; 3] = repro.splitn(3, '\'').collect::<Vec<_>>().try_into().unwrap();
    let flags: Vec<&str> = rest.split_whitespace().collect();
    let output = wave32()
        .args(["verify", line, "--json", "-"])
        .args(flags)
        .env("WAVE32_INJECT", "wrong:-H 12")
        .output()
        .unwrap();
    let again: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(again["rows"][0]["outcome"]["detail"], first["rows"][0]["outcome"]["detail"]);
    assert_eq!(again["rows"].as_array().unwrap().len(), 1);
}

#[test]
fn clean_problems_exit_zero_in_every_type_and_pass() {
    let (code, report) = report("", &[LINE, "fuzz:12", "--dtype", "f32,f16,bf16"]);
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(report["rows"].as_array().unwrap().len(), 9 + 12);
}

#[test]
fn fuzz_shrinks_what_fails() {
    let (code, report) = report("wrong:MIOpenDriver", &["fuzz:1:4", "--direction", "fwd", "--dtype", "f32"]);
    assert_eq!(code, Some(1));
    let shrunk = report["rows"][0]["shrunk"].as_str().unwrap();
    // Every problem fails, so the smallest one there is must come out.
    assert!(shrunk.contains("-n 1 -c 1 -H 1 -W 1 -k 1 -y 1 -x 1"), "{shrunk}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_leaves_a_readable_partial_report() {
    let folder = folder("interrupt");
    let (json, html) = (folder.join("r.json"), folder.join("r.html"));
    let child = wave32()
        .args(["verify", LINE, "fuzz:500:3", "--device", "cpu", "--deadline", "600", "--json"])
        .arg(&json)
        .arg("--html")
        .arg(&html)
        .env("WAVE32_INJECT", "hang:-F 4") // the third pass of LINE hangs, so the signal comes in the middle
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let begin = Instant::now();
    common::signal_twice("-INT", child.id());
    let output = child.wait_with_output().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(10), "took {:?} to stop", begin.elapsed());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("INTERRUPTED with 501 problems not run: 2 passed"),
        "{}",
        stdout(&output)
    );
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!((report["interrupted"].as_bool(), report["not_run"].as_u64()), (Some(true), Some(501)));
    assert!(std::fs::read_to_string(&html).unwrap().contains("INTERRUPTED"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn broken_lines_are_refused_in_one_line() {
    let table = include_str!("../../problem/tests/broken_lines.txt");
    let lines: Vec<&str> = table.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')).collect();
    assert!(lines.len() >= 50, "{}", lines.len());
    for row in lines {
        let line = broken(row);
        let output = wave32().args(["verify", "--device", "cpu", "--", line]).output().unwrap();
        refused(&output, 2, line);
        let output = wave32().args(["explain", "--", line]).output().unwrap();
        refused(&output, 2, line);
    }
}

#[test]
fn wrong_words_and_flags_are_refused() {
    let folder = folder("words");
    let garbage = folder.join("garbage.txt");
    std::fs::write(&garbage, [0u8, 255, 254, 7, 10, 200]).unwrap();
    let cases: [&[&str]; 11] = [
        &["verify", "no-such-suite"],
        &["verify", "fuzz:0"],
        &["verify", "seeds", "--deadline", "-1"],
        &["verify", "seeds", "--memory-cap", "lots"],
        &["verify", "seeds", "--dtype", "f64"],
        &["verify", "seeds", "--max-gflop", "0"],
        &["verify", garbage.to_str().unwrap()],
        &["verify", folder.to_str().unwrap()],
        &["verify", LINE, "--device", "cpu", "--json", "/proc/none/x.json"],
        &["explain", LINE, "--card", "Voodoo 2"],
        &["frobnicate"],
    ];
    for case in cases {
        refused(&wave32().args(case).output().unwrap(), 2, &case.join(" "));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn unknown_solvers_are_refused() {
    let output =
        wave32().args(["verify", LINE, "--device", "cpu"]).env("WAVE32_SOLVER", "magic").output().unwrap();
    refused(&output, 2, "WAVE32_SOLVER=magic");
}

#[test]
fn devices_that_are_not_here_are_exit_code_3() {
    for device in ["vulkan:99", "vulkan", "cuda:0"] {
        let output = wave32().args(["verify", LINE, "--device", device]).output().unwrap();
        refused(&output, 3, device);
    }
}

#[test]
fn without_vulkan_the_cpu_is_verified() {
    let output = wave32().args(["verify", LINE]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("note: verifying the CPU only"), "{}", stderr(&output));
    assert!(stdout(&output).contains("ALL RIGHT: 3 passed"), "{}", stdout(&output));
}

/// Some make fractions of integers, which no device rounds as the oracle does.
#[test]
fn activations_on_vulkan_are_right() {
    if !vulkan() {
        return;
    }
    let names = ["relu", "relu6", "silu", "hardswish", "gelu", "leaky_relu20"];
    let lines = names.iter().flat_map(|name| {
        let conv = "conv -n 2 -c 3 -H 9 -W 8 -k 5 -y 3 -x 3 -p 1 -q 1 -F 1 -b 1 --activ";
        [conv, "gemm -m 20 -k 24 -n 9 -A -1 --activ"].map(|line| format!("{line} {name}"))
    });
    let lines: Vec<String> = lines.collect();
    let verify = ["verify", "--device", "vulkan", "--dtype", "f32,f16,bf16"];
    let output = with_drivers().args(verify).args(&lines).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("ALL RIGHT: 36 passed"), "{}", stdout(&output));
}

#[test]
fn devices_lists_the_cpu_always() {
    let output = wave32().args(["devices", "--json"]).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["cpu"]["id"], "cpu");
    assert!(found["no_vulkan"].is_string());
}

/// The line of a row of the table of broken lines.
fn broken(row: &str) -> &str {
    row.split_once(" => ").map_or(row, |(line, _)| line)
}
