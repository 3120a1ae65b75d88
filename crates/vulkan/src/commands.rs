//! Command buffers, each with a query pool for timestamps: what the queue's slots
//! are made of.

use crate::error::at;
use crate::gpu::Gpu;
use ash::vk;
use wave32_device::Deadline;
use wave32_device::DeviceError;

/// A command buffer and its timestamps. The buffer goes with its pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Commands {
    pub(crate) buffer: vk::CommandBuffer,
    pub(crate) queries: vk::QueryPool,
}

/// Where command buffers come from; made on first use.
#[derive(Default)]
pub(crate) struct CommandPool(Option<vk::CommandPool>);

impl CommandPool {
    /// A new command buffer with room for `queries` timestamps.
    pub(crate) fn make(&mut self, gpu: &Gpu, queries: u32) -> Result<Commands, DeviceError> {
        let pool = match self.0 {
            Some(pool) => pool,
            None => {
                let info = vk::CommandPoolCreateInfo::default()
                    .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
                    .queue_family_index(gpu.family.index);
                // SAFETY: the family is the device's.
                let pool =
                    unsafe { gpu.raw.create_command_pool(&info, None) }.map_err(at("vkCreateCommandPool"))?;
                *self.0.insert(pool)
            }
        };
        let info =
            vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(queries);
        // SAFETY: the family has timestamps.
        let queries = unsafe { gpu.raw.create_query_pool(&info, None) }.map_err(at("vkCreateQueryPool"))?;
        let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
        // SAFETY: the pool is alive and used by `&mut self` only.
        match unsafe { gpu.raw.allocate_command_buffers(&info) } {
            Ok(buffers) => Ok(Commands { buffer: buffers[0], queries }),
            Err(code) => {
                // SAFETY: never used.
                unsafe { gpu.raw.destroy_query_pool(queries, None) };
                Err(at("vkAllocateCommandBuffers")(code))
            }
        }
    }

    /// Frees a command buffer of the pool and its timestamps; it may not be in flight.
    pub(crate) fn free(&mut self, gpu: &Gpu, commands: Commands) {
        let Some(pool) = self.0 else { return };
        // SAFETY: the caller knows that it is not in flight and forgets the handles; it is of this pool.
        unsafe {
            gpu.raw.destroy_query_pool(commands.queries, None);
            gpu.raw.free_command_buffers(pool, &[commands.buffer]);
        }
    }

    /// Destroys the pool, the buffers it made and these timestamps of theirs; nothing may be in flight.
    pub(crate) fn destroy(&mut self, gpu: &Gpu, made: impl Iterator<Item = Commands>) {
        // SAFETY: the caller knows that nothing is in flight and forgets the handles.
        unsafe {
            made.for_each(|commands| gpu.raw.destroy_query_pool(commands.queries, None));
            if let Some(pool) = self.0.take() {
                gpu.raw.destroy_command_pool(pool, None);
            }
        }
    }
}

impl Commands {
    /// Starts recording anew, once what it recorded before is done: at the timeline's `busy_until`.
    pub(crate) fn begin(
        self,
        gpu: &mut Gpu,
        queries: u32,
        busy_until: u64,
        deadline: Deadline,
    ) -> Result<(), DeviceError> {
        gpu.wait(busy_until, "earlier work", deadline)?;
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the buffer is not in flight; its pool allows the implicit reset; there are that many
        // queries, which are reset before any is written.
        unsafe {
            gpu.raw.begin_command_buffer(self.buffer, &info).map_err(at("vkBeginCommandBuffer"))?;
            gpu.raw.cmd_reset_query_pool(self.buffer, self.queries, 0, queries);
        }
        Ok(())
    }

    /// Starts the one recording of a buffer that is submitted again and again, also while it is in flight.
    pub(crate) fn begin_reusable(self, gpu: &Gpu) -> Result<(), DeviceError> {
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::SIMULTANEOUS_USE);
        // SAFETY: the buffer is new.
        unsafe { gpu.raw.begin_command_buffer(self.buffer, &info) }.map_err(at("vkBeginCommandBuffer"))
    }

    /// Ends the recording.
    pub(crate) fn end(self, gpu: &Gpu) -> Result<(), DeviceError> {
        // SAFETY: the buffer is in the recording state since it was begun.
        unsafe { gpu.raw.end_command_buffer(self.buffer) }.map_err(at("vkEndCommandBuffer"))
    }

    /// Takes the time at which everything before is done, as the query of that number.
    pub(crate) fn stamp(self, gpu: &Gpu, query: u32) {
        let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: recording; the query is in the pool, was reset and is written once: callers count up.
        unsafe { gpu.raw.cmd_write_timestamp(self.buffer, stage, self.queries, query) };
    }

    /// Orders memory: what comes after, at stage `to` and with these accesses, sees what was `written`
    /// before at stage `from`.
    pub(crate) fn memory_barrier(
        self,
        gpu: &Gpu,
        (from, written): (vk::PipelineStageFlags, vk::AccessFlags),
        (to, accessed): (vk::PipelineStageFlags, vk::AccessFlags),
    ) {
        let barrier = vk::MemoryBarrier::default().src_access_mask(written).dst_access_mask(accessed);
        let none = vk::DependencyFlags::empty();
        // SAFETY: recording, on a queue with compute; the callers' access masks fit their stages.
        unsafe { gpu.raw.cmd_pipeline_barrier(self.buffer, from, to, none, &[barrier], &[], &[]) };
    }

    /// Ends the recording and submits it; the timeline value at which it is done.
    pub(crate) fn submit(self, gpu: &mut Gpu) -> Result<u64, DeviceError> {
        self.end(gpu)?;
        gpu.submit(self.buffer)
    }

    /// Its first `count` timestamps; the submit that wrote them is done.
    pub(crate) fn stamps(self, gpu: &mut Gpu, count: u32) -> Result<Vec<u64>, DeviceError> {
        let mut ticks = vec![0u64; count as usize];
        if ticks.is_empty() {
            return Ok(ticks);
        }
        let flags = vk::QueryResultFlags::TYPE_64;
        // SAFETY: the submit that wrote the queries is done; `ticks` has one 64-bit word for each. Without
        // WAIT the call cannot block.
        let answer = unsafe { gpu.raw.get_query_pool_results(self.queries, 0, &mut ticks, flags) };
        answer.map_err(|code| gpu.failed("vkGetQueryPoolResults", code))?;
        Ok(ticks)
    }
}
