//! A virtual RDNA1 card under AMD's own, unmodified runtime.
//!
//! Preloaded into a process, this library answers what ROCr and its thunk ask of the kernel driver: it presents
//! `/dev/kfd`, a render node and the sysfs topology of a card, keeps its memory, its events and its queues, and executes
//! kernels on the processor with [`wave32_exec`].
//!
//! ```text
//! program -> HIP -> ROCr -> thunk -> open, ioctl      (preload, drm)
//!                                      |
//!              sysfs  <- kfd -> memory, events, queue -> aql -> execute -> wave32_exec
//!                               bell (doorbells) ----^     `-> sdma, signal
//! ```
//! Each process has a card of its own, made when it first opens one; a child of `fork` has none until it opens one anew.
#![allow(unsafe_code)] // The doors to C and the card's view of memory; each block says why.

/// A line on stderr; see [`stderr`].
macro_rules! log {
    ($($text:tt)*) => { crate::stderr::write(&format!("wave32-vgpu: {}\n", format_args!($($text)*))) };
}

mod aql;
mod bell;
mod cards;
mod device;
mod drm;
mod errno;
mod events;
mod execute;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod kfd;
mod memory;
mod names;
mod preload;
mod progress;
mod queue;
mod report;
mod request;
mod sdma;
mod settings;
mod signal;
// One text for all libraries of other processes, none of which another may depend on.
#[path = "../../../crates/preload/src/stderr.rs"]
mod stderr;
mod sysfs;
mod times;
mod topology;
mod user;
