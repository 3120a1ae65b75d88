//! The calls and objects of the other side.

pub mod entry;
pub mod ffi;
pub mod handle;
pub mod info;
pub mod log;
pub mod objects;
pub(crate) mod refused;
pub mod slot;
pub mod status;
