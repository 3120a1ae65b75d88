//! Which problems a report verifies and times, and how its time is shared out.

use crate::schema::Class;
use std::time::{Duration, Instant};
use wave32_problem::{DType, Direction};
use wave32_verify::bench::{Case, Selection};
use wave32_verify::selection::{Filter, Item, SelectionError, items};
use wave32_verify::suites::{self, SuiteError};

/// What a report may take, and its quick form.
pub const LIMIT: Duration = Duration::from_secs(300);
/// See [`LIMIT`].
pub const QUICK: Duration = Duration::from_secs(60);

/// Time after which a problem counts as hanging.
const HANG: Duration = Duration::from_secs(30);

/// The share of the time that work may use. What remains is for children that do not go, and for writing.
const WORK: f64 = 0.9;

/// Problems of the networks beside the seeds, of each type.
const NETS: usize = 60;
const QUICK_NETS: usize = 12;

/// What problems are scaled down to on the virtual card, which executes each instruction on the processor.
const VIRTUAL_FLOPS: u64 = 500_000;
/// On GPUs: references are computed on the processor, and many problems say more than a few large ones.
const CARD_FLOPS: u64 = 2_000_000_000;

/// Largest problem that is timed where a processor does the work.
const SLOW_GFLOP: f64 = 0.3;

/// The time, handed out to the parts that are still to come.
#[derive(Debug)]
pub struct Clock {
    begin: Instant,
    limit: Duration,
}

impl Clock {
    /// From now.
    pub fn start(limit: Duration) -> Self {
        Self { begin: Instant::now(), limit }
    }

    /// Since the start.
    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// All there is.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// What work may still use.
    pub fn left(&self) -> Duration {
        self.limit.mul_f64(WORK).saturating_sub(self.elapsed())
    }

    /// The part of it that falls to `weight` of `all` weights that are still to come.
    pub fn share(&self, weight: u32, all: u32) -> Duration {
        self.left().mul_f64(f64::from(weight) / f64::from(all.max(weight).max(1)))
    }
}

/// When a problem counts as hanging, in a part that may take so long: a hang must not look like want of time. A software
/// driver gets more of it: it compiles a kernel when that first runs, for seconds.
pub fn hang_after(class: Class, part: Duration) -> Duration {
    let share = if class == Class::SoftwareDriver { 0.6 } else { 0.4 };
    HANG.min(part.mul_f64(share)).max(Duration::from_millis(200))
}

/// How much verifying, and how much timing, of a device weighs among others.
pub fn weights(class: Class, has_card: bool) -> (u32, u32) {
    match (class, has_card) {
        (Class::Card, _) => (4, 4),
        // Its times are no card's.
        (Class::VirtualCard, _) => (4, 0),
        (Class::SoftwareDriver, false) => (4, 3),
        (Class::Processor, false) => (2, 1),
        (Class::SoftwareDriver | Class::Processor, true) => (1, 0),
    }
}

/// What problems of a device are scaled down to.
pub fn scaled_to(class: Class) -> u64 {
    match class {
        Class::Card => CARD_FLOPS,
        Class::VirtualCard => VIRTUAL_FLOPS,
        Class::SoftwareDriver | Class::Processor => wave32_verify::campaign::SLOW_DEVICE_FLOPS,
    }
}

