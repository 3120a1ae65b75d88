//! [`PlanDevice`]: plans on buffers, checked and timed, for tools that verify and measure. [`Runner`] is one on a queue.

use crate::queue::execute_with;
use crate::{Addresses, BufferId, Deadline, DeviceError, DeviceInfo, Operands, Queue, check, execute};
use std::collections::HashMap;
use std::time::Duration;
use wave32_solve::{DeviceCaps, Plan};

/// Device time of steady work after which clocks have risen.
const WARM_UP: Duration = Duration::from_millis(20);

/// What one execution of a plan took on the device's own clock.
#[derive(Debug, Clone, Default)]
pub struct Timing {
    /// First launch's start to last launch's end.
    pub total: Duration,
    /// Each launch, in the plan's order: from the end of what ran before to its own.
    pub launches: Vec<Duration>,
    /// Submits it was cut into.
    pub submits: u32,
}

/// Device time of many runs of a plan.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// Each run alone: the next starts when it is done.
    pub each: Vec<Duration>,
    /// The mean of as many runs between two stamps, in which a run waits for the one before only where they touch the
    /// same memory.
    pub mean: Duration,
}

/// What plans run on, for tools that verify and measure: a [`Runner`] on any queue, or another library that computes a
/// plan's problem its own way.
pub trait PlanDevice {
    /// Identity.
    fn info(&self) -> &DeviceInfo;

    /// What solvers may know.
    fn caps(&self) -> &DeviceCaps;

    /// A buffer of `bytes` (at least 1) on the device, content undefined.
    ///
    /// # Errors
    /// `Misuse` for 0 bytes; `OutOfMemory`; `Lost`; `Driver` where a driver call fails.
    fn alloc(&mut self, bytes: u64) -> Result<BufferId, DeviceError>;

    /// Gives the buffer back. Unknown handles are ignored.
    fn free(&mut self, buffer: BufferId);

    /// Copies `data` to byte `offset` of the buffer, in order with everything else.
    ///
    /// # Errors
    /// `Misuse` past the end, `Timeout`, `Lost`, `OutOfMemory`, `Driver`.
    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), DeviceError>;

    /// Copies from byte `offset` of the buffer into `data`.
    ///
    /// # Errors
    /// As [`PlanDevice::write`].
    fn read(&mut self, buffer: BufferId, offset: u64, data: &mut [u8]) -> Result<(), DeviceError>;

    /// Runs the plan once and waits, `deadline` at most.
    ///
    /// # Errors
    /// `Misuse` where an operand is missing or too small; `Timeout`, `Lost`, `Unsupported`, `Driver`.
    fn run(&mut self, plan: &Plan, operands: &Operands, deadline: Duration) -> Result<Timing, DeviceError>;

    /// Device time of `repeats` runs of the plan after warming up. `operands` are rotated through, so that several sets
    /// larger than the caches measure memory.
    ///
    /// # Errors
    /// As [`PlanDevice::run`].
    fn time(
        &mut self,
        plan: &Plan,
        operands: &[Operands],
        repeats: u32,
        deadline: Duration,
    ) -> Result<Times, DeviceError>;
}

/// A queue with buffers that are known by handle and length, so that every range of a plan is checked before it runs.
#[derive(Debug)]
pub struct Runner<Q> {
    queue: Q,
    /// First byte and length of each buffer.
    buffers: HashMap<BufferId, (u64, u64)>,
    /// Handles are never reused, so that a stale one is found out.
    next: u64,
}

impl<Q: Queue> Runner<Q> {
    /// On this queue.
    pub fn new(queue: Q) -> Self {
        Self { queue, buffers: HashMap::new(), next: 1 }
    }

    /// The queue that plans run on.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// The same, to change its settings.
    pub fn queue_mut(&mut self) -> &mut Q {
        &mut self.queue
    }

    /// Where the buffer begins.
    ///
    /// # Errors
    /// `Misuse` where no such buffer exists.
    pub fn address(&self, buffer: BufferId) -> Result<u64, DeviceError> {
        self.place(buffer).map(|(address, _)| address)
    }

    fn place(&self, id: BufferId) -> Result<(u64, u64), DeviceError> {
        let text = || format!("buffer {} does not exist or was freed", id.0);
        self.buffers.get(&id).copied().ok_or_else(|| DeviceError::Misuse(text()))
    }

    /// Makes everything the plan needs before it runs (pipelines, modules). Idempotent; `run` does it too.
    ///
    /// # Errors
    /// As [`Queue::prepare`].
    pub fn prepare(&mut self, plan: &Plan) -> Result<(), DeviceError> {
        plan.launches.iter().try_for_each(|launch| self.queue.prepare(launch))
    }

    /// Runs `work` with every wait bounded by the deadline, which errors name the plan for.
    fn within<T>(
        &mut self,
        plan: &Plan,
        deadline: Duration,
        work: impl FnOnce(&mut Self) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        self.queue.wait_until(Some(Deadline::after(deadline)));
        let done = work(self);
        self.queue.wait_until(None);
        done.map_err(|error| match error {
            DeviceError::Timeout { deadline, .. } => {
                let what = format!("{} {}", plan.solver, plan.config).trim().to_string();
                DeviceError::Timeout { what, deadline }
            }
            other => other,
        })
    }

