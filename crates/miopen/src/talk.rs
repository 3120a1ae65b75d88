//! What `WAVE32_LOG` prints: one line on stderr for each call that computes, in the words of MIOpenDriver.

use std::sync::OnceLock;

fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| std::env::var_os("WAVE32_LOG").is_some_and(|value| !value.is_empty() && value != "0"))
}

/// Prints a line where that is wanted; costs a load where it is not.
pub fn line(text: impl FnOnce() -> String) {
    if is_on() {
        crate::stderr::write(&format!("wave32: {}\n", text()));
    }
}
