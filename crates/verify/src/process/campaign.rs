//! Walks the problems over the devices, a fresh child after each failure.

use crate::output::report::{DeviceReport, Report, Row};
use crate::process::guard::MORE;
use crate::process::protocol::{Device, Job, Outcome, Verdict};
use crate::process::supervisor::{Launcher, Limits, StartError, Worker};
use crate::proof::selection::{Item, for_device};
use crate::proof::shrink::shrink;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wave32_device::DeviceKind;
use wave32_problem::Problem;
use wave32_solve::Policy;

/// Starts in a row that may fail before a device is given up.
const START_ATTEMPTS: u32 = 2;

/// How a campaign is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// How a child is started.
    pub launcher: Launcher,
    /// What each child may use.
    pub limits: Limits,
    /// Seed of the inputs.
    pub seed: u64,
    /// Runs beyond the first that must agree bit for bit.
    pub repeat: u32,
    /// Every applicable solver, not just the chosen one.
    pub all_solvers: bool,
    /// Forced and skipped solvers, workspace cap.
    pub policy: Policy,
    /// Scale larger problems down to this many FLOP: as given, or by the device's kind.
    pub max_flops: MaxFlops,
    /// Children that work at the same time on one device.
    pub jobs: usize,
    /// Time to spend on making a failing fuzz problem smaller.
    pub shrink_time: Duration,
    /// Words for the repro command that repeat non-default options.
    pub repro_flags: String,
}

/// When problems are scaled down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxFlops {
    /// Suites on devices that compute on the CPU, to [`SLOW_DEVICE_FLOPS`].
    ByKind,
    /// Never.
    Unlimited,
    /// Everything, lines too, to this.
    Limit(u64),
}

/// What suites are scaled down to on the CPU and on software Vulkan drivers: both suites in all passes
/// and two types then end in minutes on two cores.
pub const SLOW_DEVICE_FLOPS: u64 = 5_000_000;

impl MaxFlops {
    fn on(self, device: &Device) -> Option<u64> {
        match self {
            Self::Unlimited => None,
            Self::Limit(flops) => Some(flops),
            Self::ByKind => {
                matches!(device.kind, DeviceKind::Cpu | DeviceKind::Other).then_some(SLOW_DEVICE_FLOPS)
            }
        }
    }
}

/// Hears how a campaign goes on.
pub trait Observer {
    /// A device's turn begins, with so many problems.
    fn device(&mut self, device: &Device, problems: usize);
    /// A problem is done.
    fn row(&mut self, row: &Row);
}

