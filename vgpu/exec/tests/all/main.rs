//! Tests of the interpreter, in one program: each would instantiate all of it again.

#[path = "../common/mod.rs"]
mod common;
mod dispatch;
mod launch;
mod mem;
mod salu;
mod smem;
mod strict;
mod strict_lds;
mod strict_waves;
mod valu;
mod valu_division;
mod valu_folded;
mod wave;
