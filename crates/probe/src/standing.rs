//! How a shape stands with MIOpen, as the table has it: ways that may be used, and solvers that must not be.

use crate::campaign::FIND;
use crate::known::Known;
use crate::protocol::SolverVerdict;
use serde::Serialize;
use wave32_problem::Rewrite;

/// A way through MIOpen that was never seen to fail.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Safe {
    /// The solver's name, or `find` for MIOpen's own choice.
    pub solver: String,
    /// Its number; none for `find`.
    pub id: Option<u64>,
    /// What has to be done to the problem first, outermost first; empty where it works as it is.
    pub rewrite: Vec<Rewrite>,
    /// Milliseconds on the device, all pieces together.
    pub ms: Option<f64>,
}

/// A solver that failed on the shape as it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Danger {
    /// The solver's name, or `find`.
    pub solver: String,
    /// The worst that it did.
    pub verdict: SolverVerdict,
}

/// What is known of a shape.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Standing {
    /// The ways that may be used, the fastest first.
    pub safe: Vec<Safe>,
    /// The solvers that must not be used on the shape as it is, the worst first.
    pub dangers: Vec<Danger>,
    /// The worst of MIOpen's own choice; none where the probe did not come that far.
    pub choice: Option<SolverVerdict>,
}

impl Known {
    /// How a plain problem's line stands; none where it was never probed.
    pub fn standing(&self, line: &str) -> Option<Standing> {
        let rows: Vec<_> = self.rows.iter().filter(|row| row.key.problem == line).collect();
        let plain = || rows.iter().filter(|row| row.key.rewrite.is_empty());
        let mut safe: Vec<Safe> = rows
            .iter()
            .filter(|row| row.is_safe())
            .map(|row| Safe {
                solver: row.key.solver.clone(),
                id: row.id,
                rewrite: row.key.rewrite.clone(),
                ms: row.finding.ms,
            })
            .collect();
        let time = |way: &Safe| way.ms.unwrap_or(f64::INFINITY);
        safe.sort_by(|a, b| time(a).total_cmp(&time(b)));
        let mut dangers: Vec<Danger> = plain()
            .filter(|row| row.worst.is_failure())
            .map(|row| Danger { solver: row.key.solver.clone(), verdict: row.worst })
            .collect();
        dangers.sort_by_key(|danger| std::cmp::Reverse(danger.verdict));
        let choice = plain().find(|row| row.key.solver == FIND).map(|row| row.worst);
        (!rows.is_empty()).then_some(Standing { safe, dangers, choice })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known::{FORMAT, Key, Row};
    use crate::protocol::{Finding, Identity};

    fn row(
        problem: &str,
        solver: &str,
        worst: SolverVerdict,
        now: SolverVerdict,
        ms: Option<f64>,
        tiled: bool,
    ) -> Row {
        let rewrite = if tiled { vec![Rewrite::Tiles { h: 32, w: 32 }] } else { Vec::new() };
        let key = Key { problem: problem.into(), solver: solver.into(), rewrite };
        Row { key, id: Some(91), worst, finding: Finding { ms, ..Finding::of(now, "") }, when: 1 }
    }

    #[test]
    fn only_what_never_failed_is_safe() {
        use SolverVerdict::{Crash, Hang, Refuses, Works, Wrong};
        let rows = vec![
            row("a", "slow", Works, Works, Some(2.0), false),
            row("a", "quick", Works, Works, Some(0.5), false),
            row("a", "once hung", Hang, Works, Some(0.1), false),
            row("a", "tiled", Hang, Hang, None, false),
            row("a", "tiled", Works, Works, Some(1.0), true),
            row("a", "wrong", Wrong, Wrong, None, false),
            row("a", "wrong tiled", Wrong, Wrong, None, true),
            row("a", "no", Refuses, Refuses, None, false),
            row("a", FIND, Crash, Crash, None, false),
            row("b", "quick", Refuses, Refuses, None, false),
        ];
        let known = Known { format: FORMAT, identity: Identity::example(), rows };
        let found = known.standing("a").unwrap();
        let safe: Vec<(&str, usize)> =
            found.safe.iter().map(|way| (way.solver.as_str(), way.rewrite.len())).collect();
        assert_eq!(safe, [("quick", 0), ("tiled", 1), ("slow", 0)]);
        let dangers: Vec<(&str, SolverVerdict)> =
            found.dangers.iter().map(|d| (d.solver.as_str(), d.verdict)).collect();
        assert_eq!(dangers, [("once hung", Hang), ("tiled", Hang), (FIND, Crash), ("wrong", Wrong)]);
        assert_eq!(found.choice, Some(Crash));
        let cut_short = known.standing("b").unwrap();
        assert!(cut_short.safe.is_empty() && cut_short.dangers.is_empty() && cut_short.choice.is_none());
        assert_eq!(known.standing("c"), None);
    }
}
