//! The real binary's reports: planted faults, planted names, nobody to ask, Ctrl-C, a full disk.
#![cfg(unix)]

mod common;
#[path = "../../doctor/tests/common/mod.rs"]
mod tree;

use common::{folder, refused, stderr, stdout, vulkan, wave32, with_drivers};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A report of the processor alone, within so many seconds.
fn report(seconds: &str, files: &Path) -> Command {
    with(wave32(), "cpu", seconds, files)
}

fn with(mut command: Command, device: &str, seconds: &str, files: &Path) -> Command {
    command.args(["report", "--device", device, "--seconds", seconds, "--out"]).arg(files.join("r.json"));
    command.arg("--html").arg(files.join("r.html"));
    command
}

fn read(files: &Path) -> (Value, String) {
    let json = std::fs::read(files.join("r.json")).unwrap();
    (serde_json::from_slice(&json).unwrap(), std::fs::read_to_string(files.join("r.html")).unwrap())
}

fn part<'a>(report: &'a Value, name: &str) -> &'a Value {
    let parts = report["parts"].as_array().unwrap();
    parts.iter().find(|part| part["name"] == name).unwrap_or_else(|| panic!("{name}: {parts:#?}"))
}

#[test]
fn a_hang_and_a_lost_device_are_rows_and_the_rest_goes_on() {
    faults(&wave32, "cpu", "14");
}

#[test]
fn a_hang_and_a_lost_device_on_vulkan_are_rows_and_the_rest_goes_on() {
    if vulkan() {
        // Else a software driver may spend the report's time on compiling these kernels.
        let seeds = "verify seeds --device vulkan --direction fwd --dtype f32 --repeat 0 --deadline 400";
        let warmed = with_drivers().args(seeds.split(' ')).output().unwrap();
        assert!(warmed.status.success(), "{}", stderr(&warmed));
        // Of 40 seconds, hangs and other work beside this test left none to time a row.
        faults(&with_drivers, "vulkan", "60");
    }
}

