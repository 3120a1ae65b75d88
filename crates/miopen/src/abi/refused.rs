//! What MIOpen has and we have not: each such call answers `miopenStatusNotImplemented` and says its name, once.

use crate::abi::entry::{Failure, call};
use crate::abi::ffi::Status;

fn refuse(name: &'static str) -> Status {
    call(name, || Err(Failure::absent("this call")))
}

include!(concat!(env!("OUT_DIR"), "/refused.rs"));
