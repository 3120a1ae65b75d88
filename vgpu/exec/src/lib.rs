//! Executes gfx10.1 code objects on the CPU: every instruction by a handler chosen at decode, over waves
//! of 32 lanes (wave64 runs as two halves, as the hardware issues it), strictly where asked.
//!
//! ```text
//! code object -> Program (decoded once) -> Dispatch -> workgroups over threads -> waves -> handlers
//!                                                        memory behind `Memory`
//! ```
//! Source: "RDNA 1.0 Instruction Set Architecture" (AMD, 2020); "User Guide for AMDGPU Backend" (LLVM) for
//! kernel descriptors and the state a wave starts with.
#![forbid(unsafe_code)]

mod args;
mod bind;
mod control;
mod descriptor;
mod dispatch;
mod env;
mod heap;
mod lds;
mod mem;
mod memory;
mod salu;
mod smem;
mod stop;
mod strict;
mod valu;
mod wave;

pub use args::{Args, Src};
pub use descriptor::{DESCRIPTOR_BYTES, Descriptor};
pub use dispatch::{Class, Count, Counts, Dispatch, Options, Report};
pub use env::{Env, Fault, FaultKind, MemoryFn, Regions, ScalarFn, Signals, VectorFn};
pub use heap::HeapMemory;
pub use lds::Lds;
pub use memory::{Memory, Region};
pub use stop::{Finding, Place, Stop};
pub use wave::{Hardware, PRIVATE_BASE, Row, SCRATCH_BASE, SHARED_BASE, Wave};
