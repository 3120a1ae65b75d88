//! [`VulkanQueue`]: an asynchronous in-order queue with a caching allocator of its own.
//!
//! Work is recorded and submitted in batches; calls return before it has run, and whatever reads results
//! waits, with a deadline. Launches that touch the same memory run in the order of the calls; others may
//! overlap. A submit stays within the time budget, a wide launch is cut to fit ([`wave32_device::Budget`]).

mod graph;
mod profile;
mod record;
mod slots;
mod transfer;

pub use graph::GraphId;
pub use profile::Profiled;
pub(crate) use transfer::not_mapped;
pub use wave32_device::heap::HeapStats;

use crate::Options;
use crate::adapter::Adapter;
use crate::cache::{DiskCache, default_dir};
use crate::copies::{self, Copies, Region};
use crate::gpu::Gpu;
use crate::instance::Instance;
use crate::memory::Memory;
use crate::pipelines::{Pipeline, Pipelines};
use ash::vk;
use graph::Graphs;
use profile::Profile;
use record::{Command, Since};
use slots::Slots;
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use transfer::Transfer;
use wave32_device::check;
use wave32_device::heap::{Heap, Retired};
use wave32_device::{
    Arg, Budget, BufferId, Deadline, DeviceError, DeviceInfo, DeviceKind, Kept, Queue, Stamp, Work,
};
use wave32_solve::{Access, DeviceCaps, Hazards, Launch};

/// How many things a queue holds, and what it recorded: whatever it holds that grows with the work done is a leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Device buffers of the heap.
    pub segments: usize,
    /// Blocks that these are cut into, used and free.
    pub blocks: usize,
    /// Command buffers, each with a descriptor pool and a query pool.
    pub command_buffers: usize,
    /// Submits whose uploads may still be on their way.
    pub uploads: usize,
    /// Kernels compiled.
    pub kernels: usize,
    /// Timed launches that nobody asked for yet; one that was cut counts as its parts.
    pub timed: usize,
    /// Barriers between commands, since the queue was opened.
    pub barriers: u64,
}

/// The buffer of a heap's segment.
#[derive(Debug, Clone, Copy)]
struct Segment {
    id: BufferId,
    raw: vk::Buffer,
}

/// Everything of one stream. Fields drop in order, so the logical device is last.
struct Parts {
    budget: Budget,
    hazards: Hazards,
    since: Since,
    barriers: u64,
    heap: Heap<Segment>,
    graphs: Graphs,
    kept: Kept,
    retired: Retired,
    profile: Profile,
    /// Ticks of stamps whose submit is done.
    ticks: HashMap<Stamp, u64>,
    /// The next stamp's number.
    next_stamp: u64,
    kernels: Vec<(Box<str>, Pipeline, vk::DescriptorSetLayout)>,
    /// The place of each in `kernels`.
    names: HashMap<Box<str>, usize>,
    slots: Slots,
    /// The slot being recorded.
    open: Option<usize>,
    transfer: Transfer,
    copies: Vec<Arc<Copies>>,
    pipelines: Pipelines,
    memory: Memory,
    deadline: Duration,
    until: Option<Deadline>,
    submits: u64,
    /// Launches that are enough for a submit while the GPU is idle; see [`record::EAGER`].
    eager: u32,
    gpu: Gpu,
}

/// An asynchronous queue of one device; see the module's page.
///
/// It belongs to the process that opened it: after a fork, the child's calls answer
/// [`DeviceError::Misuse`]. Dropping it waits at most five seconds for work in flight; if that does not
/// end, the device is leaked rather than torn from under the GPU.
pub struct VulkanQueue {
    parts: ManuallyDrop<Parts>,
}

impl std::fmt::Debug for VulkanQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VulkanQueue").field("info", self.info()).finish_non_exhaustive()
    }
}

/// Mesa's software rasterizer compiles a kernel when it first runs, on a slow machine for a dozen seconds, and a backward pass has
/// several in flight.
fn usual_deadline(kind: DeviceKind) -> Duration {
    Duration::from_secs(if kind == DeviceKind::Cpu { 600 } else { 60 })
}

