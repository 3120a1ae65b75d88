//! `wave32 probe` against a libMIOpen and a HIP runtime of our own making, whose solvers are known: right, wrong,
//! crashing, hanging, refusing, some only at some shapes.
#![cfg(unix)]

mod common;
mod standin;

use common::{folder, refused, stderr, stdout, wave32};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The command on the stand-in, with everything it keeps below `folder`.
fn probe(folder: &Path, args: &[&str]) -> Command {
    let mut command = wave32();
    command.arg("probe").args(args).args(["--seed", "3", "--state"]).arg(folder.join("state"));
    command.arg("--library").arg(folder.join("libMIOpen.so.1"));
    for name in
        ["MIOPEN_FIND_MODE", "MIOPEN_USER_DB_PATH", "MIOPEN_DEBUG_FIND_ONLY_SOLVER", "LD_LIBRARY_PATH"]
    {
        command.env_remove(name);
    }
    command
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("no report ({e}): {}{}", stdout(output), stderr(output)))
}

/// Verdict of a solver on the shape whose line contains `shape`, as it is.
fn verdict(report: &Value, shape: &str, solver: &str) -> Option<String> {
    let row = rows(report).iter().find(|r| {
        r["problem"].as_str().unwrap().contains(shape) && r["solver"] == solver && r["rewrite"].is_null()
    })?;
    Some(row["verdict"].as_str().unwrap().to_string())
}

/// The kinds of the rewritings that made a solver safe for a shape.
fn rescue(report: &Value, shape: &str, solver: &str) -> Option<Vec<String>> {
    let row = rows(report).iter().find(|r| {
        let here = r["problem"].as_str().unwrap().contains(shape) && r["solver"] == solver;
        here && r["rewrite"].is_array() && r["verdict"] == "works"
    })?;
    let kinds = row["rewrite"].as_array().unwrap().iter();
    Some(kinds.map(|k| k["kind"].as_str().unwrap().to_string()).collect())
}

fn rows(report: &Value) -> &Vec<Value> {
    report["tried"].as_array().unwrap()
}

const SMALL: &str = "MIOpenDriver conv -n 2 -c 3 -H 9 -W 8 -k 5 -y 3 -x 3 -p 1 -q 1 -F 1";
const POWERS: &str = "MIOpenDriver conv -n 1 -c 16 -H 12 -W 12 -k 32 -y 3 -x 3 -p 1 -q 1 -F 1";
const LARGE: &str = "MIOpenDriver conv -n 1 -c 3 -H 48 -W 44 -k 4 -y 3 -x 3 -p 1 -q 1 -F 1";
const ONE: &str = "MIOpenDriver conv -n 1 -c 3 -H 8 -W 8 -k 4 -y 1 -x 1 -F 0";

