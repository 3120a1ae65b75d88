//! [`HipDevice`]: the parts put together behind [`Device`]; plans on the stream, within the time budget, timed.

use crate::gpu::{Event, Gpu};
use crate::kernels::{Function, Module};
use crate::memory::Memory;
use crate::staging::Staging;
use std::collections::{HashMap, VecDeque};
use std::mem::ManuallyDrop;
use std::time::Duration;
use wave32_device::{
    Budget, BufferId, Cursor, Deadline, Device, DeviceError, DeviceInfo, Operands, Timing, check,
};
use wave32_solve::{DeviceCaps, Launch, Plan};

/// Submits in flight at once: the card has the next one while the host learns from the last.
const AHEAD: usize = 2;

/// Launches of a submit at most, which bounds the events in use.
const MAX_PARTS: usize = 256;

/// Longest wait for a copy: even PCIe x1 moves a chunk in 20 ms, so beyond this the card hangs.
const COPY_DEADLINE: Duration = Duration::from_secs(10);

/// A card opened through HIP.
///
/// It belongs to the process that opened it: after a fork, the child's calls answer [`DeviceError::Misuse`]. Dropping
/// it waits at most five seconds for work in flight; if that does not end, what it holds is leaked, since the
/// runtime waits for a hung card without a deadline.
pub struct HipDevice {
    gpu: Gpu,
    module: ManuallyDrop<Module>,
    memory: Memory,
    staging: Staging,
    budget: Budget,
    buffers: HashMap<BufferId, (u64, u64)>,
    /// Ids are never reused, so that a stale one is found out.
    next: u64,
}

/// A launch's function and the addresses of its buffers.
struct Bound {
    function: Function,
    addresses: Vec<u64>,
}

/// Launches on the stream: the event before them, and after each with its index in the plan.
struct Pending {
    start: Event,
    parts: Vec<(usize, Launch, Event)>,
}

impl std::fmt::Debug for HipDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HipDevice").field("info", self.info()).finish_non_exhaustive()
    }
}

impl HipDevice {
    pub(crate) fn new(gpu: Gpu, module: Module, memory: Memory, budget: Budget) -> Self {
        let module = ManuallyDrop::new(module);
        let (staging, buffers) = (Staging::default(), HashMap::new());
        Self { gpu, module, memory, staging, budget, buffers, next: 1 }
    }

    /// Bytes of the buffers that exist now.
    pub fn memory_in_use(&self) -> u64 {
        self.memory.in_use()
    }

    /// Where the buffer begins, for other libraries on the same runtime.
    ///
    /// # Errors
    /// `Misuse`, where it does not exist.
    pub fn address(&self, id: BufferId) -> Result<u64, DeviceError> {
        self.buffer(id).map(|(address, _)| address)
    }

    /// Address and bytes of the buffer.
    fn buffer(&self, id: BufferId) -> Result<(u64, u64), DeviceError> {
        let text = || format!("buffer {} does not exist or was freed", id.0);
        self.buffers.get(&id).copied().ok_or_else(|| DeviceError::Misuse(text()))
    }

    fn functions(&mut self, plan: &Plan) -> Result<Vec<Function>, DeviceError> {
        let one = |launch: &Launch| {
            let function = self.module.get(&mut self.gpu, &launch.kernel)?;
            let kernel = function.kernel;
            check::launch(launch, kernel.params, kernel.buffers, &self.gpu.adapter.caps)?;
            Ok(function)
        };
        plan.launches.iter().map(one).collect()
    }

    /// The plan's addresses for these operands, after checking every range.
    fn bind(
        &self,
        plan: &Plan,
        functions: &[Function],
        operands: &Operands,
    ) -> Result<Vec<Bound>, DeviceError> {
        let caps = &self.gpu.adapter.caps;
        let one = |(launch, function): (&Launch, &Function)| {
            let addresses = launch.bindings.iter().map(|binding| {
                let (id, start) = check::operand(launch, binding, operands.get(binding.role))?;
                let (address, bytes) = self.buffer(id)?;
                Ok(address + check::binding(launch, binding, start, bytes, caps)?)
            });
            Ok(Bound { function: *function, addresses: addresses.collect::<Result<_, DeviceError>>()? })
        };
        plan.launches.iter().zip(functions).map(one).collect()
    }

