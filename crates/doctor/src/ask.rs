//! Questions to the system's own programs: no shell, a deadline, so much output and no more.
//!
//! A recorded tree is never asked: what its programs would say is not in it.

use crate::system::System;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Where programs are if PATH does not say.
const USUAL_PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";
/// How long a program that was killed may take to go.
const GRACE: Duration = Duration::from_millis(200);
/// Between two looks whether it has gone.
const PAUSE: Duration = Duration::from_millis(2);

/// What a program said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its standard output, in the C locale.
    pub text: String,
    /// Whether it ended with 0.
    pub success: bool,
    /// False where the output was longer than asked for: this is its beginning.
    pub whole: bool,
}

/// Why a program said nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Silence {
    /// A recorded tree runs nothing.
    #[error("nothing is run for a recorded tree")]
    Recorded,
    /// No such program.
    #[error("{0} is not installed")]
    Absent(String),
    /// It was killed.
    #[error("{0} took too long and was stopped")]
    Late(String),
    /// It could not be started.
    #[error("{0} could not be run: {1}")]
    Failed(String, String),
}

impl System {
    /// Runs a program of PATH and returns what it prints, at most so many bytes in at most that time, which what is left of
    /// [`System::limit`] shortens further. Its environment is PATH and LC_ALL=C: no preloaded library and no setting of the
    /// user's has a part in the answer.
    ///
    /// # Errors
    /// The tree is a recorded one; the program is not there, cannot be started or takes longer.
    pub fn ask(&self, program: &str, args: &[&str], time: Duration, bytes: u64) -> Result<Answer, Silence> {
        if !self.live {
            return Err(Silence::Recorded);
        }
        let path = self.env("PATH").unwrap_or(USUAL_PATH);
        let file = find(program, path).ok_or_else(|| Silence::Absent(program.into()))?;
        let deadline = Instant::now() + time.min(self.time_left());
        let mut command = Command::new(file);
        command.args(args).env_clear().env("PATH", path).env("LC_ALL", "C").current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let failed = |error: std::io::Error| Silence::Failed(program.into(), error.to_string());
        let mut child = command.spawn().map_err(failed)?;
        let Some(output) = child.stdout.take() else {
            return Err(Silence::Failed(program.into(), "it has no output".into()));
        };
        // Reading could wait for ever, so it is done aside: whoever still holds the pipe keeps that thread only.
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut read = Vec::new();
            let done = output.take(bytes.saturating_add(1)).read_to_end(&mut read);
            let _ = sender.send(done.map(|_| read));
        });
        let read = receiver.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        let Ok(read) = read else {
            end(&mut child, Instant::now());
            return Err(Silence::Late(program.into()));
        };
        let mut read = match read {
            Ok(read) => read,
            Err(error) => {
                end(&mut child, Instant::now());
                return Err(failed(error));
            }
        };
        let whole = read.len() as u64 <= bytes;
        read.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        let status = end(&mut child, if whole { deadline } else { Instant::now() });
        if whole && status.is_none() {
            return Err(Silence::Late(program.into()));
        }
        let text = String::from_utf8_lossy(&read).into_owned();
        Ok(Answer { text, success: status.is_some_and(|s| s.success()), whole })
    }
}

/// Waits for a program until then, kills it after, and takes its status; none if it had to be killed.
fn end(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) => std::thread::sleep(PAUSE),
            Err(_) => return None,
        }
    }
    let _ = child.kill();
    // One that the kernel does not let go of is left behind.
    let last = Instant::now() + GRACE;
    while Instant::now() < last && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(PAUSE);
    }
    None
}

/// The program's file in the folders of a PATH; folders relative to wherever we are do not count.
pub(crate) fn find(program: &str, path: &str) -> Option<PathBuf> {
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::system::Process;
    use std::os::unix::fs::PermissionsExt;

    /// A machine whose only program is this script, under the name `tell`.
    fn machine(script: &str) -> (tempfile::TempDir, System) {
        let folder = tempfile::tempdir().unwrap();
        crate::hostile_tests::common::program(folder.path(), "tell", script);
        let path = folder.path().display().to_string();
        let process = Process { env: [("PATH".to_string(), path)].into(), ..Process::default() };
        let system = System::new(folder.path().to_path_buf(), process, true);
        (folder, system)
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn output_status_and_surroundings() {
        let (_folder, system) =
            machine("echo \"$1|$LC_ALL|$HOME|$LD_PRELOAD\"; read line; echo \"[$line]\"; exit 3");
        let answer = system.ask("tell", &["a b'\"$(x)"], LONG, 100).unwrap();
        assert_eq!(answer, Answer { text: "a b'\"$(x)|C||\n[]\n".into(), success: false, whole: true });
        let (_folder, system) = machine("exit 0");
        assert!(system.ask("tell", &[], LONG, 0).unwrap().success);
    }

    #[test]
    fn too_much_is_cut_and_ended() {
        let (_folder, system) = machine("while :; do echo 0123456789; done");
        let start = Instant::now();
        let answer = system.ask("tell", &[], LONG, 1000).unwrap();
        assert!(!answer.whole && answer.text.len() == 1000 && answer.text.starts_with("0123456789\n0"));
        assert!(start.elapsed() < LONG / 2);
        let (_folder, system) = machine("printf 12345");
        let exact = system.ask("tell", &[], LONG, 5).unwrap();
        assert!(exact.whole && exact.text == "12345");
    }

    #[test]
    fn a_hang_costs_its_deadline() {
        // One holds its output open, one has closed it, one has left it to a child.
        for script in ["exec /bin/sleep 30", "exec >&-; exec /bin/sleep 30", "/bin/sleep 30 & exit 0"] {
            let (_folder, system) = machine(script);
            let start = Instant::now();
            let silence = system.ask("tell", &[], Duration::from_millis(300), 100);
            assert_eq!(silence, Err(Silence::Late("tell".into())), "{script}");
            assert!(start.elapsed() < LONG / 2, "{script}");
        }
        let (_folder, system) = machine("exec /bin/sleep 60");
        system.limit(0, Duration::from_millis(50));
        assert_eq!(system.ask("tell", &[], LONG * 3, 100), Err(Silence::Late("tell".into())));
    }

    #[test]
    fn what_cannot_be_asked_says_so() {
        let (folder, system) = machine("exit 0");
        assert_eq!(system.ask("else", &[], LONG, 1), Err(Silence::Absent("else".into())));
        let recorded = System::new(folder.path().to_path_buf(), system.process.clone(), false);
        assert_eq!(recorded.ask("tell", &[], LONG, 1), Err(Silence::Recorded));
        std::fs::write(folder.path().join("tell"), "no program").unwrap();
        std::fs::set_permissions(folder.path().join("tell"), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(system.ask("tell", &[], LONG, 1), Err(Silence::Failed(..))));
        let process =
            Process { env: [("PATH".to_string(), "relative:.".to_string())].into(), ..Process::default() };
        let nowhere = System::new("/".into(), process, true);
        assert_eq!(nowhere.ask("sh", &[], LONG, 1), Err(Silence::Absent("sh".into())));
    }
}
