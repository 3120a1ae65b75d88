//! Why arguments are not taken.

/// Why arguments are not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// They are wrong; the text says how, in PyTorch's words where it has some.
    #[error("{0}")]
    Invalid(String),
    /// An index or dimension is out of range.
    #[error("{0}")]
    Index(String),
    /// No kernel takes them: the CPU computes this, or says what is wrong.
    #[error("no kernel of the wave device: {0}")]
    NoKernel(String),
}