    /// Where each role's operand begins, after checking every range that a launch binds.
    fn bind(&self, plan: &Plan, operands: &Operands) -> Result<Addresses, DeviceError> {
        let mut addresses = Addresses::default();
        for launch in &plan.launches {
            for binding in &launch.bindings {
                let (id, start) = check::operand(launch, binding, operands.get(binding.role))?;
                let (address, bytes) = self.place(id)?;
                check::binding(launch, binding, start, bytes, self.caps())?;
                addresses[binding.role as usize] = address + start;
            }
        }
        Ok(addresses)
    }

    fn run_at(&mut self, plan: &Plan, addresses: &Addresses) -> Result<Timing, DeviceError> {
        self.queue.synchronize()?;
        let before = self.queue.submits();
        let mut stamps = vec![self.queue.stamp()?];
        execute_with(&mut self.queue, plan, addresses, None, |queue| {
            queue.stamp().map(|stamp| stamps.push(stamp))
        })?;
        let ends = self.queue.times(&stamps)?;
        let submits = (self.queue.submits() - before) as u32;
        let launches = ends.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
        Ok(Timing { total: ends.last().copied().unwrap_or_default(), launches, submits })
    }

    fn time_at(
        &mut self,
        plan: &Plan,
        sets: &[Addresses],
        warm: u32,
        repeats: u32,
    ) -> Result<Times, DeviceError> {
        let queue = &mut self.queue;
        let set = |run: u32| &sets[run as usize % sets.len()];
        let mut stamps = Vec::with_capacity(2 * repeats as usize);
        for run in 0..warm + repeats {
            queue.barrier()?;
            if run >= warm {
                stamps.push(queue.stamp()?);
            }
            execute(queue, plan, set(run))?;
            if run >= warm {
                stamps.push(queue.stamp()?);
            }
        }
        let times = queue.times(&stamps)?;
        let each = times.chunks_exact(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
        // Everything ran a moment ago: no need to warm up again.
        let start = queue.stamp()?;
        (0..repeats).try_for_each(|run| execute(queue, plan, set(run)))?;
        let end = queue.stamp()?;
        let all = queue.times(&[start, end])?[1];
        Ok(Times { each, mean: all / repeats.max(1) })
    }
}

impl<Q: Queue> PlanDevice for Runner<Q> {
    fn info(&self) -> &DeviceInfo {
        self.queue.info()
    }

    fn caps(&self) -> &DeviceCaps {
        self.queue.caps()
    }

    fn alloc(&mut self, bytes: u64) -> Result<BufferId, DeviceError> {
        if bytes == 0 {
            return Err(DeviceError::Misuse("a buffer has at least 1 byte".into()));
        }
        self.queue.check()?;
        let address = self.queue.alloc(bytes)?;
        let id = BufferId(self.next);
        self.next += 1;
        self.buffers.insert(id, (address, bytes));
        Ok(id)
    }

    fn free(&mut self, buffer: BufferId) {
        if let Some((address, _)) = self.buffers.remove(&buffer) {
            self.queue.free(address);
        }
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let (address, bytes) = self.place(buffer)?;
        check::range(offset, data.len(), bytes)?;
        if data.is_empty() { Ok(()) } else { self.queue.upload(address + offset, data) }
    }

    fn read(&mut self, buffer: BufferId, offset: u64, data: &mut [u8]) -> Result<(), DeviceError> {
        let (address, bytes) = self.place(buffer)?;
        check::range(offset, data.len(), bytes)?;
        if data.is_empty() { Ok(()) } else { self.queue.download(address + offset, data) }
    }

    fn run(&mut self, plan: &Plan, operands: &Operands, deadline: Duration) -> Result<Timing, DeviceError> {
        self.within(plan, deadline, |runner| {
            runner.prepare(plan)?;
            let addresses = runner.bind(plan, operands)?;
            runner.run_at(plan, &addresses)
        })
    }

    fn time(
        &mut self,
        plan: &Plan,
        operands: &[Operands],
        repeats: u32,
        deadline: Duration,
    ) -> Result<Times, DeviceError> {
        self.within(plan, deadline, |runner| {
            runner.prepare(plan)?;
            let sets = operands.iter().map(|set| runner.bind(plan, set)).collect::<Result<Vec<_>, _>>()?;
            let (Some(first), Some(last)) = (sets.first(), sets.last()) else {
                return Err(DeviceError::Misuse("timing needs at least one set of operands".into()));
            };
            // The first run may be cold in every way; the second says how long one takes.
            runner.run_at(plan, first)?;
            let one = runner.run_at(plan, last)?.total.max(Duration::from_micros(1));
            let warm = (WARM_UP.as_nanos() / one.as_nanos()).clamp(2, 256) as u32;
            runner.time_at(plan, &sets, warm, repeats)
        })
    }
}
