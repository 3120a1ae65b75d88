//! Programs on a device: threads that record, submit, wait and signal.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ash::vk;

use crate::gpu::Gpu;
use crate::objects::Objects;
use crate::program::*;
use crate::record::Recorder;

/// How long anything may wait.
const DEADLINE: Duration = Duration::from_secs(60);
const NANOSECONDS: u64 = DEADLINE.as_nanos() as u64;

/// Runs a program; what its buffers hold in the end. An error may leave work under way: the process must end.
pub fn run(gpu: &Gpu, program: &Program) -> Result<Vec<Vec<u8>>> {
    let mut places = Vec::new();
    let mut end = 0;
    for buffer in &program.buffers {
        places.push(end);
        end += buffer.bytes.next_multiple_of(64);
    }
    let objects = Objects::new(gpu, program, end.max(64))?;
    let player = Player::new(&objects, program);
    player.begin(&places)?;
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let player = &player;
        let threads: Vec<_> = (0..program.threads)
            .map(|thread| scope.spawn(move || player.thread(thread).map_err(|e| player.stop(e))))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")))
            .collect()
    });
    results.into_iter().collect::<Result<()>>()?;
    let found = player.end(&places)?;
    player.timestamps()?;
    // Mesa's queue threads may look at a semaphore after the fence behind it is done.
    // SAFETY: nobody else has the device's queues now.
    unsafe { gpu.device.device_wait_idle()? };
    Ok(found)
}

struct Player<'a> {
    objects: &'a Objects<'a>,
    program: &'a Program,
    /// The device's queue of each of the program's.
    queues: Vec<usize>,
    /// The order of issue.
    issue: Vec<usize>,
    /// For each action, as bits: the actions that must be issued before it.
    after: Vec<u64>,
    issued: Mutex<(u64, bool)>,
    changed: Condvar,
}

/// A batch with its handles.
struct Batch {
    waits: Vec<(vk::Semaphore, u64)>,
    signals: Vec<(vk::Semaphore, u64)>,
    buffers: Vec<vk::CommandBuffer>,
}

impl<'a> Player<'a> {
    fn new(objects: &'a Objects<'a>, program: &'a Program) -> Self {
        let queues: Vec<usize> =
            program.queues.iter().map(|queue| queue % objects.gpu.queues.len()).collect();
        let own = (0..queues.len()).all(|i| !queues[..i].contains(&queues[i]));
        let count = program.actions.len();
        let issue: Vec<usize> = if own { program.issue.clone() } else { (0..count).collect() };
        let done = program.done();
        let mut after = vec![0u64; count];
        for (at, &action) in issue.iter().enumerate() {
            let Some(submit) = program.submit(action) else { continue };
            for &other in &issue[..at] {
                let same = |other: &Submit| queues[other.queue] == queues[submit.queue];
                after[action] |= u64::from(program.submit(other).is_some_and(same)) << other;
            }
            if submit.waits.iter().any(|wait| wait.binary) {
                after[action] |= done[action] & !(1 << action);
            }
        }
        Self { objects, program, queues, issue, after, issued: Mutex::default(), changed: Condvar::new() }
    }

    /// Nobody waits for what will not come.
    fn stop(&self, error: anyhow::Error) -> anyhow::Error {
        self.issued.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.changed.notify_all();
        error
    }

    fn thread(&self, thread: usize) -> Result<()> {
        let mut recorder = Recorder::new(self.objects, self.program, thread)?;
        let own: Vec<usize> =
            self.issue.iter().copied().filter(|i| self.program.actions[*i].thread == thread).collect();
        let mut rest = &own[..];
        while let Some(&first) = rest.first() {
            let count = match &self.program.actions[first].what {
                What::Host(host) => {
                    self.host(first, host).with_context(|| format!("action {first}"))?;
                    1
                }
                What::Submit(_) => {
                    let count = self.together(rest);
                    self.submit(&rest[..count], &mut recorder)
                        .with_context(|| format!("actions {:?}", &rest[..count]))?;
                    count
                }
            };
            let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
            issued.0 |= rest[..count].iter().fold(0, |all, i| all | 1 << i);
            self.changed.notify_all();
            rest = &rest[count..];
        }
        Ok(())
    }

