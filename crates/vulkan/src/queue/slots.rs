//! Command buffers of a queue, used in turn, each with its own descriptors and timestamps.

use super::profile::Part;
use crate::commands::{CommandPool, Commands};
use crate::error::at;
use crate::gpu::Gpu;
use ash::vk;
use wave32_device::Deadline;
use wave32_device::{DeviceError, Stamp};

/// Launches that one submit records at most.
pub(crate) const LAUNCHES: u32 = 256;
/// Storage buffers of a launch, on average over a submit.
const BUFFERS: u32 = 8;
/// Timestamps of a submit: two around it, two around each launch while profiling, those that somebody asks for.
pub(crate) const QUERIES: u32 = 2 * LAUNCHES + 2;
/// Submits in flight before the host waits.
const SLOTS: usize = 6;

/// A command buffer and what goes with it.
pub(crate) struct Slot {
    pub(crate) commands: Commands,
    descriptors: vk::DescriptorPool,
    /// The timeline value at which it may be used again.
    pub(crate) busy_until: u64,
    pub(crate) stamps: u32,
    pub(crate) launches: u32,
    /// Work that was recorded, for the budget to learn from.
    pub(crate) work: f64,
    /// Each part of a profiled launch, and its first timestamp; the second follows.
    pub(crate) profiled: Vec<(Part, u32)>,
    /// Stamps that somebody asked for, each with its timestamp.
    pub(crate) stamped: Vec<(Stamp, u32)>,
}

/// All command buffers; made on first use.
#[derive(Default)]
pub(crate) struct Slots {
    pool: CommandPool,
    pub(crate) all: Vec<Slot>,
    next: usize,
}

impl Slots {
    /// The slot that comes next, and whether it has been used before (so its results are due).
    pub(crate) fn next(&mut self, gpu: &Gpu) -> Result<usize, DeviceError> {
        if self.all.len() < SLOTS {
            return self.push(gpu, QUERIES);
        }
        let index = self.next;
        self.next = (self.next + 1) % SLOTS;
        Ok(index)
    }

    fn push(&mut self, gpu: &Gpu, queries: u32) -> Result<usize, DeviceError> {
        let slot = self.create(gpu, queries)?;
        self.all.push(slot);
        Ok(self.all.len() - 1)
    }

    /// A part of a graph that is being captured, behind the slots that are used in turn.
    pub(crate) fn push_part(&mut self, gpu: &Gpu) -> Result<usize, DeviceError> {
        while self.all.len() < SLOTS {
            self.push(gpu, QUERIES)?;
        }
        self.push(gpu, 1)
    }

    /// Parts of the graph that is being captured.
    pub(crate) fn parts(&self) -> usize {
        self.all.len().saturating_sub(SLOTS)
    }

    /// The parts of the graph that was captured.
    pub(crate) fn take_parts(&mut self) -> Vec<Slot> {
        self.all.split_off(SLOTS.min(self.all.len()))
    }

    /// Destroys parts of a graph, none of which may be in flight.
    pub(crate) fn destroy_parts(&mut self, gpu: &Gpu, parts: Vec<Slot>) {
        for part in parts {
            // SAFETY: the caller knows that nothing is in flight; the handle is forgotten here.
            unsafe { gpu.raw.destroy_descriptor_pool(part.descriptors, None) };
            self.pool.free(gpu, part.commands);
        }
    }

    fn create(&mut self, gpu: &Gpu, queries: u32) -> Result<Slot, DeviceError> {
        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(LAUNCHES * BUFFERS)];
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(LAUNCHES).pool_sizes(&sizes);
        // SAFETY: plain creation.
        let descriptors =
            unsafe { gpu.raw.create_descriptor_pool(&info, None) }.map_err(at("vkCreateDescriptorPool"))?;
        match self.pool.make(gpu, queries) {
            Ok(commands) => Ok(Slot {
                commands,
                descriptors,
                busy_until: 0,
                stamps: 0,
                launches: 0,
                work: 0.0,
                profiled: Vec::new(),
                stamped: Vec::new(),
            }),
            Err(error) => {
                // SAFETY: never used.
                unsafe { gpu.raw.destroy_descriptor_pool(descriptors, None) };
                Err(error)
            }
        }
    }

    /// Destroys everything; nothing may be in flight.
    pub(crate) fn destroy(&mut self, gpu: &Gpu) {
        for slot in &self.all {
            // SAFETY: the caller knows that nothing is in flight; the handle is forgotten here.
            unsafe { gpu.raw.destroy_descriptor_pool(slot.descriptors, None) };
        }
        self.pool.destroy(gpu, self.all.drain(..).map(|slot| slot.commands));
    }
}

