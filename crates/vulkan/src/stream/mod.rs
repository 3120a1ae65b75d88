//! [`Stream`]: an asynchronous in-order queue with a caching allocator of its own.
//!
//! Work is recorded and submitted in batches; calls return before it has run, and whatever reads results
//! waits, with a deadline. Launches that touch the same memory run in the order of the calls; others may
//! overlap. A submit stays within the time budget, a wide launch is cut to fit ([`wave32_device::Budget`]).

mod hazards;
mod heap;
mod profile;
mod slots;
mod transfer;

pub use heap::HeapStats;
pub use profile::Profiled;

use crate::Options;
use crate::adapter::Adapter;
use crate::cache::{DiskCache, default_dir};
use crate::gpu::{Deadline, Gpu};
use crate::instance::Instance;
use crate::memory::Memory;
use crate::pipelines::{Pipeline, Pipelines};
use ash::vk;
use hazards::Hazards;
use heap::Heap;
use profile::Profile;
use slots::{LAUNCHES, Slots};
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::sync::PoisonError;
use std::time::Duration;
use transfer::Transfer;
use wave32_device::{Arg, Budget, DeviceError, DeviceInfo, Queue, Work};
use wave32_solve::DeviceCaps;

/// Most storage buffers of a launch.
pub const MOST_ARGS: usize = 8;
/// Most parameter words of a launch.
pub const MOST_PARAMS: usize = 32;

/// While the GPU is idle, this many launches are enough for a submit.
const EAGER: u32 = 8;

/// A kernel of one stream, ready to launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KernelId(u32);

/// Everything of one stream. Fields drop in order, so the logical device is last.
struct Parts {
    budget: Budget,
    hazards: Hazards,
    heap: Heap,
    profile: Profile,
    kernels: Vec<(Pipeline, vk::DescriptorSetLayout)>,
    names: HashMap<String, KernelId>,
    slots: Slots,
    /// The slot being recorded.
    open: Option<usize>,
    transfer: Transfer,
    pipelines: Pipelines,
    memory: Memory,
    deadline: Duration,
    submits: u64,
    gpu: Gpu,
}

/// An asynchronous queue of one device; see the module's page.
///
/// It belongs to the process that opened it: after a fork, the child's calls answer
/// [`DeviceError::Misuse`]. Dropping it waits at most five seconds for work in flight; if that does not
/// end, the device is leaked rather than torn from under the GPU.
pub struct Stream {
    parts: ManuallyDrop<Parts>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("info", self.info()).finish_non_exhaustive()
    }
}

impl Stream {
    pub(crate) fn new(instance: Instance, adapter: Adapter, options: Options) -> Result<Self, DeviceError> {
        let mut budget = Budget::new(&adapter.caps);
        if let Some(target) = options.submit_target {
            budget = budget.with_target(target);
        }
        let dir = options.cache_dir.or_else(default_dir);
        let disk = dir.map(|dir| DiskCache::new(&dir, &adapter.identity));
        let gpu = Gpu::new(instance, adapter, options.robust)?;
        let memory = Memory::new(&gpu, options.memory_cap, options.always_stage)?;
        let parts = Parts {
            budget,
            hazards: Hazards::default(),
            heap: Heap::default(),
            profile: Profile::default(),
            kernels: Vec::new(),
            names: HashMap::new(),
            slots: Slots::default(),
            open: None,
            transfer: Transfer::default(),
            pipelines: Pipelines::new(options.kernels, disk),
            memory,
            deadline: Duration::from_secs(60),
            submits: 0,
            gpu,
        };
        Ok(Self { parts: ManuallyDrop::new(parts) })
    }

    /// Identity.
    pub fn info(&self) -> &DeviceInfo {
        &self.parts.gpu.adapter.info
    }

    /// What solvers may know.
    pub fn caps(&self) -> &DeviceCaps {
        &self.parts.gpu.adapter.caps
    }

    /// True where kernels may use 64-bit floats.
    pub fn has_float64(&self) -> bool {
        self.parts.gpu.adapter.features.float64
    }

