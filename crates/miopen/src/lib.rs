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

pub mod activation;
pub mod batch_norm;
mod batch_norm_calls;
mod bias;
pub mod bound_conv;
pub mod conv_call;
pub mod convolution;
mod dropout;
pub mod entry;
pub mod ffi;
mod find;
mod find2;
pub mod fusion;
mod fusion_calls;
pub mod handle;
mod immediate;
pub mod info;
mod lrn;
pub mod next;
pub mod objects;
pub mod pooling;
mod pooling_calls;
pub mod proven;
mod proven_table;
mod reduce;
mod refused;
pub mod slot;
mod softmax;
pub mod solutions;
// As the preloaded libraries, it writes from somebody else's process.
pub mod log;
#[path = "../../preload/src/stderr.rs"]
mod stderr;
pub mod steps;
pub mod tensor;
mod tensor_ops;
mod tensor_queries;
