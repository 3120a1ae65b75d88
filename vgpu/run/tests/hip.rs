//! Stock HIP programs, built with Debian's `hipcc`, under the virtual card: see `vgpu/tests/hip`.
//!
//! Each checks itself against host arithmetic and prints `passed`. Comments at its top: `// flags:` for the compiler,
//! `// options:` for the launcher, `// expect:` lines of its output, `// dies:` what stands on stderr when it is to be
//! ended by the runtime (`// also:` more of that), `// module`: it loads a code object of the same text.

mod card;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use card::{DEADLINE, Ended, hipcc_missing, launcher, run};

struct Program {
    name: String,
    source: PathBuf,
    text: String,
}

impl Program {
    fn comments<'a>(&'a self, key: &str) -> Vec<&'a str> {
        let prefix = format!("// {key}: ");
        self.text.lines().filter_map(|line| line.strip_prefix(prefix.as_str())).collect()
    }

    fn words(&self, key: &str) -> Vec<&str> {
        self.comments(key).into_iter().flat_map(str::split_whitespace).collect()
    }
}

fn programs() -> Vec<Program> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/hip");
    let mut programs: Vec<Program> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "hip"))
        .map(|source| Program {
            name: source.file_stem().unwrap().to_string_lossy().into_owned(),
            text: std::fs::read_to_string(&source).unwrap(),
            source,
        })
        .collect();
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    programs
}

/// Builds it, unless it is newer than its source.
fn build(program: &Program, folder: &Path, target: &str) -> Result<PathBuf, String> {
    let binary = folder.join(&program.name);
    let changed = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified()).ok();
    let header = program.source.with_file_name("check.h");
    if changed(&binary) > changed(&program.source).max(changed(&header)) {
        return Ok(binary);
    }
    let compile = |extra: &[&str], out: &Path| {
        let mut command = Command::new("hipcc");
        command.env("HIP_PLATFORM", "amd");
        command.arg(format!("--offload-arch={target}")).args(["-O2", "-std=c++17", "-Wall", "-Werror"]);
        command.args(program.words("flags")).args(extra).arg(&program.source).arg("-o").arg(out);
        let ended = run(command, DEADLINE);
        if ended.code == Some(0) { Ok(()) } else { Err(format!("hipcc: {}", ended.stderr)) }
    };
    if program.text.contains("\n// module") || program.text.starts_with("// module") {
        compile(&["--genco"], &binary.with_extension("co"))?;
    }
    compile(&[], &binary)?;
    Ok(binary)
}

/// Why it did not do what it says it does.
fn judge(program: &Program, ended: &Ended) -> Result<(), String> {
    let whole = format!("{}\n{}", ended.stdout, ended.stderr);
    let wrong = |what: String| Err(format!("{what}\n{whole}"));
    if ended.late {
        return wrong(format!("not done after {DEADLINE:?}"));
    }
    let death = program.comments("dies");
    for wanted in death.iter().chain(&program.comments("also")) {
        if !ended.stderr.contains(wanted) {
            return wrong(format!("'{wanted}' is not on stderr"));
        }
    }
    if !death.is_empty() {
        return if ended.signal == Some(6) {
            Ok(())
        } else {
            wrong("was not ended by the runtime".to_owned())
        };
    }
    for line in program.comments("expect") {
        if !ended.stdout.lines().any(|found| found == line) {
            return wrong(format!("the line '{line}' is missing"));
        }
    }
    if ended.code == Some(0) && ended.stdout.ends_with("passed\n") {
        Ok(())
    } else {
        wrong(format!("exit status {:?}, signal {:?}", ended.code, ended.signal))
    }
}

fn check(program: &Program, folder: &Path, card: &str, target: &str) -> Result<(), String> {
    let binary = build(program, folder, target)?;
    for sdma in ["1", "0"] {
        let mut command = launcher();
        command.env("HSA_ENABLE_SDMA", sdma).args(["run", "--card", card]).args(program.words("options"));
        command.arg("--").arg(&binary);
        judge(program, &run(command, DEADLINE))
            .map_err(|why| format!("{card}, HSA_ENABLE_SDMA={sdma}: {why}"))?;
    }
    Ok(())
}

/// Runs all on as many threads as there are processors; reports all that fail.
fn check_all(programs: &[Program], card: &str, target: &str) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(target);
    std::fs::create_dir_all(&folder).unwrap();
    let next = Mutex::new(programs.iter());
    let failures = Mutex::new(String::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some(program) = next.lock().unwrap().next() else { break };
                    if let Err(why) = check(program, &folder, card, target) {
                        writeln!(failures.lock().unwrap(), "{}: {why}", program.name).unwrap();
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn stock_programs_give_right_answers_with_and_without_the_copy_engine() {
    if hipcc_missing() {
        return;
    }
    let programs = programs();
    assert!(programs.len() >= 20, "only {} programs are there", programs.len());
    check_all(&programs, "rx5600xt", "gfx1010");
}

#[test]
fn the_other_target_runs_too() {
    if hipcc_missing() {
        return;
    }
    let few = ["half", "lds_reduce", "scratch"];
    let programs: Vec<Program> =
        programs().into_iter().filter(|program| few.contains(&&*program.name)).collect();
    assert_eq!(programs.len(), few.len());
    check_all(&programs, "rx5500xt", "gfx1012");
}
