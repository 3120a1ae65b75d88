//! Measures configurations on a device within a time limit, in guarded children: a hang or a crash costs one
//! configuration. Only what was verified may replace the model's choice.

use crate::bench::{Case, Row};
use crate::process::protocol::{Device, Failure, Job, Ready, TimeJob, Verdict};
use crate::process::supervisor::{Launcher, Limits, StartError, Worker};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wave32_device::tuned::Entry;
use wave32_solve::{Candidate, DeviceCaps, Policy, candidates, tuning_key};

/// Configurations whose price is so many times the best one's are not timed.
const SLOWER: f64 = 3.0;
/// Configurations of a problem that are timed at most.
const MOST: usize = 40;
/// What must be gained for another configuration than the model's: timings scatter.
const GAIN: f64 = 0.97;
/// Device time that the runs of one configuration should fill, in seconds.
const FILL: f64 = 0.03;
/// Runs that show whether a configuration is worth more of them, and the most that it gets.
const FEW: u32 = 5;
const MANY: u32 = 100;
/// How many times the least time is worth more runs.
const NEAR: f64 = 1.3;
/// Faster configurations that are verified, until one passes.
const TRIES: usize = 3;
/// What a problem needs at least.
const SHARE: Duration = Duration::from_secs(8);
/// Children in a row that may fail before the device is given up.
const FAILURES: u32 = 3;

/// How to tune.
#[derive(Debug, Clone)]
pub struct Options {
    /// How a child is started.
    pub launcher: Launcher,
    /// What each child may use; the deadline is that of one configuration.
    pub limits: Limits,
    /// Time for everything.
    pub time: Duration,
    /// Seed of the inputs.
    pub seed: u64,
    /// Skipped solvers, workspace cap.
    pub policy: Policy,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// Every problem was tuned.
    Complete,
    /// The time was over.
    TimeLimit,
    /// The user stopped it.
    Interrupted,
    /// The device does not work any more.
    DeviceLost(String),
}

/// A configuration that failed.
#[derive(Debug, Clone, Serialize)]
pub struct Failed {
    /// Solver and configuration.
    pub plan: String,
    /// How.
    pub verdict: Verdict,
    /// More of it, in one line.
    pub detail: String,
}

/// What came of a problem.
#[derive(Debug, Clone, Serialize)]
pub struct Tuning {
    /// Name of its layer.
    pub label: String,
    /// The problem, as the file has it.
    pub line: String,
    /// Its pass.
    pub pass: &'static str,
    /// Its storage type.
    pub dtype: &'static str,
    /// What is to be kept; nothing where the model's choice could not be timed, or the time was over before.
    #[serde(flatten)]
    pub entry: Option<Entry>,
    /// What failed.
    pub failed: Vec<Failed>,
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The device.
    pub device: Device,
    /// Each problem that was begun.
    pub problems: Vec<Tuning>,
    /// Problems that were not begun.
    pub not_begun: usize,
    /// How it ended.
    pub ended: Ended,
    /// Seconds.
    pub elapsed_s: f64,
}

/// The problems that take longest by the model come first: they gain most.
///
/// # Errors
/// The device does not open, or has nothing to choose.
pub fn by_time(
    cases: Vec<Case>,
    device: &str,
    options: &Options,
    stop: &AtomicBool,
) -> Result<(Vec<Case>, Device), StartError> {
    let (_, Ready { device, caps }) = Worker::open(&options.launcher, device, &options.limits, stop)?;
    let none =
        || StartError::NotOpen(format!("{} has one way to compute each problem: nothing to tune", device.id));
    let caps = caps.ok_or_else(none)?;
    let seconds = |case: &Case| {
        wave32_solve::explain(&case.problem, &caps, &options.policy)
            .chosen
            .map_or(0.0, |(_, seconds)| seconds)
    };
    let mut cases: Vec<(f64, Case)> = cases.into_iter().map(|case| (seconds(&case), case)).collect();
    cases.sort_by(|a, b| b.0.total_cmp(&a.0));
    Ok((cases.into_iter().map(|(_, case)| case).collect(), device))
}

/// Tunes the cases in their order. `progress` hears how many are done, and what is measured now.
///
/// # Errors
/// The device does not open at all.
pub fn run(
    device: &str,
    cases: &[Case],
    options: &Options,
    progress: &mut dyn FnMut(usize, &str),
    stop: &AtomicBool,
) -> Result<Report, StartError> {
    let begin = Instant::now();
    let (worker, Ready { device, caps }) = Worker::open(&options.launcher, device, &options.limits, stop)?;
    let Some(caps) = caps else {
        return Err(StartError::NotOpen(format!(
            "{} has one way to compute each problem: nothing to tune",
            device.id
        )));
    };
    let mut tuner = Tuner {
        options,
        stop,
        caps,
        id: device.id.clone(),
        until: begin + options.time,
        worker: Some(worker),
        failures: 0,
    };
    let mut problems = Vec::new();
    let mut ended = Ended::Complete;
    for (done, case) in cases.iter().enumerate() {
        // What is left is shared evenly, unless that were too little to measure anything: then the last ones are left
        // for another time. What a problem does not need, the next ones have.
        let left = tuner.until.saturating_duration_since(Instant::now());
        let share = Instant::now() + (left / (cases.len() - done) as u32).max(SHARE.min(left));
        progress(done, &case.label);
        let mut tuning = Tuning::new(case);
        let result = tuner.problem(case, share, &mut tuning);
        problems.push(tuning);
        if let Err(why) = result {
            ended = why;
            break;
        }
    }
    let not_begun = cases.len() - problems.len();
    Ok(Report { device, problems, not_begun, ended, elapsed_s: begin.elapsed().as_secs_f64() })
}

