//! Command buffers of a thread.

use std::collections::HashMap;

use anyhow::{Context, Result};
use ash::vk;

use crate::objects::Objects;
use crate::program::*;

/// A thread's pools.
pub struct Recorder<'a> {
    objects: &'a Objects<'a>,
    program: &'a Program,
    pools: HashMap<u32, vk::CommandPool>,
    sets: vk::DescriptorPool,
}

/// Stages, and accesses to them, of the bits of a scope; `src` has no reads: nobody waits for their memory.
fn scope(bits: u8, src: bool) -> (u32, u32) {
    use vk::{AccessFlags as Access, PipelineStageFlags as Stage};
    let rows = [
        (COMPUTE, Stage::COMPUTE_SHADER, Access::SHADER_READ, Access::SHADER_WRITE),
        (TRANSFER, Stage::TRANSFER, Access::TRANSFER_READ, Access::TRANSFER_WRITE),
        (INDIRECT, Stage::DRAW_INDIRECT, Access::INDIRECT_COMMAND_READ, Access::empty()),
        (HOST, Stage::HOST, Access::HOST_READ, Access::HOST_WRITE),
    ];
    let (mut stages, mut accesses) = (Stage::empty(), Access::empty());
    let mut add = |stage, read, write| {
        stages |= stage;
        accesses |= if src { write } else { read | write };
    };
    let all = bits & QUEUE == QUEUE;
    if all {
        add(Stage::ALL_COMMANDS, Access::MEMORY_READ, Access::MEMORY_WRITE);
    }
    for (bit, stage, read, write) in rows {
        if bits & bit != 0 && !(all && bit != HOST) {
            add(stage, read, write);
        }
    }
    (stages.as_raw(), accesses.as_raw())
}

/// A barrier in both styles.
struct Written {
    one: (vk::PipelineStageFlags, vk::PipelineStageFlags),
    memory: Vec<vk::MemoryBarrier<'static>>,
    buffers: Vec<vk::BufferMemoryBarrier<'static>>,
    memory_two: Vec<vk::MemoryBarrier2<'static>>,
    buffers_two: Vec<vk::BufferMemoryBarrier2<'static>>,
}

impl Written {
    fn new(objects: &Objects, barrier: &Barrier) -> Self {
        let ((from, made), (to, seen)) = (scope(barrier.from, true), scope(barrier.to, false));
        let stages = [from, to].map(|raw| vk::PipelineStageFlags2::from_raw(raw.into()));
        let accesses = [made, seen].map(|raw| vk::AccessFlags2::from_raw(raw.into()));
        let [made, seen] = [made, seen].map(vk::AccessFlags::from_raw);
        let mut written = Self {
            one: (vk::PipelineStageFlags::from_raw(from), vk::PipelineStageFlags::from_raw(to)),
            memory: Vec::new(),
            buffers: Vec::new(),
            memory_two: Vec::new(),
            buffers_two: Vec::new(),
        };
        if barrier.ranges.is_empty() {
            written.memory.push(vk::MemoryBarrier::default().src_access_mask(made).dst_access_mask(seen));
            written.memory_two.push(
                vk::MemoryBarrier2::default()
                    .src_stage_mask(stages[0])
                    .dst_stage_mask(stages[1])
                    .src_access_mask(accesses[0])
                    .dst_access_mask(accesses[1]),
            );
        }
        for range in &barrier.ranges {
            let buffer = objects.buffers[range.buffer];
            written.buffers.push(
                vk::BufferMemoryBarrier::default()
                    .src_access_mask(made)
                    .dst_access_mask(seen)
                    .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                    .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                    .buffer(buffer)
                    .offset(range.at)
                    .size(range.bytes),
            );
            written.buffers_two.push(
                vk::BufferMemoryBarrier2::default()
                    .src_stage_mask(stages[0])
                    .dst_stage_mask(stages[1])
                    .src_access_mask(accesses[0])
                    .dst_access_mask(accesses[1])
                    .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                    .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                    .buffer(buffer)
                    .offset(range.at)
                    .size(range.bytes),
            );
        }
        written
    }

    fn two(&self) -> vk::DependencyInfo<'_> {
        vk::DependencyInfo::default()
            .memory_barriers(&self.memory_two)
            .buffer_memory_barriers(&self.buffers_two)
    }
}

