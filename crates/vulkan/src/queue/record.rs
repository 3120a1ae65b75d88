//! Recording and submitting: what every call of a stream ends in.

use super::graph::Live;
use super::slots::{LAUNCHES, QUERIES, Slot};
use super::{Parts, Segment};
use crate::pipelines::Pipeline;
use ash::vk;
use wave32_device::check::{self, LaunchShape};
use wave32_device::heap::{self, Heap};
use wave32_device::{Arg, Budget, Deadline, DeviceError, MAX_ARGS, MAX_PARAMS, Work};
use wave32_solve::{Access, hazards::Range};

/// What is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Launch,
    Transfer,
}

/// What was recorded since the last full barrier.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Since {
    transfer: bool,
    kernel_barrier: bool,
}

/// While the GPU is idle, this many launches are enough for the first submit after a wait. Each such submit doubles that, up
/// to the other number: where the GPU is always idle, the processor's time counts, and a submit takes some of it.
pub(super) const EAGER: std::ops::RangeInclusive<u32> = 8..=64;

impl Parts {
    /// Makes a segment with room for a block of `bytes`.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), DeviceError> {
        let out_of_memory =
            DeviceError::OutOfMemory { requested: bytes, in_use: self.heap.stats().allocated };
        let Some(wanted) = heap::segment_size(bytes) else { return Err(out_of_memory) };
        // A tight cap or a full card may still have room for just this block.
        let least = bytes.max(1).next_multiple_of(heap::ALIGN);
        for size in [wanted, least] {
            match self.memory.alloc(&mut self.gpu, size) {
                Ok(id) => {
                    let raw = self.memory.get(id)?.raw;
                    self.heap().add(bytes, size, Segment { id, raw });
                    return Ok(());
                }
                Err(DeviceError::OutOfMemory { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Err(out_of_memory)
    }

    /// A block of `bytes`, of a new segment where none has room.
    pub(super) fn take_or_grow(&mut self, bytes: u64) -> Result<u64, DeviceError> {
        if let Some(address) = self.heap().take(bytes) {
            return Ok(address);
        }
        self.gpu.guard()?;
        self.grow(bytes)?;
        self.heap()
            .take(bytes)
            .ok_or(DeviceError::OutOfMemory { requested: bytes, in_use: self.heap.stats().allocated })
    }

    /// A block where memory ran out: of what nothing uses; where that is not enough, of what is kept too. Less is kept from then
    /// on where that helped.
    pub(super) fn take_in_need(&mut self, bytes: u64) -> Result<u64, DeviceError> {
        self.heap().count_retry();
        self.give_idle();
        self.release_unused()?;
        let mut block = self.take_or_grow(bytes);
        let kept = self.kept.bytes();
        if matches!(block, Err(DeviceError::OutOfMemory { .. })) && kept > 0 {
            self.kept.clear();
            self.give_dropped();
            self.release_unused()?;
            block = self.take_or_grow(bytes).inspect(|_| self.kept.keep_less_than(kept));
        }
        if matches!(block, Err(DeviceError::OutOfMemory { .. })) {
            self.heap().count_refusal();
        }
        block
    }

    /// The heap that blocks come from now.
    pub(super) fn heap(&mut self) -> &mut Heap<Segment> {
        self.graphs.heap().unwrap_or(&mut self.heap)
    }

    /// Bytes of the block in use at `address`; 0 where none is.
    pub(super) fn size(&self, address: u64) -> u64 {
        match self.heap.size(address) {
            0 => self.graphs.size(address),
            size => size,
        }
    }

    /// Gives a block back, unless others own it too. What was made of what it holds is of no use to anybody.
    pub(super) fn give(&mut self, address: u64) {
        self.release(address);
        self.give_dropped();
    }

    fn release(&mut self, address: u64) {
        if !self.kept.free_shared(address) {
            self.kept.written((address, address + self.size(address)));
            self.graphs.give_or(&mut self.heap, address);
        }
    }

    /// Gives back what is kept no longer. Work already recorded may still read it: it runs before the next owner's.
    pub(super) fn give_dropped(&mut self) {
        while let Some(address) = self.kept.next_dropped() {
            self.release(address);
        }
    }

    /// Gives back all that is held for speed alone, but what [`Kept`](wave32_device::Kept) keeps.
    pub(super) fn give_idle(&mut self) {
        self.give_dropped();
        for address in self.retired.all() {
            self.graphs.give_or(&mut self.heap, address);
        }
    }

    pub(super) fn release_unused(&mut self) -> Result<(), DeviceError> {
        self.synchronize()?;
        for buffer in self.heap.remove_unused().into_iter().chain(self.graphs.remove_unused()) {
            self.memory.free(&self.gpu, buffer.id);
        }
        Ok(())
    }

    /// The buffer that holds the range, and its offset there.
    pub(super) fn resolve(&self, address: u64, bytes: u64) -> Result<(vk::Buffer, u64), DeviceError> {
        match self.heap.find(address, bytes) {
            Some((segment, offset)) => Ok((segment.buffer.raw, offset)),
            None => self.graphs.find(address, bytes).ok_or_else(|| {
                DeviceError::Misuse(format!("{bytes} bytes at {address:#x} are no memory of this device"))
            }),
        }
    }

    /// The slot to record the next `work` into; submits what is there where that would be too much.
    pub(super) fn open(&mut self, work: f64) -> Result<usize, DeviceError> {
        if let Some(slot) = self.open {
            let Slot { launches, work: before, stamps, .. } = self.slots.all[slot];
            // A launch takes two stamps where it is timed, the submit's end one.
            let has_room = launches < LAUNCHES && stamps + 3 <= QUERIES;
            if has_room && (launches == 0 || work == 0.0 || before + work <= self.budget.capacity()) {
                return Ok(slot);
            }
            self.flush()?;
        }
        self.gpu.guard()?;
        let slot = if self.graphs.capture.is_some() { self.open_part()? } else { self.next_slot()? };
        self.hazards.clear();
        self.since = Since::default();
        self.open = Some(slot);
        Ok(slot)
    }

    /// The ring's next slot, ready to record.
    fn next_slot(&mut self) -> Result<usize, DeviceError> {
        let slot = self.slots.next(&self.gpu)?;
        let deadline = self.deadline();
        if self.slots.all[slot].stamps > 0 {
            let done = self.slots.all[slot].busy_until;
            self.gpu.wait(done, "earlier work", deadline)?;
            self.collect(slot)?;
        }
        self.slots.all[slot].begin(&mut self.gpu, deadline)?;
        Ok(slot)
    }

    /// Until when the next wait may last.
    pub(super) fn deadline(&self) -> Deadline {
        self.until.unwrap_or_else(|| Deadline::after(self.deadline))
    }

    /// Orders what is about to be recorded, a launch or a transfer, after what it depends on.
    ///
    /// Between launches a barrier for kernels alone is enough, and costs NVIDIA's driver 5 us less than one for copies too.
    /// What such a one forgets of earlier launches, a transfer would still have to wait for.
    pub(super) fn order(
        &mut self,
        command: Command,
        ranges: impl Iterator<Item = (Range, Access)> + Clone,
        slot: usize,
    ) {
        // Here passes all that writes to the device's memory.
        for (range, _) in ranges.clone().filter(|(_, access)| access.writes()) {
            self.kept.written(range);
        }
        self.graphs.touch(ranges.clone());
        self.give_dropped();
        let transfer = command == Command::Transfer;
        if self.hazards.conflict(ranges.clone()) || (transfer && self.since.kernel_barrier) {
            if transfer || self.since.transfer {
                self.full_barrier(slot);
            } else {
                self.slots.all[slot].kernel_barrier(&self.gpu);
                self.barriers += 1;
                self.hazards.clear();
                self.since.kernel_barrier = true;
            }
        }
        self.since.transfer |= transfer;
        self.hazards.note(ranges);
    }

    /// Orders everything.
    pub(super) fn full_barrier(&mut self, slot: usize) {
        self.slots.all[slot].barrier(&self.gpu);
        self.barriers += 1;
        self.hazards.clear();
        self.since = Since::default();
    }

    /// Counts one command of that much work; submits where the GPU has nothing to do.
    pub(super) fn recorded(&mut self, slot: usize, work: f64) -> Result<(), DeviceError> {
        let slot = &mut self.slots.all[slot];
        slot.work += work;
        slot.launches += 1;
        if self.graphs.capture.is_none() && slot.launches.is_multiple_of(self.eager) && self.gpu.is_idle() {
            self.eager = (2 * self.eager).min(*EAGER.end());
            self.flush()?;
        }
        Ok(())
    }

    /// The place in `kernels` of the kernel of that name, compiled now if it is new.
    fn kernel(&mut self, name: &str) -> Result<usize, DeviceError> {
        if let Some(&place) = self.names.get(name) {
            return Ok(place);
        }
        self.gpu.guard()?;
        let pipeline = self.pipelines.get(&mut self.gpu, name)?;
        let layout = self.pipelines.set_layout(&self.gpu, pipeline.buffers)?;
        let place = self.kernels.len();
        self.kernels.push((name.into(), pipeline, layout));
        self.names.insert(name.into(), place);
        Ok(place)
    }

    pub(super) fn launch(
        &mut self,
        name: &str,
        grid: [u32; 3],
        params: &[u32],
        args: &[Arg],
        work: Work,
    ) -> Result<(), DeviceError> {
        let kernel = self.kernel(name)?;
        let (_, pipeline, layout) = self.kernels[kernel];
        let caps = &self.gpu.adapter.caps;
        let first = params.first().copied();
        let shape = LaunchShape { kernel: name, grid, first, params: params.len(), buffers: args.len() };
        shape.check(pipeline.params, pipeline.buffers, caps)?;
        let mut infos = [vk::DescriptorBufferInfo::default(); MAX_ARGS];
        for (info, arg) in infos.iter_mut().zip(args) {
            let (buffer, offset) = self.resolve(arg.address, arg.bytes)?;
            check::arg(name, offset, arg.bytes, caps)?;
            *info = vk::DescriptorBufferInfo { buffer, offset, range: arg.bytes };
        }
        if self.is_live() {
            let (params, args) = (params.to_vec(), args.to_vec());
            return self.capture_launch(Live { behind: 0, kernel: name.into(), grid, params, args, work });
        }
        let [columns, y, z] = grid;
        let mut part_params = [0u32; MAX_PARAMS];
        part_params[..params.len()].copy_from_slice(params);
        let work = Budget::work(work.flops, work.bytes);
        let per_column = work / f64::from(columns);
        let mut column = 0;
        self.profile.begin();
        while column < columns {
            let slot = self.open(per_column)?;
            let count = self.budget.columns(columns - column, per_column, self.slots.all[slot].work);
            part_params[0] = params[0] + column;
            // Every part: one that opens a new submit must be known there to the launches after it.
            let ranges = args.iter().map(|arg| ((arg.address, arg.address + arg.bytes), arg.access));
            self.order(Command::Launch, ranges, slot);
            self.record(slot, kernel, (pipeline, layout), [count, y, z], &part_params, &infos[..args.len()])?;
            column += count;
            self.recorded(slot, per_column * f64::from(count))?;
        }
        Ok(())
    }

    pub(super) fn record(
        &mut self,
        slot: usize,
        kernel: usize,
        (pipeline, layout): (Pipeline, vk::DescriptorSetLayout),
        [x, y, z]: [u32; 3],
        part_params: &[u32; MAX_PARAMS],
        infos: &[vk::DescriptorBufferInfo],
    ) -> Result<(), DeviceError> {
        let set = self.slots.all[slot].descriptor_set(&self.gpu, layout)?;
        let mut writes = [vk::WriteDescriptorSet::default(); MAX_ARGS];
        for (binding, (write, info)) in writes.iter_mut().zip(infos).enumerate() {
            *write = vk::WriteDescriptorSet::default()
                .dst_set(set)
                .dst_binding(binding as u32)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .buffer_info(std::slice::from_ref(info));
        }
        let slot = &mut self.slots.all[slot];
        let (raw, commands) = (&self.gpu.raw, slot.commands.buffer);
        let mut bytes = [0u8; MAX_PARAMS * 4];
        for (to, word) in bytes.chunks_exact_mut(4).zip(part_params) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let (point, stage) = (vk::PipelineBindPoint::COMPUTE, vk::ShaderStageFlags::COMPUTE);
        let timed = self.profile.is_on();
        if timed {
            slot.profiled.push((self.profile.part(kernel), slot.stamps));
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
        }
        Ok(())
    }

    /// Submits what was recorded; the timeline value at which it is done, if there was anything.
    pub(super) fn flush(&mut self) -> Result<Option<u64>, DeviceError> {
        let Some(slot) = self.open else { return Ok(None) };
        if self.slots.all[slot].launches == 0 && self.slots.all[slot].stamped.is_empty() {
            return Ok(None);
        }
        self.open = None;
        if self.graphs.capture.is_some() {
            self.slots.all[slot].end_part(&self.gpu)?;
            return Ok(None);
        }
        self.submits += 1;
        let value = self.slots.all[slot].submit(&mut self.gpu)?;
        self.transfer.submitted(value);
        Ok(Some(value))
    }

    pub(super) fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.gpu.guard()?;
        self.flush()?;
        self.eager = *EAGER.start();
        let last = self.gpu.last_submitted();
        self.gpu.wait(last, "work in flight", self.deadline())?;
        for slot in 0..self.slots.all.len() {
            if self.open != Some(slot) {
                self.collect(slot)?;
            }
        }
        Ok(())
    }

    /// Takes the times of a slot's submit, which is done.
    pub(super) fn collect(&mut self, slot: usize) -> Result<(), DeviceError> {
        let ticks = self.slots.all[slot].stamps(&mut self.gpu)?;
        let slot = &mut self.slots.all[slot];
        if let (Some(&first), Some(&last)) = (ticks.first(), ticks.last()) {
            self.budget.learn(slot.work, self.gpu.elapsed(first, last));
        }
        for (part, query) in slot.profiled.drain(..) {
            if let Some(&[from, to]) = ticks.get(query as usize..query as usize + 2) {
                self.profile.add(part, from, to);
            }
        }
        for (stamp, query) in slot.stamped.drain(..) {
            self.ticks.extend(ticks.get(query as usize).map(|&tick| (stamp, tick)));
        }
        slot.stamps = 0;
        Ok(())
    }
}