    /// Runs the plan: the stream keeps launches in order, so what depends on what needs no care.
    fn run_bound(&mut self, plan: &Plan, bound: &[Bound], deadline: Deadline) -> Result<Timing, DeviceError> {
        let mut timing = Timing { launches: vec![Duration::ZERO; plan.launches.len()], ..Timing::default() };
        let (mut cursor, mut pending, mut begin) = (Cursor::default(), VecDeque::new(), None);
        loop {
            let parts = self.budget.next(&plan.launches, &mut cursor, MAX_PARTS);
            let ended = parts.is_empty();
            if !ended {
                pending.push_back(self.submit(bound, parts)?);
                timing.submits += 1;
            }
            while pending.len() >= AHEAD || (ended && !pending.is_empty()) {
                let Some(done) = pending.pop_front() else { break };
                self.collect(plan, done, &mut timing, &mut begin, deadline)?;
            }
            if ended {
                begin.into_iter().for_each(|event| self.gpu.recycle(event));
                return Ok(timing);
            }
        }
    }

    fn submit(&mut self, bound: &[Bound], parts: Vec<(usize, Launch)>) -> Result<Pending, DeviceError> {
        let start = self.gpu.record()?;
        let mut launched = Vec::with_capacity(parts.len());
        for (index, part) in parts {
            let Bound { function, addresses } = &bound[index];
            self.gpu.launch(function, part.grid, &part.params, addresses)?;
            launched.push((index, part, self.gpu.record()?));
        }
        Ok(Pending { start, parts: launched })
    }

    /// Waits for a submit, adds its times up and lets the budget learn. `begin` is the first submit's start.
    fn collect(
        &mut self,
        plan: &Plan,
        done: Pending,
        timing: &mut Timing,
        begin: &mut Option<Event>,
        deadline: Deadline,
    ) -> Result<(), DeviceError> {
        let Some(&(_, _, end)) = done.parts.last() else { return Ok(()) };
        self.gpu.wait(end, &what(plan), deadline)?;
        let mut before = done.start;
        for (index, _, after) in &done.parts {
            timing.launches[*index] += self.gpu.elapsed(before, *after)?;
            before = *after;
        }
        let whole = self.gpu.elapsed(done.start, end)?;
        self.budget.learn(done.parts.iter().map(|(_, part, _)| part), whole);
        timing.total = self.gpu.elapsed(*begin.get_or_insert(done.start), end)?;
        // Sums of rounded times may pass the rounded whole.
        timing.total = timing.total.max(timing.launches.iter().copied().max().unwrap_or_default());
        done.parts.into_iter().for_each(|(_, _, event)| self.gpu.recycle(event));
        if *begin != Some(done.start) {
            self.gpu.recycle(done.start);
        }
        Ok(())
    }

    fn time_bound(
        &mut self,
        plan: &Plan,
        bound: &[Vec<Bound>],
        repeats: usize,
        deadline: Deadline,
    ) -> Result<Vec<Duration>, DeviceError> {
        // Two runs the careful way: the second says how long one takes.
        self.run_bound(plan, &bound[0], deadline)?;
        let one =
            self.run_bound(plan, &bound[bound.len() - 1], deadline)?.total.max(Duration::from_micros(1));
        let target = self.budget.target();
        let widest = self.gpu.adapter.caps.max_groups[0];
        if one > target / 2 || plan.launches.iter().any(|launch| launch.grid[0] > widest) {
            let runs = (0..repeats).map(|run| &bound[run % bound.len()]);
            return runs.map(|b| Ok(self.run_bound(plan, b, deadline)?.total)).collect();
        }
        let batch = ((target.as_nanos() / one.as_nanos()) as usize).clamp(1, MAX_PARTS);
        // Clocks rise within milliseconds of steady work: warm up for 20 of them, two runs at least.
        let warm = ((20_000_000 / one.as_nanos()) as usize).clamp(2, MAX_PARTS);
        let (runs, mut times, mut launched) = (warm + repeats, Vec::new(), 0);
        let mut pending: VecDeque<Vec<(Event, Event)>> = VecDeque::new();
        while launched < runs || !pending.is_empty() {
            if launched < runs {
                let until = runs.min(launched + batch);
                pending.push_back(self.submit_runs(plan, bound, launched..until)?);
                launched = until;
            }
            if pending.len() >= AHEAD || launched >= runs {
                let Some(done) = pending.pop_front() else { break };
                for (start, end) in done {
                    self.gpu.wait(end, &what(plan), deadline)?;
                    times.push(self.gpu.elapsed(start, end)?);
                    self.gpu.recycle(start);
                    self.gpu.recycle(end);
                }
            }
        }
        Ok(times.split_off(warm))
    }

