//! Programs on the strict virtual card under AMD's own HIP runtime, within a deadline; and archives that cargo left, linked.
#![allow(dead_code, reason = "each test file uses its part")]

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// What a program may take, on a busy machine too.
pub const DEADLINE: Duration = Duration::from_secs(420);

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Panics, with all that it wrote, unless it says that it passed.
    pub fn passed(&self) {
        let whole = format!("{}\n{}", self.stdout, self.stderr);
        assert!(
            self.code == Some(0) && self.stdout.ends_with("passed\n"),
            "{:?}: {whole}",
            (self.code, self.signal)
        );
    }
}

/// Runs it within the deadline.
pub fn run(command: Command) -> Ended {
    run_within(command, DEADLINE)
}

/// Runs it; when it is late, ends it and all that it started.
fn run_within(mut command: Command, deadline: Duration) -> Ended {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (reader(child.stdout.take().unwrap()), reader(child.stderr.take().unwrap()));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > deadline {
            let group = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = child.wait();
            panic!("{command:?}: not done after {deadline:?}:\n{}", err.join().unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (stdout, stderr) = (out.join().unwrap(), err.join().unwrap());
    Ended { code: status.code(), signal: status.signal(), stdout, stderr }
}

fn reader(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = from.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|found| found.modified()).ok()
}

/// A library linked from this build's archive of that package, by `link(library, archive)` where it is older.
pub fn linked(package: &str, library: PathBuf, link: impl FnOnce(&Path, &Path)) -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let prefix = format!("lib{package}-");
    let archive = std::fs::read_dir(&deps)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&prefix) && name.ends_with(".a")
        })
        .max_by_key(|path| changed(path))
        .unwrap_or_else(|| panic!("cargo left no archive of {package}"));
    if changed(&library) <= changed(&archive) {
        link(&library, &archive);
    }
    library
}

/// The launcher of the virtual card whose library `WAVE32_VGPU_LIB` names, and HIP; or `None`, saying what is missing.
pub fn launcher() -> Option<PathBuf> {
    let required = std::env::var_os("WAVE32_REQUIRE_VGPU").is_some();
    let missing = |what: &str| {
        assert!(!required, "{what}");
        eprintln!("skipped: {what}");
    };
    let Some(card) = std::env::var_os("WAVE32_VGPU_LIB").map(PathBuf::from) else {
        missing("WAVE32_VGPU_LIB is not set (`make vgpu`)");
        return None;
    };
    let launcher = card.parent().and_then(Path::parent).map(|folder| folder.join("wave32-vgpu"));
    let Some(launcher) = launcher.filter(|path| path.is_file()) else {
        missing("wave32-vgpu is not in the folder above WAVE32_VGPU_LIB's");
        return None;
    };
    if hip().is_none() {
        missing("libamdhip64.so is not installed (scripts/setup.sh)");
        return None;
    }
    Some(launcher)
}

/// The HIP runtime that the linker finds.
pub fn hip() -> Option<PathBuf> {
    let asked = Command::new("cc").arg("-print-file-name=libamdhip64.so").output().ok()?;
    let path = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim());
    path.is_absolute().then_some(path)
}

/// What a run on the card leaves: how it ended, which kernels it launched, what the strict card found.
pub struct Run {
    pub ended: Ended,
    pub report: serde_json::Value,
    /// The folder that was the program's home, cache, temporary and working folder.
    pub home: tempfile::TempDir,
}

impl Run {
    /// Of a program on the strict card, in a home that is empty, with these variables.
    pub fn of(
        launcher: &Path,
        program: &Path,
        args: &[&str],
        variables: &[(&str, &OsStr)],
        deadline: Duration,
    ) -> Self {
        let (home, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let report = out.path().join("report.json");
        let mut command = Command::new(launcher);
        command.args(["run", "--strict", "--report"]).arg(&report).arg("--").arg(program).args(args);
        command.envs(variables.iter().copied()).current_dir(home.path());
        for name in
            ["HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "TMPDIR", "MIOPEN_USER_DB_PATH"]
        {
            command.env(name, home.path());
        }
        let ended = run_within(command, deadline);
        let report = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
        Self { ended, report, home }
    }

    /// It passed, ran kernels, the strict card found nothing, and no file was written.
    pub fn clean(&self) {
        self.ended.passed();
        self.unharmed();
    }

    /// It ran kernels, the strict card found nothing, and no file was written.
    pub fn unharmed(&self) {
        let findings = self.report["findings"].as_array().unwrap();
        assert!(findings.is_empty(), "{findings:#?}\n{}", self.ended.stdout);
        assert!(!self.report["kernels"].as_object().unwrap().is_empty(), "no kernel ran");
        self.wrote_nothing();
    }

    /// Nothing lies in what was its home; but the virtual card keeps the system files that it shows in a folder there.
    pub fn wrote_nothing(&self) {
        let names = std::fs::read_dir(self.home.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = names.filter(|name| !name.to_string_lossy().starts_with("wave32-vgpu-")).collect();
        assert!(left.is_empty(), "files were written: {left:?}");
    }
}
