//! What the tests share: the launcher with the library of this build, and programs that are ended when they are late.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What a program may take, on a busy machine too.
pub const DEADLINE: Duration = Duration::from_secs(240);

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// It was ended because it took too long.
    pub late: bool,
    pub stdout: String,
    pub stderr: String,
}

/// Runs it, and ends it when it is late.
pub fn run(mut command: Command, deadline: Duration) -> Ended {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = reader(child.stdout.take().unwrap());
    let stderr = reader(child.stderr.take().unwrap());
    let start = Instant::now();
    let (status, late) = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break (status, false);
        }
        if start.elapsed() > deadline {
            child.kill().unwrap();
            break (child.wait().unwrap(), true);
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Ended {
        code: status.code(),
        signal: status.signal(),
        late,
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
    }
}

fn reader(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = from.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// The launcher, with the library of `WAVE32_VGPU_LIB` or else of this build's profile.
pub fn launcher() -> Command {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        if let Some(library) = std::env::var_os("WAVE32_VGPU_LIB") {
            return library.into();
        }
        let folder = PathBuf::from(env!("CARGO_BIN_EXE_wave32-vgpu")).parent().unwrap().to_owned();
        let target = folder.parent().unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "wave32-card", "--target-dir"]).arg(target);
        if folder.ends_with("release") {
            build.arg("--release");
        }
        let built = run(build, Duration::from_secs(900));
        assert_eq!(built.code, Some(0), "{}", built.stderr);
        folder.join("libwave32_vgpu.so")
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_wave32-vgpu"));
    command.env("WAVE32_VGPU_LIB", library);
    command
}

/// Says so, and whether; an error where the compilers must be there.
pub fn hipcc_missing() -> bool {
    missing("hipcc")
}

/// The same for another program.
pub fn missing(program: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|folder| folder.join(program).is_file());
    if !found {
        assert!(std::env::var_os("WAVE32_REQUIRE_COMPILERS").is_none(), "{program} is not installed");
        eprintln!("skipped: {program} is not installed (scripts/setup.sh)");
    }
    !found
}
