//! The parent's side of a child that verifies: what [`protocol`](crate::process::protocol) says, over a [`Guarded`] child.

use crate::bench::Row;
use crate::process::guard::{Answer, Guarded};
use crate::process::protocol::{Driver, Failure, Job, Outcome, Ready, Reply, Request, TimeJob, Verdict};
use std::sync::atomic::AtomicBool;

pub use crate::process::guard::{Launcher, Limits, StartError, available_bytes, resident_bytes};

impl Answer for Reply {
    fn into_stage(self) -> Result<String, Self> {
        match self {
            Self::Stage(stage) => Ok(stage),
            answer => Err(answer),
        }
    }
}

/// A child with a device. Killed when dropped.
#[derive(Debug)]
pub struct Worker(Guarded<Reply>);

impl Worker {
    /// Starts a child and opens a device in it.
    ///
    /// # Errors
    /// [`StartError`] where the child does not start or does not answer.
    pub fn open(
        launcher: &Launcher,
        device: &str,
        limits: &Limits,
        stop: &AtomicBool,
    ) -> Result<(Self, Ready), StartError> {
        let mut child = Guarded::spawn(launcher)?;
        child.stage = format!("opening {device}");
        match child.ask(&Request::Open(device.to_string()), limits.startup, limits.memory_cap, stop) {
            Ok(Reply::Ready(ready)) => Ok((Self(child), *ready)),
            Ok(Reply::NotOpen(text)) => Err(StartError::NotOpen(text)),
            Ok(_) => Err(StartError::Broken("the child answered another question".into())),
            Err(no) => Err(no.start_error(&child.stage, limits.startup)),
        }
    }

    /// The devices that a child sees through a driver.
    ///
    /// # Errors
    /// [`StartError`]; `NotOpen` where there is no such driver at all.
    pub fn list(
        launcher: &Launcher,
        driver: Driver,
        limits: &Limits,
        stop: &AtomicBool,
    ) -> Result<Vec<Ready>, StartError> {
        let mut child = Guarded::spawn(launcher)?;
        child.stage = format!("listing {} devices", driver.name());
        match child.ask(&Request::List(driver), limits.startup, limits.memory_cap, stop) {
            Ok(Reply::Listed(list)) => list.map_err(StartError::NotOpen),
            Ok(_) => Err(StartError::Broken("the child answered another question".into())),
            Err(no) => Err(no.start_error(&child.stage, limits.startup)),
        }
    }

    /// Verifies one problem. `None` when the user stopped the run. After a verdict that
    /// [`Verdict::spoils_device`] this worker must be dropped.
    pub fn check(&mut self, job: &Job, limits: &Limits, stop: &AtomicBool) -> Option<Outcome> {
        let Self(child) = self;
        child.stage = "starting".into();
        let request = Request::Check(Box::new(job.clone()));
        match child.ask(&request, limits.deadline, limits.memory_cap, stop) {
            Ok(Reply::Done(outcome)) => Some(outcome),
            Ok(Reply::NotOpen(text)) => Some(Outcome::early(Verdict::Error, text)),
            Ok(_) => Some(Outcome::early(Verdict::Error, "the child answered another question")),
            Err(no) => {
                let failure = no.failure(&child.stage, limits.deadline, limits.memory_cap)?;
                Some(Outcome::early(failure.verdict, failure.detail))
            }
        }
    }

    /// Times one problem: its rows, and why the device is gone where it is. After an error, or where it is gone, this
    /// worker must be dropped.
    ///
    /// # Errors
    /// How the child failed; `None` when the user stopped the run.
    pub fn time(
        &mut self,
        job: &TimeJob,
        limits: &Limits,
        stop: &AtomicBool,
    ) -> Result<(Vec<Row>, Option<String>), Option<Failure>> {
        let Self(child) = self;
        child.stage = "starting".into();
        let request = Request::Time(Box::new(job.clone()));
        match child.ask(&request, limits.deadline, limits.memory_cap, stop) {
            Ok(Reply::Timed { rows, gone }) => Ok((rows, gone)),
            Ok(Reply::NotOpen(text)) => Err(Some(Failure::new(Verdict::Error, text))),
            Ok(_) => Err(Some(Failure::new(Verdict::Error, "the child answered another question"))),
            Err(no) => Err(no.failure(&child.stage, limits.deadline, limits.memory_cap)),
        }
    }
}