    /// How many of a thread's next batches go in one call.
    fn together(&self, rest: &[usize]) -> usize {
        let earlier = self.issue.iter().take_while(|i| **i != rest[0]).fold(0, |all, i| all | 1u64 << i);
        let mut known = earlier | 1 << rest[0];
        let mut count = 1;
        while let (Some(last), Some(next)) = (
            self.program.submit(rest[count - 1]),
            rest.get(count).and_then(|next| self.program.submit(*next)),
        ) {
            let action = rest[count];
            if last.fence || !next.join || next.queue != last.queue || self.after[action] & !known != 0 {
                break;
            }
            known |= 1 << action;
            count += 1;
        }
        count
    }

    fn submit(&self, actions: &[usize], recorder: &mut Recorder) -> Result<()> {
        let gpu = self.objects.gpu;
        let submits: Vec<&Submit> = actions.iter().filter_map(|i| self.program.submit(*i)).collect();
        let queue = &gpu.queues[self.queues[submits[0].queue]];
        let mut batches = Vec::new();
        for (action, submit) in actions.iter().zip(&submits) {
            batches.push(self.handles(*action, submit, recorder.batch(submit, queue.family)?));
        }
        let needs = actions.iter().fold(0, |all, i| all | self.after[*i]);
        let needs = needs & !actions.iter().fold(0, |all, i| all | 1 << i);
        let issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = |issued: &mut (u64, bool)| needs & !issued.0 != 0 && !issued.1;
        let waited = self.changed.wait_timeout_while(issued, 2 * DEADLINE, waiting);
        let (issued, late) = waited.unwrap_or_else(PoisonError::into_inner);
        ensure!(!issued.1, "another thread failed");
        ensure!(!late.timed_out(), "those before were not issued");
        drop(issued);
        let fence = actions.last().and_then(|last| self.objects.fences[*last]).unwrap_or_default();
        let handle = queue.queue.lock().unwrap_or_else(PoisonError::into_inner);
        send(gpu, *handle, &batches, fence, submits[0].two)
    }

    fn handles(&self, action: usize, submit: &Submit, buffers: Vec<vk::CommandBuffer>) -> Batch {
        let objects = self.objects;
        let mut waits: Vec<_> =
            submit
                .waits
                .iter()
                .map(|wait| {
                    if wait.binary {
                        (objects.binaries[&(wait.on, action)], 0)
                    } else {
                        self.timeline(wait.on)
                    }
                })
                .collect();
        waits.push((objects.start, 1));
        let mut signals = vec![self.timeline(action)];
        let own = objects.binaries.iter().filter(|((on, _), _)| *on == action);
        signals.extend(own.map(|(_, semaphore)| (*semaphore, 0)));
        Batch { waits, signals, buffers }
    }

    /// Where an action's end is told.
    fn timeline(&self, action: usize) -> (vk::Semaphore, u64) {
        match &self.program.actions[action].what {
            What::Submit(submit) => (self.objects.timelines[submit.queue], submit.value),
            What::Host(host) => (self.objects.hosts[action].unwrap_or_default(), host.value),
        }
    }

