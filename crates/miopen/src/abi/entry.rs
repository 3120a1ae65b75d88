//! Runs the body of every exported call, and turns its result, or a panic, into a status.

use crate::abi::status::{self, Status};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};
use wave32_device::DeviceError;
use wave32_ops::OpError;

/// The result of a call.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Why a call failed: the status for the caller, and a line for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The status that the call returns.
    pub status: Status,
    /// The line on stderr.
    pub message: String,
}

impl Failure {
    /// With this status.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// An argument is wrong: `miopenStatusBadParm`.
    pub fn bad(message: impl Into<String>) -> Self {
        Self::new(status::BAD_PARM, message)
    }

    /// wave32 does not implement this: `miopenStatusNotImplemented`.
    pub fn absent(what: impl std::fmt::Display) -> Self {
        Self::new(status::NOT_IMPLEMENTED, format!("{what}: not implemented by wave32"))
    }

    /// No convolution library does this: `miopenStatusUnsupportedOp`.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(status::UNSUPPORTED_OP, message)
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        let status = match &error {
            DeviceError::Misuse(_) => status::BAD_PARM,
            DeviceError::OutOfMemory { .. } => status::ALLOC_FAILED,
            DeviceError::NotFound(_) | DeviceError::Unavailable(_) => status::NOT_INITIALIZED,
            DeviceError::Unsupported(_) => status::NOT_IMPLEMENTED,
            DeviceError::Lost(_) | DeviceError::Timeout { .. } => status::UNKNOWN_ERROR,
            _ => status::INTERNAL_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

impl From<OpError> for Failure {
    fn from(error: OpError) -> Self {
        match error {
            OpError::Device(error) => error.into(),
            refused => Self::new(status::NOT_IMPLEMENTED, refused.to_string()),
        }
    }
}

/// Runs the body of the exported call `name`. Why it failed goes to stderr, each line once.
pub fn call(name: &'static str, body: impl FnOnce() -> Outcome) -> Status {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let text = "a bug in wave32: it panicked; please report what stands above".to_string();
        Err(Failure::new(status::INTERNAL_ERROR, text))
    });
    match outcome {
        Ok(()) => status::SUCCESS,
        Err(failure) => {
            say_once(&format!("wave32: {name}: {}", failure.message));
            failure.status
        }
    }
}

/// Lines remembered; a program that makes more different ones gets no more.
const MAX_LINES: usize = 256;

/// Prints a line that was not printed before. (Programs probe with calls that fail: once is enough.)
pub fn say_once(line: &str) {
    static SAID: OnceLock<Mutex<HashSet<String>>> = OnceLock::new();
    let mut said = SAID.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if said.len() < MAX_LINES && !said.contains(line) {
        crate::stderr::write(&format!("{line}\n"));
        said.insert(line.to_string());
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    /// Run by the test below in a process of its own, whose stderr takes nothing.
    #[test]
    #[ignore = "a part of the test below"]
    fn child() {
        super::say_once("a line");
        crate::abi::log::line(|| "another".to_string());
        std::process::exit(7);
    }

    #[test]
    fn a_stderr_that_takes_nothing_ends_no_program() {
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        for stderr in [Stdio::from(full), Stdio::from(closed)] {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "abi::entry::tests::child", "--ignored", "--nocapture"]);
            let status = child.env("WAVE32_LOG", "1").stderr(stderr).status().unwrap();
            assert_eq!(status.code(), Some(7));
        }
    }
}
