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
mod executor;
mod group;
mod heap;
mod lanes;
mod launch;
mod lds;
mod mem;
mod memory;
mod object;
mod program;
mod salu;
mod smem;
mod solo;
mod stop;
mod strict;
mod valu;
mod wave;

pub use args::{Args, Src};
pub use descriptor::{DESCRIPTOR_BYTES, Descriptor};
pub use dispatch::{Class, Count, Counts, Dispatch, GroupTrace, Options, Report, Trace};
pub use env::{Env, Fault, FaultKind, MemoryFn, Regions, ScalarFn, Signals, VectorFn};
pub use executor::{Executor, run};
pub use heap::HeapMemory;
pub use lds::Lds;
pub use memory::{Memory, Region};
pub use object::CodeObject;
pub use solo::Solo;
pub use stop::{Finding, Location, Stop};
pub use wave::{Hardware, PRIVATE_BASE, Register, Row, SCRATCH_BASE, SHARED_BASE, Wave};