    fn host(&self, action: usize, host: &Host) -> Result<()> {
        let device = &self.objects.gpu.device;
        for wait in &host.waits {
            let (semaphore, value) = self.timeline(wait.on);
            let fence = self.objects.fences[wait.on].filter(|_| wait.fence);
            let (semaphores, values) = ([semaphore], [value]);
            let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
            let started = Instant::now();
            // SAFETY: both live as long as the program.
            let reached = || unsafe {
                match fence {
                    Some(fence) => device.get_fence_status(fence),
                    None => device.get_semaphore_counter_value(semaphore).map(|now| now >= value),
                }
            };
            if wait.poll {
                while !reached()? {
                    ensure!(started.elapsed() < DEADLINE, "waits too long for action {}", wait.on);
                    std::thread::sleep(Duration::from_micros(50));
                }
            } else {
                // SAFETY: as above.
                let waited = unsafe {
                    match fence {
                        Some(fence) => device.wait_for_fences(&[fence], true, NANOSECONDS),
                        None => device.wait_semaphores(&info, NANOSECONDS),
                    }
                };
                waited.with_context(|| format!("waits for action {}", wait.on))?;
            }
        }
        if let Some((range, a, b)) = host.touch {
            let block = self.program.buffers[range.buffer].block;
            self.objects.host(block, range, |_, word| Some(word.wrapping_mul(a).wrapping_add(b)))?;
        }
        let (semaphore, value) = self.timeline(action);
        let signal = vk::SemaphoreSignalInfo::default().semaphore(semaphore).value(value);
        // SAFETY: the semaphore lives as long as the program, and nobody else signals it.
        unsafe { device.signal_semaphore(&signal)? };
        Ok(())
    }

    /// All buffers from and to the staging one.
    fn transfer(&self, places: &[u64], into: bool, batch: Batch) -> Result<()> {
        let (objects, gpu) = (self.objects, self.objects.gpu);
        let mut recorder = Recorder::new(objects, self.program, usize::MAX)?;
        let queue = &gpu.queues[self.queues[0]];
        let barrier = |from, to| Barrier { two: false, from, to, ranges: Vec::new() };
        let staging = objects.buffers[places.len()];
        let buffer = recorder.record(queue.family, false, false, |this, to| {
            this.barrier(&barrier(QUEUE | HOST, QUEUE), to);
            for (i, place) in places.iter().enumerate() {
                let region = vk::BufferCopy::default().size(self.program.buffers[i].bytes);
                let (from, target, region) = if into {
                    (staging, objects.buffers[i], region.src_offset(*place))
                } else {
                    (objects.buffers[i], staging, region.dst_offset(*place))
                };
                // SAFETY: it is being recorded, by this thread; both are large enough.
                unsafe { gpu.device.cmd_copy_buffer(to, from, target, &[region]) };
            }
            this.barrier(&barrier(QUEUE, QUEUE | HOST), to);
            Ok(())
        })?;
        let batch = Batch { buffers: vec![buffer], ..batch };
        let handle = queue.queue.lock().unwrap_or_else(PoisonError::into_inner);
        send(gpu, *handle, &[batch], objects.last_fence, true)?;
        drop(handle);
        // SAFETY: the fence was just submitted.
        unsafe {
            gpu.device
                .wait_for_fences(&[objects.last_fence], true, NANOSECONDS)
                .context("waits for the end")?;
            gpu.device.reset_fences(&[objects.last_fence])?;
        }
        Ok(())
    }

    fn staging(&self, place: u64, bytes: u64) -> (usize, Range) {
        (self.program.blocks.len(), Range { buffer: self.program.buffers.len(), at: place, bytes })
    }

    fn begin(&self, places: &[u64]) -> Result<()> {
        for (i, place) in places.iter().enumerate() {
            let initial = self.program.initial(i);
            let (block, range) = self.staging(*place, initial.len() as u64);
            let words = initial.as_chunks::<4>().0;
            self.objects.host(block, range, |i, _| Some(u32::from_le_bytes(words[i])))?;
        }
        let signals = vec![(self.objects.start, 1)];
        self.transfer(places, true, Batch { waits: Vec::new(), signals, buffers: Vec::new() })
    }

    fn end(&self, places: &[u64]) -> Result<Vec<Vec<u8>>> {
        let waits = (0..self.program.actions.len()).map(|action| self.timeline(action)).collect();
        self.transfer(places, false, Batch { waits, signals: Vec::new(), buffers: Vec::new() })?;
        let mut found = Vec::new();
        for (buffer, place) in self.program.buffers.iter().zip(places) {
            let mut bytes = Vec::new();
            let (block, range) = self.staging(*place, buffer.bytes);
            self.objects.host(block, range, |_, word| {
                bytes.extend(word.to_le_bytes());
                None
            })?;
            found.push(bytes);
        }
        Ok(found)
    }

