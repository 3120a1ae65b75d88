//! Errors as one line and an exit code.

use crate::output::{LostFile, tell};
use std::process::ExitCode;
use wave32_device::DeviceError;
use wave32_host::stream::LostOutput;
use wave32_host::text::shortened;
use wave32_verify::guard::StartError;

/// A device or route that was asked for and is not here: exit code 3.
#[derive(Debug)]
pub struct NoDevice(pub String);

impl std::fmt::Display for NoDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoDevice {}

/// The system gives no thread: exit code 1.
#[derive(Debug)]
pub struct NoThread(pub std::io::Error);

impl std::fmt::Display for NoThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot start a thread: {}; {}", self.0, wave32_verify::guard::MORE)
    }
}

impl std::error::Error for NoThread {}

/// Characters of one word of a message, and of all of it: what was pasted by mistake may be a whole file.
const WORD: usize = 300;
const MESSAGE: usize = 8000;

/// A message on one line, of bearable length.
fn line(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().map(|word| shortened(word, WORD)).collect();
    shortened(&words.join(" "), MESSAGE).into_owned()
}

/// Prints the error and tells its exit code: 3 for a device or route that is not here, 1 for a device that
/// failed, for files that could not be changed, for output that was lost and for a system that gives no process or
/// thread, else 2: everything that can be wrong before work begins is for the user to change.
pub fn error(error: &anyhow::Error) -> ExitCode {
    // One line, whatever the causes' texts hold.
    tell(&format!("error: {}", line(&format!("{error:#}"))));
    let code = error.chain().find_map(|cause| {
        #[cfg(unix)]
        if let Some(code) = crate::unix::exit_code(cause) {
            return Some(code);
        }
        if cause.is::<NoDevice>() {
            return Some(3);
        }
        if cause.is::<LostOutput>() || cause.is::<LostFile>() || cause.is::<NoThread>() {
            return Some(1);
        }
        if let Some(StartError::Spawn(_)) = cause.downcast_ref() {
            return Some(1);
        }
        match cause.downcast_ref::<DeviceError>()? {
            DeviceError::NotFound(_) | DeviceError::Unavailable(_) => Some(3),
            _ => Some(1),
        }
    });
    ExitCode::from(code.unwrap_or(2))
}

/// Prints what clap has to say: help and version as they are, an error as one line.
pub fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match crate::output::print(&error.to_string()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(lost) => self::error(&lost.into()),
        };
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        tell(&error.to_string());
        return ExitCode::from(2);
    }
    let text = error.to_string();
    let said = line(text.split("\n\nUsage:").next().unwrap_or_default());
    tell(&format!("{}; `wave32 --help` and `wave32 COMMAND --help` tell more", said.trim_end_matches('.')));
    ExitCode::from(2)
}