impl VulkanQueue {
    pub(crate) fn new(instance: Instance, adapter: Adapter, options: Options) -> Result<Self, DeviceError> {
        let mut budget = Budget::new(&adapter.caps);
        if let Some(target) = options.submit_target {
            budget = budget.with_target(target);
        }
        let dir = options.cache_dir.or_else(default_dir);
        let disk = dir.map(|dir| DiskCache::new(&dir, &adapter.identity));
        let gpu = Gpu::new(instance, adapter, options.robust)?;
        let memory = Memory::new(&gpu, options.memory_cap)?;
        let parts = Parts {
            budget,
            hazards: Hazards::default(),
            since: Since::default(),
            barriers: 0,
            heap: Heap::default(),
            graphs: Graphs::default(),
            kept: Kept::new(gpu.adapter.caps.kept_cap()),
            retired: Retired::default(),
            profile: Profile::default(),
            ticks: HashMap::new(),
            next_stamp: 0,
            kernels: Vec::new(),
            names: HashMap::new(),
            slots: Slots::default(),
            open: None,
            transfer: Transfer::default(),
            copies: Vec::new(),
            pipelines: Pipelines::new(options.kernels, disk),
            memory,
            deadline: usual_deadline(gpu.adapter.info.kind),
            until: None,
            submits: 0,
            eager: *record::EAGER.start(),
            gpu,
        };
        Ok(Self { parts: ManuallyDrop::new(parts) })
    }

    /// True where kernels may use 64-bit floats.
    pub fn has_float64(&self) -> bool {
        self.parts.gpu.adapter.features.float64
    }

    /// How long any wait lasts at most before the device is given up; a minute unless set, ten where the processor runs kernels.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.parts.deadline = deadline;
    }

    /// Most bytes that all segments together may have from now on; none for no cap.
    pub fn set_memory_cap(&mut self, cap: Option<u64>) {
        self.parts.memory.set_cap(cap);
    }

    /// What the heap and the memory of graphs hold.
    pub fn heap_stats(&self) -> HeapStats {
        self.parts.graphs.with_pools(self.parts.retired.without(self.parts.heap.stats()))
    }

    /// Bytes that the heap can still take from the driver, within the cap.
    pub fn memory_left(&self) -> u64 {
        self.parts.memory.left(&self.parts.gpu)
    }

    /// Forgets the heap's past peaks.
    pub fn reset_peaks(&mut self) {
        self.parts.heap.reset_peaks();
    }

    /// What the validation layer has said since the device was opened; empty without
    /// [`Options::validation`].
    pub fn validation_messages(&self) -> Vec<String> {
        self.parts.gpu.instance.messages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What exists on the host's side.
    pub fn counts(&self) -> Counts {
        let parts = &*self.parts;
        let (segments, blocks) = parts.graphs.counts();
        Counts {
            segments: parts.heap.segments() + segments,
            blocks: parts.heap.blocks() + blocks,
            command_buffers: parts.slots.all.len() + parts.graphs.command_buffers(),
            uploads: parts.transfer.in_flight(),
            kernels: parts.kernels.len(),
            timed: parts.profile.len(),
            barriers: parts.barriers,
        }
    }

    /// After that many more submits the driver is taken to answer "device lost" to every call.
    #[cfg(feature = "fault-injection")]
    pub fn lose_after(&mut self, submits: u64) {
        self.parts.gpu.lose_after(submits);
    }

    /// Gives every segment that is not in use back to the driver. Waits for work in flight.
    ///
    /// # Errors
    /// `Timeout` where earlier work does not end in time; `Lost` where the device is lost.
    pub fn empty_cache(&mut self) -> Result<(), DeviceError> {
        self.parts.not_capturing("giving memory back")?;
        self.parts.kept.start_over();
        self.parts.give_idle();
        self.parts.release_unused()
    }

    /// Submits what was recorded, without waiting.
    ///
    /// # Errors
    /// `Lost` where the device is lost; `Driver` where a driver call fails.
    pub fn flush(&mut self) -> Result<(), DeviceError> {
        self.parts.flush().map(drop)
    }

    /// Copies that go on beside this queue's work, from any thread; each call makes others.
    ///
    /// # Errors
    /// `OutOfMemory`, `Driver` where they cannot be made.
    pub fn copies(&mut self) -> Result<Arc<Copies>, DeviceError> {
        let parts = &mut *self.parts;
        parts.gpu.guard()?;
        // Those that nobody has any more go.
        if parts.copies.iter().any(|copies| Arc::strong_count(copies) == 1) {
            parts.not_capturing("copies beside the queue")?;
            // Kernels in flight may wait for them.
            parts.synchronize()?;
            let (gone, alive) = parts.copies.drain(..).partition(|copies| Arc::strong_count(copies) == 1);
            parts.copies = alive;
            parts.close_copies(gone);
        }
        let copies = Arc::new(Copies::new(&mut parts.gpu, &mut parts.memory)?);
        parts.copies.push(copies.clone());
        Ok(copies)
    }

    /// The region of these bytes, for those copies, as the work that was launched so far leaves them. Submits that work.
    ///
    /// # Errors
    /// `Misuse` for a range outside of the queue's memory, copies of another device and in a capture; as
    /// [`VulkanQueue::flush`].
    pub fn locate(&mut self, copies: &Copies, address: u64, bytes: u64) -> Result<Region, DeviceError> {
        let parts = &mut *self.parts;
        parts.own(copies)?;
        parts.not_capturing("a copy beside the queue")?;
        let (buffer, offset) = parts.resolve(address, bytes)?;
        parts.flush()?;
        // It may be written, by a call that this queue does not see.
        parts.kept.written((address, address + bytes));
        parts.give_dropped();
        Ok(Region { buffer, offset, bytes, after: parts.gpu.last_submitted(), owner: copies.number })
    }

    /// Work that is launched from now on starts when those copies have come to a mark in both directions. One that is not set
    /// yet must be set soon, whatever happens: waits for such work end at their deadline.
    ///
    /// # Errors
    /// `Misuse` for copies of another device and in a capture; as [`VulkanQueue::flush`].
    pub fn wait_for_mark(&mut self, copies: &Copies, mark: u64) -> Result<(), DeviceError> {
        let parts = &mut *self.parts;
        parts.own(copies)?;
        parts.not_capturing("waiting for a copy")?;
        // What was launched before need not wait.
        parts.flush()?;
        copies.marks.iter().for_each(|&marks| parts.gpu.wait_for(marks, mark));
        Ok(())
    }

    /// Starts or ends taking the time of every launch. Ending waits for work in flight.
    ///
    /// # Errors
    /// `Timeout` where earlier work does not end in time; `Lost` where the device is lost.
    pub fn profile(&mut self, on: bool) -> Result<Vec<Profiled>, DeviceError> {
        let parts = &mut *self.parts;
        parts.not_capturing("profiling")?;
        parts.synchronize()?;
        let kernels = &parts.kernels;
        Ok(parts.profile.switch(&parts.gpu, on, |kernel| kernels[kernel].0.to_string()))
    }
}

