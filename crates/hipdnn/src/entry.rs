//! The one way into every exported call: what it returns becomes a status, a panic too; why it failed is kept for the
//! thread that asked, and the host's log gets what is worth a line.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{PoisonError, RwLock};
pub use wave32_miopen::entry::{Failure, Outcome};
use wave32_miopen::ffi::status as miopen;

/// `hipdnnPluginStatus_t`.
pub type Status = c_int;

/// `hipdnnPluginStatus_t` values.
pub mod status {
    use super::Status;
    /// Done.
    pub const SUCCESS: Status = 0;
    /// An argument is wrong.
    pub const BAD_PARAM: Status = 1;
    /// A value that is none of its type.
    pub const INVALID_VALUE: Status = 2;
    /// A bug, a driver's error, a lost card.
    pub const INTERNAL_ERROR: Status = 3;
    /// Out of memory.
    pub const ALLOC_FAILED: Status = 4;
    /// The engine does not do this.
    pub const NOT_APPLICABLE: Status = 5;
    /// There is no runtime or card.
    pub const NOT_INITIALIZED: Status = 6;
}

/// `hipdnnSeverity_t` values.
pub mod severity {
    use std::ffi::c_int;
    /// For who wants to know.
    pub const INFO: c_int = 0;
    /// Nothing.
    pub const OFF: c_int = 4;
}

/// `HIPDNN_PLUGIN_ERROR_STRING_MAX_LENGTH`, its end included.
const LONGEST: usize = 2048;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// A failure of the engine's in hipDNN's terms.
fn status_of(failure: &Failure) -> Status {
    match failure.status {
        miopen::BAD_PARM => status::BAD_PARAM,
        miopen::INVALID_VALUE => status::INVALID_VALUE,
        miopen::ALLOC_FAILED => status::ALLOC_FAILED,
        miopen::NOT_INITIALIZED => status::NOT_INITIALIZED,
        miopen::NOT_IMPLEMENTED | miopen::UNSUPPORTED_OP => status::NOT_APPLICABLE,
        _ => status::INTERNAL_ERROR,
    }
}

/// A text as C has it: what is behind the longest that a host takes is cut off, zeros are left out.
fn text(message: &str) -> CString {
    let mut end = message.len().min(LONGEST - 1);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    CString::new(message[..end].replace('\0', "")).unwrap_or_default()
}

/// Runs the body of the exported call `name`.
pub fn call(name: &str, body: impl FnOnce() -> Outcome) -> Status {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let text = "a bug in wave32: it panicked; please report what stands on stderr";
        Err(Failure::new(miopen::INTERNAL_ERROR, text))
    });
    match outcome {
        Ok(()) => status::SUCCESS,
        Err(failure) => {
            let message = text(&format!("wave32: {name}: {}", failure.message));
            // A thread that is ending has no place for it any more.
            let _ = LAST.try_with(|last| *last.borrow_mut() = message);
            status_of(&failure)
        }
    }
}

/// Why the last call of this thread's that failed did. The address is good until the next one that fails.
pub fn last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// `hipdnnCallback_t`: the host's, in C++, which may throw. Rust can let an exception of C++ pass but not catch one, so it
/// goes on to the host, through an exported call that is `C-unwind` too.
pub type Callback = extern "C-unwind" fn(severity: c_int, message: *const c_char);

static CALLBACK: RwLock<Option<Callback>> = RwLock::new(None);
static LEVEL: AtomicI32 = AtomicI32::new(severity::INFO);

/// Sends lines there from now on.
pub fn log_to(callback: Callback) {
    *CALLBACK.write().unwrap_or_else(PoisonError::into_inner) = Some(callback);
}

/// Sends only lines of this severity and above.
///
/// # Errors
/// Invalid value where `level` is no severity.
pub fn log_from(level: c_int) -> Outcome {
    if !(severity::INFO..=severity::OFF).contains(&level) {
        return Err(Failure::new(miopen::INVALID_VALUE, format!("{level} is no severity: 0 to 4")));
    }
    LEVEL.store(level, Ordering::Relaxed);
    Ok(())
}

/// A line for the host's log, of severity INFO. Outside of [`call`] and of locks only: the host may throw.
pub fn inform(message: &str) {
    if LEVEL.load(Ordering::Relaxed) > severity::INFO {
        return;
    }
    // Copied out: the host may set another while it is called.
    let callback = *CALLBACK.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(callback) = callback {
        callback(severity::INFO, text(&format!("wave32: {message}")).as_ptr());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn a_panic_and_a_failure_are_a_status_and_a_message_of_the_thread() {
        let said = || {
            // SAFETY: a string of this thread's, read before the next call.
            unsafe { CStr::from_ptr(last_error()) }.to_str().unwrap().to_string()
        };
        assert_eq!(call("f", || panic!("on purpose")), status::INTERNAL_ERROR);
        assert!(said().starts_with("wave32: f: a bug"), "{}", said());
        assert_eq!(call("g", || Err(Failure::absent("h"))), status::NOT_APPLICABLE);
        assert_eq!(call("i", || Ok(())), status::SUCCESS);
        assert!(said().starts_with("wave32: g: h"), "{}", said());
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(said(), ""));
        });
        assert_eq!(call("j", || Err(Failure::bad("ä\0".repeat(3000)))), status::BAD_PARAM);
        assert!(said().len() < LONGEST && said().ends_with('ä'), "{}", said().len());
    }
}