    /// Within a command buffer time goes on.
    fn timestamps(&self) -> Result<()> {
        if self.program.queries == 0 {
            return Ok(());
        }
        let mut times = vec![0u64; self.program.queries];
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: all were written.
        unsafe {
            self.objects.gpu.device.get_query_pool_results(self.objects.queries, 0, &mut times, flags)?
        };
        fn queries(commands: &[Command], found: &mut Vec<usize>) {
            for command in commands {
                match command {
                    Command::Timestamp { query, .. } => found.push(*query),
                    Command::Secondary(commands) => queries(commands, found),
                    _ => {}
                }
            }
        }
        for i in 0..self.program.actions.len() {
            for buffer in self.program.submit(i).iter().flat_map(|submit| &submit.buffers) {
                let mut found = Vec::new();
                queries(&buffer.commands, &mut found);
                let times: Vec<u64> = found.iter().map(|query| times[*query]).collect();
                ensure!(times.is_sorted(), "action {i}: timestamps {times:?}");
            }
        }
        Ok(())
    }
}

/// Submits batches in one call.
fn send(gpu: &Gpu, queue: vk::Queue, batches: &[Batch], fence: vk::Fence, two: bool) -> Result<()> {
    let device = &gpu.device;
    if two {
        let info = |(semaphore, value): &(vk::Semaphore, u64)| {
            let info = vk::SemaphoreSubmitInfo::default().semaphore(*semaphore).value(*value);
            info.stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
        };
        let infos: Vec<_> = batches
            .iter()
            .map(|batch| {
                let waits: Vec<_> = batch.waits.iter().map(info).collect();
                let signals: Vec<_> = batch.signals.iter().map(info).collect();
                let buffer =
                    |b: &vk::CommandBuffer| vk::CommandBufferSubmitInfo::default().command_buffer(*b);
                (waits, signals, batch.buffers.iter().map(buffer).collect::<Vec<_>>())
            })
            .collect();
        let submits: Vec<_> = infos
            .iter()
            .map(|(waits, signals, buffers)| {
                let submit = vk::SubmitInfo2::default().wait_semaphore_infos(waits);
                submit.signal_semaphore_infos(signals).command_buffer_infos(buffers)
            })
            .collect();
        // SAFETY: the caller holds the queue; all handles live until the work has ended.
        unsafe { device.queue_submit2(queue, &submits, fence)? };
        return Ok(());
    }
    let split = |list: &[(vk::Semaphore, u64)]| list.iter().copied().unzip::<_, _, Vec<_>, Vec<_>>();
    let lists: Vec<_> = batches.iter().map(|batch| (split(&batch.waits), split(&batch.signals))).collect();
    let mut values: Vec<_> = lists
        .iter()
        .map(|((_, waits), (_, signals))| {
            vk::TimelineSemaphoreSubmitInfo::default()
                .wait_semaphore_values(waits)
                .signal_semaphore_values(signals)
        })
        .collect();
    let stages: Vec<_> =
        batches.iter().map(|b| vec![vk::PipelineStageFlags::ALL_COMMANDS; b.waits.len()]).collect();
    let submits: Vec<_> = (0..batches.len())
        .zip(&mut values)
        .map(|(i, values)| {
            vk::SubmitInfo::default()
                .wait_semaphores(&lists[i].0.0)
                .wait_dst_stage_mask(&stages[i])
                .signal_semaphores(&lists[i].1.0)
                .command_buffers(&batches[i].buffers)
                .push_next(values)
        })
        .collect();
    // SAFETY: as above.
    unsafe { device.queue_submit(queue, &submits, fence)? };
    Ok(())
}
