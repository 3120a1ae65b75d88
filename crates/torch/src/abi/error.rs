//! What kernels can fail with, and what a Python exception becomes.

use pyo3::exceptions::{
    PyIndexError, PyKeyboardInterrupt, PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use wave32_device::DeviceError;
use wave32_torch_logic::Wrong;

/// Why a kernel failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// libtorch is not in the process.
    #[error("libtorch_cpu.so is not loaded: import torch first")]
    NoTorch,
    /// libtorch is too old or from another world.
    #[error("this torch lacks `{0}`: the wave device is made for torch {range}", range = wave32_host::torch::range())]
    MissingSymbol(&'static str),
    /// A call into libtorch failed.
    #[error("{0}")]
    Torch(String),
    /// Python raised; it gets its own exception back where it is the caller.
    #[error("{0}")]
    Python(Raised),
    /// The device failed.
    #[error("wave: {0}")]
    Device(DeviceError),
    /// The device was lost or did not finish in time: everything on it is gone.
    #[error("{0}")]
    Gone(String),
    /// Memory of the device is exhausted, caches included.
    #[error("{0}")]
    OutOfMemory(String),
    /// Another process of a group did not do its part.
    #[error(transparent)]
    Peers(#[from] wave32_peers::Error),
    /// The caller's arguments are wrong; the text says how.
    #[error("{0}")]
    Invalid(String),
    /// An index or dimension is out of range.
    #[error("{0}")]
    Index(String),
    /// An argument is of a type that the operator does not take.
    #[error("{0}")]
    Type(String),
    /// An argument's value is one that the operator does not take.
    #[error("{0}")]
    Value(String),
    /// Nothing can do this, the CPU included, or nothing may.
    #[error("{0}")]
    Refused(String),
    /// No kernel for these arguments: the call runs on the CPU instead.
    #[error("no kernel of the wave device: {0}")]
    NoKernel(String),
}

/// An exception of Python's. It is told and dropped with the GIL held, wherever that happens: torch gives the lock up
/// behind pyo3's back, which then takes it for held and touches the interpreter without it.
pub struct Raised(Option<PyErr>);

impl Raised {
    /// The exception, for a caller who holds the GIL.
    pub fn into_inner(mut self) -> PyErr {
        self.0.take().unwrap_or_else(|| PyRuntimeError::new_err("an exception that was taken before"))
    }

    /// True for Ctrl-C.
    pub(crate) fn is_interrupt(&self) -> bool {
        crate::abi::gil::attach(|py| {
            self.0.as_ref().is_some_and(|error| error.is_instance_of::<PyKeyboardInterrupt>(py))
        })
    }
}

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = crate::abi::gil::attach(|py| {
            let error = self.0.as_ref()?;
            // What passes on as a RuntimeError need not say that it was one.
            let kind = error.get_type(py);
            let text = text_of(error.value(py)).unwrap_or_else(|raised| {
                if raised.is_instance_of::<PyKeyboardInterrupt>(py) {
                    interrupt();
                }
                String::new()
            });
            if kind.is(py.get_type::<PyRuntimeError>()) {
                return Some(text);
            }
            Some(format!("{}: {text}", kind.name().ok()?.to_string_lossy()))
        });
        f.write_str(text.as_deref().unwrap_or("an exception"))
    }
}

impl std::fmt::Debug for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Raised({self})")
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        if let Some(error) = self.0.take() {
            crate::abi::gil::attach(|_| drop(error));
        }
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::OutOfMemory { .. } => Self::OutOfMemory(format!("wave {error}")),
            DeviceError::Lost(_) | DeviceError::Timeout { .. } => Self::Gone(format!(
                "wave: {error}. Every tensor on the device is gone: call torch.wave.reopen() and go on from the last \
                 checkpoint, or end the process"
            )),
            other => Self::Device(other),
        }
    }
}

impl From<Wrong> for Error {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::Invalid(text) => Self::Invalid(text),
            Wrong::Index(text) => Self::Index(text),
            Wrong::NoKernel(text) => Self::NoKernel(text),
        }
    }
}

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Self {
        crate::abi::gil::attach(|py| {
            // Ctrl-C may be pressed meanwhile, or anew by `rearm`. Python looks for it where it makes a text of an object, and
            // it would be lost there.
            let mut error = py.check_signals().err().unwrap_or(error);
            let text = text_of(error.value(py)).unwrap_or_else(|raised| {
                error = raised;
                text_of(error.value(py)).unwrap_or_default()
            });
            let is = |name: &str| {
                let kind = py.import("torch").and_then(|torch| torch.getattr(name));
                kind.is_ok_and(|kind| error.is_instance(py, &kind))
            };
            if error.is_instance_of::<PyNotImplementedError>(py) {
                Self::Refused(text)
            } else if error.is_instance_of::<PyIndexError>(py) {
                Self::Index(text)
            } else if error.is_instance_of::<PyTypeError>(py) {
                Self::Type(text)
            } else if error.is_instance_of::<PyValueError>(py) {
                Self::Value(text)
            } else if is("AcceleratorError") {
                Self::Gone(text)
            } else if is("OutOfMemoryError") {
                Self::OutOfMemory(text)
            } else {
                Self::Python(Raised(Some(error)))
            }
        })
    }
}

fn text_of(object: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(object.str()?.to_string_lossy().into_owned())
}

/// As if Ctrl-C were pressed now.
pub(crate) fn interrupt() {
    // SAFETY: only marks the signal as received.
    unsafe { pyo3::ffi::PyErr_SetInterrupt() };
}
