//! A drop-in `libMIOpen.so.1`: MIOpen's C ABI on wave32's kernels.
//!
//! An exported call is a few lines around a safe function: [`entry::call`] turns what it returns into a status, [`ffi`]
//! holds the types of the ABI and reads and writes the caller's memory, [`objects`] knows which handles and descriptors
//! are alive. Work on a card goes through [`handle::Handle::run`].
//!
//! Nothing is searched, compiled or written to disk; no thread and no process is started. libamdhip64 is not linked:
//! `wave32-hip` finds the one that the process has.

// Exported calls have MIOpen's names.
#![allow(non_snake_case)]

mod abi;
pub use abi::{entry, ffi, handle, info, log, objects, slot};
mod conv;
pub use conv::{bound_conv, conv_call, convolution, fusion, proven, solutions};
mod layers;
pub use layers::{activation, batch_norm, pooling, steps, tensor};
mod vendor;
pub use vendor::next;
// As the preloaded libraries, it writes from somebody else's process.
#[path = "../../preload/src/stderr.rs"]
mod stderr;