impl Tuning {
    fn new(case: &Case) -> Self {
        Self {
            label: case.label.clone(),
            line: tuning_key(&case.problem),
            pass: case.problem.pass(),
            dtype: case.problem.dtype().name(),
            entry: None,
            failed: Vec::new(),
        }
    }
}

/// What is asked about a configuration in vain.
enum No {
    /// It failed.
    Failed(Failure),
    /// Everything ends.
    Ended(Ended),
}

struct Tuner<'a> {
    options: &'a Options,
    stop: &'a AtomicBool,
    caps: DeviceCaps,
    id: String,
    until: Instant,
    worker: Option<Worker>,
    failures: u32,
}

fn named(candidate: &Candidate) -> String {
    format!("{} {}", candidate.plan.solver, candidate.plan.config)
}

/// The kernel of most work.
fn largest(candidate: &Candidate) -> Option<&str> {
    candidate.plan.launches.iter().max_by_key(|launch| launch.flops).map(|launch| launch.kernel.as_str())
}

impl Tuner<'_> {
    fn problem(&mut self, case: &Case, share: Instant, tuning: &mut Tuning) -> Result<(), Ended> {
        let mut all = candidates(&case.problem, &self.caps, &self.options.policy);
        let Some(least) = all.first().map(|c| c.cost) else { return Ok(()) };
        all.retain(|candidate| candidate.cost <= SLOWER * least);
        all.truncate(MOST);
        let mut note = |candidate: &Candidate, Failure { verdict, detail }: Failure| {
            tuning.failed.push(Failed { plan: named(candidate), verdict, detail });
        };
        let usual = &all[0];
        let usual_ms = match self.time(case, usual, f64::INFINITY) {
            Ok(ms) => Some(ms),
            Err(No::Failed(failure)) => {
                note(usual, failure);
                None
            }
            Err(No::Ended(why)) => return Err(why),
        };
        let mut least = usual_ms.unwrap_or(f64::INFINITY);
        let mut times = Vec::new();
        let mut over = None;
        // What hangs or crashes once does it with other splits too.
        let mut bad: Vec<&Candidate> = Vec::new();
        for candidate in &all[1..] {
            if bad.iter().any(|bad| largest(bad) == largest(candidate)) {
                continue;
            }
            // Verifying takes time too: a third of the share is kept for it.
            let now = Instant::now();
            if now + share.saturating_duration_since(now) / 3 >= share {
                break;
            }
            match self.time(case, candidate, least) {
                Ok(ms) => {
                    times.push((ms, candidate));
                    least = least.min(ms);
                }
                Err(No::Failed(failure)) => {
                    if failure.verdict.spoils_device() && failure.verdict != Verdict::Error {
                        bad.push(candidate);
                    }
                    note(candidate, failure);
                }
                Err(No::Ended(Ended::TimeLimit)) => {
                    over = Some(Ended::TimeLimit);
                    break;
                }
                Err(No::Ended(why)) => return Err(why),
            }
        }
        let timed = times.len() + usize::from(usual_ms.is_some());
        let gains = |ms: f64, usual_ms: Option<f64>| usual_ms.is_none_or(|usual_ms| ms < GAIN * usual_ms);
        let mut faster: Vec<_> = times.into_iter().filter(|(ms, _)| gains(*ms, usual_ms)).collect();
        faster.sort_by(|a, b| a.0.total_cmp(&b.0));
        let entry = |candidate: &Candidate, ms: f64, usual_ms: Option<f64>| Entry {
            solver: candidate.plan.solver.into(),
            config: candidate.plan.config.clone(),
            ms,
            usual: named(usual),
            usual_ms,
            timed,
        };
        let mut best = usual_ms.map(|ms| entry(usual, ms, usual_ms));
        for (ms, candidate) in faster.into_iter().take(TRIES) {
            match self.verified(case, candidate, usual_ms.map(|_| usual)) {
                Ok((again, usual_again)) if gains(again, usual_again) => {
                    best = Some(entry(candidate, again.min(ms), usual_again));
                    break;
                }
                // Right, and no faster when timed again.
                Ok(_) => {}
                Err(No::Failed(failure)) => note(candidate, failure),
                Err(No::Ended(Ended::TimeLimit)) => {
                    over = Some(Ended::TimeLimit);
                    break;
                }
                Err(No::Ended(why)) => return Err(why),
            }
        }
        tuning.entry = best;
        over.map_or(Ok(()), Err)
    }

    /// Verifies a configuration, then times it and the usual one once more.
    fn verified(
        &mut self,
        case: &Case,
        candidate: &Candidate,
        usual: Option<&Candidate>,
    ) -> Result<(f64, Option<f64>), No> {
        let policy = self.only(candidate);
        let job = Job {
            spec: case.problem.spec(),
            line: format!("{} {}", case.problem, named(candidate)),
            seed: self.options.seed,
            repeat: 1,
            all_solvers: false,
            policy,
            run_deadline_s: self.options.limits.deadline.as_secs_f64() * 0.5,
            memory_cap: self.options.limits.memory_cap,
            fold: false,
        };
        let (stop, limits) = (self.stop, self.limits()?);
        let mut worker = self.worker()?;
        let outcome = worker.check(&job, &limits, stop).ok_or(No::Ended(Ended::Interrupted))?;
        if outcome.verdict != Verdict::Pass {
            if !outcome.verdict.spoils_device() {
                self.worker = Some(worker);
            }
            return Err(self.failed(Failure::new(outcome.verdict, outcome.detail)));
        }
        self.worker = Some(worker);
        let again = self.time(case, candidate, f64::INFINITY)?;
        let usual = usual.map(|usual| self.time(case, usual, f64::INFINITY)).transpose()?;
        Ok((again, usual))
    }

    fn only(&self, candidate: &Candidate) -> Policy {
        Policy {
            only: Some(candidate.plan.solver.into()),
            config: Some(candidate.plan.config.clone()),
            ..self.options.policy.clone()
        }
    }

    /// The median of a configuration, in milliseconds: of few runs, and of more where these are near the least.
    fn time(&mut self, case: &Case, candidate: &Candidate, least: f64) -> Result<f64, No> {
        let ms = self.time_runs(case, candidate, FEW)?;
        let runs = (FILL * 1e3 / ms.max(1e-6)) as u32;
        if runs <= FEW || ms > NEAR * least {
            Ok(ms)
        } else {
            self.time_runs(case, candidate, runs.min(MANY))
        }
    }

    fn time_runs(&mut self, case: &Case, candidate: &Candidate, runs: u32) -> Result<f64, No> {
        let limits = self.limits()?;
        let job = TimeJob {
            label: case.label.clone(),
            spec: case.problem.spec(),
            policy: self.only(candidate),
            repeats: Some(runs),
            seed: self.options.seed,
            // The child's own waits end before the parent's patience does, with a better text.
            run_deadline_s: limits.deadline.as_secs_f64() * 0.8,
        };
        let stop = self.stop;
        let mut worker = self.worker()?;
        match worker.time(&job, &limits, stop) {
            Ok((rows, None)) => {
                self.worker = Some(worker);
                self.failures = 0;
                let row: Option<Row> = rows.into_iter().next_back();
                match row {
                    Some(Row { time: Some(times), .. }) => Ok(times.median_ms),
                    Some(Row { error: Some(error), .. }) => {
                        Err(No::Failed(Failure::new(Verdict::Error, error)))
                    }
                    _ => Err(No::Failed(Failure::new(Verdict::Error, "it was not timed"))),
                }
            }
            Ok((_, Some(gone))) => {
                let hang = gone.contains("did not finish");
                let verdict = if hang { Verdict::Hang } else { Verdict::DeviceLost };
                Err(self.failed(Failure::new(verdict, gone)))
            }
            Err(Some(failure)) => Err(self.failed(failure)),
            Err(None) => Err(No::Ended(Ended::Interrupted)),
        }
    }

    /// What failed, unless it is the time that is over: the wait was cut to that.
    fn failed(&mut self, failure: Failure) -> No {
        if self.until.saturating_duration_since(Instant::now()) < Duration::from_millis(20) {
            return No::Ended(Ended::TimeLimit);
        }
        if failure.verdict.spoils_device() {
            self.failures += 1;
            if self.failures >= FAILURES {
                return No::Ended(Ended::DeviceLost(failure.detail));
            }
        }
        No::Failed(failure)
    }

    /// The limits of one configuration: none waits longer than all may take.
    fn limits(&self) -> Result<Limits, No> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(No::Ended(Ended::Interrupted));
        }
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(No::Ended(Ended::TimeLimit));
        }
        let Limits { deadline, startup, memory_cap } = self.options.limits;
        Ok(Limits { deadline: deadline.min(left), startup: startup.min(left), memory_cap })
    }

    /// The child, or a new one after a failure.
    fn worker(&mut self) -> Result<Worker, No> {
        if let Some(worker) = self.worker.take() {
            return Ok(worker);
        }
        let limits = self.limits()?;
        match Worker::open(&self.options.launcher, &self.id, &limits, self.stop) {
            Ok((worker, _)) => Ok(worker),
            Err(StartError::Interrupted) => Err(No::Ended(Ended::Interrupted)),
            Err(_) if self.limits().is_err() => Err(No::Ended(Ended::TimeLimit)),
            Err(error) => Err(No::Ended(Ended::DeviceLost(error.to_string()))),
        }
    }
}