/// The problems to verify, in words and in order: whoever has no time for all has seen the most telling ones.
///
/// # Errors
/// Never, with the suites that are embedded.
pub fn checks(quick: bool) -> Result<(String, Vec<Item>), SelectionError> {
    let take = |suite: &str, dtype: DType, directions: &[Direction]| {
        let filter = Filter { directions: Some(directions.to_vec()), dtypes: Some(vec![dtype]) };
        items(&[suite.to_string()], &filter, 0)
    };
    let sample = |dtype, count: usize| {
        let all = take("nets", dtype, &Direction::ALL)?;
        let step = (all.len() / count).max(1);
        // Of three passes each in turn.
        let step = if step.is_multiple_of(3) { step + 1 } else { step };
        Ok::<_, SelectionError>(all.into_iter().step_by(step).take(count).collect::<Vec<_>>())
    };
    let mut found = take("seeds", DType::F32, &[Direction::Forward])?;
    if quick {
        found.extend(sample(DType::F32, QUICK_NETS)?);
        return Ok((format!("seeds, forward f32; {QUICK_NETS} problems of the networks"), found));
    }
    found.extend(sample(DType::F32, NETS)?);
    found.extend(take("seeds", DType::F32, &[Direction::BackwardData, Direction::BackwardWeights])?);
    found.extend(sample(DType::F16, NETS)?);
    found.extend(take("seeds", DType::F16, &Direction::ALL)?);
    Ok((format!("seeds in all passes, f32 and f16; {NETS} problems of the networks of each type"), found))
}

/// The suite `shapes`: forward passes first, then the others. On a processor only what is small, with a batch of 1.
///
/// # Errors
/// Never, with the suite that is embedded.
pub fn benches(class: Class, quick: bool) -> Result<Selection, SuiteError> {
    let mut selection = Selection::default();
    let slow = class != Class::Card;
    let large = |flops: u64| slow && flops as f64 > SLOW_GFLOP * 1e9;
    let directions: &[Direction] = if quick { &[Direction::Forward] } else { &Direction::ALL };
    let mut entries = Vec::new();
    for entry in suites::load("shapes")? {
        let label = entry.label.clone();
        let entry = if slow { entry.with_batch(1)? } else { entry };
        if large(entry.problem.flops()) {
            selection.too_large.push(label);
        } else {
            entries.push(entry);
        }
    }
    for &direction in directions {
        for entry in &entries {
            let problem = entry.pass(direction, None)?;
            let case = Case { label: entry.label.clone(), problem };
            // With a batch of 1 some are the same.
            if !selection.cases.iter().any(|known| known.problem == case.problem) {
                selection.cases.push(case);
            }
        }
    }
    Ok(selection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_every_seed_every_pass_and_both_types() {
        let (_, all) = checks(false).unwrap();
        let seeds = suites::load("seeds").unwrap().len();
        assert_eq!(all.iter().filter(|item| item.suite == "seeds").count(), seeds * 6);
        for dtype in [DType::F32, DType::F16] {
            for direction in Direction::ALL {
                let nets = all.iter().filter(|i| {
                    let spec = i.problem.conv().map(|p| (p.spec().dtype, p.spec().direction));
                    i.suite == "nets" && spec == Some((dtype, direction))
                });
                assert!(nets.count() >= 15, "{dtype:?} {direction:?}");
            }
        }
        let (_, quick) = checks(true).unwrap();
        assert_eq!(quick.len(), seeds + QUICK_NETS);
    }

    #[test]
    fn benches_fit_the_device() {
        let card = benches(Class::Card, false).unwrap();
        assert_eq!((card.cases.len(), card.too_large.len()), (31 * 3, 0));
        let slow = benches(Class::SoftwareDriver, true).unwrap();
        assert!(slow.cases.len() > 15 && slow.cases.iter().all(|c| c.problem.flops() <= 300_000_000));
        assert!(!slow.too_large.is_empty());
    }

    #[test]
    fn shares_never_exceed_what_is_left() {
        let clock = Clock::start(Duration::from_secs(100));
        assert!(clock.share(4, 8) <= Duration::from_secs(45) && clock.share(3, 0) <= Duration::from_secs(90));
        assert_eq!(Clock::start(Duration::ZERO).share(1, 1), Duration::ZERO);
        assert!(
            hang_after(Class::Card, Duration::from_secs(100)) == HANG
                && hang_after(Class::Card, Duration::from_secs(5)) < Duration::from_secs(3)
                && hang_after(Class::SoftwareDriver, Duration::from_secs(5)) < Duration::from_secs(5)
        );
    }
}
