//! The gfx10.1 (RDNA1) instruction set, from one table.
//!
//! Source: "RDNA 1.0 Instruction Set Architecture" (AMD, 2020), chapters 4 to 12; encodings are held
//! against LLVM's disassembler by the tests.
#![forbid(unsafe_code)]

mod decode;
mod inst;
mod op;
mod table;
mod text;

pub use decode::{DecodeError, Target, decode};
pub use inst::{Access, Arg, Counters, Form, Inst, Mem, Mods, Operand, SdwaSel, Swizzle, Ty};
pub use op::{Row, Slot};
pub use table::Opcode;
