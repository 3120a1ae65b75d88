//! The log of `WAVE32_LOG`: one line on stderr for each call that computes, in MIOpenDriver's syntax.

use std::sync::OnceLock;

fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| std::env::var_os("WAVE32_LOG").is_some_and(|value| !value.is_empty() && value != "0"))
}

/// Prints a line if the log is on. If it is off, this costs one load.
pub fn line(text: impl FnOnce() -> String) {
    if is_on() {
        crate::stderr::write(&format!("wave32: {}\n", text()));
    }
}