impl Slot {
    /// Starts recording, once what it recorded before is done.
    pub(crate) fn begin(&mut self, gpu: &mut Gpu, deadline: Deadline) -> Result<(), DeviceError> {
        self.commands.begin(gpu, QUERIES, self.busy_until, deadline)?;
        let flags = vk::DescriptorPoolResetFlags::empty();
        // SAFETY: nothing of the slot is in flight; no set of its descriptor pool is used after this.
        unsafe { gpu.raw.reset_descriptor_pool(self.descriptors, flags) }
            .map_err(at("vkResetDescriptorPool"))?;
        (self.stamps, self.launches, self.work) = (0, 0, 0.0);
        self.stamp(gpu);
        self.barrier(gpu);
        Ok(())
    }

    /// Starts recording a part of a graph: no timestamps, and it may be submitted any number of times.
    pub(crate) fn begin_part(&mut self, gpu: &Gpu) -> Result<(), DeviceError> {
        self.commands.begin_reusable(gpu)?;
        self.barrier(gpu);
        Ok(())
    }

    /// Ends the recording of a part of a graph.
    pub(crate) fn end_part(&self, gpu: &Gpu) -> Result<(), DeviceError> {
        self.host_barrier(gpu);
        self.commands.end(gpu)
    }

    /// A new descriptor set that lives until the slot's next turn.
    pub(crate) fn descriptor_set(
        &self,
        gpu: &Gpu,
        layout: vk::DescriptorSetLayout,
    ) -> Result<vk::DescriptorSet, DeviceError> {
        let layouts = [layout];
        let info =
            vk::DescriptorSetAllocateInfo::default().descriptor_pool(self.descriptors).set_layouts(&layouts);
        let mut set = vk::DescriptorSet::null();
        // SAFETY: pool and layout are alive, one set is asked for and there is room for it.
        unsafe { (gpu.raw.fp_v1_0().allocate_descriptor_sets)(gpu.raw.handle(), &info, &mut set) }
            .result()
            .map_err(at("vkAllocateDescriptorSets"))?;
        Ok(set)
    }

    /// Orders all work: what comes after sees what came before and overwrites only what was read.
    pub(crate) fn barrier(&self, gpu: &Gpu) {
        let stages = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        self.order(gpu, stages);
    }

    /// Orders launches: those after see what those before wrote, and overwrite only what was read.
    pub(crate) fn kernel_barrier(&self, gpu: &Gpu) {
        let stage = vk::PipelineStageFlags::COMPUTE_SHADER;
        let (read, write) = (vk::AccessFlags::SHADER_READ, vk::AccessFlags::SHADER_WRITE);
        self.commands.memory_barrier(gpu, (stage, write), (stage, read | write));
    }

    /// As [`Slot::barrier`], for the host's reads as well.
    pub(crate) fn host_barrier(&self, gpu: &Gpu) {
        let device = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        self.order(gpu, device | vk::PipelineStageFlags::HOST);
    }

    fn order(&self, gpu: &Gpu, to: vk::PipelineStageFlags) {
        let from = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        let (read, write) = (vk::AccessFlags::MEMORY_READ, vk::AccessFlags::MEMORY_WRITE);
        self.commands.memory_barrier(gpu, (from, write), (to, read | write));
    }

    /// Takes the time at which everything before is done.
    pub(crate) fn stamp(&mut self, gpu: &Gpu) {
        debug_assert!(self.stamps < QUERIES);
        self.commands.stamp(gpu, self.stamps);
        self.stamps += 1;
    }

    /// Ends the recording and submits it.
    pub(crate) fn submit(&mut self, gpu: &mut Gpu) -> Result<u64, DeviceError> {
        self.host_barrier(gpu);
        self.stamp(gpu);
        self.busy_until = self.commands.submit(gpu)?;
        Ok(self.busy_until)
    }

    /// Its timestamps in order; the submit is done.
    pub(crate) fn stamps(&self, gpu: &mut Gpu) -> Result<Vec<u64>, DeviceError> {
        self.commands.stamps(gpu, self.stamps)
    }
}
