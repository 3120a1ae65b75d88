//! The launcher, and what needs no compiler: `rocminfo`, the report, wrong uses.

#[allow(dead_code)] // the other test uses the rest
mod card;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use card::{Ended, launcher, missing, run};

const SHORT: Duration = Duration::from_secs(60);

fn launched(arguments: &[&str]) -> Ended {
    let mut command = launcher();
    command.args(arguments);
    run(command, SHORT)
}

#[test]
fn rocminfo_lists_each_card_with_its_figures() {
    if missing("rocminfo") {
        return;
    }
    let cards = [
        ("rx5600xt", "gfx1010", "AMD Radeon RX 5600 XT", 36, 1560, 6275072, "731f"),
        ("rx5700xt", "gfx1010", "AMD Radeon RX 5700 XT", 40, 1905, 8372224, "731f"),
        ("rx5500xt", "gfx1012", "AMD Radeon RX 5500 XT", 22, 1845, 8372224, "7340"),
        ("rx5500xt-4gb", "gfx1012", "AMD Radeon RX 5500 XT", 22, 1845, 4177920, "7340"),
    ];
    for (id, target, name, units, clock, kib, device) in cards {
        let ended = launched(&["run", "--card", id, "--", "rocminfo"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let card = ended.stdout.split("Agent 2").nth(1).expect("a second agent");
        let value = |key: &str| {
            let line = card.lines().find(|line| line.trim().starts_with(&format!("{key}:")));
            line.unwrap_or_else(|| panic!("no {key} in {card}")).split_once(':').unwrap().1.trim().to_owned()
        };
        assert_eq!(value("Name"), target);
        assert_eq!(value("Marketing Name"), name);
        assert_eq!(value("Compute Unit"), units.to_string());
        assert_eq!(value("Max Clock Freq. (MHz)"), clock.to_string());
        assert_eq!(value("Wavefront Size"), "32(0x20)");
        assert_eq!(value("Size"), format!("{kib}(0x{kib:x}) KB"));
        assert!(value("Chip ID").contains(device));
        assert!(card.contains(&format!("amdgcn-amd-amdhsa--{target}:xnack-")));
        assert!(!ended.stdout.contains("Agent 3"), "{}", ended.stdout);
    }
}

#[test]
fn without_the_launcher_there_is_no_card() {
    if missing("rocminfo") || std::path::Path::new("/dev/kfd").exists() {
        return;
    }
    let ended = run(std::process::Command::new("rocminfo"), SHORT);
    assert!(!ended.stdout.contains("gfx10"), "{ended:?}");
}

#[test]
fn wrong_uses_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "no program").unwrap();
    let plain = plain.to_str().unwrap();
    for (arguments, reason) in [
        (vec!["run", "--card", "rx480", "--", "true"], "rx5600xt, rx5600xt14gbps, rx5700xt"),
        (vec!["run"], "PROGRAM"),
        (vec!["run", "--threads", "0", "--", "true"], "--threads"),
        (vec!["run", "--robust", "--", "true"], "--strict"),
        (vec!["run", "--keep-going", "--", "true"], "--strict"),
        (vec!["run", "--", "no-such-program"], "PATH"),
        (vec!["run", "--", plain], "cannot be executed"),
        (vec!["run", "--report", "/no/such/folder/report", "--", "true"], "cannot write the report"),
    ] {
        let ended = launched(&arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(reason), "{arguments:?}: {}", ended.stderr);
    }
    let mut command = launcher();
    command.env("WAVE32_VGPU_LIB", folder.path()).args(["run", "--", "true"]);
    let ended = run(command, SHORT);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("WAVE32_VGPU_LIB"), "{}", ended.stderr);
}

#[test]
fn a_program_keeps_its_arguments_output_and_status() {
    let ended = launched(&["run", "--", "sh", "-c", "echo \"$0 $1\"; exit 7", "--list", "two words"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(7), "--list two words\n"), "{}", ended.stderr);
    let ended = launched(&["run", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(ended.signal, Some(15));
}

/// The launcher becomes the program: a signal that is sent to it is the program's.
#[test]
fn signals_reach_the_program() {
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        // One that does not care; one that has its own way to end.
        let trapping = format!("trap 'exit 7' {signal}; echo ready; while :; do sleep 0.05; done");
        for (script, wanted) in
            [("echo ready; exec sleep 60", (None, Some(number))), (trapping.as_str(), (Some(7), None))]
        {
            let mut command = launcher();
            // A shell's background job ignores some of them, and so would all that is started from there.
            let defaults = ["env", "--default-signal=TERM,INT,HUP"];
            command.args(["run", "--"]).args(defaults).args(["sh", "-c", script]).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
            let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {}", child.id())]).status();
            assert!(sent.unwrap().success());
            let ended = child.wait().unwrap();
            assert_eq!((ended.code(), ended.signal()), wanted, "{signal}: {script}");
        }
    }
}

#[test]
fn each_of_two_processes_has_a_card_and_a_report_of_its_own() {
    if missing("rocminfo") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let both = "rocminfo & rocminfo; wait";
    let ended = launched(&["run", "--report", report.to_str().unwrap(), "--", "sh", "-c", both]);
    assert_eq!(ended.stdout.matches("Name:                    gfx1010").count(), 2, "{ended:?}");
    let mut processes = Vec::new();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let content: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        // The shell has no card.
        if path != report {
            assert_eq!(path.extension().unwrap().to_str().unwrap(), content["process"].to_string());
            processes.push(content["process"].as_u64());
        }
    }
    assert!(processes.len() == 2 && processes[0] != processes[1], "{processes:?}");
}

#[test]
fn cards_are_listed_for_people_and_machines() {
    let ended = launched(&["--list"]);
    assert!(ended.stdout.contains("rx5700xt") && ended.stdout.contains("448 GB/s"), "{}", ended.stdout);
    assert_eq!(launched(&["run", "--list"]).stdout, ended.stdout, "as after `run`, where --card is");
    let ended = launched(&["--list", "--json"]);
    let rows: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(rows[0]["id"], "rx5600xt");
    assert_eq!(rows[0]["memory_mib"], 6144);
}
