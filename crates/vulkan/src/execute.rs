//! Plans on the queue: checked, bound, recorded within the time budget, timed.

use crate::device::Parts;
use crate::pipelines::Pipeline;
use crate::ring::{Flight, QUERIES, Recording, elapsed};
use crate::sets::Range;
use ash::vk;
use std::collections::VecDeque;
use std::time::Duration;
use wave32_device::{Cursor, Deadline, DeviceError, Operands, Timing, check};
use wave32_solve::{Launch, Plan};

/// Submits in flight at once: the GPU has the next one while the host learns from the last.
const AHEAD: usize = 2;

/// Launches that one timed submit records at most, to bound its command buffer.
const MAX_RECORDED: usize = 8192;

/// A launch's pipeline and descriptor set.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    pipeline: Pipeline,
    set: vk::DescriptorSet,
}

/// A submit in flight with the parts it runs.
struct Pending {
    flight: Flight,
    parts: Vec<(usize, Launch)>,
}

impl Parts {
    /// Makes every pipeline of the plan and checks what depends on the device alone.
    pub(crate) fn prepare(&mut self, plan: &Plan) -> Result<Vec<Pipeline>, DeviceError> {
        self.gpu.guard()?;
        plan.launches.iter().map(|launch| self.prepare_launch(launch)).collect()
    }

    fn prepare_launch(&mut self, launch: &Launch) -> Result<Pipeline, DeviceError> {
        let pipeline = self.pipelines.get(&mut self.gpu, &launch.kernel)?;
        check::launch(launch, pipeline.params, pipeline.buffers, &self.gpu.adapter.caps)?;
        Ok(pipeline)
    }

    /// The plan's descriptor sets for these operands, after checking every range.
    fn bind(
        &mut self,
        plan: &Plan,
        pipelines: &[Pipeline],
        operands: &Operands,
    ) -> Result<Vec<Bound>, DeviceError> {
        let mut bound = Vec::with_capacity(plan.launches.len());
        for (launch, &pipeline) in plan.launches.iter().zip(pipelines) {
            let mut ranges: Vec<Range> = Vec::with_capacity(launch.bindings.len());
            let mut buffers = Vec::with_capacity(launch.bindings.len());
            for binding in &launch.bindings {
                let (id, start) = check::operand(launch, binding, operands.get(binding.role))?;
                let buffer = self.memory.get(id)?;
                let caps = &self.gpu.adapter.caps;
                let offset = check::binding(launch, binding, start, buffer.bytes, caps)?;
                ranges.push((id, offset, binding.size));
                buffers.push(buffer.raw);
            }
            let layout = self.pipelines.set_layout(&self.gpu, pipeline.buffers)?;
            let set = self.sets.get(&self.gpu, layout, &ranges, &buffers)?;
            bound.push(Bound { pipeline, set });
        }
        Ok(bound)
    }

    /// Records one launch or part of it.
    fn record(&self, recording: &Recording, bound: &Bound, part: &Launch) {
        let (raw, commands) = (&self.gpu.raw, recording.commands.buffer);
        let params: Vec<u8> = part.params.iter().flat_map(|word| word.to_le_bytes()).collect();
        let [x, y, z] = part.grid;
        // SAFETY: recording; pipeline, layout and set were made for each other and live on; the params
        // are as long as the layout says; `prepare_launch` and the budget keep the grid within limits.
        unsafe {
            raw.cmd_bind_pipeline(commands, vk::PipelineBindPoint::COMPUTE, bound.pipeline.raw);
            let layout = bound.pipeline.layout;
            raw.cmd_bind_descriptor_sets(
                commands,
                vk::PipelineBindPoint::COMPUTE,
                layout,
                0,
                &[bound.set],
                &[],
            );
            raw.cmd_push_constants(commands, layout, vk::ShaderStageFlags::COMPUTE, 0, &params);
            raw.cmd_dispatch(commands, x, y, z);
        }
    }

    /// See [`wave32_device::Device::run`].
    pub(crate) fn run(
        &mut self,
        plan: &Plan,
        operands: &Operands,
        deadline: Deadline,
    ) -> Result<Timing, DeviceError> {
        let pipelines = self.prepare(plan)?;
        self.sets.trim(&self.gpu);
        let bound = self.bind(plan, &pipelines, operands)?;
        self.run_bound(plan, &bound, deadline)
    }

    fn run_bound(&mut self, plan: &Plan, bound: &[Bound], deadline: Deadline) -> Result<Timing, DeviceError> {
        let mut timing = Timing { launches: vec![Duration::ZERO; plan.launches.len()], ..Timing::default() };
        let (mut cursor, mut pending) = (Cursor::default(), VecDeque::new());
        let mut start = None;
        loop {
            let parts = self.budget.next(&plan.launches, &mut cursor, QUERIES as usize - 1);
            let ended = parts.is_empty();
            if !ended {
                let last = cursor.is_done(&plan.launches);
                let flight = self.submit_parts(bound, &parts, (timing.submits == 0, last), deadline)?;
                pending.push_back(Pending { flight, parts });
                timing.submits += 1;
            }
            while pending.len() >= AHEAD || (ended && !pending.is_empty()) {
                let Some(done) = pending.pop_front() else { break };
                self.collect(plan, &done, &mut timing, &mut start, deadline)?;
            }
            if ended {
                return Ok(timing);
            }
        }
    }

