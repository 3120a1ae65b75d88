//! A meter whose device is in a guarded child: a hang, a crash or a lost device costs one problem.

use super::{Case, Gone, Meter, Row, Settings, Subject};
use crate::process::protocol::{Ready, TimeJob, Verdict};
use crate::process::supervisor::{Launcher, Limits, StartError, Worker};
use std::sync::atomic::AtomicBool;

/// Problems in a row that may fail before the device is given up.
const FAILURES: u32 = 2;

/// Times problems in a child, and in a new one after a failure.
pub struct GuardedMeter<'a> {
    launcher: &'a Launcher,
    limits: Limits,
    stop: &'a AtomicBool,
    ready: Ready,
    worker: Option<Worker>,
    failed: u32,
}

/// True for the error of a row that cost its child: a hang, a crash, a lost device.
pub fn ended_a_child(error: &str) -> bool {
    let verdicts = [Verdict::Hang, Verdict::Crash, Verdict::DeviceLost, Verdict::Error];
    verdicts
        .iter()
        .any(|verdict| error.strip_prefix(verdict.name()).is_some_and(|rest| rest.starts_with(':')))
}

impl<'a> GuardedMeter<'a> {
    /// Opens the device of that name in a child.
    ///
    /// # Errors
    /// See [`Worker::open`].
    pub fn open(
        launcher: &'a Launcher,
        device: &str,
        limits: Limits,
        stop: &'a AtomicBool,
    ) -> Result<Self, StartError> {
        let (worker, ready) = Worker::open(launcher, device, &limits, stop)?;
        Ok(Self { launcher, limits, stop, ready, worker: Some(worker), failed: 0 })
    }

    fn failed(&mut self, text: String) -> Result<(), Gone> {
        self.failed += 1;
        if self.failed < FAILURES { Ok(()) } else { Err(Gone(text)) }
    }
}

impl Meter for GuardedMeter<'_> {
    fn subject(&self) -> Subject {
        let Ready { device, caps } = &self.ready;
        let clock = if caps.is_some() { "device timestamps" } else { "wall clock" };
        Subject {
            id: device.id.clone(),
            name: device.name.clone(),
            driver: device.driver.clone(),
            rates: caps.as_ref().map(Subject::modelled),
            clock: clock.into(),
        }
    }

    /// No row is added where the user stopped the run.
    fn measure(&mut self, case: &Case, settings: &Settings, rows: &mut Vec<Row>) -> Result<(), Gone> {
        let id = &self.ready.device.id;
        let mut worker = match self.worker.take() {
            Some(worker) => worker,
            None => match Worker::open(self.launcher, id, &self.limits, self.stop) {
                Ok((worker, _)) => worker,
                Err(StartError::Interrupted) => return Ok(()),
                Err(error) => return Err(Gone(format!("{id} does not open any more: {error}"))),
            },
        };
        let job = TimeJob {
            label: case.label.clone(),
            spec: case.problem.spec(),
            policy: settings.policy.clone(),
            repeats: settings.repeats,
            seed: settings.seed,
            // The child's own waits end before the parent's patience does, with a better text.
            run_deadline_s: settings.deadline.min(self.limits.deadline.mul_f64(0.8)).as_secs_f64(),
        };
        let rates = self.ready.caps.as_ref().map(Subject::modelled);
        let row = || Row::new(case, rates.as_ref());
        match worker.time(&job, &self.limits, self.stop) {
            Ok((timed, None)) => {
                rows.extend(timed);
                self.worker = Some(worker);
                self.failed = 0;
                Ok(())
            }
            Ok((timed, Some(gone))) => {
                // As the device says of itself: it has waited in vain, or is lost.
                let verdict =
                    if gone.contains("did not finish") { Verdict::Hang } else { Verdict::DeviceLost };
                let text = format!("{}: {gone}", verdict.name());
                rows.push(timed.into_iter().next_back().unwrap_or_else(row).failed(&text));
                self.failed(text)
            }
            Err(Some(failure)) => {
                let text = format!("{}: {}", failure.verdict.name(), failure.detail);
                rows.push(row().failed(&text));
                self.failed(text)
            }
            Err(None) => Ok(()),
        }
    }
}
