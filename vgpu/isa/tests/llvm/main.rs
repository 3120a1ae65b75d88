//! Decode and print against LLVM's disassembler: random encodings, the shipped kernels, AMD's own code.
//! Without `llvm-mc-19` the tests say so and end; where `WAVE32_REQUIRE_COMPILERS` is set they fail. `WAVE32_SWEEP` has
//! them try more.

mod code;
mod implicit;
mod oracle;
mod random;
mod rocm;
mod shipped;