    /// How long any wait lasts at most before the device is given up; a minute unless set.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.parts.deadline = deadline;
    }

    /// Most bytes that all segments together may have from now on; none for no cap.
    pub fn set_memory_cap(&mut self, cap: Option<u64>) {
        self.parts.memory.set_cap(cap);
    }

    /// What the heap holds.
    pub fn heap_stats(&self) -> HeapStats {
        self.parts.heap.stats()
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

    /// Submits so far.
    pub fn submits(&self) -> u64 {
        self.parts.submits
    }

    /// A block of at least `bytes`, content undefined; its address is a multiple of 512.
    ///
    /// # Errors
    /// `OutOfMemory`, after everything cached was given back to the driver; `Lost`, `Driver`.
    pub fn alloc(&mut self, bytes: u64) -> Result<u64, DeviceError> {
        let parts = &mut *self.parts;
        if let Some(address) = parts.heap.take(bytes) {
            return Ok(address);
        }
        parts.gpu.guard()?;
        match parts.grow(bytes) {
            Err(DeviceError::OutOfMemory { .. }) => {
                parts.release_unused()?;
                parts.grow(bytes)?;
            }
            other => other?,
        }
        parts
            .heap
            .take(bytes)
            .ok_or(DeviceError::OutOfMemory { requested: bytes, in_use: parts.heap.stats().allocated })
    }

    /// Gives a block back; work already launched may still use it. Unknown addresses are ignored.
    pub fn free(&mut self, address: u64) {
        self.parts.heap.give(address);
    }

    /// Gives every segment that is not in use back to the driver. Waits for work in flight.
    ///
    /// # Errors
    /// `Timeout`, `Lost`.
    pub fn empty_cache(&mut self) -> Result<(), DeviceError> {
        self.parts.release_unused()
    }

    /// The kernel of that name in the variants table, compiled now if it is new.
    ///
    /// # Errors
    /// `Unsupported` where there is none or the device lacks what it needs; `Driver`.
    pub fn kernel(&mut self, name: &str) -> Result<KernelId, DeviceError> {
        if let Some(id) = self.parts.names.get(name) {
            return Ok(*id);
        }
        let parts = &mut *self.parts;
        parts.gpu.guard()?;
        let pipeline = parts.pipelines.get(&mut parts.gpu, name)?;
        if pipeline.buffers as usize > MOST_ARGS
            || pipeline.params as usize > MOST_PARAMS
            || pipeline.params == 0
        {
            return Err(DeviceError::Unsupported(format!(
                "kernel `{name}` takes {} buffers and {} params, a stream passes {MOST_ARGS} and 1..={MOST_PARAMS}",
                pipeline.buffers, pipeline.params
            )));
        }
        let layout = parts.pipelines.set_layout(&parts.gpu, pipeline.buffers)?;
        let id = KernelId(parts.kernels.len() as u32);
        parts.kernels.push((pipeline, layout));
        parts.names.insert(name.to_string(), id);
        Ok(id)
    }

    /// Launches `grid` workgroups after all work on the same memory that was launched before.
    /// `params[0]` is the first workgroup's x index and must be 0.
    ///
    /// # Errors
    /// `Misuse` for a range outside of the heap or wrong counts; `Unsupported` past the device's limits;
    /// `Timeout` where earlier work does not end; `Lost`, `Driver`.
    pub fn launch(
        &mut self,
        kernel: KernelId,
        grid: [u32; 3],
        params: &[u32],
        args: &[Arg],
        work: Work,
    ) -> Result<(), DeviceError> {
        self.parts.launch(kernel, grid, params, args, work)
    }

    /// Fills `bytes` from `address` with copies of a 32-bit word; both are multiples of 4.
    ///
    /// # Errors
    /// As [`Stream::launch`].
    pub fn fill(&mut self, address: u64, bytes: u64, word: u32) -> Result<(), DeviceError> {
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
        parts.order([((address, address + bytes), true)].into_iter(), slot);
        // SAFETY: recording; the range is of the buffer, in whole words.
        unsafe { parts.gpu.raw.cmd_fill_buffer(parts.slots.all[slot].commands, buffer, offset, bytes, word) };
        parts.recorded(slot)
    }

    /// Copies `bytes` between ranges that do not overlap.
    ///
    /// # Errors
    /// As [`Stream::launch`].
    pub fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError> {
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
        parts.order([((from, from + bytes), false), ((to, to + bytes), true)].into_iter(), slot);
        let region = vk::BufferCopy::default().src_offset(from_offset).dst_offset(to_offset).size(bytes);
        // SAFETY: recording; both ranges are of their buffers and do not overlap.
        unsafe { parts.gpu.raw.cmd_copy_buffer(parts.slots.all[slot].commands, source, target, &[region]) };
        parts.recorded(slot)
    }

    /// Copies `data` to `address`. Returns once `data` may be changed; the copy runs in order.
    ///
    /// # Errors
    /// As [`Stream::launch`], `OutOfMemory`.
    pub fn upload(&mut self, address: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.parts.upload(address, data)
    }

    /// Copies from `address` into `data`, after all work launched before. Waits.
    ///
    /// # Errors
    /// As [`Stream::upload`].
    pub fn download(&mut self, address: u64, data: &mut [u8]) -> Result<(), DeviceError> {
        self.parts.download(address, data)
    }

    /// Submits what was recorded, without waiting.
    ///
    /// # Errors
    /// `Lost`, `Driver`.
    pub fn flush(&mut self) -> Result<(), DeviceError> {
        self.parts.flush().map(drop)
    }

    /// Waits for all work.
    ///
    /// # Errors
    /// `Timeout` after the stream's deadline, `Lost`, `Driver`.
    pub fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.parts.synchronize()
    }

    /// Starts or ends taking the time of every launch. Ending waits for work in flight.
    ///
    /// # Errors
    /// `Timeout`, `Lost`.
    pub fn profile(&mut self, on: bool) -> Result<Vec<Profiled>, DeviceError> {
        let parts = &mut *self.parts;
        parts.synchronize()?;
        let names = &parts.names;
        Ok(parts.profile.switch(on, names))
    }
}

