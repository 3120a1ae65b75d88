//! Becoming the program.

use super::environment::{Change, Variables};
use nix::sys::signal::{SigSet, Signal};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Exit code where the program was found and cannot be run, as of shells and `env`.
pub const CANNOT_RUN: u8 = 126;
/// Exit code where there is no such program.
pub const NOT_FOUND: u8 = 127;

/// The program with its arguments as they are, in the changed environment.
pub(super) fn command(argv: &[OsString], changes: &[Change], before: &Variables) -> io::Result<Command> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program was named"));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    for change in changes {
        match change.value(before.get(std::ffi::OsStr::new(&change.name)).map(OsString::as_os_str)) {
            Some(value) => command.env(&change.name, value),
            None => command.env_remove(&change.name),
        };
    }
    Ok(command)
}

/// Replaces this process by the program, so that signals, terminal, process group and exit status are its own.
/// Returns where that failed.
pub fn exec(argv: &[OsString], changes: &[Change], before: &Variables) -> io::Error {
    match command(argv, changes, before) {
        Ok(mut command) => {
            let error = command.exec();
            // On its way it made SIGPIPE deadly, as programs expect it; here somebody is still to be told.
            let mut pipe = SigSet::empty();
            pipe.add(Signal::SIGPIPE);
            let _ = pipe.thread_block();
            error
        }
        Err(error) => error,
    }
}

/// Exit code for a program that could not be started.
pub fn failure(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN }
}
