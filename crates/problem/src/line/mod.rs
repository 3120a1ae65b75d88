//! MIOpenDriver lines, the words in which people and MIOpen's logs name a convolution or a product of matrices.
//!
//! [`parse_line`] reads what MIOpen prints with `MIOPEN_ENABLE_LOGGING_CMD=1`, prefix and all, or what
//! somebody typed after `MIOpenDriver`; `Display` of the problems prints the same form again.
//!
//! A flag means here what it means to MIOpenDriver (as of ROCm 7; older names of flags too), with the last
//! of several winning, except that
//! - a missing size is an error, for MIOpenDriver's silent `100x3x32x32` helps nobody;
//! - numbers must be numbers (MIOpenDriver reads `3x` as 3 and `x` as 0);
//! - what would change the arithmetic in a way that [`ConvProblem`] cannot say (3-D, vectorised layouts,
//!   casts to fp8) is refused, and what only steers the driver's own run is read and dropped;
//! - `--key=value` works as well as `--key value`, and `--activ relu` is ours: ReLU after the bias (`-b 1`);
//!   `relu6`, `silu`, `hardswish`, `gelu`, and `leaky_relu20` for one of slope 0.2.
//!
//! `gemm` is MIOpenDriver's too (`-b` matrices, `-m`, `-k`, `-n`, `-u 1` and `-v 1` for a transposed A and B, factors `-A` and
//! `-B`); `gemmbfp16` and the strides (`--a_strides BATCH,ROW,COLUMN`, `--b_strides`, `--added_strides`, in elements) and
//! offsets (`--a_first`, ...) are ours. With `-B`, what is added is a dense M x N matrix; `--added_strides 0,0,1` makes it a bias.
//! `--backward 1`: a product of a backward pass, whose operands may be gradients.
//!
//! MIOpen's log gives the output channels *of one group* as `-k` of a transposed convolution, where
//! MIOpenDriver's own `-k` is all of them. A line with the log's `[LogCmd...]` mark is read the first way.

mod flags;
mod gemm;
mod print;
mod read;
mod words;

use crate::{ConvProblem, MatmulProblem, Problem, ProblemError};
use std::str::FromStr;
use words::Operation;

/// The problems that a MIOpenDriver line names: of `conv` one for each direction of `-F`, forward first; of `gemm` one.
///
/// Bias and activation belong to the forward one alone.
///
/// ```
/// let line = "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 1 -c 16 -H 48 -W 48 \
///             -k 32 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1";
/// let problems = wave32_problem::parse_line(line)?;
/// let forward = problems[0].conv().expect("a convolution");
/// assert_eq!((forward.spec().c, forward.out_h()), (16, 48));
/// assert!(line.ends_with(&problems[0].to_string()));
/// # Ok::<(), wave32_problem::ProblemError>(())
/// ```
///
/// # Errors
/// [`ProblemError::Line`] at the word that cannot be read, [`ProblemError::Missing`] for a size left out,
/// or what [`ConvProblem::new`] and [`MatmulProblem::new`] find.
pub fn parse_line(line: &str) -> Result<Vec<Problem>, ProblemError> {
    let clean = words::without_escapes(line);
    let words = words::split(&clean)?;
    match words.operation {
        Operation::Conv => Ok(read::problems(&words)?.into_iter().map(Problem::Conv).collect()),
        Operation::Gemm => Ok(vec![Problem::Matmul(gemm::problem(&words)?)]),
    }
}

/// The problems of a text with one MIOpenDriver line a line; blank ones and those that start with `#`
/// are skipped.
///
/// # Errors
/// [`ProblemError::At`] with the first bad line's number and error.
pub fn parse_lines(text: &str) -> Result<Vec<Problem>, ProblemError> {
    let mut problems = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text); // editors on Windows put it there
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let found = parse_line(line);
        problems.extend(found.map_err(|e| ProblemError::At { number: index + 1, error: Box::new(e) })?);
    }
    Ok(problems)
}

impl FromStr for Problem {
    type Err = ProblemError;

    /// As [`parse_line`], for a line that names one problem.
    fn from_str(line: &str) -> Result<Self, ProblemError> {
        let mut problems = parse_line(line)?;
        if problems.len() > 1 {
            let rule = format!(
                "names {} directions where one is wanted: give -F 1 (forward), 2 (backward data) or 4 \
                 (backward weights)",
                problems.len()
            );
            return Err(ProblemError::line("-F", rule));
        }
        problems.pop().ok_or_else(|| ProblemError::line("-F", "names no direction"))
    }
}

impl FromStr for ConvProblem {
    type Err = ProblemError;

    /// As [`parse_line`], for a line that names one convolution.
    fn from_str(line: &str) -> Result<Self, ProblemError> {
        match line.parse()? {
            Problem::Conv(problem) => Ok(problem),
            Problem::Matmul(_) => Err(ProblemError::line("gemm", "a convolution is wanted here")),
        }
    }
}

impl FromStr for MatmulProblem {
    type Err = ProblemError;

    /// As [`parse_line`], for a line that names a product of matrices.
    fn from_str(line: &str) -> Result<Self, ProblemError> {
        match line.parse()? {
            Problem::Matmul(problem) => Ok(problem),
            Problem::Conv(_) => Err(ProblemError::line("conv", "a product of matrices is wanted here")),
        }
    }
}