impl Parts {
    /// Makes a segment with room for a block of `bytes`.
    fn grow(&mut self, bytes: u64) -> Result<(), DeviceError> {
        let out_of_memory =
            DeviceError::OutOfMemory { requested: bytes, in_use: self.heap.stats().allocated };
        let Some(wanted) = Heap::segment_size(bytes) else { return Err(out_of_memory) };
        // A tight cap or a full card may still have room for just this block.
        let least = bytes.max(1).next_multiple_of(heap::ALIGN);
        for size in [wanted, least] {
            match self.memory.alloc(&mut self.gpu, size) {
                Ok(id) => {
                    let raw = self.memory.get(id)?.raw;
                    self.heap.add(bytes, size, id, raw);
                    return Ok(());
                }
                Err(DeviceError::OutOfMemory { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Err(out_of_memory)
    }

    fn release_unused(&mut self) -> Result<(), DeviceError> {
        self.synchronize()?;
        for buffer in self.heap.remove_unused() {
            self.memory.free(&self.gpu, buffer);
        }
        Ok(())
    }

    /// The buffer that holds the range, and its offset there.
    fn resolve(&self, address: u64, bytes: u64) -> Result<(vk::Buffer, u64), DeviceError> {
        match self.heap.find(address, bytes) {
            Some((segment, offset)) => Ok((segment.raw, offset)),
            None => Err(DeviceError::Misuse(format!(
                "{bytes} bytes at {address:#x} are no memory of this device"
            ))),
        }
    }

    /// The slot to record the next `work` into; submits what is there where that would be too much.
    fn open(&mut self, work: f64) -> Result<usize, DeviceError> {
        if let Some(slot) = self.open {
            let (launches, before) = (self.slots.all[slot].launches, self.slots.all[slot].work);
            if launches < LAUNCHES && (launches == 0 || before + work <= self.budget.capacity()) {
                return Ok(slot);
            }
            self.flush()?;
        }
        self.gpu.guard()?;
        let slot = self.slots.next(&self.gpu)?;
        let deadline = Deadline::after(self.deadline);
        if self.slots.all[slot].stamps > 0 {
            let done = self.slots.all[slot].busy_until;
            self.gpu.wait(done, "earlier work", deadline)?;
            self.collect(slot)?;
        }
        self.slots.all[slot].begin(&mut self.gpu, deadline)?;
        self.hazards.clear();
        self.open = Some(slot);
        Ok(slot)
    }

    /// Orders what is about to be recorded after what it depends on.
    fn order(&mut self, ranges: impl Iterator<Item = ((u64, u64), bool)> + Clone, slot: usize) {
        if self.hazards.conflict(ranges.clone()) {
            self.slots.all[slot].barrier(&self.gpu);
            self.hazards.clear();
        }
        self.hazards.note(ranges);
    }

    /// Counts one command; submits where the GPU has nothing to do.
    fn recorded(&mut self, slot: usize) -> Result<(), DeviceError> {
        let slot = &mut self.slots.all[slot];
        slot.launches += 1;
        if slot.launches.is_multiple_of(EAGER) && self.gpu.is_idle() {
            self.flush()?;
        }
        Ok(())
    }

    fn launch(
        &mut self,
        kernel: KernelId,
        grid: [u32; 3],
        params: &[u32],
        args: &[Arg],
        work: Work,
    ) -> Result<(), DeviceError> {
        let Some(&(pipeline, layout)) = self.kernels.get(kernel.0 as usize) else {
            return Err(DeviceError::Misuse("a kernel of another stream".into()));
        };
        if params.len() != pipeline.params as usize
            || args.len() != pipeline.buffers as usize
            || params[0] != 0
        {
            return Err(DeviceError::Misuse(format!(
                "a kernel of {} params (the first 0) and {} buffers got {} and {}",
                pipeline.params,
                pipeline.buffers,
                params.len(),
                args.len()
            )));
        }
        let caps = &self.gpu.adapter.caps;
        let [columns, y, z] = grid;
        if grid.contains(&0) || y > caps.max_groups[1] || z > caps.max_groups[2] {
            return Err(DeviceError::Unsupported(format!("a grid of {columns}x{y}x{z} workgroups")));
        }
        let (widest, alignment, max_range) =
            (caps.max_groups[0].max(1), caps.offset_alignment, caps.max_range);
        let mut infos = [vk::DescriptorBufferInfo::default(); MOST_ARGS];
        for (info, arg) in infos.iter_mut().zip(args) {
            let (buffer, offset) = self.resolve(arg.address, arg.bytes)?;
            if arg.bytes == 0 || !offset.is_multiple_of(alignment) || arg.bytes > max_range {
                return Err(DeviceError::Unsupported(format!(
                    "a binding of {} bytes at offset {offset}; the device binds 1 to {max_range} bytes at multiples of {alignment}",
                    arg.bytes
                )));
            }
            *info = vk::DescriptorBufferInfo { buffer, offset, range: arg.bytes };
        }
        let mut words = [0u32; MOST_PARAMS];
        words[..params.len()].copy_from_slice(params);
        let work = Budget::work(work.flops, work.bytes);
        let per_column = work / f64::from(columns);
        let mut column = 0;
        while column < columns {
            let slot = self.open(per_column)?;
            let room = (self.budget.capacity() - self.slots.all[slot].work) / per_column;
            let count = (room.max(1.0) as u64).min(u64::from((columns - column).min(widest))) as u32;
            words[0] = column;
            if column == 0 {
                let ranges = args.iter().map(|arg| ((arg.address, arg.address + arg.bytes), arg.writes));
                self.order(ranges, slot);
            }
            self.record(slot, kernel, (pipeline, layout), [count, y, z], &words, &infos[..args.len()])?;
            self.slots.all[slot].work += per_column * f64::from(count);
            column += count;
            self.recorded(slot)?;
        }
        Ok(())
    }

    fn record(
        &mut self,
        slot: usize,
        kernel: KernelId,
        (pipeline, layout): (Pipeline, vk::DescriptorSetLayout),
        [x, y, z]: [u32; 3],
        words: &[u32; MOST_PARAMS],
        infos: &[vk::DescriptorBufferInfo],
    ) -> Result<(), DeviceError> {
        let set = self.slots.all[slot].descriptor_set(&self.gpu, layout)?;
        let mut writes = [vk::WriteDescriptorSet::default(); MOST_ARGS];
        for (binding, (write, info)) in writes.iter_mut().zip(infos).enumerate() {
            *write = vk::WriteDescriptorSet::default()
                .dst_set(set)
                .dst_binding(binding as u32)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .buffer_info(std::slice::from_ref(info));
        }
        let slot = &mut self.slots.all[slot];
        let (raw, commands) = (&self.gpu.raw, slot.commands);
        let mut bytes = [0u8; MOST_PARAMS * 4];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let (point, stage) = (vk::PipelineBindPoint::COMPUTE, vk::ShaderStageFlags::COMPUTE);
        let timed = self.profile.is_on();
        if timed {
            slot.stamp(&self.gpu);
        }
        // SAFETY: recording; pipeline, layout and set were made for each other and live until the submit is
        // done; ranges, counts and the grid were checked by the caller.
        unsafe {
            raw.update_descriptor_sets(&writes[..infos.len()], &[]);
            raw.cmd_bind_pipeline(commands, point, pipeline.raw);
            raw.cmd_bind_descriptor_sets(commands, point, pipeline.layout, 0, &[set], &[]);
            raw.cmd_push_constants(
                commands,
                pipeline.layout,
                stage,
                0,
                &bytes[..pipeline.params as usize * 4],
            );
            raw.cmd_dispatch(commands, x, y, z);
        }
        if timed {
            slot.stamp(&self.gpu);
            slot.profiled.push(kernel.0);
        }
        Ok(())
    }

    /// Submits what was recorded; the timeline value at which it is done, if there was anything.
    fn flush(&mut self) -> Result<Option<u64>, DeviceError> {
        let Some(slot) = self.open else { return Ok(None) };
        if self.slots.all[slot].launches == 0 {
            return Ok(None);
        }
        self.open = None;
        self.submits += 1;
        self.slots.all[slot].submit(&mut self.gpu).map(Some)
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.gpu.guard()?;
        self.flush()?;
        let last = self.gpu.last_submitted();
        self.gpu.wait(last, "work in flight", Deadline::after(self.deadline))?;
        for slot in 0..self.slots.all.len() {
            if self.open != Some(slot) {
                self.collect(slot)?;
            }
        }
        Ok(())
    }

    /// Takes the times of a slot's submit, which is done.
    fn collect(&mut self, slot: usize) -> Result<(), DeviceError> {
        let ticks = self.slots.all[slot].stamps(&mut self.gpu)?;
        let slot = &mut self.slots.all[slot];
        if let (Some(&first), Some(&last)) = (ticks.first(), ticks.last()) {
            self.budget.learn_total(slot.work, crate::ring::elapsed(&self.gpu, first, last));
        }
        for (pair, &kernel) in ticks.get(1..).unwrap_or_default().chunks_exact(2).zip(&slot.profiled) {
            self.profile.add(&self.gpu, kernel, pair[0], pair[1]);
        }
        slot.stamps = 0;
        slot.profiled.clear();
        Ok(())
    }
}

impl Drop for Stream {
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
        parts.slots.destroy(&parts.gpu);
        parts.pipelines.destroy(&parts.gpu);
        parts.transfer.destroy(&parts.gpu, &mut parts.memory);
        parts.memory.destroy(&parts.gpu);
        // SAFETY: this is the end of `self`; the parts are not touched again.
        unsafe { ManuallyDrop::drop(&mut self.parts) };
    }
}

impl Queue for Stream {
    fn caps(&self) -> &DeviceCaps {
        self.caps()
    }

    fn alloc(&mut self, bytes: u64) -> Result<u64, DeviceError> {
        self.alloc(bytes)
    }

    fn free(&mut self, address: u64) {
        self.free(address);
    }

    fn launch(
        &mut self,
        kernel: &str,
        grid: [u32; 3],
        params: &[u32],
        args: &[Arg],
        work: Work,
    ) -> Result<(), DeviceError> {
        let kernel = self.kernel(kernel)?;
        self.launch(kernel, grid, params, args, work)
    }

    fn fill(&mut self, address: u64, bytes: u64, word: u32) -> Result<(), DeviceError> {
        self.fill(address, bytes, word)
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError> {
        self.copy(from, to, bytes)
    }

    fn upload(&mut self, address: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.upload(address, data)
    }

    fn download(&mut self, address: u64, data: &mut [u8]) -> Result<(), DeviceError> {
        self.download(address, data)
    }
}
