//! `wave32-vgpu run --time` and `--check`: what the launcher tells of a program, and of those that it starts, at the end.

mod card;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use card::{DEADLINE, Ended, hipcc_missing, launcher, run};
use serde_json::Value;

fn program(folder: &Path) -> Option<PathBuf> {
    built(folder, "tests/programs/two_kernels.hip")
}

fn built(folder: &Path, source: &str) -> Option<PathBuf> {
    if hipcc_missing() {
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let binary = folder.join(source.file_stem().unwrap());
    let mut command = Command::new("hipcc");
    command.env("HIP_PLATFORM", "amd").args(["--offload-arch=gfx1010", "-O2", "-std=c++17"]);
    command.arg(source).arg("-o").arg(&binary);
    let built = run(command, DEADLINE);
    assert_eq!(built.code, Some(0), "{}", built.stderr);
    Some(binary)
}

/// Runs a program with `--time` and these options, which it survives: what the launcher said, and the report.
fn timed(options: &[&str], program: &Path, arguments: &[&str], folder: &Path) -> (Ended, Value) {
    let report = folder.join("report.json");
    let mut command = launcher();
    command
        .args(["run", "--time"])
        .args(options)
        .arg("--report")
        .arg(&report)
        .arg("--")
        .arg(program)
        .args(arguments);
    let ended = run(command, DEADLINE);
    assert!(ended.code == Some(0) && ended.stdout == "passed\n", "{ended:?}");
    (ended, serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap())
}

/// Launches, low and high ms of the kernel's row.
fn row(modelled: &Value, kernel: &str) -> (u64, f64, f64) {
    let rows = modelled["kernels"].as_array().unwrap();
    let row = rows.iter().find(|row| row["kernel"].as_str().unwrap().contains(kernel));
    let row = row.unwrap_or_else(|| panic!("no {kernel}: {modelled:#}"));
    let end = |which: &str| row["time_ms"][which].as_f64().unwrap();
    (row["launches"].as_u64().unwrap(), end("low"), end("high"))
}

#[test]
fn launches_have_a_modelled_time() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(folder.path()) else { return };
    let (ended, report) = timed(&["--card", "rx5600xt14gbps"], &program, &[], folder.path());
    assert!(ended.stderr.contains("modelled on RX 5600 XT 14 Gbps"), "{ended:?}");
    assert!(
        ended.stderr.contains("fma_chain(float*, float, float)") && ended.stderr.contains("copy_8_mib"),
        "{ended:?}"
    );
    let modelled = &report["modelled"];
    // 16 MiB to move at 336 GB/s, or at what of it streams reach.
    let (launches, low, high) = row(modelled, "copy_8_mib");
    let floor = 16.0 * 1048.576 / 336.0 / 1e3;
    assert!(launches == 3 && low > 3.0 * floor && high < 3.0 * 1.5 * floor, "{low} to {high}, floor {floor}");
    // A chain of 1,024 FMAs, each of 5 clocks, and the loop around them.
    let (launches, low, high) = row(modelled, "fma_chain");
    let clocks = 2.0 * 1024.0 * 5.0 / 1750e3;
    assert!(launches == 2 && low > clocks && low < 1.4 * clocks && high > low, "{low} to {high}: {clocks}");
}

/// A sample of the workgroups gives the times that all of them give, and the program's own clock tells them.
#[test]
fn a_sample_has_the_times_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(folder.path()) else { return };
    let (_, whole) = timed(&[], &program, &[], folder.path());
    let (ended, sample) = timed(&["--sample"], &program, &["events"], folder.path());
    for kernel in ["copy_8_mib", "fma_chain"] {
        let ((all, low, high), found) = (row(&whole["modelled"], kernel), row(&sample["modelled"], kernel));
        let near = |a: f64, b: f64| (a - b).abs() < 0.1 * b;
        assert!(found.0 == all && near(found.1, low) && near(found.2, high), "{found:?} of {low} to {high}");
    }
    let instructions = |report: &Value| report["kernels"].to_string();
    assert_ne!(instructions(&whole), instructions(&sample), "all workgroups ran");
    let line =
        ended.stderr.lines().find_map(|line| line.strip_prefix("copies ")).expect("the program's line");
    let ms: f64 = line.trim_end_matches(" ms").parse().unwrap();
    let (_, low, high) = row(&sample["modelled"], "copy_8_mib");
    assert!(ms > 0.9 * low && ms < 1.1 * high, "{ms} of {low} to {high}");
}

