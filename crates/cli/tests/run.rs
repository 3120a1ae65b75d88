//! `wave32 run`: exec semantics with and without a watch, environment, and hangs of a stand-in MIOpen.
#![cfg(target_os = "linux")]

mod common;
mod standin;

use common::{folder, in_environment_of, nowhere, refused, signal, stderr, stdout, wave32};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The flags that make the two ways of starting a program; they must not differ for it.
const WAYS: [&[&str]; 2] = [&["--route", "cpu"], &["--route", "cpu", "--hang-timeout", "60"]];

/// With every signal as a terminal's program has it: a background job, or one under nohup, ignores some, and what is
/// started from it does too.
fn run(flags: &[&str], program: &[&str]) -> Command {
    let wave32 = wave32();
    let mut command = in_environment_of(&wave32, "env");
    command.arg("--default-signal").arg(wave32.get_program()).arg("run").args(flags).arg("--").args(program);
    command
}

fn output(flags: &[&str], program: &[&str]) -> Output {
    run(flags, program).output().unwrap()
}

/// Waits until the program has said a line.
fn started(child: &mut Child) -> BufReader<impl Read + use<>> {
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    lines
}

/// Waits for what must come soon.
#[track_caller]
fn soon(mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(60), "did not come to pass");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn arguments_streams_and_status_pass_through() {
    for flags in WAYS {
        let odd = ["a b", "", "$HOME", "*", "'\"`", "--route", "-v", "x\ny"];
        let done = output(flags, &[&["printf", "[%s]"], odd.as_slice()].concat());
        assert_eq!(stdout(&done), odd.iter().map(|a| format!("[{a}]")).collect::<String>());
        let mut command = run(flags, &["cat"]);
        let mut missing = nowhere("").into_bytes();
        missing.push(0xff);
        command.arg(std::ffi::OsStr::from_bytes(&missing));
        assert_eq!(command.output().unwrap().status.code(), Some(1));
        let mut child = run(flags, &["sh", "-c", "cat; echo err >&2; exit 7"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"through").unwrap();
        let done = child.wait_with_output().unwrap();
        assert_eq!((stdout(&done), stderr(&done)), ("through".into(), "err\n".into()));
        assert_eq!(done.status.code(), Some(7));
    }
}

#[test]
fn a_program_that_cannot_be_started_has_the_usual_codes() {
    let folder = folder("run-start");
    let text = folder.join("text");
    std::fs::write(&text, "no program").unwrap();
    for flags in WAYS {
        refused(&output(flags, &[&nowhere("program")]), 127, "no such file");
        refused(&output(flags, &[""]), 127, "no name");
        assert!(stderr(&output(flags, &[""])).contains("name is empty"));
        refused(&output(flags, &["wave32-no-such-program"]), 127, "nothing on PATH");
        refused(&output(flags, &[text.to_str().unwrap()]), 126, "not executable");
        refused(&output(flags, &["/"]), 126, "a folder");
    }
    refused(&output(&["--route", "cpu"], &[]), 2, "nothing to run");
    refused(&output(&["--route", "cuda"], &["true"]), 2, "no route");
    refused(&output(&["--hang-timeout", "0"], &["true"]), 2, "no time");
    refused(&output(&["--route", "vulkan"], &["true"]), 3, "no Vulkan driver");
    if !Path::new("/dev/kfd").exists() {
        refused(&output(&["--route", "rocm"], &["true"]), 3, "no ROCm device");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn signals_end_it_as_they_end_the_program() {
    for flags in WAYS {
        for (name, number) in [("-TERM", 15), ("-HUP", 1), ("-INT", 2), ("-USR1", 10)] {
            let script = "echo ready; exec sleep 100";
            let mut child = run(flags, &["sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
            let _lines = started(&mut child);
            signal(name, child.id());
            assert_eq!(child.wait().unwrap().signal(), Some(number), "{flags:?} {name}");
        }
        let mut child = run(flags, &["sh", "-c", "kill -SEGV $$"]).spawn().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(11), "{flags:?}");
        let mut child = run(flags, &["sh", "-c", "kill -KILL $$"]).spawn().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "{flags:?}");
        // Real-time signals, which have no names.
        for number in [34, 40, 64] {
            let mut child = run(flags, &["sh", "-c", &format!("kill -{number} $$")]).spawn().unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(number), "{flags:?}");
        }
    }
}

#[test]
fn a_program_may_handle_and_ignore_signals() {
    for flags in WAYS {
        let script = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
        let mut child = run(flags, &["sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = started(&mut child);
        signal("-TERM", child.id());
        assert_eq!(child.wait().unwrap().code(), Some(5), "{flags:?}");
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "caught\n");
        // As under nohup: what was ignored stays so.
        let mut line = vec![env!("CARGO_BIN_EXE_wave32"), "run"];
        line.extend(flags);
        line.extend(["--", "sh", "-c", "echo ready; sleep 1; echo lived"]);
        let mut nohup = Command::new("sh");
        nohup.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).args(line);
        let mut child = nohup.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = started(&mut child);
        signal("-HUP", child.id());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{flags:?}");
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "lived\n");
    }
}

/// The state letter of a process.
fn state(pid: u32) -> char {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit(')').next().and_then(|rest| rest.trim().chars().next()).unwrap_or('?')
}

#[test]
fn it_stops_and_goes_on_with_the_program() {
    for flags in WAYS {
        let script = "echo ready; sleep 0.5; echo on; exec sleep 100";
        // In a group of its own: the system does not let TSTP stop one that no shell of the session looks after.
        let mut command = run(flags, &["sh", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        let mut lines = started(&mut child);
        signal("-TSTP", child.id());
        soon(|| state(child.id()) == 'T');
        signal("-CONT", child.id());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert_eq!(line, "on\n", "{flags:?}");
        signal("-TERM", child.id());
        assert_eq!(child.wait().unwrap().signal(), Some(15), "{flags:?}");
    }
}

#[test]
fn the_environment_is_changed_as_told() {
    let mut command =
        run(&["--route", "cpu"], &["sh", "-c", "echo ${WAVE32_CUDA-unset} $TORCH_DEVICE_BACKEND_AUTOLOAD"]);
    let done = command.env("WAVE32_CUDA", "wave").output().unwrap();
    assert_eq!(stdout(&done), "unset 0\n");
    assert_eq!(stderr(&done), "wave32 run: route cpu: removed WAVE32_CUDA (this route uses no GPU)\n");
    let mut command = run(&["--route", "cpu", "--keep", "WAVE32_CUDA"], &["sh", "-c", "echo $WAVE32_CUDA"]);
    let done = command.env("WAVE32_CUDA", "wave").output().unwrap();
    assert_eq!((stdout(&done), stderr(&done)), ("wave\n".into(), String::new()));
    let done = output(&["--route", "cpu", "--dry-run"], &["false"]);
    assert!(stdout(&done).starts_with("route cpu: asked for\n  set TORCH_DEVICE_BACKEND_AUTOLOAD=0 ("));
    assert_eq!(done.status.code(), Some(0));
}

#[test]
fn a_machine_without_a_gpu_is_told_of() {
    if !Path::new("/dev/kfd").exists() {
        let done = output(&[], &["echo", "on"]);
        assert_eq!((stdout(&done).as_str(), done.status.code()), ("on\n", Some(0)));
        assert!(stderr(&done).starts_with("wave32 run: route cpu: no GPU found"), "{}", stderr(&done));
    }
}

#[test]
fn a_hang_in_miopen_is_told_and_ended() {
    let folder = folder("run-hang");
    let program = standin::program(&folder);
    let hang = |how: &str, program: &[&str]| {
        let mut command = run(&["--route", "cpu", "--hang-timeout", "2"], program);
        let since = Instant::now();
        let done = command.env("STANDIN_MANNER", how).output().unwrap();
        assert!(since.elapsed() < Duration::from_secs(60));
        done
    };
    let program = program.to_str().unwrap();
    let clang = folder.join("clang");
    let copy = Command::new("cp").arg("/bin/sleep").arg(&clang).status();
    assert!(copy.unwrap().success());
    let stubborn = format!("trap '' TERM; {program}; sleep 100");
    let compiling = format!("'{}' 8 2>/dev/null & {program}; exit $?", clang.display());
    let working = format!("{program}; {program}; exit 9");
    let cases: [(&str, &[&str]); 6] = [
        ("spin", &[program]),
        ("sleep", &[program]),
        ("sleep", &["sh", "-c", &stubborn]),
        ("after", &[program]),
        ("compile", &["sh", "-c", &compiling]),
        ("work", &["sh", "-c", &working]),
    ];
    // Side by side: each waits for most of its time.
    let ended: Vec<Output> = std::thread::scope(|scope| {
        let started: Vec<_> = cases.iter().map(|(how, program)| scope.spawn(|| hang(how, program))).collect();
        started.into_iter().map(|case| case.join().unwrap()).collect()
    });
    let [stuck @ .., after, compile, work] = ended.as_slice() else { unreachable!() };
    for ((how, _), done) in cases.iter().zip(stuck) {
        let text = stderr(done);
        assert_eq!(done.status.code(), Some(124), "{how}: {text}");
        assert!(text.starts_with("epoch 1\n") && text.contains("STUCK in MIOpen for"), "{how}: {text}");
        assert!(text.contains("\n    MIOpenDriver conv -n 1 -c 16 -H 48 -W 48 -k 32 -y 3"), "{how}: {text}");
        assert!(text.contains("libMIOpen.so.1: miopenConvolutionForwardImmediate+"), "{how}: {text}");
        assert!(text.contains("net: main+") && text.contains("what to do next"), "{how}: {text}");
        assert!(!text.contains("Command [LogCmd"), "MIOpen's lines are for us: {text}");
        let waits = if *how == "spin" { "spinning on the CPU" } else { "waiting" };
        assert!(text.contains(waits), "{how}: {text}");
    }
    // A kernel that hangs shows in the wait for it.
    let text = stderr(after);
    assert!(text.contains("STUCK waiting for the GPU") && text.contains("-H 48 -W 48"), "{text}");
    assert!(text.contains("libamdhip64.so: hipStreamSynchronize+"), "{text}");
    // Compiling may take its time.
    assert_eq!((compile.status.code(), stderr(compile)), (Some(4), "epoch 1\n".into()));
    // One that works on is left alone, for longer than the limit.
    assert_eq!((work.status.code(), stderr(work)), (Some(9), "epoch 1\nepoch 1\n".into()));
    std::fs::remove_dir_all(folder).unwrap();
}
