//! Standard output and standard error, which may be closed, full, or read by nobody.

use crate::text::readable;
use std::io::{ErrorKind, Write};

/// Output that was asked for and could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output")]
pub struct LostOutput(#[from] std::io::Error);

/// Prints exactly this, for programs to read. A reader that left (`| head`) is not an error.
///
/// # Errors
/// Any other error of writing, for example a full disk.
pub fn print(text: &str) -> Result<(), LostOutput> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints text for people.
///
/// # Errors
/// See [`print()`].
pub fn show(text: &str) -> Result<(), LostOutput> {
    print(&readable(text))
}

/// Text for people on standard error, as it is but for what a terminal would act on. Where that cannot be written
/// there is nobody to be told.
pub fn mutter(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(readable(text).as_bytes()).and_then(|()| out.flush());
}

/// A line on standard error.
pub fn tell(text: &str) {
    mutter(&format!("{text}\n"));
}