/// Verifies the items on each device. Ends early when `stop` is set, with what was done till then.
pub fn run(
    items: &[Item],
    devices: &[Device],
    options: &Options,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Report {
    let begin = Instant::now();
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (mut rows, mut reports, mut not_run) = (Vec::new(), Vec::new(), 0);
    for device in devices {
        let max = options.max_flops.on(device);
        let todo = for_device(items, max, matches!(options.max_flops, MaxFlops::Limit(_)));
        reports.push(DeviceReport {
            device: device.clone(),
            max_gflop: max.map(|flops| flops as f64 / 1e9),
            named: items.len(),
            distinct: todo.len(),
        });
        if stop.load(Ordering::Relaxed) {
            not_run += todo.len();
            continue;
        }
        observer.device(device, todo.len());
        let done = on_device(device, &todo, options, observer, stop);
        not_run += todo.len() - done.len();
        rows.extend(done);
    }
    Report {
        version: env!("CARGO_PKG_VERSION").to_string(),
        started,
        elapsed_s: begin.elapsed().as_secs_f64(),
        seed: options.seed,
        interrupted: stop.load(Ordering::Relaxed),
        not_run,
        selection: Vec::new(),
        devices: reports,
        rows,
    }
}

/// One device's rows, in the problems' order.
fn on_device(
    device: &Device,
    todo: &[(Item, usize)],
    options: &Options,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Vec<Row> {
    let next = Mutex::new(0usize);
    let (sender, done) = mpsc::channel();
    let mut rows: Vec<(usize, Row)> = Vec::new();
    let work = |sender: Sender<(usize, Row)>, given_up: Option<GivenUp>| {
        let mut lane = Lane { device, options, stop, worker: None, given_up };
        loop {
            let index = match next.lock() {
                Ok(mut next) => {
                    *next += 1;
                    *next - 1
                }
                Err(_) => return,
            };
            let Some((item, stands_for)) = todo.get(index) else { return };
            let Some(row) = lane.row(item, *stands_for) else { return };
            if sender.send((index, row)).is_err() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        let (mut lanes, mut refused) = (0, None);
        for _ in 0..options.jobs.max(1) {
            let (sender, work) = (sender.clone(), &work);
            match std::thread::Builder::new().spawn_scoped(scope, move || work(sender, None)) {
                Ok(_) => lanes += 1,
                Err(error) => {
                    refused = Some((Verdict::Error, format!("cannot start a thread: {error}; {MORE}")));
                }
            }
        }
        if lanes == 0 {
            // Each problem gets that for its reason; no child is started.
            work(sender.clone(), refused);
        }
        drop(sender);
        for (index, row) in done {
            observer.row(&row);
            rows.push((index, row));
        }
    });
    rows.sort_by_key(|(index, _)| *index);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// One child after another, for one thread.
struct Lane<'a> {
    device: &'a Device,
    options: &'a Options,
    stop: &'a AtomicBool,
    worker: Option<Worker>,
    given_up: Option<GivenUp>,
}

/// Why nothing runs on a device any more.
type GivenUp = (Verdict, String);

impl Lane<'_> {
    fn job(&self, problem: &Problem) -> Job {
        Job {
            spec: problem.spec(),
            line: problem.to_string(),
            seed: self.options.seed,
            repeat: self.options.repeat,
            all_solvers: self.options.all_solvers,
            policy: self.options.policy.clone(),
            // The child's own waits end before the parent's patience does, with a better text.
            run_deadline_s: self.options.limits.deadline.as_secs_f64() * 0.5,
            memory_cap: self.options.limits.memory_cap,
            fold: false,
        }
    }

    /// Verifies a problem; `None` when the user stopped the run.
    fn outcome(&mut self, problem: &Problem) -> Option<Outcome> {
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        let mut worker = match self.worker.take() {
            Some(worker) => worker,
            None => match self.start() {
                Ok(worker) => worker,
                Err(None) => return None,
                Err(Some((verdict, text))) => return Some(Outcome::early(verdict, text)),
            },
        };
        let outcome = worker.check(&self.job(problem), &self.options.limits, self.stop)?;
        if !outcome.verdict.spoils_device() {
            self.worker = Some(worker);
        }
        Some(outcome)
    }

    /// A fresh child; `Err(None)` when the user stopped the run, else why the device is given up.
    fn start(&mut self) -> Result<Worker, Option<GivenUp>> {
        if let Some(why) = &self.given_up {
            return Err(Some(why.clone()));
        }
        let mut last = None;
        for _ in 0..START_ATTEMPTS {
            match Worker::open(&self.options.launcher, &self.device.id, &self.options.limits, self.stop) {
                Ok((worker, _)) => return Ok(worker),
                Err(StartError::Interrupted) => return Err(None),
                Err(error @ StartError::Spawn(_)) => last = Some((Verdict::Error, error.to_string())),
                Err(error) => {
                    let text = format!("{} does not open any more: {error}", self.device.id);
                    last = Some((Verdict::DeviceLost, text));
                }
            }
        }
        self.given_up.clone_from(&last);
        Err(last)
    }

    fn row(&mut self, item: &Item, stands_for: usize) -> Option<Row> {
        let begin = Instant::now();
        let outcome = self.outcome(&item.problem)?;
        let seconds = begin.elapsed().as_secs_f64();
        let failed = outcome.verdict.is_failure();
        let shrunk = (failed && item.suite == "fuzz").then(|| self.shrink(&item.problem, outcome.verdict));
        Some(Row {
            device: self.device.id.clone(),
            suite: item.suite.clone(),
            label: item.label.clone(),
            line: item.problem.to_string(),
            scaled_from: item.full.as_ref().map(ToString::to_string),
            stands_for,
            direction: item.problem.pass().into(),
            dtype: item.problem.dtype().name().into(),
            flops: item.problem.flops(),
            outcome,
            seconds,
            repro: failed.then(|| self.repro(&item.problem)),
            shrunk: shrunk.flatten(),
        })
    }

    /// The smallest problem found that gets the same verdict, if it is smaller.
    fn shrink(&mut self, problem: &Problem, verdict: Verdict) -> Option<String> {
        let end = Instant::now() + self.options.shrink_time;
        let small = shrink(problem, |candidate| {
            if Instant::now() >= end {
                return None;
            }
            Some(self.outcome(candidate)?.verdict == verdict)
        });
        (small != *problem).then(|| self.repro(&small))
    }

    fn repro(&self, problem: &Problem) -> String {
        let (device, seed) = (&self.device.id, self.options.seed);
        let flags = &self.options.repro_flags;
        format!("wave32 verify '{problem}' --device {device} --seed {seed}{flags}")
    }
}
