//! The one error of the kernel compiler.

/// Why a kernel could not be made or read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// A kernel source or a file that it includes cannot be read.
    #[error("{at}: cannot read {path}: {source}")]
    Read {
        /// Who wanted the file: `igemm.kern:12`, or the variant's name.
        at: String,
        /// The file.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// An include line that is not `#include "file"`.
    #[error("{at}: write `#include \"file\"` with a file of kernels/, not `{line}`")]
    Include {
        /// File and line.
        at: String,
        /// The line as it stands.
        line: String,
    },
    /// The compiler refuses the source. Its messages name the kernel's file and line.
    #[error("{compiler} refuses {variant}:\n{log}")]
    Rejected {
        /// `glslang`, or clang's command and target.
        compiler: String,
        /// The variant's name.
        variant: String,
        /// The compiler's messages.
        log: String,
    },
    /// A tool is missing, too old or cannot run.
    #[error("{0}")]
    Tool(String),
    /// A compiler's output has not the expected form.
    #[error("cannot read back {what}: {reason}")]
    ReadBack {
        /// Which output.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
}
