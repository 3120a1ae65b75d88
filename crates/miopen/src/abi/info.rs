//! Version and words for statuses.

use crate::abi::entry::call;
use crate::abi::ffi::{Out, Status};
use std::ffi::{CStr, c_char};

/// The release of MIOpen whose calls and meanings these are.
pub const VERSION: [usize; 3] = [3, 3, 0];

/// `miopenGetVersion`: any of the three may be null.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetVersion(major: Out<usize>, minor: Out<usize>, patch: Out<usize>) -> Status {
    call("miopenGetVersion", || {
        [major, minor, patch].iter().zip(VERSION).for_each(|(out, number)| out.set_if_wanted(number));
        Ok(())
    })
}

/// `miopenGetErrorString`: a text for every number.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetErrorString(status: Status) -> *const c_char {
    words(status).as_ptr()
}

fn words(status: Status) -> &'static CStr {
    match status {
        0 => c"miopenStatusSuccess",
        1 => c"miopenStatusNotInitialized",
        2 => c"miopenStatusInvalidValue",
        3 => c"miopenStatusBadParm",
        4 => c"miopenStatusAllocFailed",
        5 => c"miopenStatusInternalError",
        6 => c"miopenStatusNotImplemented",
        7 => c"miopenStatusUnknownError",
        8 => c"miopenStatusUnsupportedOp",
        9 => c"miopenStatusGpuOperationsSkipped",
        10 => c"miopenStatusVersionMismatch",
        _ => c"Unknown error status",
    }
}
