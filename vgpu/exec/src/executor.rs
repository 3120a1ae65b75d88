//! Dispatches over threads.

use crate::group::{Group, Progress, Runner};
use crate::launch::Launch;
use crate::program::{Code, Programs};
use crate::{Dispatch, Memory, Options, Report, Signals, Stop};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use wave32_isa::Target;

/// Runs dispatches; keeps decoded programs and its threads from one to the next. Threads that have nothing to do sleep.
pub struct Executor<M> {
    programs: Programs<M>,
    pool: Option<rayon::ThreadPool>,
    threads: usize,
}

/// What the threads of a dispatch share.
struct Shared<'a, M> {
    launch: &'a Launch<'a>,
    memory: &'a M,
    options: &'a Options,
    signals: &'a dyn Signals,
    programs: &'a Programs<M>,
    /// Workgroups to run.
    total: u64,
    /// The next one to start.
    next: AtomicU64,
    stopped: AtomicBool,
    stop: Mutex<Option<Stop>>,
    report: Mutex<Report>,
    started: Instant,
    /// Workgroups that a thread may have under way.
    resident: usize,
}

impl<M: Memory> Executor<M> {
    /// An executor for code of `target` on `threads` threads; `None`: as many as the machine runs at once.
    pub fn new(target: Target, threads: Option<usize>) -> Self {
        let available = || std::thread::available_parallelism().map_or(1, |n| n.get());
        let threads = threads.unwrap_or_else(available).max(1);
        // The caller's thread works too.
        let pool = (threads > 1).then(|| {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(threads - 1);
            builder.thread_name(|i| format!("vgpu-{i}")).build().ok()
        });
        Self { programs: Programs::new(target), pool: pool.flatten(), threads }
    }

    pub(crate) fn programs(&self) -> &Programs<M> {
        &self.programs
    }

    /// Forgets decoded programs. There is no need to for code that changed between dispatches: that is noticed.
    pub fn invalidate(&self) {
        self.programs.clear();
    }

    /// Runs a dispatch to its end.
    ///
    /// # Errors
    /// The first [`Stop`] that a thread meets; other workgroups may have run by then.
    pub fn run(
        &self,
        memory: &M,
        dispatch: &Dispatch,
        options: &Options,
        signals: &dyn Signals,
    ) -> Result<Report, Stop> {
        let launch = Launch::new(dispatch)?;
        let total = options.only.as_ref().map_or(launch.total(), |only| only.len() as u64);
        if total == 0 || launch.total() == 0 {
            return Ok(Report::default());
        }
        let threads = self.threads.min(usize::try_from(total).unwrap_or(usize::MAX));
        let waves = u32::max(launch.waves([0; 3]), 1);
        let shared = Shared {
            launch: &launch,
            memory,
            options,
            signals,
            programs: &self.programs,
            total,
            next: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            stop: Mutex::default(),
            report: Mutex::default(),
            started: Instant::now(),
            resident: (options.resident_waves / waves) as usize / threads,
        };
        match &self.pool {
            Some(pool) if threads > 1 => pool.in_place_scope(|scope| {
                for _ in 1..threads {
                    scope.spawn(|_| shared.work());
                }
                shared.work();
            }),
            _ => shared.work(),
        }
        match shared.stop.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(stop) => Err(stop),
            None => Ok(shared.report.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

/// Runs one dispatch on `threads` threads with nothing kept; see [`Executor::run`].
///
/// # Errors
/// See [`Executor::run`].
pub fn run<M: Memory>(
    memory: &M,
    dispatch: &Dispatch,
    options: &Options,
    signals: &dyn Signals,
) -> Result<Report, Stop> {
    Executor::new(Target::default(), None).run(memory, dispatch, options, signals)
}

impl<M: Memory> Shared<'_, M> {
    /// A thread's part of the dispatch: starts workgroups, and goes round those that take longer than a turn.
    fn work(&self) {
        let code = Code::new(self.programs, self.memory, self.launch.wave64);
        let mut runner = Runner::new(self.launch, self.memory, self.signals, self.options, code);
        if let Err(stop) = self.rounds(&mut runner)
            && !self.stopped.swap(true, Relaxed)
        {
            *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop);
        }
        self.report.lock().unwrap_or_else(PoisonError::into_inner).merge(runner.finish());
    }

    fn rounds(&self, runner: &mut Runner<'_, M>) -> Result<(), Stop> {
        let mut under_way: VecDeque<Group> = VecDeque::new();
        // Workgroups in a row that only waited.
        let mut waiting = 0;
        while !self.stopped.load(Relaxed) {
            let room = under_way.len() < self.resident.max(1);
            let mut group = match if room { self.start(runner) } else { None } {
                Some(group) => group,
                None => match under_way.pop_front() {
                    Some(group) => group,
                    None => return Ok(()),
                },
            };
            let progress = runner.run(&mut group)?;
            // Short workgroups take long too, if there are enough.
            let more = progress != Progress::Done || self.next.load(Relaxed) < self.total;
            if more && self.started.elapsed() > self.options.deadline {
                return Err(runner.late(&group));
            }
            waiting = if progress == Progress::Waiting { waiting + 1 } else { 0 };
            if progress == Progress::Done {
                runner.reuse(group);
            } else {
                under_way.push_back(group);
            }
            // Everybody waits, for the host perhaps: no need to ask again at once.
            if waiting > 4 * under_way.len() && waiting > 64 {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(())
    }

    fn start(&self, runner: &mut Runner<'_, M>) -> Option<Group> {
        // Looked at first, so that the counter cannot run over.
        if self.next.load(Relaxed) >= self.total {
            return None;
        }
        let n = self.next.fetch_add(1, Relaxed);
        if n >= self.total {
            return None;
        }
        let number = self.options.only.as_ref().map_or(n, |only| only[n as usize] % self.launch.total());
        Some(runner.start(self.launch.group(number)))
    }
}
