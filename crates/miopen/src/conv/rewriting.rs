//! How a proven solver's problem was rewritten, as the probe's table says it: docs/probe.md.

use serde::Deserialize;
use std::fmt;

/// How the problem that runs differs from the one that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rewriting {
    /// Channels of x and of y, once padded.
    pub(super) channels: Option<[i64; 2]>,
    /// Images of a part.
    pub(super) images: Option<i64>,
}

/// A step of the table's field `rewrite`.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Step {
    PadChannels { c: i64, k: i64 },
    Batch { n: i64 },
}

impl fmt::Display for Rewriting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some([c, k]) = self.channels {
            write!(f, " with channels padded to {c} and {k}")?;
        }
        self.images.map_or(Ok(()), |n| write!(f, " in parts of {n}"))
    }
}

impl Rewriting {
    /// The table's field; none for what is not done here.
    pub(crate) fn read(steps: &[serde_json::Value]) -> Option<Self> {
        let steps: Option<Vec<Step>> =
            steps.iter().map(|step| serde_json::from_value(step.clone()).ok()).collect();
        match steps?.as_slice() {
            [] => Some(Self::default()),
            [Step::PadChannels { c, k }] => Some(Self { channels: Some([*c, *k]), images: None }),
            [Step::Batch { n }] => Some(Self { channels: None, images: Some(*n) }),
            [Step::PadChannels { c, k }, Step::Batch { n }] => {
                Some(Self { channels: Some([*c, *k]), images: Some(*n) })
            }
            _ => None,
        }
    }
}
