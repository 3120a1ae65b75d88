//! Submits to the device's queues, from any thread. Kernels that wait for a mark are held back here until it is set.
//!
//! Vulkan would take a submit that waits for what is submitted later. But a device may have one queue, where such a wait never
//! ends, and NVIDIA's driver blocks the next call.

use ash::vk;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use wave32_device::Deadline;

/// A timeline and a value of it.
pub(crate) type Point = (vk::Semaphore, u64);

/// A recorded command buffer of kernels.
#[derive(Debug, Clone)]
pub(crate) struct Kernels {
    pub(crate) queue: vk::Queue,
    pub(crate) commands: vk::CommandBuffer,
    /// What it signals.
    pub(crate) done: Point,
    /// Marks that it waits for.
    pub(crate) after: Vec<Point>,
}

/// Copies, or nothing, that a timeline tells of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copying {
    pub(crate) queue: vk::Queue,
    pub(crate) commands: Option<vk::CommandBuffer>,
    pub(crate) done: Point,
    /// The kernels' point behind which they run, which was submitted.
    pub(crate) after: Point,
}

pub(crate) struct Submits {
    raw: ash::Device,
    state: Mutex<State>,
    /// Kernels that were held were submitted, or failed.
    went: Condvar,
}

#[derive(Default)]
struct State {
    /// The highest mark of each timeline that was submitted.
    set: Vec<Point>,
    held: VecDeque<Kernels>,
    /// The last value of the kernels' timeline that was submitted.
    kernels: u64,
    /// Why what was held could not be submitted.
    failed: Option<vk::Result>,
}

impl State {
    fn are_set(&self, points: &[Point]) -> bool {
        points.iter().all(|(timeline, value)| {
            self.set.iter().any(|(known, highest)| known == timeline && highest >= value)
        })
    }

    fn set(&mut self, (timeline, value): Point) {
        match self.set.iter_mut().find(|(known, _)| *known == timeline) {
            Some((_, highest)) => *highest = value.max(*highest),
            None => self.set.push((timeline, value)),
        }
    }
}

impl Submits {
    pub(crate) fn new(raw: ash::Device) -> Self {
        Self { raw, state: Mutex::default(), went: Condvar::new() }
    }

    /// Submits kernels, now or as soon as their marks are set; in the order of the calls.
    pub(crate) fn kernels(&self, kernels: Kernels) -> Result<(), vk::Result> {
        let mut state = self.lock();
        if let Some(code) = state.failed {
            return Err(code);
        }
        if state.held.is_empty() && state.are_set(&kernels.after) {
            self.submit_kernels(&kernels)?;
            state.kernels = kernels.done.1;
            return Ok(());
        }
        state.held.push_back(kernels);
        Ok(())
    }

    /// Waits until kernels are submitted up to a value: copies behind them wait for nothing then but the device. False where
    /// the deadline passes or they cannot be submitted.
    pub(crate) fn are_submitted(&self, value: u64, deadline: Deadline) -> bool {
        let waits = |state: &mut State| state.kernels < value && state.failed.is_none();
        let waited = self.went.wait_timeout_while(self.lock(), deadline.left(), waits);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.kernels >= value
    }

    /// Submits copies.
    pub(crate) fn copies(&self, copies: Copying) -> Result<(), vk::Result> {
        let _state = self.lock();
        self.submit(copies.queue, copies.commands, copies.done, &[copies.after])
    }

    /// Submits a mark: all that was submitted to that queue is done when its timeline says so.
    pub(crate) fn mark(&self, mark: Copying) -> Result<(), vk::Result> {
        let mut state = self.lock();
        self.submit(mark.queue, mark.commands, mark.done, &[mark.after])?;
        state.set(mark.done);
        self.let_go(&mut state);
        Ok(())
    }

    /// A mark was set by the host.
    pub(crate) fn is_set(&self, mark: Point) {
        let mut state = self.lock();
        state.set(mark);
        self.let_go(&mut state);
    }

    /// These timelines are going.
    pub(crate) fn forget(&self, timelines: &[vk::Semaphore]) {
        self.lock().set.retain(|(timeline, _)| !timelines.contains(timeline));
    }

    fn let_go(&self, state: &mut State) {
        while let Some(next) = state.held.front().filter(|next| state.are_set(&next.after)) {
            let submitted = self.submit_kernels(next).map(|()| next.done.1);
            match submitted {
                Ok(value) => {
                    state.kernels = value;
                    state.held.pop_front();
                }
                Err(code) => {
                    // Whoever waits for these will be told; nothing may run in front of them.
                    state.failed = Some(code);
                    state.held.clear();
                }
            }
        }
        self.went.notify_all();
    }

    fn submit_kernels(&self, kernels: &Kernels) -> Result<(), vk::Result> {
        self.submit(kernels.queue, Some(kernels.commands), kernels.done, &kernels.after)
    }

    /// The state's lock is held: it is every queue's external synchronisation.
    fn submit(
        &self,
        queue: vk::Queue,
        commands: Option<vk::CommandBuffer>,
        (timeline, value): Point,
        after: &[Point],
    ) -> Result<(), vk::Result> {
        let (signalled, values) = ([timeline], [value]);
        let (awaited, reached): (Vec<vk::Semaphore>, Vec<u64>) = after.iter().copied().unzip();
        let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; awaited.len()];
        let mut timeline = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&reached)
            .signal_semaphore_values(&values);
        let info = vk::SubmitInfo::default()
            .command_buffers(commands.as_slice())
            .wait_semaphores(&awaited)
            .wait_dst_stage_mask(&stages)
            .signal_semaphores(&signalled)
            .push_next(&mut timeline);
        // SAFETY: the callers recorded the command buffer, which is not in flight or made for that; the lock is held; each
        // timeline's values rise; what is waited for was submitted.
        unsafe { self.raw.queue_submit(queue, &[info], vk::Fence::null()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock is between two submits at worst.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