/// docs/vgpu_ci.md names the fields of reports, and no others.
#[test]
fn the_document_has_the_report_s_fields() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(folder.path()) else { return };
    let (_, report) = timed(&[], &program, &[], folder.path());
    let keys = |value: &Value| -> BTreeSet<String> { value.as_object().unwrap().keys().cloned().collect() };
    let document = include_str!("../../../docs/vgpu_ci.md");
    let documented = |field: &str, column: usize| -> BTreeSet<String> {
        let rows = document.lines().filter(|line| line.starts_with("| `"));
        let cells = rows.map(|row| row.split('|').collect::<Vec<_>>());
        let wanted = cells.filter(|cells| column == 1 || cells[1].trim() == format!("`{field}`"));
        wanted
            .flat_map(|cells| {
                cells[column].split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
            })
            .collect()
    };
    let top: BTreeSet<String> = documented("", 1).into_iter().filter(|name| !name.contains('.')).collect();
    let top = &top - &BTreeSet::from(["time_ms".to_owned()]);
    assert_eq!(top, keys(&report));
    let kernel = report["kernels"].as_object().unwrap().values().next().unwrap();
    assert_eq!(documented("kernels", 3), keys(kernel));
    let modelled = &documented("modelled", 3) - &BTreeSet::from(["--time".to_owned()]);
    assert_eq!(modelled, keys(&report["modelled"]));
    assert_eq!(documented("modelled.kernels", 3), keys(&report["modelled"]["kernels"][0]));
    let classes = documented("kernels.*.classes", 3);
    assert!(keys(&kernel["classes"]).is_subset(&classes), "{classes:?}");
}

#[test]
fn processes_are_told_of_in_one_table() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(folder.path()) else { return };
    let mut command = launcher();
    let program = program.to_str().unwrap();
    command.env("TMPDIR", folder.path());
    command.args(["run", "--time", "--", "sh", "-c", &format!("{program} & {program}; wait")]);
    let ended = run(command, DEADLINE);
    assert!(ended.code == Some(0) && ended.stdout == "passed\npassed\n", "{ended:?}");
    assert_eq!(ended.stderr.matches("modelled on RX 5600 XT").count(), 1, "{ended:?}");
    let line = ended.stderr.lines().find(|line| line.contains("copy_8_mib")).unwrap();
    assert!(line.split_whitespace().any(|word| word == "6"), "{line}");
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".json")), "{left:?}");
}

#[test]
fn a_stopped_kernel_fails_a_check_whatever_the_program_makes_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some(fault) = built(folder.path(), "../tests/hip/fault.hip") else { return };
    let fault = format!("{} 2>/dev/null", fault.display());
    for (options, script, code) in [
        (&["--check"][..], format!("{fault}; exit 0"), 3),
        (&["--check", "--time"], format!("{fault}; exit 5"), 3),
        (&[], format!("{fault}; exit 5"), 5),
        (&["--check"], "exit 5".into(), 5),
    ] {
        let mut command = launcher();
        command.arg("run").args(options).args(["--", "sh", "-c", &script]);
        let ended = run(command, DEADLINE);
        assert!(!ended.late && ended.code == Some(code), "{options:?} {script}: {ended:?}");
        assert_eq!(ended.stderr.contains("1 kernels were stopped"), code == 3, "{ended:?}");
    }
}

#[test]
fn the_program_s_end_is_the_launcher_s() {
    for (script, code) in
        [("exit 7", 7), ("kill -9 $$", 128 + 9), ("kill -15 $PPID; exec sleep 60", 128 + 15)]
    {
        let mut command = launcher();
        command.args(["run", "--time", "--", "sh", "-c", script]);
        let ended = run(command, DEADLINE);
        assert!(!ended.late && ended.signal.is_none() && ended.code == Some(code), "{script}: {ended:?}");
    }
}

#[test]
fn a_program_that_launches_nothing_is_told_so() {
    let mut command = launcher();
    command.args(["run", "--time", "--", "true"]);
    let ended = run(command, DEADLINE);
    assert!(
        ended.code == Some(0) && ended.stderr == "modelled: nothing was launched on the card\n",
        "{ended:?}"
    );
}
