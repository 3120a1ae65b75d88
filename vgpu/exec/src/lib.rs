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
mod memory;
mod stop;
mod wave;

pub use args::{Args, Src};
pub use memory::{Memory, Region};
pub use stop::{Finding, Place, Stop};
pub use wave::{Row, Wave};
