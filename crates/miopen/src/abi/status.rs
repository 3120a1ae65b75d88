//! What calls of MIOpen's C ABI answer.

use std::ffi::c_int;

/// `miopenStatus_t`.
pub type Status = c_int;

/// Done.
pub const SUCCESS: Status = 0;
/// There is no runtime or card.
pub const NOT_INITIALIZED: Status = 1;
/// A value that is none of its type.
pub const INVALID_VALUE: Status = 2;
/// An argument is wrong.
pub const BAD_PARM: Status = 3;
/// Out of memory.
pub const ALLOC_FAILED: Status = 4;
/// A bug or a driver's error.
pub const INTERNAL_ERROR: Status = 5;
/// We cannot do this.
pub const NOT_IMPLEMENTED: Status = 6;
/// The card was lost.
pub const UNKNOWN_ERROR: Status = 7;
/// MIOpen cannot do this either.
pub const UNSUPPORTED_OP: Status = 8;
