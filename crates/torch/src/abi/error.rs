//! What kernels can fail with, and how that becomes a Python exception.

use crate::abi::calls::{Api, api};
use pyo3::exceptions::{
    PyIndexError, PyKeyboardInterrupt, PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use std::ffi::{CString, c_char, c_void};
use wave32_device::DeviceError;

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

    fn is_interrupt(&self) -> bool {
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

/// `c10::SourceLocation`.
#[repr(C)]
pub struct SourceLocation {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

/// `std::string` of libstdc++'s current ABI.
#[repr(C)]
pub struct CxxString {
    data: *mut u8,
    length: usize,
    capacity: usize,
    rest: usize,
}

const FUNCTION: &std::ffi::CStr = c"wave";
const FILE: &std::ffi::CStr = c"wave32";

/// Raises `error` through libtorch. Nothing that needs dropping may be alive in the frames above the call.
pub fn raise(error: Error) -> ! {
    let api = api();
    let kind = match &error {
        Error::OutOfMemory(_) => api.out_of_memory_type.zip(api.out_of_memory_vtable),
        Error::NoKernel(_) | Error::Refused(_) => api.not_implemented_type.zip(api.not_implemented_vtable),
        Error::Gone(_) => api.accelerator_type.zip(api.error_vtable),
        Error::Index(_) => api.index_type.zip(api.index_vtable),
        Error::Type(_) => api.type_type.zip(api.type_vtable),
        Error::Value(_) => api.value_type.zip(api.value_vtable),
        _ => None,
    };
    let text = error.to_string().replace('\0', "?");
    rearm(&error);
    drop(error);
    let known =
        kind.filter(|_| api.error_new.is_some() && api.throw.is_some() && api.allocate_exception.is_some());
    if let Some((kind, vtable)) = known {
        throw(api, kind, vtable, text);
    }
    let text = CString::new(text).unwrap_or_default();
    // `raise` never returns to drop it, so libtorch gets a copy that lives on the stack.
    let mut message = [0u8; 4096];
    let length = text.as_bytes().len().min(message.len() - 1);
    message[..length].copy_from_slice(&text.as_bytes()[..length]);
    drop(text);
    // SAFETY: NUL-terminated texts; the exception unwinds through "C-unwind" frames only.
    unsafe { (api.aoti_torch_check)(false, FUNCTION.as_ptr(), FILE.as_ptr(), 0, message.as_ptr().cast()) };
    unreachable!("aoti_torch_check(false) throws")
}

/// Ctrl-C cannot pass through libtorch as what it is: it is raised anew when Python runs next.
fn rearm(error: &Error) {
    if matches!(error, Error::Python(raised) if raised.is_interrupt()) {
        interrupt();
    }
}

/// As if Ctrl-C were pressed now.
pub(crate) fn interrupt() {
    // SAFETY: only marks the signal as received.
    unsafe { pyo3::ffi::PyErr_SetInterrupt() };
}

/// Throws a subclass of `c10::Error`, which adds no members to it but a code, left 0 (`AcceleratorError`).
fn throw(api: &Api, kind: *mut c_void, vtable: *const usize, text: String) -> ! {
    let (Some(new), Some(throw), Some(allocate)) = (api.error_new, api.throw, api.allocate_exception) else {
        unreachable!("the caller checked")
    };
    // SAFETY: 512 bytes hold any c10::Error (under 200); the constructor takes the string's buffer, which
    // operator new made, and leaves nothing to destroy; the vtable's entries start after two words, the
    // first is the complete destructor.
    unsafe {
        let data: *mut u8 = (api._Znwm)(text.len() + 1).cast();
        std::ptr::copy_nonoverlapping(text.as_ptr(), data, text.len());
        *data.add(text.len()) = 0;
        let mut message = CxxString { data, length: text.len(), capacity: text.len(), rest: 0 };
        drop(text);
        let object = allocate(512);
        object.cast::<u8>().write_bytes(0, 512);
        let place = SourceLocation { function: FUNCTION.as_ptr(), file: FILE.as_ptr(), line: 0 };
        new(object, place, &raw mut message);
        let entries = vtable.add(2);
        object.cast::<*const usize>().write(entries);
        throw(object, kind, *entries);
    }
    unreachable!("__cxa_throw does not return")
}
