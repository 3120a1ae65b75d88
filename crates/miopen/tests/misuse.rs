//! What goes wrong around the drop-in: wrong arguments of every kind, many threads, several processes, handles destroyed
//! while their work runs; and what it leaves behind, which is nothing.

mod card;

use card::{launcher, library, list, on_card, program, run};
use std::process::{Command, Stdio};

#[test]
fn wrong_calls_are_answered_and_change_nothing() {
    let Some(launcher) = launcher() else { return };
    let ran = on_card(&launcher, &program("misuse"), &[]);
    ran.clean();
    // A workspace that is too small: the message has both sizes.
    for line in ran.ended.stdout.lines().filter(|line| line.starts_with("a workspace of ")) {
        let sizes: Vec<&str> = line.split_whitespace().filter(|word| word.parse::<u64>().is_ok()).collect();
        let told = ran.ended.stderr.lines().any(|said| sizes.iter().all(|size| said.contains(size)));
        assert!(told, "'{line}', but stderr has no such line:\n{}", ran.ended.stderr);
    }
}

#[test]
fn eight_threads_destroy_their_handles_in_flight_and_leave_nothing() {
    let Some(launcher) = launcher() else { return };
    on_card(&launcher, &program("threads"), &[]).clean();
}

#[test]
fn two_processes_at_once() {
    let Some(launcher) = launcher() else { return };
    let (program, layers) = (program("torch_replay"), list("kinds.txt"));
    std::thread::scope(|scope| {
        let runs: Vec<_> = ["--torch", "--dtype"]
            .map(|option| [option, if option == "--torch" { "2.2" } else { "f16" }])
            .into_iter()
            .map(|args| {
                let (launcher, program, layers) = (&launcher, &program, &layers);
                scope.spawn(move || on_card(launcher, program, &[layers.to_str().unwrap(), args[0], args[1]]))
            })
            .collect();
        for ran in runs {
            ran.join().unwrap().clean();
        }
    });
}

/// The drop-in's exported functions.
fn exports() -> Vec<String> {
    let nm = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().unwrap();
    let text = String::from_utf8(nm.stdout).unwrap();
    let name = |line: &str| {
        line.split_whitespace().nth(2).and_then(|name| name.split('@').next()).map(str::to_owned)
    };
    text.lines().filter(|line| line.contains(" T ")).filter_map(name).collect()
}

#[test]
fn no_function_crashes_on_null_or_foreign_arguments() {
    let Some(launcher) = launcher() else { return };
    let (program, folder) = (program("fuzz"), tempfile::tempdir().unwrap());
    let names = exports();
    assert!(names.len() > 50, "{names:?}");
    std::fs::write(folder.path().join("names"), names.join("\n")).unwrap();
    for mode in ["null", "foreign", "odd"] {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$@\" < names", "sh"]).arg(&launcher).args(["run", "--"]).arg(&program);
        command.arg(library()).arg(mode).current_dir(folder.path()).stdin(Stdio::null());
        command.env("LD_LIBRARY_PATH", library().parent().unwrap());
        let ended = run(command);
        assert_eq!(ended.code, Some(0), "{mode}:\n{}\n{}", ended.stdout, ended.stderr);
        assert!(ended.stdout.contains(&format!("{} functions", names.len())), "{}", ended.stdout);
    }
}