#[test]
fn each_solver_gets_its_verdict_and_what_can_be_rescued_is() {
    let folder = folder("probe-verdicts");
    standin::libraries(&folder);
    let begin = Instant::now();
    let args = [SMALL, POWERS, LARGE, "--deadline", "3", "--find-deadline", "3", "--json", "-"];
    let output = probe(&folder, &args).output().unwrap();
    let took = begin.elapsed();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let found = report(&output);
    let at = |shape: &str, solver: &str| verdict(&found, shape, solver).unwrap_or_default();
    let (small, powers, large) = ("-H 9 ", "-H 12 ", "-H 48 ");
    for shape in [small, powers, large] {
        assert_eq!(at(shape, "ConvDirectNaiveConvFwd"), "works");
        // A Winograd's errors are allowed a Winograd, and only that.
        assert_eq!(at(shape, "ConvBinWinograd3x3U"), "works");
        assert_eq!(at(shape, "ConvBinWinogradRxS"), "wrong");
        assert_eq!(at(shape, "ConvAsm3x3U"), "crash");
        assert_eq!(at(shape, "ConvOclDirectFwdGen"), "hang");
        assert_eq!(at(shape, "ConvHipImplicitGemmV4R1Fwd"), "refuses");
        assert_eq!(at(shape, "ConvHipImplicitGemmV4R4Fwd"), "wrong");
        // MIOpen's own choice runs into the one that crashes before it measures any further.
        assert!(["crash", "hang"].contains(&at(shape, "find").as_str()));
        // Not offered, and found by name since Find failed.
        assert_eq!(at(shape, "ConvBinWinogradRxSf2x3"), "works");
        assert_eq!(at(shape, "ConvDirectNaiveConvBwd"), "");
    }
    let of = |solver: &str| [small, powers, large].map(|shape| at(shape, solver));
    assert_eq!(of("GemmFwdRest"), ["works", "works", "hang"]);
    assert_eq!(of("ConvOclDirectFwd"), ["works", "hang", "works"]);
    assert_eq!(of("ConvAsmImplicitGemmV4R1DynamicFwd"), ["crash", "works", "works"]);
    let kinds = |shape, solver| rescue(&found, shape, solver).unwrap_or_default();
    assert_eq!(kinds(large, "GemmFwdRest"), ["tiles"]);
    assert_eq!(kinds(powers, "ConvOclDirectFwd"), ["pad-channels"]);
    assert_eq!(kinds(small, "ConvAsmImplicitGemmV4R1DynamicFwd"), ["batch"]);
    assert!(kinds(large, "ConvOclDirectFwdGen").is_empty());
    // One wrong element that padding would crop: a solver that is wrong everywhere is not given that chance.
    assert!(kinds(large, "ConvBinWinogradRxS").is_empty());
    // Hangs cost their deadlines and nothing more: 3 of Find, the Gen solver's own, two that are rescued, rewritings
    // that do not help; the sum is far below a run without end.
    assert!(took < Duration::from_secs(240), "took {took:?}");
    let text = stderr(&output);
    for wanted in [
        "HANG*",
        "CRASH",
        "WRONG",
        "refuses",
        "Stand-in RX 5600 XT (gfx1010)",
        "MIOpen 2.20.0",
        "tiles of 32x32",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let row = rows(&found).iter().find(|r| r["solver"] == "ConvDirectNaiveConvFwd").unwrap();
    assert!(row["ms"].as_f64().unwrap() > 0.0 && row["deterministic"] == true && row["id"] == 85, "{row}");
    // Nothing is left in flight, and MIOpen's own records of the run are gone.
    let state = folder.join("state");
    assert!(std::fs::read_dir(state.join("quarantine")).unwrap().next().is_none());
    assert!(
        !std::fs::read_dir(&state).unwrap().any(|e| e
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with("run-"))
    );

    // The second time everything is known.
    let begin = Instant::now();
    let again = report(&probe(&folder, &args).output().unwrap());
    assert!(begin.elapsed() < took / 2, "took {:?} of {took:?}", begin.elapsed());
    assert!(rows(&again).iter().all(|r| r["remembered"] == true));
    assert_eq!(verdict(&again, large, "GemmFwdRest").unwrap(), "hang");
}

#[test]
fn all_passes_find_and_what_find_uncovers() {
    let folder = folder("probe-passes");
    standin::libraries(&folder);
    let bad = "ConvAsm3x3U ConvOclDirectFwdGen ConvBinWinogradRxS ConvHipImplicitGemmV4R4Fwd";
    let mut command = probe(&folder, &[ONE, "--deadline", "30", "--json", "-"]);
    let output = command.env("STANDIN_HIDE", bad).output().unwrap();
    let found = report(&output);
    assert_eq!(output.status.code(), Some(0), "{found:#}");
    let passes: Vec<&str> =
        found["shapes"].as_array().unwrap().iter().map(|s| s["line"].as_str().unwrap()).collect();
    assert_eq!(passes.len(), 3);
    for (line, solver) in
        passes.iter().zip(["ConvDirectNaiveConvFwd", "ConvDirectNaiveConvBwd", "ConvDirectNaiveConvWrw"])
    {
        assert_eq!(verdict(&found, line, solver).as_deref(), Some("works"), "{line}");
        assert_eq!(verdict(&found, line, "find").as_deref(), Some("works"), "{line}");
    }
    // Offered only once Find had measured it.
    assert_eq!(verdict(&found, passes[0], "ConvBinWinogradRxSf2x3").as_deref(), Some("works"));
}

#[test]
fn a_choice_that_miopen_answers_with_an_error_counts_as_failed() {
    let folder = folder("probe-unfound");
    standin::libraries(&folder);
    let bad = "ConvAsm3x3U ConvOclDirectFwdGen ConvBinWinogradRxS ConvHipImplicitGemmV4R4Fwd";
    let mut command = probe(&folder, &[ONE, "--direction", "fwd", "--deadline", "30", "--json", "-"]);
    let output = command.env("STANDIN_HIDE", bad).env("STANDIN_UNFOUND", "1").output().unwrap();
    let found = report(&output);
    assert_eq!(verdict(&found, "-k 4 ", "find").as_deref(), Some("refuses"), "{found:#}");
    assert_eq!(verdict(&found, "-k 4 ", "ConvDirectNaiveConvFwd").as_deref(), Some("works"));
    let text = stderr(&output);
    for wanted in ["refuses find", "its own choice fails on 1", "wave32 run --route rocm"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

/// The quarantine names the solver that hangs.
fn hanging_is_quarantined(folder: &Path) -> bool {
    let files = std::fs::read_dir(folder.join("state/quarantine")).into_iter().flatten().flatten();
    files.filter_map(|f| std::fs::read_to_string(f.path()).ok()).any(|t| t.contains("ConvOclDirectFwdGen"))
}

fn wait_for_the_hanging_solver(folder: &Path) {
    let end = Instant::now() + Duration::from_secs(60);
    while !hanging_is_quarantined(folder) {
        assert!(Instant::now() < end, "the hanging solver's turn never came");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_probe_that_was_killed_leaves_what_it_ran_in_quarantine() {
    let folder = folder("probe-killed");
    standin::libraries(&folder);
    let args = [SMALL, "--deadline", "60", "--find-deadline", "60", "--no-rewrites", "--json", "-"];
    let mut child = probe(&folder, &args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for_the_hanging_solver(&folder);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(hanging_is_quarantined(&folder), "the record must outlive the probe");
    let args = [SMALL, "--deadline", "2", "--find-deadline", "2", "--no-rewrites", "--json", "-"];
    let found = report(&probe(&folder, &args).output().unwrap());
    assert_eq!(verdict(&found, "-H 9 ", "ConvOclDirectFwdGen").as_deref(), Some("down"));
    assert!(!hanging_is_quarantined(&folder));
}

#[test]
fn ctrl_c_leaves_a_partial_table() {
    let folder = folder("probe-interrupt");
    standin::libraries(&folder);
    let args = [SMALL, "--deadline", "600", "--find-deadline", "600", "--json", "-"];
    let child = probe(&folder, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_the_hanging_solver(&folder);
    common::signal_twice("-INT", child.id());
    let begin = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(20));
    assert_eq!(output.status.code(), Some(1));
    let found = report(&output);
    assert_eq!(
        (&found["interrupted"], verdict(&found, "-H 9 ", "ConvDirectNaiveConvFwd")),
        (&Value::Bool(true), Some("works".into()))
    );
    assert!(stderr(&output).contains("run the same command again to go on"), "{}", stderr(&output));
    assert!(std::fs::read_dir(folder.join("state/quarantine")).unwrap().next().is_none());
}

#[test]
fn no_miopen_no_device_and_another_library() {
    let folder = folder("probe-missing");
    let library = folder.join("libMIOpen.so.1");
    let output = probe(&folder, &[SMALL]).output().unwrap();
    refused(&output, 3, "no library");
    assert!(stderr(&output).contains("install ROCm") && stderr(&output).contains(library.to_str().unwrap()));
    standin::libraries(&folder);
    let output = probe(&folder, &[SMALL]).env("STANDIN_COUNT", "0").output().unwrap();
    refused(&output, 3, "no device");
    assert!(stderr(&output).contains("sees no device"), "{}", stderr(&output));
    let output = probe(&folder, &[SMALL, "--device", "4"]).output().unwrap();
    refused(&output, 3, "no such device");
    refused(&probe(&folder, &["no-such-suite"]).output().unwrap(), 2, "no such suite");
    // A library that is none of MIOpen's.
    std::fs::copy(folder.join("libamdhip64.so"), &library).unwrap();
    let output = probe(&folder, &[SMALL]).output().unwrap();
    refused(&output, 3, "another library");
    assert!(stderr(&output).contains("miopen"), "{}", stderr(&output));
}

#[test]
fn two_probes_at_once_lose_nothing() {
    let folder = folder("probe-two");
    standin::libraries(&folder);
    let bad = "ConvAsm3x3U ConvOclDirectFwdGen ConvBinWinogradRxS ConvHipImplicitGemmV4R4Fwd";
    let start = |line: &str| {
        let mut command = probe(&folder, &[line, "--direction", "fwd", "--json", "-"]);
        command.env("STANDIN_HIDE", bad).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let outputs = [start("MIOpenDriver conv -n 1 -c 3 -H 9 -W 8 -k 5 -y 3 -x 3 -F 1"), start(ONE)]
        .map(|child| child.wait_with_output().unwrap());
    let tried: usize = outputs.iter().map(|output| rows(&report(output)).len()).sum();
    let table = report(&outputs[0])["table"].as_str().unwrap().to_string();
    let known: Value = serde_json::from_str(&std::fs::read_to_string(&table).unwrap()).unwrap();
    assert_eq!(known["rows"].as_array().unwrap().len(), tried);
    assert_eq!((&known["format"], &known["identity"]["target"]), (&Value::from(1), &Value::from("gfx1010")));
}

/// `wave32 check` of a network for the stand-in.
fn check(folder: &Path, model: &Path, args: &[&str]) -> Command {
    let mut command = wave32();
    command
        .arg("check")
        .arg(model)
        .args(["--device", "rocm", "--state"])
        .arg(folder.join("state"))
        .args(args);
    command.arg("--library").arg(folder.join("libMIOpen.so.1"));
    command
}

/// Solvers that are bad at every shape: left out where they would only take time.
const BAD: &str = "ConvAsm3x3U ConvOclDirectFwdGen ConvHipImplicitGemmV4R4Fwd";

#[test]
fn check_says_what_the_probe_found_of_a_network() {
    let folder = folder("probe-check it's");
    standin::libraries(&folder);
    let (one, list) = (ONE.replace("-F 0", "-F 1"), folder.join("net.txt"));
    std::fs::write(&list, format!("{one} # stem\n{LARGE} # body x2\n")).unwrap();
    let output = check(&folder, &list, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    for wanted in
        ["NO TABLE", "3 were never probed", "wave32 probe", " -H 8 ", " -H 48 ", "--library names it"]
    {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }

    let mut first = probe(&folder, &[&one, "--deadline", "30"]);
    assert_eq!(first.env("STANDIN_HIDE", BAD).output().unwrap().status.code(), Some(1));
    let found = report(&check(&folder, &list, &["--json"]).output().unwrap());
    let [stem, body] = found["rows"].as_array().unwrap().as_slice() else { panic!("{found:#}") };
    assert_eq!((&stem["route"], &body["route"], &body["rocm"]), (&"rocm".into(), &Value::Null, &Value::Null));
    let danger = |row: &Value, solver: &str| {
        let dangers = row["rocm"]["dangers"].as_array().unwrap();
        dangers.iter().find(|d| d["solver"] == solver).map(|d| d["verdict"].as_str().unwrap().to_string())
    };
    assert_eq!(danger(stem, "ConvBinWinogradRxS").as_deref(), Some("wrong"));
    assert_eq!(danger(stem, "GemmFwdRest"), None);
    assert_eq!(stem["rocm"]["choice"], "works");

    // The command that it names, as a shell runs it, probes the rest.
    let command = found["rocm"]["probe"].as_str().unwrap();
    assert!(command.contains(" -H 48 ") && !command.contains(" -H 8 "), "{command}");
    let program = env!("CARGO_BIN_EXE_wave32");
    let script = command.replacen("wave32", program, 1) + " --deadline 3 --find-deadline 3 --seed 3";
    let output = Command::new("sh").args(["-c", &script]).env("STANDIN_HIDE", BAD).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let output = check(&folder, &list, &["--json"]).output().unwrap();
    let found = report(&output);
    assert_eq!((output.status.code(), &found["rocm"]["probe"]), (Some(0), &Value::Null), "{found:#}");
    let body = &found["rows"][1];
    assert_eq!(
        (&body["layers"], &body["route"], &body["rocm"]["choice"]),
        (&2.into(), &"rocm".into(), &"hang".into())
    );
    assert_eq!(danger(body, "GemmFwdRest").as_deref(), Some("hang"));
    let safe = body["rocm"]["safe"].as_array().unwrap();
    let of = |solver: &str| safe.iter().find(|way| way["solver"] == solver);
    assert_eq!(of("GemmFwdRest").unwrap()["rewrite"][0]["kind"], "tiles");
    assert_eq!(of("ConvDirectNaiveConvFwd").unwrap()["rewrite"], Value::Array(Vec::new()));
    assert!(of("ConvBinWinogradRxS").is_none());
    let times: Vec<f64> = safe.iter().map(|way| way["ms"].as_f64().unwrap()).collect();
    assert!(times.is_sorted() && body["solver"] == safe[0]["solver"], "{times:?}");
    let text = stdout(&check(&folder, &list, &[]).output().unwrap());
    for wanted in ["3 have a safe way", "0 were never probed", "GemmFwdRest: tiles of 32x32", "MIOpen 2.20.0"]
    {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let says = |verdict: &str, solver: &str| {
        let words = |line: &&str| line.split_whitespace().take(2).eq([verdict, solver]);
        text.lines().find(words).map(|line| line.split_once('[').unwrap().1)
    };
    assert_eq!(
        (says("HANG", "GemmFwdRest"), says("works", "GemmFwdRest")),
        (Some("2]"), Some("1]")),
        "{text}"
    );
    assert_eq!(says("WRONG", "ConvBinWinogradRxS"), Some("1] [2]"), "{text}");

    // What was found of one MIOpen says nothing of another.
    let output = check(&folder, &list, &[]).env("STANDIN_VERSION", "21").output().unwrap();
    assert!(output.status.code() == Some(1) && stdout(&output).contains("NO TABLE"), "{}", stdout(&output));
    let output = check(&folder, &list, &[]).env("STANDIN_COUNT", "0").output().unwrap();
    refused(&output, 3, "no device");
}

#[test]
fn what_is_superseded_is_listed_and_pruned() {
    let folder = folder("probe-prune");
    standin::libraries(&folder);
    let run = |args: &[&str], version: &str| {
        let mut command = probe(&folder, args);
        command
            .env("STANDIN_HIDE", BAD)
            .env("STANDIN_VERSION", version)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let one = ONE.replace("-F 0", "-F 1");
    let old = stdout(&run(&[&one], "20"));
    assert!(old.contains("MIOpen 2.20.0") && !old.contains("--prune"), "{old}");
    assert!(stdout(&run(&["--prune"], "20")).starts_with("nothing is kept"));
    let output = run(&[&one, "--json", "-"], "21");
    let found = report(&output);
    assert!(stderr(&output).contains("wave32 probe --prune"), "{}", stderr(&output));
    let gone = &found["superseded"][0];
    let (gone_file, table) = (gone["file"].as_str().unwrap(), found["table"].as_str().unwrap());
    assert_eq!(gone["identity"]["miopen"], "2.20.0");
    assert!(gone_file != table && Path::new(gone_file).exists() && Path::new(table).exists());
    // Shown first, and nobody is there to say yes.
    let output = run(&["--prune"], "21");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stdout(&output).contains(gone_file) && !stdout(&output).contains(table), "{}", stdout(&output));
    assert!(Path::new(gone_file).exists());
    // A library that is there, and says nothing: what is kept may be of it.
    let mut silent = probe(&folder, &["--prune", "--yes"]);
    refused(&silent.env("STANDIN_COUNT", "0").output().unwrap(), 3, "no device");
    assert!(Path::new(gone_file).exists());
    let output = run(&["--prune", "--yes"], "21");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!Path::new(gone_file).exists() && Path::new(table).exists());
}
