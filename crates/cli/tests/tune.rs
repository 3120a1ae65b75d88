//! `wave32 tune`: its limit, its file, and what goes wrong meanwhile.
#![cfg(unix)]

mod common;

use common::{LINE, folder, in_environment_of, stderr, stdout, vulkan, with_drivers};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The binary with its state and cache in a folder.
fn at(state: &Path) -> Command {
    let mut command = with_drivers();
    command.env_remove("WAVE32_TUNE").env("XDG_STATE_HOME", state).env("XDG_CACHE_HOME", state.join("cache"));
    // A software driver compiles the tiles' kernels for seconds.
    command.env("WAVE32_SKIP", "gemm_1x1,gemm_1x1_unpacked,winograd,igemm_packed,igemm,im2col_gemm");
    command
}

fn tune(state: &Path, args: &[&str]) -> Output {
    at(state).args(["tune", "--json"]).args(args).output().unwrap()
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", stdout(output), stderr(output)))
}

/// The file of the only device that was tuned.
fn file(state: &Path) -> PathBuf {
    let entries = std::fs::read_dir(state.join("wave32/tuned")).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// The row that `bench` has of the test's problem.
fn benched(state: &Path, is_off: bool) -> (Value, String) {
    let mut command = at(state);
    command.args(["bench", LINE, "--direction", "fwd", "--reps", "2", "--json", "-"]);
    if is_off {
        command.env("WAVE32_TUNE", "0");
    }
    let output = command.output().unwrap();
    (report(&output)["rows"][0].clone(), stderr(&output))
}

#[test]
fn what_was_measured_is_what_runs_and_damage_is_left_aside() {
    if !vulkan() {
        return;
    }
    let state = folder("tune-file");
    let output = tune(&state, &[LINE, "--direction", "fwd", "--time", "0.5"]);
    let told = report(&output);
    assert_eq!(output.status.code(), Some(0), "{told:#}{}", stderr(&output));
    assert_eq!((&told["kept"], &told["ended"]), (&1.into(), &"complete".into()), "{told:#}");
    let problem = &told["problems"][0];
    assert!(problem["timed"].as_u64().unwrap() > 2 && problem["ms"].as_f64().unwrap() > 0.0, "{told:#}");
    let path = file(&state);
    let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let line = problem["line"].as_str().unwrap();
    assert_eq!(record["plans"][line]["config"], problem["config"]);
    // Known already: not measured again.
    assert_eq!(report(&tune(&state, &[LINE, "--direction", "fwd"]))["known_before"], 1);

    // Something that the model does not choose.
    record["plans"][line]["solver"] = "direct".into();
    record["plans"][line]["config"] = "o1t0".into();
    let good = record.to_string();
    std::fs::write(&path, &good).unwrap();
    let (row, said) = benched(&state, false);
    assert_eq!(
        (&row["solver"], &row["config"], &row["tuned"]),
        (&"direct".into(), &"o1t0".into(), &true.into()),
        "{row:#}"
    );
    assert_eq!(said, "");
    let (row, said) = benched(&state, true);
    assert_eq!((&row["tuned"], said.as_str()), (&false.into(), ""), "{row:#}");
    let output =
        at(&state).args(["verify", LINE, "--direction", "fwd", "--device", "vulkan"]).output().unwrap();
    assert!(stdout(&output).contains("1 ran tuned"), "{}", stdout(&output));
    let output =
        at(&state).args(["explain", &format!("{LINE} -F 1"), "--device", "vulkan"]).output().unwrap();
    assert!(
        stdout(&output).contains("plan: direct o1t0") && stdout(&output).contains("tuned"),
        "{}",
        stdout(&output)
    );

    let driver = record["driver"].as_str().unwrap().to_string();
    let older = good.replace(&driver, "an older driver");
    assert_ne!(older, good);
    for (text, why) in [
        (good[..good.len() / 2].to_string(), "damaged"),
        (String::new(), "damaged"),
        ("[]".into(), "damaged"),
        (older, "another driver (an older driver; here is"),
        (good.replace("\"kernels\":\"wave32 ", "\"kernels\":\"wave32 0.0."), "another version"),
    ] {
        std::fs::write(&path, &text).unwrap();
        let (row, said) = benched(&state, false);
        assert_eq!((&row["tuned"], &row["error"]), (&false.into(), &Value::Null), "{row:#}");
        assert!(said.contains("left aside") && said.contains(why) && said.lines().count() == 1, "{said}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "only `tune` writes");
    }
    let output = tune(&state, &[LINE, "--direction", "fwd", "--time", "0.5"]);
    assert!(stderr(&output).contains("will be replaced"), "{}", stderr(&output));
    assert_eq!(report(&output)["kept"], 1);
    assert_eq!(benched(&state, false).0["tuned"], true);
    std::fs::remove_dir_all(&state).unwrap();
}

#[test]
fn the_limit_is_obeyed_and_the_next_run_goes_on() {
    if !vulkan() {
        return;
    }
    let state = folder("tune-limit");
    let begin = Instant::now();
    let told = report(&tune(&state, &["shapes", "--time", "0.1"]));
    // Looking for devices and closing them comes on top.
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    assert!(told["elapsed_s"].as_f64().unwrap() < 12.0, "{told:#}");
    assert_eq!(told["ended"], "time-limit", "{told:#}");
    assert!(told["not_begun"].as_u64().unwrap() > 20, "{told:#}");
    std::fs::remove_dir_all(&state).unwrap();
}

#[test]
fn a_hang_costs_one_configuration_and_what_is_wrong_is_never_kept() {
    if !vulkan() {
        return;
    }
    let state = folder("tune-faults");
    let args = ["tune", "--json", LINE, "--direction", "fwd", "--time", "1.5", "--deadline", "10"];
    let output = at(&state).args(args).env("WAVE32_INJECT", "hang:direct o4t3").output().unwrap();
    let told = report(&output);
    let failed = told["problems"][0]["failed"].as_array().unwrap();
    let is_hang = |f: &&Value| f["verdict"] == "HANG" && f["plan"] == "direct o4t3";
    assert_eq!((failed.iter().filter(is_hang).count(), failed.len()), (1, 1), "{told:#}");
    assert_eq!((&told["kept"], output.status.code()), (&1.into(), Some(1)), "{told:#}");
    assert!(told["problems"][0]["timed"].as_u64().unwrap() > 2, "{told:#}");

    let output =
        at(&state).args(args).arg("--again").env("WAVE32_INJECT", "wrong:MIOpenDriver").output().unwrap();
    let told = report(&output);
    let problem = &told["problems"][0];
    let kept = format!("{} {}", problem["solver"].as_str().unwrap(), problem["config"].as_str().unwrap());
    assert_eq!(problem["usual"], kept.as_str(), "what is wrong was kept: {told:#}");
    let wrong = problem["failed"].as_array().unwrap().iter();
    assert!(wrong.clone().all(|f| f["verdict"] == "WRONG"), "{told:#}");
    eprintln!("{} wrong ones were refused", wrong.count());
    std::fs::remove_dir_all(&state).unwrap();
}

#[test]
fn ctrl_c_a_second_run_and_a_full_disk_leave_the_old_file() {
    if !vulkan() {
        return;
    }
    let state = folder("tune-old");
    assert_eq!(report(&tune(&state, &[LINE, "--time", "0.5"]))["kept"], 3);
    let path = file(&state);
    let old = std::fs::read(&path).unwrap();
    let start = |args: &[&str]| {
        let mut command = at(&state);
        command.arg("tune").args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // Its first problem takes longer than this test, on a busy machine too, and may.
    let first = start(&["shapes", "--time", "5", "--deadline", "300"]);
    std::thread::sleep(Duration::from_secs(8));
    let second = start(&["seeds", "--time", "1"]).wait_with_output().unwrap();
    assert_eq!(second.status.code(), Some(2), "{}", stderr(&second));
    assert!(stderr(&second).contains("another `wave32 tune`"), "{}", stderr(&second));
    let begin = Instant::now();
    common::signal_twice("-INT", first.id());
    let first = first.wait_with_output().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(20), "took {:?} to stop", begin.elapsed());
    assert_eq!(first.status.code(), Some(1), "{}", stderr(&first));
    assert!(stderr(&first).contains("nothing was kept"), "{}", stderr(&first));
    assert_eq!(std::fs::read(&path).unwrap(), old);

    // No file may grow beyond a kibibyte.
    let command = at(&state);
    let mut shell = in_environment_of(&command, "sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh"]).arg(command.get_program());
    let full = shell.args(["tune", LINE, "--again", "--time", "0.5"]).output().unwrap();
    assert_eq!(full.status.code(), Some(1), "{}{}", stdout(&full), stderr(&full));
    assert!(stderr(&full).contains("cannot write"), "{}", stderr(&full));
    assert_eq!(std::fs::read(&path).unwrap(), old);
    let left = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(left, 2, "the file and its lock");
    std::fs::remove_dir_all(&state).unwrap();
}
