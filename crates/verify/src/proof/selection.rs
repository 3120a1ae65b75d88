//! From the words of a command line to problems.

use crate::proof::fuzz;
use crate::proof::scale::scaled;
use crate::proof::suites::{self, SuiteError};
use std::collections::HashMap;
use wave32_host::text::quoted;
use wave32_problem::{DType, Direction, Problem, ProblemError};

/// Which passes and types to verify; `None` leaves the default.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Passes; all that the line asks for by default.
    pub directions: Option<Vec<Direction>>,
    /// Types; f32 and f16 for suites, all three for fuzz, the line's own for lines and files.
    pub dtypes: Option<Vec<DType>>,
}

/// One problem to verify.
#[derive(Debug, Clone)]
pub struct Item {
    /// The word it came from: `seeds`, `nets`, `fuzz`, `line`, or a file's name.
    pub suite: String,
    /// Its name for people.
    pub label: String,
    /// The problem.
    pub problem: Problem,
    /// The problem it stands for, where it was scaled down.
    pub full: Option<Problem>,
    /// True for suites, whose problems are scaled down on slow devices; what a user names is not,
    /// unless asked.
    pub may_scale: bool,
}

/// Why words do not name problems.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// A suite, line or file is wrong.
    #[error(transparent)]
    Suite(#[from] SuiteError),
    /// A fuzz word is wrong.
    #[error("`{0}`: fuzz is written fuzz, fuzz:N or fuzz:N:SEED, with N from 1 to 100000")]
    Fuzz(String),
    /// A change of type makes the problem impossible.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The filters leave nothing.
    #[error("nothing to verify: --direction leaves none of the passes that were named")]
    Nothing,
}

/// The problems of all words, in order.
///
/// # Errors
/// [`SelectionError`]: a word names no suite, file or problem, or the filters leave nothing.
pub fn items(words: &[String], filter: &Filter, seed: u64) -> Result<Vec<Item>, SelectionError> {
    let mut found = Vec::new();
    for word in words {
        if word == "fuzz" || word.starts_with("fuzz:") {
            fuzz_items(word, filter, seed, &mut found)?;
            continue;
        }
        let is_suite = suites::names().contains(word);
        for entry in suites::select(word)? {
            let own = [entry.problem.dtype()];
            let dtypes: &[DType] = match &filter.dtypes {
                Some(dtypes) => dtypes,
                None if is_suite => &[DType::F32, DType::F16],
                None => &own,
            };
            for &dtype in dtypes {
                for &direction in &entry.directions {
                    if filter.directions.as_ref().is_some_and(|wanted| !wanted.contains(&direction)) {
                        continue;
                    }
                    found.push(Item {
                        suite: word.clone(),
                        label: entry.label.clone(),
                        problem: entry.pass(direction, Some(dtype))?,
                        full: None,
                        may_scale: is_suite,
                    });
                }
            }
        }
    }
    if found.is_empty() { Err(SelectionError::Nothing) } else { Ok(found) }
}

fn fuzz_items(word: &str, filter: &Filter, seed: u64, found: &mut Vec<Item>) -> Result<(), SelectionError> {
    let bad = || SelectionError::Fuzz(quoted(word));
    let mut parts = word.split(':').skip(1);
    let count = parts.next().map_or(Ok(100), str::parse).map_err(|_| bad())?;
    let seed = parts.next().map_or(Ok(seed), str::parse).map_err(|_| bad())?;
    if parts.next().is_some() || !(1..=100_000).contains(&count) {
        return Err(bad());
    }
    let directions = filter.directions.clone().unwrap_or(Direction::ALL.to_vec());
    let dtypes = filter.dtypes.clone().unwrap_or(DType::ALL.to_vec());
    let problems = fuzz::problems(count, seed, &directions, &dtypes);
    found.extend(problems.into_iter().enumerate().map(|(i, problem)| Item {
        suite: "fuzz".into(),
        label: format!("fuzz {seed}/{i}"),
        problem,
        full: None,
        may_scale: false,
    }));
    Ok(())
}

/// The items as one device gets them: scaled down to `max_flops` and, problems that are then the same
/// taken together, with how many items each stands for.
pub fn for_device(items: &[Item], max_flops: Option<u64>, scale_all: bool) -> Vec<(Item, usize)> {
    let mut places: HashMap<Problem, usize> = HashMap::new();
    let mut found: Vec<(Item, usize)> = Vec::new();
    for item in items {
        let mut item = item.clone();
        if let Some(max) = max_flops.filter(|_| item.may_scale || scale_all) {
            let small = scaled(&item.problem, max);
            if small != item.problem {
                item.full = Some(std::mem::replace(&mut item.problem, small));
            }
        }
        let place = *places.entry(item.problem.clone()).or_insert(found.len());
        match found.get_mut(place) {
            Some((_, count)) => *count += 1,
            None => found.push((item, 1)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn suites_come_in_all_passes_and_both_types() {
        let found = items(&words(&["seeds"]), &Filter::default(), 1).unwrap();
        assert_eq!(found.len(), suites::load("seeds").unwrap().len() * 6);
    }

    #[test]
    fn a_line_keeps_its_type_and_pass() {
        let line = "MIOpenDriver convfp16 -n 1 -c 8 -H 9 -W 9 -k 4 -y 3 -x 3 -F 2";
        let found = items(&words(&[line]), &Filter::default(), 1).unwrap();
        assert_eq!(found.len(), 1);
        let spec = found[0].problem.conv().unwrap().spec();
        assert_eq!((spec.dtype, spec.direction), (DType::F16, Direction::BackwardData));
        let filter = Filter { directions: Some(vec![Direction::Forward]), dtypes: None };
        assert!(matches!(items(&words(&[line]), &filter, 1), Err(SelectionError::Nothing)));
    }

    #[test]
    fn fuzz_words() {
        assert_eq!(items(&words(&["fuzz:7:3"]), &Filter::default(), 1).unwrap().len(), 7);
        for bad in ["fuzz:0", "fuzz:x", "fuzz:1:2:3", "fuzz:", "fuzz:-4", "fuzz:9999999"] {
            assert!(
                matches!(items(&words(&[bad]), &Filter::default(), 1), Err(SelectionError::Fuzz(_))),
                "{bad}"
            );
        }
    }

    #[test]
    fn scaling_merges_equal_problems_and_counts_them() {
        let all = items(&words(&["seeds", "seeds"]), &Filter::default(), 1).unwrap();
        let merged = for_device(&all, Some(10_000_000), false);
        assert_eq!(merged.iter().map(|(_, count)| count).sum::<usize>(), all.len());
        assert!(merged.len() < all.len() / 2 && merged.iter().any(|(item, _)| item.full.is_some()));
    }
}
