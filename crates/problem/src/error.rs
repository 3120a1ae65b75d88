//! The one error of problem construction and of line parsing.

/// Why a convolution problem cannot exist, or a line cannot be read.
///
/// Every value names the field, what it was and the rule it breaks; the `Display` text is one line
/// that a user can act on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemError {
    /// A field's value breaks a rule that can be checked on that field (with its neighbours) alone.
    #[error("{field} = {value}: {rule}")]
    Field {
        /// The field in the field's own terms: `n`, `stride_h`, `groups`, ...
        field: &'static str,
        /// The value that was given.
        value: String,
        /// What the value must satisfy.
        rule: String,
    },
    /// A derived size does not fit in 63 bits.
    #[error("{what} is too large: {terms} overflows 63 bits; make the problem smaller")]
    Overflow {
        /// The quantity that overflows, e.g. `input elements`.
        what: &'static str,
        /// The product, as text, e.g. `n*c*h*w = 1*2*3*4`.
        terms: String,
    },
    /// A MIOpenDriver line that cannot be read.
    #[error("cannot read the line at `{token}`: {rule}")]
    Line {
        /// The word of the line that is wrong.
        token: String,
        /// What was expected there.
        rule: String,
    },
    /// A MIOpenDriver line that leaves a size out.
    #[error("the line has no {flag}: {rule}")]
    Missing {
        /// The flag in both spellings, e.g. `-n/--batchsize`.
        flag: String,
        /// What it is for.
        rule: String,
    },
    /// An error of one line of a text of many.
    #[error("line {number}: {error}")]
    At {
        /// Counted from 1.
        number: usize,
        /// What is wrong with the line.
        error: Box<ProblemError>,
    },
}

impl ProblemError {
    pub(crate) fn field(field: &'static str, value: impl ToString, rule: impl Into<String>) -> Self {
        Self::Field { field, value: value.to_string(), rule: rule.into() }
    }

    /// A [`ProblemError::Line`]; the token comes from outside, so control characters are escaped and a
    /// long one is cut: the message stays one readable line whatever was pasted.
    pub(crate) fn line(token: &str, rule: impl Into<String>) -> Self {
        const LONGEST: usize = 60;
        let mut shown: String = token.chars().take(LONGEST).flat_map(printable).collect();
        if token.chars().nth(LONGEST).is_some() {
            shown.push_str("...");
        }
        Self::Line { token: shown, rule: rule.into() }
    }
}

/// The character itself, or its escape where a terminal would act on it instead of showing it.
fn printable(c: char) -> impl Iterator<Item = char> {
    let (escape, plain) = if c.is_control() { (Some(c.escape_default()), None) } else { (None, Some(c)) };
    escape.into_iter().flatten().chain(plain)
}
