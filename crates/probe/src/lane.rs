//! One guarded child after another: a fresh one after each failure, and one of its own for each filtered Find.

use crate::protocol::{Attempt, Finding, Identity, Reply, Request, SolverVerdict, VendorSolution, Way};
use crate::solvers;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wave32_problem::ConvProblem;
use wave32_verify::guard::{Guarded, Launcher, Limits, StartError};

/// Starts in a row that may fail before the device is given up.
const START_ATTEMPTS: u32 = 2;

/// How children are made and what they may do.
#[derive(Debug, Clone)]
pub struct Children {
    /// How a child is started.
    pub launcher: Launcher,
    /// What each may use; the deadline is for one attempt.
    pub limits: Limits,
    /// Time for an attempt that has MIOpen's Find compile and measure.
    pub find_deadline: Duration,
    /// libMIOpen: a path, or a name for the system's loader.
    pub library: PathBuf,
    /// The HIP device's number.
    pub device: i32,
}

/// Why there is no answer, and none to be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The user stopped the run.
    Interrupted,
    /// The device does not open any more.
    GivenUp(String),
}

/// Children for one thread.
pub(crate) struct Lane<'a> {
    children: &'a Children,
    stop: &'a AtomicBool,
    idle: Option<Guarded<Reply>>,
}

impl<'a> Lane<'a> {
    pub(crate) fn new(children: &'a Children, stop: &'a AtomicBool) -> Self {
        Self { children, stop, idle: None }
    }

    /// Opens the device for the first time.
    pub(crate) fn open(&mut self) -> Result<Identity, StartError> {
        let (child, identity) = self.start(&self.children.launcher)?;
        self.idle = Some(child);
        Ok(identity)
    }

    fn start(&self, launcher: &Launcher) -> Result<(Guarded<Reply>, Identity), StartError> {
        let limits = &self.children.limits;
        let mut child = Guarded::spawn(launcher)?;
        child.stage = "opening MIOpen".into();
        let request = Request::Open { library: self.children.library.clone(), device: self.children.device };
        match child.ask(&request, limits.startup, limits.memory_cap, self.stop) {
            Ok(Reply::Ready(identity)) => Ok((child, *identity)),
            Ok(Reply::NotOpen(text)) => Err(StartError::NotOpen(text)),
            Ok(_) => Err(StartError::Broken("the child answered another question".into())),
            Err(no) => Err(no.start_error(&child.stage, limits.startup)),
        }
    }

    fn fresh(&self, launcher: &Launcher) -> Result<Guarded<Reply>, Stop> {
        let mut last = String::new();
        for _ in 0..START_ATTEMPTS {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Stop::Interrupted);
            }
            match self.start(launcher) {
                Ok((child, _)) => return Ok(child),
                Err(StartError::Interrupted) => return Err(Stop::Interrupted),
                Err(error) => last = error.to_string(),
            }
        }
        Err(Stop::GivenUp(last))
    }

    /// The solvers that MIOpen offers for a problem.
    pub(crate) fn solutions(
        &mut self,
        p: &ConvProblem,
    ) -> Result<Result<Vec<VendorSolution>, Finding>, Stop> {
        let request = Request::List(Box::new(p.spec().clone()));
        let mut child = self.take()?;
        child.stage = "listing solvers".into();
        let deadline = self.children.limits.deadline;
        match self.ask(&mut child, &request, deadline)? {
            Ok(Reply::Offers(solutions)) => {
                self.idle = Some(child);
                Ok(solutions)
            }
            Ok(_) => Ok(Err(odd())),
            Err(finding) => Ok(Err(finding)),
        }
    }

    /// Makes an attempt.
    pub(crate) fn attempt(&mut self, job: &Attempt) -> Result<Finding, Stop> {
        let mut child = match &job.way {
            Way::FindOnly(name) => {
                let solver = solvers::all().find(|s| s.name == *name);
                let mut launcher = self.children.launcher.clone();
                let only = solver.as_ref().map(solvers::only).unwrap_or_default();
                launcher.env.extend(only.into_iter().map(|(name, value)| (name, value.map(Into::into))));
                self.fresh(&launcher)?
            }
            Way::Find | Way::Immediate(_) => self.take()?,
        };
        let deadline = match job.way {
            Way::Immediate(_) => self.children.limits.deadline,
            Way::Find | Way::FindOnly(_) => self.children.find_deadline,
        };
        child.stage = "starting".into();
        let answer = self.ask(&mut child, &Request::Try(Box::new(job.clone())), deadline)?;
        Ok(match answer {
            Ok(Reply::Done(finding)) => {
                // After a device fault the process cannot be trusted; neither can one whose Find is filtered.
                let spoiled =
                    finding.verdict == SolverVerdict::Crash || finding.verdict == SolverVerdict::OutOfMemory;
                if !spoiled && !matches!(job.way, Way::FindOnly(_)) {
                    self.idle = Some(child);
                }
                finding
            }
            Ok(_) => odd(),
            Err(finding) => finding,
        })
    }

    fn take(&mut self) -> Result<Guarded<Reply>, Stop> {
        match self.idle.take() {
            Some(child) => Ok(child),
            None => self.fresh(&self.children.launcher),
        }
    }

    fn ask(
        &self,
        child: &mut Guarded<Reply>,
        request: &Request,
        deadline: Duration,
    ) -> Result<Result<Reply, Finding>, Stop> {
        let cap = self.children.limits.memory_cap;
        match child.ask(request, deadline, cap, self.stop) {
            Ok(reply) => Ok(Ok(reply)),
            Err(no) => match no.failure(&child.stage, deadline, cap) {
                Some(failure) => Ok(Err(failure.into())),
                None => Err(Stop::Interrupted),
            },
        }
    }
}

fn odd() -> Finding {
    Finding::of(SolverVerdict::Crash, "the child answered another question")
}