fn faults(program: &dyn Fn() -> Command, device: &str, seconds: &str) {
    let files = folder(&format!("report-faults-{device}"));
    let begin = Instant::now();
    // The first seed, of which a shape that is timed is the same; the second, scaled down to what the processor gets.
    let rest = "-k 64 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1";
    let plant = format!("hang:conv -n 1 -c 3 -H 32 -W 32 {rest},lost:conv -n 1 -c 3 -H 34 -W 34 {rest}");
    let output =
        with(program(), device, seconds, &files).arg("--yes").env("WAVE32_INJECT", plant).output().unwrap();
    let most = Duration::from_secs(seconds.parse::<u64>().unwrap() + 8);
    assert!(begin.elapsed() < most, "took {:?}", begin.elapsed());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let (report, page) = read(&files);
    let name = report["checks"][0]["device"].as_str().unwrap();
    let verify = part(&report, &format!("verify {name}"));
    assert_eq!(verify["state"], "hung", "{verify}");
    assert!(verify["note"].as_str().unwrap().contains("HANG at MIOpenDriver conv "), "{verify}");
    let failures = report["checks"][0]["failures"].as_array().unwrap();
    let verdicts: Vec<&str> = failures.iter().map(|f| f["verdict"].as_str().unwrap()).collect();
    assert!(verdicts.contains(&"HANG") && verdicts.contains(&"DEVICE_LOST"), "{verdicts:?}");
    let passed: u64 =
        report["checks"][0]["groups"].as_array().unwrap().iter().map(|g| g["passed"].as_u64().unwrap()).sum();
    // How many more there was time for is the machine's speed.
    assert!(passed > 0, "{passed}");
    let bench = part(&report, &format!("bench {name}"));
    assert_eq!(bench["state"], "hung", "{bench}");
    let rows = report["benches"][0]["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["error"].is_null() && row["time"]["median_ms"].as_f64() > Some(0.0)));
    for text in [&page, &stdout(&output)] {
        assert!(
            text.contains("NOT ALL RIGHT") && text.contains("HANG") && text.contains("DEVICE_LOST"),
            "{text}"
        );
    }
    assert!(stderr(&output).contains("nothing was sent. To send it: "), "{}", stderr(&output));
    std::fs::remove_dir_all(&files).unwrap();
}

const TREE: &str = "\
file /etc/os-release
| PRETTY_NAME=\"Some Linux\"
one /etc/hostname wolkenkuckuck
one /etc/machine-id 5d0c8a7be1f24c1c8a0b0f1e2d3c4b5a
file /etc/passwd
| root:x:0:0:root:/root:/bin/bash
| quendoline:x:1000:1000:Quendoline Achtermann,,,:/srv/people/quendoline:/bin/bash
file /etc/group
| video:x:44:quendoline
file /wave32-machine.json
| {\"env\": {\"HOME\": \"/srv/people/quendoline\", \"USER\": \"quendoline\", \"PATH\": \"/usr/bin\",
|  \"HSA_OVERRIDE_GFX_VERSION\": \"10.3.0\", \"LD_LIBRARY_PATH\": \"/srv/people/quendoline/geheimprojekt/lib\"},
|  \"uid\": 1000, \"groups\": [1000]}
gpu 0000:0a:00.0 0x731f 0xca 6 10.1.0 renderD128
one /sys/bus/pci/devices/0000:0a:00.0/unique_id 7f3c2b1a99d8e6
one /sys/bus/pci/devices/0000:0a:00.0/serial_number SN-PLANTED-77
one /sys/bus/pci/devices/0000:0a:00.0/hwmon/hwmon3/name amdgpu
one /sys/bus/pci/devices/0000:0a:00.0/hwmon/hwmon3/temp1_input 43000
file /sys/bus/pci/devices/0000:0a:00.0/pp_dpm_sclk
| 0: 300Mhz
| 1: 1650Mhz *
one /sys/class/dmi/id/board_serial BOARD-PLANTED-9
one /sys/class/net/enp5s0/address 3c:7c:3f:aa:bb:cc
file /srv/people/quendoline/.bashrc
| export HSA_OVERRIDE_GFX_VERSION=10.3.0 # quendoline's
file /var/log/kern.log
| wolkenkuckuck kernel: Linux version 6.1.0 (quendoline@wolkenkuckuck)
| wolkenkuckuck kernel: amdgpu 0000:0a:00.0: ring comp_1.0.0 timeout, process python pid 77 of /srv/people/quendoline/geheimprojekt/x.py
| wolkenkuckuck kernel: amdgpu: GPU reset begin! unique_id: 7f3c2b1a99d8e6 serial SN-PLANTED-77 board BOARD-PLANTED-9
| wolkenkuckuck kernel: amdgpu link 3c:7c:3f:aa:bb:cc 192.168.44.7 fe80::3e7c:3fff:feaa:bbcc GPU-7f3c2b1a99d8e6aa
| wolkenkuckuck kernel: amdgpu 123e4567-e89b-12d3-a456-426614174000 /home/otherone/y
";

/// What was planted, in the tree and in the environment.
const PLANTED: &[&str] = &[
    "quendoline",
    "achtermann",
    "wolkenkuckuck",
    "geheimprojekt",
    "/srv/people",
    "7f3c2b1a99d8e6",
    "sn-planted-77",
    "board-planted-9",
    "3c:7c:3f:aa:bb:cc",
    "192.168.44.7",
    "fe80::3e7c",
    "123e4567-e89b",
    "otherone",
    "/home/",
    "5d0c8a7be1f24c1c8a0b0f1e2d3c4b5a",
    "adalbert",
    "nebelburg",
];

#[test]
fn planted_names_and_serials_are_in_neither_file() {
    let (files, root) = (folder("report-names"), tempfile::tempdir().unwrap());
    tree::build(root.path(), TREE);
    let mut command = report("4", &files);
    command.args(["--quick", "--yes", "--root"]).arg(root.path());
    for (name, value) in [("USER", "adalbert"), ("HOSTNAME", "nebelburg"), ("HOME", "/home/adalbert")] {
        command.env(name, value);
    }
    // The device's own words are strings of the report too.
    command.env("WAVE32_INJECT", "crash:-c 3 -H 42");
    let output = command.output().unwrap();
    let (report, page) = read(&files);
    for name in ["r.json", "r.html"] {
        let text = std::fs::read_to_string(files.join(name)).unwrap().to_lowercase();
        let found: Vec<_> = PLANTED.iter().filter(|word| text.contains(**word)).collect();
        assert!(found.is_empty(), "{name}: {found:?}");
    }
    assert!(!PLANTED.iter().any(|word| stdout(&output).to_lowercase().contains(word)), "{}", stdout(&output));
    // What the report is for is there: the tests above would pass on an empty file.
    let text = report.to_string();
    for wanted in [
        "ring comp_1.0.0 timeout",
        "10.3.0",
        "[host]",
        "[user]",
        "~/.bashrc",
        "[serial]",
        "[mac]",
        "[ip]",
        "[uuid]",
    ] {
        assert!(text.contains(wanted), "{wanted}: {report:#}");
    }
    let reading = &report["sensors"]["cards"][0]["readings"][0];
    assert_eq!((reading["edge_c"].as_f64(), reading["shader_mhz"].as_f64()), (Some(43.0), Some(1650.0)));
    assert_eq!(report["machine"]["system"], "Some Linux");
    assert!(page.contains("43"));
    std::fs::remove_dir_all(&files).unwrap();
}

#[test]
fn with_nobody_to_ask_nothing_is_done() {
    let files = folder("report-nobody");
    let begin = Instant::now();
    let output = report("60", &files).stdin(Stdio::null()).output().unwrap();
    refused(&output, 2, "no terminal");
    assert!(stderr(&output).contains("nothing was written"), "{}", stderr(&output));
    assert!(begin.elapsed() < Duration::from_secs(5) && std::fs::read_dir(&files).unwrap().next().is_none());
    std::fs::remove_dir_all(&files).unwrap();
}

/// Runs it on a terminal and answers its question.
fn answered(files: &Path, answer: &str) -> (Option<i32>, String) {
    let command = report("2", files);
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut script = common::in_environment_of(&command, "script");
    script.args(["-qefc", &words.join(" "), "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = script.spawn().expect("`script` of util-linux is needed for this test");
    use std::io::Write;
    child.stdin.take().unwrap().write_all(format!("{answer}\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), stdout(&output))
}

#[test]
fn it_is_shown_and_asked_about_before_it_is_written() {
    let files = folder("report-asked");
    let (code, said) = answered(&files, "n");
    assert_eq!(code, Some(1), "{said}");
    let line = said
        .lines()
        .find(|line| line.contains("to read before you answer: "))
        .unwrap_or_else(|| panic!("{said}"));
    let copy = line.split("answer: ").nth(1).unwrap().split("/report.html").next().unwrap();
    assert!(!Path::new(copy).exists(), "{copy} was left behind");
    assert!(
        said.contains("nothing was written") && std::fs::read_dir(&files).unwrap().next().is_none(),
        "{said}"
    );
    let (_, said) = answered(&files, "y");
    assert!(
        said.contains("written: ") && files.join("r.json").is_file() && files.join("r.html").is_file(),
        "{said}"
    );
    std::fs::remove_dir_all(&files).unwrap();
}

#[test]
fn ctrl_c_leaves_what_is_there_so_far() {
    let files = folder("report-interrupt");
    let mut command = report("60", &files);
    command
        .arg("--yes")
        .env("WAVE32_INJECT", "hang:-c 3 -H 48")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    let begin = Instant::now();
    common::signal_twice("-INT", child.id());
    let output = child.wait_with_output().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(10), "took {:?} to stop", begin.elapsed());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("stopped early"), "{}", stderr(&output));
    let (report, page) = read(&files);
    assert_eq!((report["interrupted"].as_bool(), page.contains("STOPPED EARLY")), (Some(true), true));
    assert_eq!(part(&report, "bench cpu")["state"], "stopped");
    std::fs::remove_dir_all(&files).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said() {
    let output = wave32()
        .args(["report", "--device", "cpu", "--seconds", "2", "--yes", "--out", "/dev/full"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let last = stderr(&output).trim_end().lines().last().unwrap().to_string();
    assert!(last.starts_with("error: cannot write /dev/full: ") && last.contains("No space left"), "{last}");
}

#[test]
fn wrong_use_is_refused() {
    let missing = common::nowhere("r.json");
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../reports/schema.json");
    for (args, code) in [
        (&["report", "--yes", "--device", "vulkan:99"][..], 3),
        (&["report", "--yes", "--out", "-", "--html", "-"], 2),
        (&["report", "--yes", "--out", "/proc/none/x.json"], 2),
        (&["report", "--compare", &missing], 2),
        (&["report", "--compare", committed.to_str().unwrap()], 2),
        (&["report", "--compare", &missing, "--yes"], 2),
    ] {
        refused(&wave32().args(args).output().unwrap(), code, &args.join(" "));
    }
}

/// The committed report of llvmpipe, as if it were from another machine's card.
fn of_a_card(files: &Path) -> PathBuf {
    let reports = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../reports");
    let name = std::fs::read_dir(&reports).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<PathBuf> =
        name.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("llvmpipe")).collect();
    names.sort();
    let mut report: Value = serde_json::from_slice(&std::fs::read(&names[0]).unwrap()).unwrap();
    let id = report["benches"][0]["device"].clone();
    for device in report["devices"].as_array_mut().unwrap().iter_mut().filter(|device| device["id"] == id) {
        device["class"] = "card".into();
        device["name"] = "AMD Radeon RX 5700 XT (RADV NAVI10)".into();
    }
    let path = files.join("other.json");
    std::fs::write(&path, report.to_string()).unwrap();
    path
}

#[test]
fn a_report_of_another_machine_is_compared_with_the_model() {
    let files = folder("report-compare");
    // No virtual card is to be found, so that no layer takes seconds.
    let output = wave32()
        .args(["report", "--compare"])
        .arg(of_a_card(&files))
        .env("WAVE32_VGPU", "/none")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("RX 5700 XT") && text.contains("resnet50_3x3_14"), "{text}");
    let means = text.lines().filter(|line| line.contains("geometric mean of modelled over measured")).count();
    assert!(means >= 1, "{text}");
    std::fs::remove_dir_all(&files).unwrap();
}
