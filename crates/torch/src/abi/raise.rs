//! How an error becomes a C++ exception of libtorch's, which Python sees as its own.

use crate::abi::calls::{Api, CxxString, SourceLocation, api};
use crate::abi::error::{Error, interrupt};
use std::ffi::{CString, c_void};

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
