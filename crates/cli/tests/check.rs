//! `wave32 check` on ONNX files and lists of lines.

mod common;

use common::{LINE, folder, refused, stderr, stdout, wave32};
use serde_json::Value;
use std::collections::BTreeMap;

const RESNET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../check/tests/models/resnet50.onnx");

fn check(args: &[&str]) -> Value {
    let output = wave32().arg("check").args(args).arg("--json").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// How many layers have each line, biases left out: exporters fold batch norms into them.
fn lines(report: &Value) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for row in report["rows"].as_array().unwrap() {
        let line = row["line"].as_str().unwrap().replace(" -b 1", "");
        *found.entry(line).or_default() += row["layers"].as_u64().unwrap();
    }
    found
}

#[test]
fn an_onnx_file_has_the_layers_that_the_suite_has() {
    let (file, suite) =
        (check(&[RESNET, "--batch", "8"]), check(&["nets:resnet50", "--batch", "8", "--train"]));
    let forward: BTreeMap<String, u64> =
        lines(&suite).into_iter().filter(|(l, _)| l.contains("-F 1")).collect();
    assert_eq!(lines(&file), forward);
    assert_eq!(lines(&file).values().sum::<u64>(), 53);
    let trained = check(&[RESNET, "--batch", "8", "--train"]);
    assert_eq!(lines(&trained).values().sum::<u64>(), 3 * 53);
}

#[test]
fn the_table_says_route_time_and_what_the_owner_saw() {
    let output = wave32().args(["check", RESNET]).output().unwrap();
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    for wanted in ["RX 5600 XT (modelled)", "53 convolutions", "on vulkan (modelled", "HANG", "0 not known"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    // 64 to 64 channels at 56x56: the notes' example of what hangs. The first layer has 3 input channels.
    let report = check(&[RESNET]);
    let rows = report["rows"].as_array().unwrap();
    let of = |part: &str| rows.iter().find(|r| r["line"].as_str().unwrap().contains(part)).unwrap();
    assert_eq!(of("-c 64 -H 56 -W 56 -k 64 -y 3")["notes"], "hang");
    assert_eq!(of("-c 3 -H 224")["notes"], "ok");
    assert!(of("-c 3 -H 224")["modelled_s"].as_f64().unwrap() > 0.0 && of("-c 3 ")["route"] == "vulkan");
    let implicit = check(&[RESNET, "--notes", "rocm-5.2-implicit-gemm"]);
    assert!(implicit["rows"].as_array().unwrap().iter().all(|r| r["notes"] == "ok"));
}

#[test]
fn lists_lines_and_wrong_use() {
    let folder = folder("check");
    let list = folder.join("list.txt");
    std::fs::write(&list, format!("# two layers\n{LINE} -F 1 # a x3\n{LINE} -F 3 # b\n")).unwrap();
    let report = check(&[list.to_str().unwrap()]);
    let layers: Vec<u64> =
        report["rows"].as_array().unwrap().iter().map(|r| r["layers"].as_u64().unwrap()).collect();
    assert_eq!(layers, [4, 1]);
    assert_eq!(check(&[LINE])["rows"].as_array().unwrap().len(), 3);
    let refuse = |args: &[&str], code: i32| {
        let output = wave32().arg("check").args(args).output().unwrap();
        refused(&output, code, &args.join(" "));
        stderr(&output)
    };
    std::fs::write(folder.join("bad.onnx"), [0xff; 9]).unwrap();
    assert!(refuse(&[folder.join("bad.onnx").to_str().unwrap()], 2).contains("no ONNX file"));
    refuse(&["no-such-model"], 2);
    refuse(&[LINE, "--card", "RX 9999"], 2);
    refuse(&[LINE, "--size", "224"], 2);
    refuse(&[RESNET, "--size", "0x4"], 2);
    refuse(&[RESNET, "--notes", "rocm-9"], 2);
}
