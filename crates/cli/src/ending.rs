//! Errors as one line and an exit code.

use std::process::ExitCode;
use wave32_device::DeviceError;
use wave32_doctor::change::ChangeError;
use wave32_doctor::profile::NoRoute;

/// A device or route that was asked for and is not here: exit code 3.
#[derive(Debug)]
pub struct NoDevice(pub String);

impl std::fmt::Display for NoDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoDevice {}

/// Prints the error and tells its exit code: 3 for a device or route that is not here, 1 for a device that
/// failed and for files that could not be changed, else 2: everything that can be wrong before work begins is for the user to change.
pub fn error(error: &anyhow::Error) -> ExitCode {
    // One line, whatever the causes' texts hold.
    let text = format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" ");
    eprintln!("error: {text}");
    let code = error.chain().find_map(|cause| {
        if cause.is::<NoDevice>() || cause.is::<NoRoute>() {
            return Some(3);
        }
        if cause.is::<ChangeError>() {
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
        crate::output::print(&error.to_string());
        return ExitCode::SUCCESS;
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        eprintln!("{error}");
        return ExitCode::from(2);
    }
    let text = error.to_string();
    let said = text.split("\n\nUsage:").next().unwrap_or_default();
    let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
    eprintln!("{}; `wave32 --help` and `wave32 COMMAND --help` tell more", line.trim_end_matches('.'));
    ExitCode::from(2)
}
