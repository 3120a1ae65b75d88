//! What this process does, found out at its first call and kept.

use std::cell::Cell;
use std::ffi::CStr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::{card, stderr};

/// What is done with requests for fine-grained memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CoarseMode {
    /// Nothing: no card needs it, or the user said so.
    Leave = 1,
    /// They get coarse-grained memory; who asks for coherence by name is refused.
    Coarse,
    /// They all get coarse-grained memory.
    All,
}

/// Zero: not known yet. Two threads that look at once come to the same answer.
static MODE: AtomicU8 = AtomicU8::new(0);
static LOG: AtomicBool = AtomicBool::new(false);

/// Of this process.
pub fn mode() -> CoarseMode {
    match MODE.load(Ordering::Acquire) {
        1 => CoarseMode::Leave,
        2 => CoarseMode::Coarse,
        3 => CoarseMode::All,
        _ => find_out(),
    }
}

#[cold]
fn find_out() -> CoarseMode {
    let (asked, wrong) = asked(variable(c"WAVE32_COARSE"));
    if let Some(wrong) = wrong {
        say(&format!("WAVE32_COARSE is '{wrong}': auto, off, on or all is meant; taken for auto"));
    }
    let mode = asked.unwrap_or_else(|| {
        if card::needs_coarse(Path::new(card::NODES)) { CoarseMode::Coarse } else { CoarseMode::Leave }
    });
    LOG.store(variable(c"WAVE32_LOG").is_some_and(|value| value != "0"), Ordering::Relaxed);
    MODE.store(mode as u8, Ordering::Release);
    mode
}

/// What `WAVE32_COARSE` asks for (none: what the card needs), and what it holds if that makes no sense.
fn asked(value: Option<String>) -> (Option<CoarseMode>, Option<String>) {
    match value.as_deref() {
        None | Some("auto") => (None, None),
        Some("off") => (Some(CoarseMode::Leave), None),
        Some("on") => (Some(CoarseMode::Coarse), None),
        Some("all") => (Some(CoarseMode::All), None),
        Some(_) => (None, value),
    }
}

/// None too if it is empty. Not by `std::env`, whose lock another thread may have held when this process was forked.
fn variable(name: &CStr) -> Option<String> {
    // SAFETY: a C string; what comes back is copied at once.
    let value = unsafe {
        let value = libc::getenv(name.as_ptr());
        if value.is_null() {
            return None;
        }
        CStr::from_ptr(value)
    };
    Some(value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
}

fn say(line: &str) {
    stderr::write(&format!("wave32: {line}\n"));
}

/// Says what was changed, if `WAVE32_LOG` asks.
pub fn log(line: impl FnOnce() -> String) {
    if LOG.load(Ordering::Relaxed) {
        say(&line());
    }
}

/// Says why a request was refused: the first time for each `said`.
pub fn refuse(said: &AtomicBool, what: &str, why: &str) {
    if !said.swap(true, Ordering::Relaxed) {
        say(&format!("{what} is refused: {why}"));
    }
}

thread_local! {
    /// The program's call that is going on in this thread.
    static CALL: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Runs `body` as the program's `call` for memory.
pub fn during<R>(call: &'static str, body: impl FnOnce() -> R) -> R {
    struct Outer(Option<&'static str>);
    // It ends with an exception too.
    impl Drop for Outer {
        fn drop(&mut self) {
            CALL.set(self.0);
        }
    }
    let _outer = Outer(CALL.replace(Some(call)));
    body()
}

/// The program's call for memory that this thread is in.
pub fn call() -> Option<&'static str> {
    CALL.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_understood_and_others_are_named() {
        let asked = |word: &str| asked(Some(word.to_owned()));
        assert_eq!(asked("auto"), (None, None));
        assert_eq!(asked("off"), (Some(CoarseMode::Leave), None));
        assert_eq!(asked("on"), (Some(CoarseMode::Coarse), None));
        assert_eq!(asked("all"), (Some(CoarseMode::All), None));
        assert_eq!(asked("On"), (None, Some("On".to_owned())));
        assert_eq!(super::asked(None), (None, None));
    }

    #[test]
    fn calls_nest_and_end() {
        assert_eq!(call(), None);
        let inner = during("outer", || during("inner", call));
        assert_eq!((inner, during("outer", call), call()), (Some("inner"), Some("outer"), None));
        let thrown =
            std::panic::catch_unwind(|| during("thrown", || std::panic::resume_unwind(Box::new(()))));
        assert_eq!((thrown.is_err(), call()), (true, None));
    }
}
