//! The commands of package managers that `doctor --fix` runs by itself, after it has shown them and asked.

use crate::ask::find;
use crate::system::System;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Programs that may be run. A command is one of these and words; there is no shell.
const PROGRAMS: &[&str] =
    &["apt-get", "depmod", "dkms", "dnf", "dracut", "mkinitcpio", "pacman", "update-initramfs", "zypper"];
/// Those that only bring indexes and boot images in step with /lib/modules.
const INDEXES: &[&str] = &["depmod", "dracut", "mkinitcpio", "update-initramfs"];
/// A package with its modules for several kernels is built in minutes.
const DEADLINE: Duration = Duration::from_secs(3600);
const PAUSE: Duration = Duration::from_millis(50);
const USUAL_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Why a command did not do what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// Nothing is run for a recorded tree.
    #[error("`{0}` was not run: this is not the running machine")]
    Recorded(String),
    /// Not one of ours.
    #[error("`{0}` is no command that wave32 runs")]
    Foreign(String),
    /// There is no such program.
    #[error("`{0}` was not run: the program is not installed")]
    Absent(String),
    /// It was not started, or not waited for.
    #[error("`{0}` could not be run: {1}")]
    Failed(String, String),
    /// It ended badly.
    #[error("`{0}` failed: {1}")]
    Ended(String, ExitStatus),
    /// It was stopped.
    #[error("`{0}` did not end in an hour and was stopped")]
    Late(String),
}

/// Does the command only bring indexes in step, so that it is to be run again when files are put back?
#[must_use]
pub fn is_index(command: &str) -> bool {
    command.split_whitespace().next().is_some_and(|program| INDEXES.contains(&program))
}

/// Runs one, on the running machine. What it says goes to standard error. It asks nothing.
///
/// # Errors
/// Everything but its end with 0.
pub fn run(system: &System, command: &str) -> Result<(), CommandError> {
    run_within(system, command, DEADLINE)
}

fn run_within(system: &System, line: &str, deadline: Duration) -> Result<(), CommandError> {
    let text = || line.to_string();
    if !system.live {
        return Err(CommandError::Recorded(text()));
    }
    let mut words = line.split_whitespace();
    let program = words.next().filter(|program| PROGRAMS.contains(program));
    let program = program.ok_or_else(|| CommandError::Foreign(text()))?;
    let path = system.env("PATH").unwrap_or(USUAL_PATH);
    let file = find(program, path).ok_or_else(|| CommandError::Absent(text()))?;
    let failed = |error: std::io::Error| CommandError::Failed(text(), error.to_string());
    let mut command = Command::new(file);
    command.args(words).env("PATH", path).env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
    // No shim and no library of the user's has a part in it.
    command.env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH").current_dir("/");
    command.stdin(Stdio::null()).stdout(std::io::stderr());
    let mut child = command.spawn().map_err(failed)?;
    let until = Instant::now() + deadline;
    loop {
        match child.try_wait().map_err(failed)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(CommandError::Ended(text(), status)),
            None if Instant::now() < until => std::thread::sleep(PAUSE),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(CommandError::Late(text()));
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::system::Process;

    fn machine(script: &str, live: bool) -> (tempfile::TempDir, System) {
        let folder = tempfile::tempdir().unwrap();
        crate::hostile_tests::common::program(folder.path(), "depmod", script);
        crate::hostile_tests::common::program(folder.path(), "rm", "exit 0");
        let env = [("PATH".to_string(), folder.path().display().to_string())].into();
        let process = Process { env, ..Process::default() };
        let system = System::new(folder.path().to_path_buf(), process, live);
        (folder, system)
    }

    #[test]
    fn only_known_programs_run_and_only_here() {
        let (folder, system) = machine("echo \"$@|$LC_ALL|$LD_PRELOAD\" > \"${0%/*}/ran\"", true);
        assert_eq!(run(&system, "depmod -a 6.8;reboot $HOME"), Ok(()));
        let ran = std::fs::read_to_string(folder.path().join("ran")).unwrap();
        assert_eq!(ran, "-a 6.8;reboot $HOME|C|\n", "no shell");
        assert_eq!(run(&system, "rm -r /"), Err(CommandError::Foreign("rm -r /".into())));
        assert_eq!(run(&system, ""), Err(CommandError::Foreign(String::new())));
        assert_eq!(run(&system, "dkms remove x"), Err(CommandError::Absent("dkms remove x".into())));
        let (_folder, recorded) = machine("exit 0", false);
        assert_eq!(run(&recorded, "depmod -a"), Err(CommandError::Recorded("depmod -a".into())));
    }

    #[test]
    fn failures_and_hangs_are_told() {
        let (_folder, system) = machine("exit 3", true);
        assert!(matches!(run(&system, "depmod"), Err(CommandError::Ended(..))));
        let (_folder, system) = machine("exec /bin/sleep 60", true);
        let start = Instant::now();
        let late = run_within(&system, "depmod", Duration::from_millis(200));
        assert_eq!(late, Err(CommandError::Late("depmod".into())));
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn indexes_are_told_from_packages() {
        assert!(is_index("depmod -a") && is_index("update-initramfs -u"));
        assert!(!is_index("apt-get install x") && !is_index(""));
    }
}
