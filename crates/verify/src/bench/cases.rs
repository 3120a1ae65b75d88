//! Which problems to time.

use crate::proof::suites::Entry;
use wave32_problem::{DType, Direction, Problem, ProblemError};

/// One problem to time.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name of its layer.
    pub label: String,
    /// One pass of it.
    pub problem: Problem,
}

/// What to take from the entries.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// These passes; `None` takes those that the line asks for.
    pub directions: Option<Vec<Direction>>,
    /// These storage types; `None` takes the line's own.
    pub dtypes: Option<Vec<DType>>,
    /// This batch instead of the line's.
    pub batch: Option<i64>,
    /// Leave larger problems out.
    pub max_gflop: Option<f64>,
}

/// The cases, and what was too large for the wish.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// To be timed, in order.
    pub cases: Vec<Case>,
    /// Labels of the layers left out by [`Wish::max_gflop`].
    pub too_large: Vec<String>,
}

/// Every wanted pass of every entry.
///
/// # Errors
/// [`ProblemError`] where a wished batch makes a problem impossible.
pub fn select(entries: &[Entry], wish: &Wish) -> Result<Selection, ProblemError> {
    let mut selection = Selection::default();
    for entry in entries {
        let entry = match wish.batch {
            Some(n) => entry.clone().with_batch(n)?,
            None => entry.clone(),
        };
        if wish.max_gflop.is_some_and(|most| entry.problem.flops() as f64 > most * 1e9) {
            selection.too_large.push(entry.label);
            continue;
        }
        let dtypes = wish.dtypes.clone().unwrap_or_else(|| vec![entry.problem.dtype()]);
        for &dtype in &dtypes {
            let passes = wish.directions.as_ref().filter(|_| entry.problem.conv().is_some());
            for &direction in passes.unwrap_or(&entry.directions) {
                let problem = entry.pass(direction, Some(dtype))?;
                selection.cases.push(Case { label: entry.label.clone(), problem });
            }
        }
    }
    Ok(selection)
}