impl Parts {
    fn own(&self, copies: &Copies) -> Result<(), DeviceError> {
        self.copies.iter().any(|own| own.number == copies.number).then_some(()).ok_or_else(copies::closed)
    }

    /// Closes copies; false where one does not end.
    fn close_copies(&mut self, copies: Vec<Arc<Copies>>) -> bool {
        copies.iter().fold(true, |all, copies| {
            self.gpu.forget(&copies.marks);
            let staging = copies.close();
            let ended = staging.is_some();
            staging.into_iter().flatten().for_each(|buffer| self.memory.destroy_buffer(&self.gpu, buffer));
            all && ended
        })
    }
}

impl Drop for VulkanQueue {
    fn drop(&mut self) {
        let parts = &mut *self.parts;
        if !parts.gpu.quiet() {
            log::warn!(
                "a Vulkan device is leaked: it is busy, or this process is a fork of the one that opened it"
            );
            return;
        }
        if parts.gpu.is_alive() {
            parts.pipelines.save(&parts.gpu);
        }
        let copies = std::mem::take(&mut parts.copies);
        if !parts.close_copies(copies) {
            log::warn!("a Vulkan device is leaked: a copy does not end");
            return;
        }
        parts.destroy_graphs();
        parts.slots.destroy(&parts.gpu);
        parts.pipelines.destroy(&parts.gpu);
        parts.transfer.destroy(&parts.gpu, &mut parts.memory);
        parts.memory.destroy(&parts.gpu);
        // SAFETY: this is the end of `self`; the parts are not touched again.
        unsafe { ManuallyDrop::drop(&mut self.parts) };
    }
}

impl Queue for VulkanQueue {
    fn info(&self) -> &DeviceInfo {
        &self.parts.gpu.adapter.info
    }

    fn caps(&self) -> &DeviceCaps {
        &self.parts.gpu.adapter.caps
    }

    fn check(&mut self) -> Result<(), DeviceError> {
        self.parts.gpu.guard()
    }

    fn alloc(&mut self, bytes: u64) -> Result<u64, DeviceError> {
        match self.parts.take_or_grow(bytes) {
            Err(DeviceError::OutOfMemory { .. }) => self.parts.take_in_need(bytes),
            other => other,
        }
    }

    fn free(&mut self, address: u64) {
        self.parts.give(address);
    }

    fn retire(&mut self, address: u64) {
        let parts = &mut *self.parts;
        let bytes = parts.size(address);
        for address in parts.retired.push(address, bytes) {
            parts.graphs.give_or(&mut parts.heap, address);
        }
    }

