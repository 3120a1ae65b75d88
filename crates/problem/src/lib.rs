//! What is to be computed: [`ConvProblem`] and [`MatmulProblem`], validated once, and the MIOpenDriver lines that name them.
#![forbid(unsafe_code)]

mod any;
mod error;
mod line;
mod matmul;
mod problem;
mod rewrite;
mod types;

pub use any::{Problem, ProblemSpec};
pub use error::ProblemError;
pub use line::{parse_line, parse_lines};
pub use matmul::{Added, Factor, MatmulProblem, MatmulSpec, Matrices, MatrixOrder};
pub use problem::{ConvProblem, ConvSpec};
pub use rewrite::{Rewrite, TiledAxis, Tiles};
pub use types::{Activation, DType, Direction, Epilogue, Layout, Pass};
