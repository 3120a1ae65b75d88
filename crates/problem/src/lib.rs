//! What a convolution is: [`ConvProblem`], validated once, and the MIOpenDriver lines that name it.
#![forbid(unsafe_code)]

mod error;
mod line;
mod problem;
mod types;

pub use error::ProblemError;
pub use line::{parse_line, parse_lines};
pub use problem::{ConvProblem, ConvSpec};
pub use types::{Activation, DType, Direction, Epilogue, Layout};
