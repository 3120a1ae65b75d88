//! Python's lock, where kernels run below Python and above it in turns.

use pyo3::ffi::{
    PyEval_RestoreThread, PyEval_SaveThread, PyGILState_Ensure, PyGILState_Release, PyGILState_STATE,
    PyThreadState,
};
use pyo3::prelude::*;
use pyo3::types::PyModule;

struct Held(PyGILState_STATE);

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: what this thread was given, in reverse order.
        unsafe { PyGILState_Release(self.0) }
    }
}

/// As [`Python::attach`], also where torch gave the lock up in between: an outer `attach` of this thread may lie above a
/// call of torch's, which releases the lock behind pyo3's back, and pyo3 then takes it for held.
pub fn attach<T>(work: impl FnOnce(Python<'_>) -> T) -> T {
    // SAFETY: the interpreter runs as long as torch calls kernels; the call nests.
    let _held = Held(unsafe { PyGILState_Ensure() });
    Python::attach(work)
}

struct Released(*mut PyThreadState);

impl Drop for Released {
    fn drop(&mut self) {
        // SAFETY: what this thread gave up.
        unsafe { PyEval_RestoreThread(self.0) }
    }
}

/// Runs `work` without the lock, as torch does around its own kernels: it may wait for the device, and other threads of
/// Python's go on. [`Python::detach`] wants what is used there to be `Send`, which tensors of one call need not be.
pub fn release<T>(_held: Python<'_>, work: impl FnOnce() -> T) -> T {
    // SAFETY: this thread holds the lock, and takes it again at the end, also of a panic.
    let _released = Released(unsafe { PyEval_SaveThread() });
    work()
}

/// A warning of Python's.
///
/// # Errors
/// The Python exception, where the user's filters make warnings errors.
pub fn warn(text: &str) -> PyResult<()> {
    attach(|py| {
        let warn = PyModule::import(py, "warnings").and_then(|module| module.getattr("warn"));
        warn.and_then(|warn| warn.call1((text,)).map(drop))
    })
}
