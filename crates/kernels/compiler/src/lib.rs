//! The kernel compiler: one source in `kernels/` becomes SPIR-V (glslang) and gfx code objects (clang).
//!
//! The build script of `wave32-kernels` uses it to embed the results. With the `readback` feature it
//! also reads back what the drivers' compilers made of each kernel: registers, LDS, spills and the
//! share of multiply-adds in the hottest loop. Development only: no product links this crate.

#[cfg(feature = "readback")]
pub mod aco;
pub mod clang;
#[cfg(feature = "readback")]
pub mod elf;
mod error;
pub mod glsl;
pub mod isa;
pub mod parallel;
#[cfg(feature = "readback")]
pub mod readback;
pub mod source;
#[cfg(feature = "readback")]
pub mod table;

pub use error::CompileError;
pub use source::{Source, Target};
