//! What is looked for in tensors' contents while kernels run: each has a word of device memory, which kernels raise.

use crate::Wrong;

/// What is looked for; the later is told where several are raised: it may be the earlier's cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// An index out of range.
    Index,
    /// An input of `binary_cross_entropy` outside of 0 to 1, or NaN.
    Probability,
    /// An `output_size=` of `repeat_interleave` that is not the sum of the repeats.
    OutputSize,
}

/// Bytes of all words.
pub const BYTES: usize = 4 * Check::ALL.len();

impl Check {
    /// Each, in the order of the words.
    pub const ALL: [Self; 3] = [Self::Index, Self::Probability, Self::OutputSize];

    /// The check of that number.
    ///
    /// # Errors
    /// `Invalid` where there is none.
    pub fn of(number: i64) -> Result<Self, Wrong> {
        let check = usize::try_from(number).ok().and_then(|at| Self::ALL.get(at).copied());
        check.ok_or_else(|| Wrong::Invalid("no such check".into()))
    }

    /// Where its word is, in bytes.
    pub const fn offset(self) -> u64 {
        4 * self as u64
    }

    /// What the words say.
    ///
    /// # Errors
    /// `Index` where an index was out of range, `Invalid` for the other checks.
    pub fn read(words: &[u8; BYTES]) -> Result<(), Wrong> {
        let raised = |check: &&Self| words[check.offset() as usize..][..4] != [0; 4];
        Self::ALL.iter().rev().find(raised).map_or(Ok(()), |check| Err(check.error()))
    }

    fn error(self) -> Wrong {
        let since = "in an operation on the wave device since the last wait for it";
        let hint = "Run the code with WAVE32_LAUNCH_BLOCKING=1 to see which operation it was";
        match self {
            Self::Index => Wrong::Index(format!(
                "index out of range {since}; what it should have read is 0, what it should have written is not. {hint}"
            )),
            Self::Probability => Wrong::Invalid(format!(
                "all elements of input should be between 0 and 1: a binary_cross_entropy got others, {since}. {hint}"
            )),
            Self::OutputSize => Wrong::Invalid(format!(
                "allocated size does not match required size: a repeat_interleave got an output_size that is not the sum \
                 of its repeats, {since}. {hint}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places_among_all() {
        for (at, check) in Check::ALL.into_iter().enumerate() {
            assert_eq!(Check::of(at as i64), Ok(check));
            assert_eq!(check.offset(), 4 * at as u64);
        }
        for number in [-1, 3, i64::MIN, i64::MAX] {
            assert_eq!(Check::of(number), Err(Wrong::Invalid("no such check".into())));
        }
    }

    /// Any bit of a word raises it; of several words the last counts.
    #[test]
    fn the_last_word_that_is_raised_is_told() {
        assert_eq!(Check::read(&[0; BYTES]), Ok(()));
        for raised in 1u32..8 {
            for byte in 0..4 {
                let mut words = [0; BYTES];
                (0..3).filter(|at| raised >> at & 1 == 1).for_each(|at| words[4 * at + byte] = 1);
                let last = Check::ALL[raised.ilog2() as usize];
                assert_eq!(Check::read(&words), Err(last.error()), "{raised:b}");
            }
        }
    }

    #[test]
    fn an_index_out_of_range_is_an_index_error() {
        assert!(
            matches!(Check::Index.error(), Wrong::Index(text) if text.starts_with("index out of range in "))
        );
        assert!(matches!(Check::Probability.error(), Wrong::Invalid(_)));
        assert!(matches!(Check::OutputSize.error(), Wrong::Invalid(_)));
    }
}