    /// One submit: a timestamp, then each part and the timestamp of its end.
    ///
    /// The queue runs submits in order and a barrier covers all that was submitted before it, so
    /// `depends` orders launches across submits as well.
    fn submit_parts(
        &mut self,
        bound: &[Bound],
        parts: &[(usize, Launch)],
        (first, last): (bool, bool),
        deadline: Deadline,
    ) -> Result<Flight, DeviceError> {
        let mut recording = self.ring.begin(&mut self.gpu, deadline)?;
        if first {
            recording.fence(&self.gpu);
        }
        recording.stamp(&self.gpu);
        for (index, part) in parts {
            if part.depends {
                recording.barrier(&self.gpu);
            }
            self.record(&recording, &bound[*index], part);
            recording.stamp(&self.gpu);
        }
        if last {
            recording.fence(&self.gpu);
        }
        self.ring.submit(&mut self.gpu, recording)
    }

    /// Waits for a submit, adds its times up and lets the budget learn.
    fn collect(
        &mut self,
        plan: &Plan,
        done: &Pending,
        timing: &mut Timing,
        start: &mut Option<u64>,
        deadline: Deadline,
    ) -> Result<(), DeviceError> {
        let ticks = done.flight.stamps(&mut self.gpu, &what(plan), deadline)?;
        let (Some(&first), Some(&end)) = (ticks.first(), ticks.last()) else { return Ok(()) };
        for ((index, _), pair) in done.parts.iter().zip(ticks.windows(2)) {
            timing.launches[*index] += elapsed(&self.gpu, pair[0], pair[1]);
        }
        timing.total = elapsed(&self.gpu, *start.get_or_insert(first), end);
        self.budget.learn(done.parts.iter().map(|(_, part)| part), elapsed(&self.gpu, first, end));
        Ok(())
    }

    /// See [`wave32_device::Device::time`].
    pub(crate) fn time(
        &mut self,
        plan: &Plan,
        operands: &[Operands],
        repeats: u32,
        deadline: Deadline,
    ) -> Result<Vec<Duration>, DeviceError> {
        let pipelines = self.prepare(plan)?;
        if operands.is_empty() {
            return Err(DeviceError::Misuse("timing needs at least one set of operands".into()));
        }
        self.sets.trim(&self.gpu);
        let bound = operands.iter().map(|o| self.bind(plan, &pipelines, o)).collect::<Result<Vec<_>, _>>()?;
        // Two runs the careful way: the second says how long one takes.
        self.run_bound(plan, &bound[0], deadline)?;
        let one =
            self.run_bound(plan, &bound[bound.len() - 1], deadline)?.total.max(Duration::from_micros(1));
        let target = self.budget.target();
        let launches = plan.launches.len().max(1);
        let too_wide =
            plan.launches.iter().any(|launch| launch.grid[0] > self.gpu.adapter.caps.max_groups[0]);
        if one > target / 2 || too_wide || launches > MAX_RECORDED {
            let runs = (0..repeats as usize).map(|i| &bound[i % bound.len()]);
            return runs.map(|b| Ok(self.run_bound(plan, b, deadline)?.total)).collect();
        }
        let in_time = (target.as_nanos() / one.as_nanos()) as usize;
        let batch = in_time.min(QUERIES as usize / 2).min(MAX_RECORDED / launches).max(1);
        // Clocks rise within milliseconds of steady work: warm up for 20 of them, two runs at least.
        let warm = ((20_000_000 / one.as_nanos()) as usize).clamp(2, 256);
        let times = self.time_batches(plan, &bound, warm + repeats as usize, batch, deadline)?;
        Ok(times.into_iter().skip(warm).collect())
    }

    /// Records `runs` runs in submits of `batch`, each run between two timestamps.
    fn time_batches(
        &mut self,
        plan: &Plan,
        bound: &[Vec<Bound>],
        runs: usize,
        batch: usize,
        deadline: Deadline,
    ) -> Result<Vec<Duration>, DeviceError> {
        let (mut times, mut pending, mut recorded) = (Vec::with_capacity(runs), VecDeque::new(), 0);
        while recorded < runs || !pending.is_empty() {
            if recorded < runs {
                let mut recording = self.ring.begin(&mut self.gpu, deadline)?;
                recording.fence(&self.gpu);
                for run in recorded..runs.min(recorded + batch) {
                    debug_assert!(recording.has_room(2));
                    recording.stamp(&self.gpu);
                    for (launch, bound) in plan.launches.iter().zip(&bound[run % bound.len()]) {
                        if launch.depends {
                            recording.barrier(&self.gpu);
                        }
                        self.record(&recording, bound, launch);
                    }
                    recording.stamp(&self.gpu);
                    recording.barrier(&self.gpu);
                }
                recording.fence(&self.gpu);
                recorded = runs.min(recorded + batch);
                pending.push_back(self.ring.submit(&mut self.gpu, recording)?);
            }
            if pending.len() >= AHEAD || recorded >= runs {
                let Some(flight) = pending.pop_front() else { break };
                let ticks = flight.stamps(&mut self.gpu, &what(plan), deadline)?;
                times.extend(ticks.chunks_exact(2).map(|pair| elapsed(&self.gpu, pair[0], pair[1])));
            }
        }
        Ok(times)
    }
}

/// How errors name a plan.
fn what(plan: &Plan) -> String {
    format!("{} {}", plan.solver, plan.config).trim().to_string()
}
