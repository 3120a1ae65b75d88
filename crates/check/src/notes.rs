//! Which shapes a card's owner saw hang under plain MIOpen: rules as data, each with its source.
//!
//! They are one owner's observations of f32 forward passes on one card, an RX 5600 XT. What they say nothing of is
//! [`NoteVerdict::Unknown`].

use serde::Serialize;
use wave32_problem::{ConvProblem, Direction};

/// What the notes say of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoteVerdict {
    /// It ran.
    Ok,
    /// Nothing, or nothing certain.
    Unknown,
    /// It never came back.
    Hang,
}

impl NoteVerdict {
    /// As tables print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "?",
            Self::Hang => "HANG",
        }
    }
}

/// A system that was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct System {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it was.
    pub what: &'static str,
}

/// The systems, the usual one first.
pub const SYSTEMS: [System; 3] = [
    System { name: "rocm-5.7", what: "ROCm 5.7, PyTorch 2.2.2, spoofed as gfx1030, GEMM only" },
    System { name: "rocm-5.2-gemm", what: "ROCm 5.2 runtime, spoofed as gfx1030, MIOPEN_DEBUG_CONV_GEMM=1" },
    System {
        name: "rocm-5.2-implicit-gemm",
        what: "ROCm 5.2 runtime, spoofed as gfx1030, MIOPEN_DEBUG_CONV_IMPLICIT_GEMM=1",
    },
];

/// One rule; the first of a system that fits a shape decides.
struct Rule {
    system: &'static str,
    fits: fn(&Sizes) -> bool,
    verdict: NoteVerdict,
    source: &'static str,
}

/// What the rules look at.
struct Sizes {
    c: i64,
    k: i64,
    /// The larger of height and width.
    size: i64,
    depthwise: bool,
}

const SUMMARY: &str = "owner's summary for ROCm 5.7, 8 November 2025";
const SOLVED: &str = "owner's summary for ROCm 5.2";

fn power(channels: i64) -> bool {
    channels >= 16 && channels & (channels - 1) == 0
}

const RULES: &[Rule] = &[
    Rule { system: "rocm-5.7", fits: |s| s.size <= 32, verdict: NoteVerdict::Ok, source: SUMMARY },
    Rule { system: "rocm-5.7", fits: |s| s.depthwise, verdict: NoteVerdict::Ok, source: SUMMARY },
    Rule {
        system: "rocm-5.7",
        fits: |s| (s.c, s.k) == (16, 32),
        verdict: NoteVerdict::Hang,
        source: SUMMARY,
    },
    Rule {
        system: "rocm-5.7",
        fits: |s| (s.c, s.k) == (32, 64) && s.size > 48,
        verdict: NoteVerdict::Hang,
        source: SUMMARY,
    },
    Rule {
        system: "rocm-5.7",
        fits: |s| (s.c, s.k) == (32, 64),
        verdict: NoteVerdict::Unknown,
        source: SUMMARY,
    },
    Rule {
        system: "rocm-5.7",
        fits: |s| (s.c, s.k) == (64, 128) && s.size > 64,
        verdict: NoteVerdict::Hang,
        source: SUMMARY,
    },
    Rule {
        system: "rocm-5.7",
        fits: |s| (s.c, s.k) == (64, 128),
        verdict: NoteVerdict::Unknown,
        source: SUMMARY,
    },
    Rule { system: "rocm-5.7", fits: |s| s.c < 16, verdict: NoteVerdict::Ok, source: SUMMARY },
    Rule {
        system: "rocm-5.7",
        fits: |s| power(s.c) && power(s.k),
        verdict: NoteVerdict::Hang,
        source: SUMMARY,
    },
    Rule { system: "rocm-5.2-gemm", fits: |s| s.size <= 42, verdict: NoteVerdict::Ok, source: SOLVED },
    Rule { system: "rocm-5.2-gemm", fits: |_| true, verdict: NoteVerdict::Hang, source: SOLVED },
    Rule {
        system: "rocm-5.2-implicit-gemm",
        fits: |s| s.size <= 512,
        verdict: NoteVerdict::Ok,
        source: SOLVED,
    },
];

/// What the notes on a system say of a problem, and where.
pub fn verdict(system: &str, p: &ConvProblem) -> (NoteVerdict, &'static str) {
    let s = p.spec();
    if s.direction != Direction::Forward || s.transposed {
        return (NoteVerdict::Unknown, "only forward passes were noted");
    }
    let sizes = Sizes { c: s.c, k: s.k, size: s.h.max(s.w), depthwise: p.is_depthwise() };
    let rule = RULES.iter().filter(|rule| rule.system == system).find(|rule| (rule.fits)(&sizes));
    rule.map_or((NoteVerdict::Unknown, "not noted"), |rule| (rule.verdict, rule.source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wave32_problem::ConvSpec;

    #[test]
    fn the_shapes_that_the_notes_name() {
        let at = |system: &str, c, k, size| {
            let spec = ConvSpec { c, k, h: size, w: size, r: 3, s: 3, pad: [1, 1], ..ConvSpec::default() };
            verdict(system, &ConvProblem::new(spec).unwrap()).0
        };
        assert_eq!(at("rocm-5.7", 16, 32, 32), NoteVerdict::Ok);
        assert_eq!(at("rocm-5.7", 16, 32, 33), NoteVerdict::Hang);
        assert_eq!(at("rocm-5.7", 32, 64, 49), NoteVerdict::Hang);
        assert_eq!(at("rocm-5.7", 32, 64, 48), NoteVerdict::Unknown);
        assert_eq!(at("rocm-5.7", 64, 64, 56), NoteVerdict::Hang);
        assert_eq!(at("rocm-5.7", 3, 16, 224), NoteVerdict::Ok);
        assert_eq!(at("rocm-5.7", 48, 96, 56), NoteVerdict::Unknown);
        assert_eq!(at("rocm-5.2-gemm", 3, 64, 44), NoteVerdict::Hang);
        assert_eq!(at("rocm-5.2-gemm", 3, 64, 42), NoteVerdict::Ok);
        assert_eq!(at("rocm-5.2-implicit-gemm", 64, 64, 512), NoteVerdict::Ok);
    }

    #[test]
    fn of_other_passes_nothing_is_said() {
        let spec = ConvSpec { c: 16, k: 32, h: 48, w: 48, r: 3, s: 3, ..ConvSpec::default() };
        let hangs = |spec: &ConvSpec| {
            SYSTEMS.map(|system| verdict(system.name, &ConvProblem::new(spec.clone()).unwrap()).0)
        };
        assert_eq!(hangs(&spec), [NoteVerdict::Hang, NoteVerdict::Hang, NoteVerdict::Ok]);
        for direction in [Direction::BackwardData, Direction::BackwardWeights] {
            assert_eq!(hangs(&ConvSpec { direction, ..spec.clone() }), [NoteVerdict::Unknown; 3]);
        }
        assert_eq!(hangs(&ConvSpec { transposed: true, ..spec }), [NoteVerdict::Unknown; 3]);
    }

    #[test]
    fn every_rule_is_of_a_system() {
        assert!(
            RULES.iter().all(|rule| SYSTEMS.iter().any(|s| s.name == rule.system) && !rule.source.is_empty())
        );
    }
}