    fn span(&self, address: u64) -> Option<(u64, u64)> {
        self.parts.heap.span(address).or_else(|| self.parts.graphs.span(address))
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        // What a graph makes of filters it makes anew at each replay.
        if self.is_capturing() { None } else { Some(&mut self.parts.kept) }
    }

    fn launch(
        &mut self,
        kernel: &str,
        grid: [u32; 3],
        params: &[u32],
        args: &[Arg],
        work: Work,
    ) -> Result<(), DeviceError> {
        self.parts.launch(kernel, grid, params, args, work)
    }

    fn prepare(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        let parts = &mut *self.parts;
        parts.gpu.guard()?;
        let pipeline = parts.pipelines.get(&mut parts.gpu, &launch.kernel)?;
        check::launch(launch, pipeline.params, pipeline.buffers, &parts.gpu.adapter.caps)
    }

    fn fill(&mut self, address: u64, bytes: u64, word: u32) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        if !address.is_multiple_of(4) || !bytes.is_multiple_of(4) {
            return Err(DeviceError::Misuse(format!(
                "a fill of {bytes} bytes at {address:#x}: not whole words"
            )));
        }
        let parts = &mut *self.parts;
        let (buffer, offset) = parts.resolve(address, bytes)?;
        let slot = parts.open(bytes as f64 * 16.0)?;
        parts.order(Command::Transfer, [((address, address + bytes), Access::Write)].into_iter(), slot);
        // SAFETY: recording; the range is of the buffer, in whole words.
        unsafe {
            parts.gpu.raw.cmd_fill_buffer(parts.slots.all[slot].commands.buffer, buffer, offset, bytes, word)
        };
        parts.recorded(slot, bytes as f64 * 16.0)
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        if from < to.saturating_add(bytes) && to < from.saturating_add(bytes) {
            return Err(DeviceError::Misuse(format!("a copy of {bytes} bytes from {from:#x} onto itself")));
        }
        let parts = &mut *self.parts;
        let (source, from_offset) = parts.resolve(from, bytes)?;
        let (target, to_offset) = parts.resolve(to, bytes)?;
        let slot = parts.open(bytes as f64 * 32.0)?;
        let ranges = [((from, from + bytes), Access::Read), ((to, to + bytes), Access::Write)];
        parts.order(Command::Transfer, ranges.into_iter(), slot);
        let region = vk::BufferCopy::default().src_offset(from_offset).dst_offset(to_offset).size(bytes);
        // SAFETY: recording; both ranges are of their buffers and do not overlap.
        unsafe {
            parts.gpu.raw.cmd_copy_buffer(parts.slots.all[slot].commands.buffer, source, target, &[region])
        };
        parts.recorded(slot, bytes as f64 * 32.0)
    }

    fn upload(&mut self, address: u64, data: &[u8]) -> Result<(), DeviceError> {
        if self.is_capturing() {
            return self.parts.upload_constant(address, data);
        }
        self.parts.upload(address, data)
    }

    fn download(&mut self, address: u64, data: &mut [u8]) -> Result<(), DeviceError> {
        self.parts.not_capturing("reading a tensor")?;
        self.parts.download(address, data)
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.parts.not_capturing("waiting for the device")?;
        self.parts.synchronize()
    }

    fn wait_until(&mut self, deadline: Option<Deadline>) {
        self.parts.until = deadline;
    }

    fn barrier(&mut self) -> Result<(), DeviceError> {
        let parts = &mut *self.parts;
        let slot = parts.open(0.0)?;
        parts.full_barrier(slot);
        Ok(())
    }

    fn stamp(&mut self) -> Result<Stamp, DeviceError> {
        let parts = &mut *self.parts;
        parts.not_capturing("taking the time")?;
        let (slot, stamp) = (parts.open(0.0)?, Stamp(parts.next_stamp));
        parts.next_stamp += 1;
        let slot = &mut parts.slots.all[slot];
        slot.stamped.push((stamp, slot.stamps));
        slot.stamp(&parts.gpu);
        Ok(stamp)
    }

    fn times(&mut self, stamps: &[Stamp]) -> Result<Vec<Duration>, DeviceError> {
        self.synchronize()?;
        let parts = &mut *self.parts;
        let ticks = stamps.iter().map(|stamp| {
            let text =
                || DeviceError::Misuse(format!("{stamp:?} is none of this queue's, or was asked for before"));
            parts.ticks.remove(stamp).ok_or_else(text)
        });
        let ticks = ticks.collect::<Result<Vec<_>, _>>()?;
        Ok(ticks.iter().map(|&tick| parts.gpu.elapsed(ticks[0], tick)).collect())
    }

    fn submits(&self) -> u64 {
        self.parts.submits
    }
}
