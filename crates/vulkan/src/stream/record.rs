//! Recording and submitting: what every call of a stream ends in.

use super::slots::LAUNCHES;
use super::{KernelId, MAX_ARGS, MAX_PARAMS, Parts, Segment};
use crate::pipelines::Pipeline;
use ash::vk;
use wave32_device::{Arg, Budget, Deadline, DeviceError, Work, heap};

/// While the GPU is idle, this many launches are enough for a submit.
const EAGER: u32 = 8;

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
                    self.heap.add(bytes, size, Segment { id, raw });
                    return Ok(());
                }
                Err(DeviceError::OutOfMemory { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Err(out_of_memory)
    }

    pub(super) fn release_unused(&mut self) -> Result<(), DeviceError> {
        self.synchronize()?;
        for buffer in self.heap.remove_unused() {
            self.memory.free(&self.gpu, buffer.id);
        }
        Ok(())
    }

    /// The buffer that holds the range, and its offset there.
    pub(super) fn resolve(&self, address: u64, bytes: u64) -> Result<(vk::Buffer, u64), DeviceError> {
        match self.heap.find(address, bytes) {
            Some((segment, offset)) => Ok((segment.buffer.raw, offset)),
            None => Err(DeviceError::Misuse(format!(
                "{bytes} bytes at {address:#x} are no memory of this device"
            ))),
        }
    }

    /// The slot to record the next `work` into; submits what is there where that would be too much.
    pub(super) fn open(&mut self, work: f64) -> Result<usize, DeviceError> {
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
    pub(super) fn order(&mut self, ranges: impl Iterator<Item = ((u64, u64), bool)> + Clone, slot: usize) {
        if self.hazards.conflict(ranges.clone()) {
            self.slots.all[slot].barrier(&self.gpu);
            self.hazards.clear();
        }
        self.hazards.note(ranges);
    }

    /// Counts one command of that much work; submits where the GPU has nothing to do.
    pub(super) fn recorded(&mut self, slot: usize, work: f64) -> Result<(), DeviceError> {
        let slot = &mut self.slots.all[slot];
        slot.work += work;
        slot.launches += 1;
        if slot.launches.is_multiple_of(EAGER) && self.gpu.is_idle() {
            self.flush()?;
        }
        Ok(())
    }

    pub(super) fn launch(
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
        let mut infos = [vk::DescriptorBufferInfo::default(); MAX_ARGS];
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
        let mut words = [0u32; MAX_PARAMS];
        words[..params.len()].copy_from_slice(params);
        let work = Budget::work(work.flops, work.bytes);
        let per_column = work / f64::from(columns);
        let mut column = 0;
        while column < columns {
            let slot = self.open(per_column)?;
            let room = (self.budget.capacity() - self.slots.all[slot].work) / per_column;
            let count = (room.max(1.0) as u64).min(u64::from((columns - column).min(widest))) as u32;
            words[0] = column;
            // Every part: one that opens a new submit must be known there to the launches after it.
            let ranges = args.iter().map(|arg| ((arg.address, arg.address + arg.bytes), arg.writes));
            self.order(ranges, slot);
            self.record(slot, kernel, (pipeline, layout), [count, y, z], &words, &infos[..args.len()])?;
            column += count;
            self.recorded(slot, per_column * f64::from(count))?;
        }
        Ok(())
    }

    pub(super) fn record(
        &mut self,
        slot: usize,
        kernel: KernelId,
        (pipeline, layout): (Pipeline, vk::DescriptorSetLayout),
        [x, y, z]: [u32; 3],
        words: &[u32; MAX_PARAMS],
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
    pub(super) fn flush(&mut self) -> Result<Option<u64>, DeviceError> {
        let Some(slot) = self.open else { return Ok(None) };
        if self.slots.all[slot].launches == 0 {
            return Ok(None);
        }
        self.open = None;
        self.submits += 1;
        let value = self.slots.all[slot].submit(&mut self.gpu)?;
        self.transfer.submitted(value);
        Ok(Some(value))
    }

    pub(super) fn synchronize(&mut self) -> Result<(), DeviceError> {
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
    pub(super) fn collect(&mut self, slot: usize) -> Result<(), DeviceError> {
        let ticks = self.slots.all[slot].stamps(&mut self.gpu)?;
        let slot = &mut self.slots.all[slot];
        if let (Some(&first), Some(&last)) = (ticks.first(), ticks.last()) {
            self.budget.learn_total(slot.work, crate::ring::elapsed(&self.gpu, first, last));
        }
        for (pair, &kernel) in ticks.get(1..).unwrap_or_default().chunks_exact(2).zip(&slot.profiled) {
            self.profile.add(kernel, pair[0], pair[1]);
        }
        slot.stamps = 0;
        slot.profiled.clear();
        Ok(())
    }
}