impl<'a> Recorder<'a> {
    /// For all that a thread records.
    pub fn new(objects: &'a Objects<'a>, program: &'a Program, thread: usize) -> Result<Self> {
        let of_it = program.actions.iter().filter(|action| action.thread == thread);
        let submits = of_it.filter_map(|action| match &action.what {
            What::Submit(submit) => Some(submit),
            What::Host(_) => None,
        });
        let sets: usize =
            submits.flat_map(|submit| &submit.buffers).map(|buffer| dispatches(&buffer.commands)).sum();
        let sets = objects.descriptor_pool(sets.max(1) as u32)?;
        Ok(Self { objects, program, pools: HashMap::new(), sets })
    }

    /// A command buffer of a family, filled by `fill`.
    pub fn record(
        &mut self,
        family: u32,
        secondary: bool,
        again: bool,
        fill: impl FnOnce(&mut Self, vk::CommandBuffer) -> Result<()>,
    ) -> Result<vk::CommandBuffer> {
        let device = &self.objects.gpu.device;
        let pool = match self.pools.get(&family) {
            Some(pool) => *pool,
            None => *self.pools.entry(family).or_insert(self.objects.command_pool(family)?),
        };
        let level =
            if secondary { vk::CommandBufferLevel::SECONDARY } else { vk::CommandBufferLevel::PRIMARY };
        let create =
            vk::CommandBufferAllocateInfo::default().command_pool(pool).level(level).command_buffer_count(1);
        let inherited = vk::CommandBufferInheritanceInfo::default();
        let mut begin = vk::CommandBufferBeginInfo::default().inheritance_info(&inherited);
        if again {
            begin = begin.flags(vk::CommandBufferUsageFlags::SIMULTANEOUS_USE);
        }
        // SAFETY: the pool is this thread's alone.
        let buffer = unsafe {
            let buffer = *device.allocate_command_buffers(&create)?.first().context("no command buffer")?;
            device.begin_command_buffer(buffer, &begin)?;
            buffer
        };
        fill(self, buffer)?;
        // SAFETY: it was begun.
        unsafe { device.end_command_buffer(buffer)? };
        Ok(buffer)
    }

    /// All command buffers of a batch, in the order of execution.
    pub fn batch(&mut self, submit: &Submit, family: u32) -> Result<Vec<vk::CommandBuffer>> {
        let mut made = Vec::new();
        for buffer in &submit.buffers {
            let again = buffer.times > 1;
            let one = self.record(family, false, again, |this, to| {
                buffer.commands.iter().try_for_each(|command| this.command(command, to, family, again))
            })?;
            made.extend(std::iter::repeat_n(one, buffer.times));
        }
        if submit.to_host {
            let barrier = Barrier { two: submit.two, from: QUEUE, to: HOST, ranges: Vec::new() };
            made.push(self.record(family, false, false, |this, to| {
                this.barrier(&barrier, to);
                Ok(())
            })?);
        }
        Ok(made)
    }

    /// A pipeline barrier.
    pub fn barrier(&self, barrier: &Barrier, to: vk::CommandBuffer) {
        let written = Written::new(self.objects, barrier);
        let device = &self.objects.gpu.device;
        // SAFETY: it is being recorded, by this thread.
        unsafe {
            if barrier.two {
                device.cmd_pipeline_barrier2(to, &written.two());
            } else {
                let (from, until) = written.one;
                let none = vk::DependencyFlags::empty();
                device.cmd_pipeline_barrier(to, from, until, none, &written.memory, &written.buffers, &[]);
            }
        }
    }