    /// Whole runs on the stream, each between two events.
    fn submit_runs(
        &mut self,
        plan: &Plan,
        bound: &[Vec<Bound>],
        runs: std::ops::Range<usize>,
    ) -> Result<Vec<(Event, Event)>, DeviceError> {
        let mut stamps = Vec::with_capacity(runs.len());
        for run in runs {
            let start = self.gpu.record()?;
            for (launch, Bound { function, addresses }) in plan.launches.iter().zip(&bound[run % bound.len()])
            {
                self.gpu.launch(function, launch.grid, &launch.params, addresses)?;
            }
            stamps.push((start, self.gpu.record()?));
        }
        Ok(stamps)
    }
}

/// How errors name a plan.
fn what(plan: &Plan) -> String {
    format!("{} {}", plan.solver, plan.config).trim().to_string()
}

impl Device for HipDevice {
    fn info(&self) -> &DeviceInfo {
        &self.gpu.adapter.info
    }

    fn caps(&self) -> &DeviceCaps {
        &self.gpu.adapter.caps
    }

    fn alloc(&mut self, bytes: u64) -> Result<BufferId, DeviceError> {
        let _current = self.gpu.enter()?;
        let address = self.memory.alloc(&mut self.gpu, bytes)?;
        let id = BufferId(self.next);
        self.next += 1;
        self.buffers.insert(id, (address, bytes));
        Ok(id)
    }

    fn free(&mut self, buffer: BufferId) {
        // A card that was given up may still be using the buffer: it leaks.
        if let (Ok(_current), Some((address, bytes))) = (self.gpu.enter(), self.buffers.remove(&buffer)) {
            self.memory.free(&mut self.gpu, address, bytes);
        }
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let _current = self.gpu.enter()?;
        let (address, bytes) = self.buffer(buffer)?;
        check::range(offset, data.len(), bytes)?;
        if data.is_empty() {
            return Ok(());
        }
        let deadline = Deadline::after(COPY_DEADLINE);
        self.staging.write(&mut self.gpu, address + offset, data, deadline)?;
        self.gpu.finish("copy to the device", deadline)
    }

    fn read(&mut self, buffer: BufferId, offset: u64, data: &mut [u8]) -> Result<(), DeviceError> {
        let _current = self.gpu.enter()?;
        let (address, bytes) = self.buffer(buffer)?;
        check::range(offset, data.len(), bytes)?;
        self.staging.read(&mut self.gpu, address + offset, data, Deadline::after(COPY_DEADLINE))
    }

    fn prepare(&mut self, plan: &Plan) -> Result<(), DeviceError> {
        let _current = self.gpu.enter()?;
        self.functions(plan).map(drop)
    }

    fn run(&mut self, plan: &Plan, operands: &Operands, deadline: Duration) -> Result<Timing, DeviceError> {
        let deadline = Deadline::after(deadline);
        let _current = self.gpu.enter()?;
        let functions = self.functions(plan)?;
        let bound = self.bind(plan, &functions, operands)?;
        self.run_bound(plan, &bound, deadline)
    }

    fn time(
        &mut self,
        plan: &Plan,
        operands: &[Operands],
        repeats: u32,
        deadline: Duration,
    ) -> Result<Vec<Duration>, DeviceError> {
        let deadline = Deadline::after(deadline);
        let _current = self.gpu.enter()?;
        let functions = self.functions(plan)?;
        if operands.is_empty() {
            return Err(DeviceError::Misuse("timing needs at least one set of operands".into()));
        }
        let bound = operands.iter().map(|o| self.bind(plan, &functions, o)).collect::<Result<Vec<_>, _>>()?;
        self.time_bound(plan, &bound, repeats as usize, deadline)
    }
}

impl Drop for HipDevice {
    fn drop(&mut self) {
        if !self.gpu.quiet() {
            log::warn!(
                "a HIP device is leaked: it is busy or lost, or this process is a fork of the one that opened it"
            );
            return;
        }
        if let Ok(_current) = self.gpu.enter() {
            for (_, (address, bytes)) in std::mem::take(&mut self.buffers) {
                self.memory.free(&mut self.gpu, address, bytes);
            }
            self.staging.free(&mut self.gpu);
            self.module.unload(&mut self.gpu);
        }
        self.gpu.close();
        // SAFETY: this is the end of `self`; the module is not touched again. (A leaked one keeps its code: the runtime
        // may still read it.)
        unsafe { ManuallyDrop::drop(&mut self.module) };
    }
}
