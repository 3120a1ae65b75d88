//! Command buffers of a stream, used in turn, each with its own descriptors and timestamps.

use crate::error::at;
use crate::gpu::{Deadline, Gpu};
use crate::ring::read_stamps;
use ash::vk;
use wave32_device::DeviceError;

/// Launches that one submit records at most.
pub(crate) const LAUNCHES: u32 = 256;
/// Storage buffers of a launch, on average over a submit.
const BUFFERS: u32 = 8;
/// Two timestamps around a submit; two around each launch while profiling.
const QUERIES: u32 = 2 * LAUNCHES + 2;
/// Submits in flight before the host waits.
const SLOTS: usize = 6;

/// A command buffer and what goes with it.
pub(crate) struct Slot {
    pub(crate) commands: vk::CommandBuffer,
    pub(crate) queries: vk::QueryPool,
    descriptors: vk::DescriptorPool,
    /// The timeline value at which it may be used again.
    pub(crate) busy_until: u64,
    pub(crate) stamps: u32,
    pub(crate) launches: u32,
    /// Work that was recorded, for the budget to learn from.
    pub(crate) work: f64,
    /// Kernel of each profiled launch, in order.
    pub(crate) profiled: Vec<u32>,
}

/// All command buffers; made on first use.
#[derive(Default)]
pub(crate) struct Slots {
    pool: Option<vk::CommandPool>,
    pub(crate) all: Vec<Slot>,
    next: usize,
}

impl Slots {
    /// The slot that comes next, and whether it has been used before (so its results are due).
    pub(crate) fn next(&mut self, gpu: &Gpu) -> Result<usize, DeviceError> {
        if self.all.len() < SLOTS {
            let slot = self.create(gpu)?;
            self.all.push(slot);
            return Ok(self.all.len() - 1);
        }
        let index = self.next;
        self.next = (self.next + 1) % SLOTS;
        Ok(index)
    }

    fn create(&mut self, gpu: &Gpu) -> Result<Slot, DeviceError> {
        let pool = match self.pool {
            Some(pool) => pool,
            None => {
                let info = vk::CommandPoolCreateInfo::default()
                    .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
                    .queue_family_index(gpu.family.index);
                // SAFETY: the family is the device's.
                let pool =
                    unsafe { gpu.raw.create_command_pool(&info, None) }.map_err(at("vkCreateCommandPool"))?;
                *self.pool.insert(pool)
            }
        };
        let info =
            vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(QUERIES);
        // SAFETY: the family has timestamps.
        let queries = unsafe { gpu.raw.create_query_pool(&info, None) }.map_err(at("vkCreateQueryPool"))?;
        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(LAUNCHES * BUFFERS)];
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(LAUNCHES).pool_sizes(&sizes);
        // SAFETY: plain creation.
        let descriptors = match unsafe { gpu.raw.create_descriptor_pool(&info, None) } {
            Ok(pool) => pool,
            Err(code) => {
                // SAFETY: never used.
                unsafe { gpu.raw.destroy_query_pool(queries, None) };
                return Err(at("vkCreateDescriptorPool")(code));
            }
        };
        let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
        // SAFETY: the pool is alive and used by `&mut self` only.
        match unsafe { gpu.raw.allocate_command_buffers(&info) } {
            Ok(buffers) => Ok(Slot {
                commands: buffers[0],
                queries,
                descriptors,
                busy_until: 0,
                stamps: 0,
                launches: 0,
                work: 0.0,
                profiled: Vec::new(),
            }),
            Err(code) => {
                // SAFETY: never used.
                unsafe {
                    gpu.raw.destroy_descriptor_pool(descriptors, None);
                    gpu.raw.destroy_query_pool(queries, None);
                }
                Err(at("vkAllocateCommandBuffers")(code))
            }
        }
    }

    /// Destroys everything; nothing may be in flight.
    pub(crate) fn destroy(&mut self, gpu: &Gpu) {
        // SAFETY: the caller knows that nothing is in flight; the handles are forgotten here.
        unsafe {
            for slot in self.all.drain(..) {
                gpu.raw.destroy_query_pool(slot.queries, None);
                gpu.raw.destroy_descriptor_pool(slot.descriptors, None);
            }
            if let Some(pool) = self.pool.take() {
                gpu.raw.destroy_command_pool(pool, None);
            }
        }
    }
}

impl Slot {
    /// Starts recording, once what it recorded before is done.
    pub(crate) fn begin(&mut self, gpu: &mut Gpu, deadline: Deadline) -> Result<(), DeviceError> {
        gpu.wait(self.busy_until, "earlier work", deadline)?;
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: nothing of the slot is in flight; its command pool allows the implicit reset; no set of
        // its descriptor pool is used after this.
        unsafe {
            gpu.raw
                .reset_descriptor_pool(self.descriptors, vk::DescriptorPoolResetFlags::empty())
                .map_err(at("vkResetDescriptorPool"))?;
            gpu.raw.begin_command_buffer(self.commands, &info).map_err(at("vkBeginCommandBuffer"))?;
            gpu.raw.cmd_reset_query_pool(self.commands, self.queries, 0, QUERIES);
        }
        (self.stamps, self.launches, self.work) = (0, 0, 0.0);
        self.profiled.clear();
        self.stamp(gpu);
        self.barrier(gpu);
        Ok(())
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

    /// As [`Slot::barrier`], for the host's reads as well.
    pub(crate) fn host_barrier(&self, gpu: &Gpu) {
        let device = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        self.order(gpu, device | vk::PipelineStageFlags::HOST);
    }

    fn order(&self, gpu: &Gpu, to: vk::PipelineStageFlags) {
        let from = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        let (read, write) = (vk::AccessFlags::MEMORY_READ, vk::AccessFlags::MEMORY_WRITE);
        let barrier = vk::MemoryBarrier::default().src_access_mask(write).dst_access_mask(read | write);
        let none = vk::DependencyFlags::empty();
        // SAFETY: recording, on a queue with compute; the access masks fit every stage.
        unsafe { gpu.raw.cmd_pipeline_barrier(self.commands, from, to, none, &[barrier], &[], &[]) };
    }

    /// Takes the time at which everything before is done.
    pub(crate) fn stamp(&mut self, gpu: &Gpu) {
        debug_assert!(self.stamps < QUERIES);
        let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: recording; the query is in the pool, was reset and is written once.
        unsafe { gpu.raw.cmd_write_timestamp(self.commands, stage, self.queries, self.stamps) };
        self.stamps += 1;
    }

    /// Ends the recording and submits it.
    pub(crate) fn submit(&mut self, gpu: &mut Gpu) -> Result<u64, DeviceError> {
        self.host_barrier(gpu);
        self.stamp(gpu);
        // SAFETY: the buffer is in the recording state since `begin`.
        unsafe { gpu.raw.end_command_buffer(self.commands) }.map_err(at("vkEndCommandBuffer"))?;
        self.busy_until = gpu.submit(self.commands)?;
        Ok(self.busy_until)
    }

    /// Its timestamps in order; the submit is done.
    pub(crate) fn stamps(&self, gpu: &mut Gpu) -> Result<Vec<u64>, DeviceError> {
        read_stamps(gpu, self.queries, self.stamps)
    }
}