    fn command(&mut self, command: &Command, to: vk::CommandBuffer, family: u32, again: bool) -> Result<()> {
        let (objects, device) = (self.objects, &self.objects.gpu.device);
        let buffer = |i: usize| objects.buffers[i];
        match command {
            Command::Dispatch(dispatch) => return self.dispatch(dispatch, to),
            Command::Barrier(barrier) => self.barrier(barrier, to),
            Command::Secondary(commands) => {
                let inner = self.record(family, true, again, |this, inner| {
                    commands.iter().try_for_each(|command| this.command(command, inner, family, again))
                })?;
                // SAFETY: both are recorded by this thread.
                unsafe { device.cmd_execute_commands(to, &[inner]) };
            }
            Command::Fill { to: range, value } => {
                let whole = range.end() == self.program.buffers[range.buffer].bytes && value & 1 == 1;
                let bytes = if whole { vk::WHOLE_SIZE } else { range.bytes };
                // SAFETY: as above, and inside the buffer, as all of a program's ranges.
                unsafe { device.cmd_fill_buffer(to, buffer(range.buffer), range.at, bytes, *value) };
            }
            Command::Update { to: range, seed } => {
                let bytes: Vec<u8> =
                    words(*seed, range.bytes as usize / 4).iter().flat_map(|w| w.to_le_bytes()).collect();
                // SAFETY: as above.
                unsafe { device.cmd_update_buffer(to, buffer(range.buffer), range.at, &bytes) };
            }
            Command::Copy { from, to: target, regions } => {
                let regions: Vec<_> = regions
                    .iter()
                    .map(|[source, target, bytes]| {
                        vk::BufferCopy::default().src_offset(*source).dst_offset(*target).size(*bytes)
                    })
                    .collect();
                // SAFETY: as above.
                unsafe { device.cmd_copy_buffer(to, buffer(*from), buffer(*target), &regions) };
            }
            Command::SetEvent { event, barrier } => {
                let written = Written::new(objects, barrier);
                // SAFETY: as above; each event is set once.
                unsafe {
                    if barrier.two {
                        device.cmd_set_event2(to, objects.events[*event], &written.two());
                    } else {
                        device.cmd_set_event(to, objects.events[*event], written.one.0);
                    }
                }
            }
            Command::WaitEvent { event, barrier } => {
                let (written, events) = (Written::new(objects, barrier), [objects.events[*event]]);
                // SAFETY: as above; it was set before on the same queue.
                unsafe {
                    if barrier.two {
                        device.cmd_wait_events2(to, &events, &[written.two()]);
                    } else {
                        let (from, until) = written.one;
                        device.cmd_wait_events(
                            to,
                            &events,
                            from,
                            until,
                            &written.memory,
                            &written.buffers,
                            &[],
                        );
                    }
                }
            }
            Command::Timestamp { query, two } => {
                let query = *query as u32;
                // SAFETY: as above.
                unsafe {
                    device.cmd_reset_query_pool(to, objects.queries, query, 1);
                    if *two {
                        let stage = vk::PipelineStageFlags2::ALL_COMMANDS;
                        device.cmd_write_timestamp2(to, stage, objects.queries, query);
                    } else {
                        let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
                        device.cmd_write_timestamp(to, stage, objects.queries, query);
                    }
                }
            }
        }
        Ok(())
    }

    fn dispatch(&mut self, dispatch: &Dispatch, to: vk::CommandBuffer) -> Result<()> {
        let (objects, gpu) = (self.objects, self.objects.gpu);
        let pipeline = gpu.pipeline(dispatch.shader, dispatch.local)?;
        let layouts = [gpu.set_layout];
        let create =
            vk::DescriptorSetAllocateInfo::default().descriptor_pool(self.sets).set_layouts(&layouts);
        // SAFETY: the pool is this thread's alone.
        let set = *unsafe { gpu.device.allocate_descriptor_sets(&create)? }.first().context("no set")?;
        let ranges = dispatch.bindings.map(|range| {
            range.map(|range| {
                [vk::DescriptorBufferInfo {
                    buffer: objects.buffers[range.buffer],
                    offset: range.at,
                    range: range.bytes,
                }]
            })
        });
        let writes: Vec<_> = (0..)
            .zip(&ranges)
            .filter_map(|(i, range)| {
                let write = vk::WriteDescriptorSet::default().dst_set(set).dst_binding(i);
                Some(write.descriptor_type(vk::DescriptorType::STORAGE_BUFFER).buffer_info(range.as_ref()?))
            })
            .collect();
        let constants: Vec<u8> = dispatch.parameters.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (device, point) = (&gpu.device, vk::PipelineBindPoint::COMPUTE);
        // SAFETY: all are this device's; bindings that the shader has are written; it stays inside them.
        unsafe {
            device.update_descriptor_sets(&writes, &[]);
            device.cmd_bind_pipeline(to, point, pipeline);
            device.cmd_bind_descriptor_sets(to, point, gpu.layout, 0, &[set], &[]);
            device.cmd_push_constants(to, gpu.layout, vk::ShaderStageFlags::COMPUTE, 0, &constants);
            match dispatch.grid {
                Grid::Groups([x, y, z]) => device.cmd_dispatch(to, x, y, z),
                Grid::From(first, groups) => {
                    let ([a, b, c], [x, y, z]) = (first, groups);
                    device.cmd_dispatch_base(to, a, b, c, x, y, z);
                }
                Grid::Indirect(sizes) => {
                    device.cmd_dispatch_indirect(to, objects.buffers[sizes.buffer], sizes.at);
                }
            }
        }
        Ok(())
    }
}

fn dispatches(commands: &[Command]) -> usize {
    let count = |command: &Command| match command {
        Command::Dispatch(_) => 1,
        Command::Secondary(commands) => dispatches(commands),
        _ => 0,
    };
    commands.iter().map(count).sum()
}
