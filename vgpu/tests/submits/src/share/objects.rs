//! What both processes have: buffers, and what they wait for.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use anyhow::{Context, Result, bail, ensure};
use ash::vk;

use super::{MEMORY, Values, compare, timeout};
use crate::gpu::Gpu;
use crate::program::Place;
use crate::shaders::Shader;

const LOCAL: u32 = 64;
const POISON: u32 = 0xdead_beef;
const SEMAPHORE: vk::ExternalSemaphoreHandleTypeFlags = vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;
const FENCE: vk::ExternalFenceHandleTypeFlags = vk::ExternalFenceHandleTypeFlags::OPAQUE_FD;

struct Buffer {
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    /// Where the host sees it, from its beginning to its end.
    at: Option<*mut u32>,
}

/// Two shared buffers, the second mapped, and one of the process's own to read and write them.
pub struct Buffers<'a> {
    gpu: &'a Gpu,
    count: usize,
    all: Vec<Buffer>,
    commands: vk::CommandPool,
    descriptors: vk::DescriptorPool,
    sets: Vec<vk::DescriptorSet>,
    fence: vk::Fence,
}

/// What a submission waits for and signals.
#[derive(Clone, Copy)]
pub struct Submit {
    timeline: vk::Semaphore,
    binary: vk::Semaphore,
    fence: vk::Fence,
    waits: Option<u64>,
    signals: Option<u64>,
    all: bool,
}

impl Submit {
    pub fn after(self, value: u64) -> Self {
        Self { waits: Some(value), ..self }
    }

    pub fn reaches(self, value: u64) -> Self {
        Self { signals: Some(value), ..self }
    }

    /// The binary semaphore and the fence too.
    pub fn all(self) -> Self {
        Self { all: true, ..self }
    }
}

impl Drop for Buffers<'_> {
    fn drop(&mut self) {
        let device = &self.gpu.device;
        // SAFETY: all of this device; its work has ended, or the process ends with an error.
        unsafe {
            let _ = device.device_wait_idle();
            for buffer in self.all.drain(..) {
                device.destroy_buffer(buffer.buffer, None);
                device.free_memory(buffer.memory, None);
            }
            device.destroy_command_pool(self.commands, None);
            device.destroy_descriptor_pool(self.descriptors, None);
            device.destroy_fence(self.fence, None);
        }
    }
}

impl<'a> Buffers<'a> {
    /// Of so many words, to be exported.
    pub fn new(gpu: &'a Gpu, count: usize) -> Result<Self> {
        Self::with(gpu, count, [None, None])
    }

    /// Those of another process.
    pub fn import(gpu: &'a Gpu, count: usize, descriptors: impl Iterator<Item = OwnedFd>) -> Result<Self> {
        let list: Vec<_> = descriptors.map(Some).collect();
        Self::with(gpu, count, list.try_into().ok().context("two descriptors")?)
    }

    fn with(gpu: &'a Gpu, count: usize, imported: [Option<OwnedFd>; 2]) -> Result<Self> {
        let device = &gpu.device;
        // SAFETY: what is made is this device's and is given to `Drop`; an error ends the process.
        unsafe {
            let create = vk::CommandPoolCreateInfo::default().queue_family_index(gpu.queues[0].family);
            let commands = device.create_command_pool(&create, None)?;
            let kind = vk::DescriptorType::STORAGE_BUFFER;
            let sizes = [vk::DescriptorPoolSize { ty: kind, descriptor_count: 6 }];
            let create = vk::DescriptorPoolCreateInfo::default().max_sets(2).pool_sizes(&sizes);
            let descriptors = device.create_descriptor_pool(&create, None)?;
            let layouts = [gpu.set_layout; 2];
            let allocate =
                vk::DescriptorSetAllocateInfo::default().descriptor_pool(descriptors).set_layouts(&layouts);
            let sets = device.allocate_descriptor_sets(&allocate)?;
            let fence = device.create_fence(&vk::FenceCreateInfo::default(), None)?;
            let mut new = Self { gpu, count, all: Vec::new(), commands, descriptors, sets, fence };
            for (place, fd) in [Place::Device, Place::Host].into_iter().zip(imported) {
                new.add(place, true, fd)?;
            }
            new.add(Place::HostCached, false, None)?;
            for (set, buffer) in new.sets.iter().zip(&new.all) {
                let info = vk::DescriptorBufferInfo::default().buffer(buffer.buffer).range(vk::WHOLE_SIZE);
                for binding in 0..3 {
                    let info = [info];
                    let write = vk::WriteDescriptorSet::default().dst_set(*set).dst_binding(binding);
                    device.update_descriptor_sets(&[write.descriptor_type(kind).buffer_info(&info)], &[]);
                }
            }
            Ok(new)
        }
    }

    /// One more buffer.
    unsafe fn add(&mut self, place: Place, shared: bool, imported: Option<OwnedFd>) -> Result<()> {
        let device = &self.gpu.device;
        // SAFETY: as in `with`.
        unsafe {
            let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(MEMORY);
            let usage = vk::BufferUsageFlags::STORAGE_BUFFER
                | vk::BufferUsageFlags::TRANSFER_SRC
                | vk::BufferUsageFlags::TRANSFER_DST;
            let mut create = vk::BufferCreateInfo::default().size(4 * self.count as u64).usage(usage);
            if shared {
                create = create.push_next(&mut external);
            }
            let buffer = device.create_buffer(&create, None)?;
            let needs = device.get_buffer_memory_requirements(buffer);
            let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(MEMORY);
            let mut import = vk::ImportMemoryFdInfoKHR::default().handle_type(MEMORY);
            let mut allocate = vk::MemoryAllocateInfo::default()
                .allocation_size(needs.size)
                .memory_type_index(self.gpu.memory_type(place, needs.memory_type_bits)?);
            match imported {
                Some(fd) => {
                    import = import.fd(fd.into_raw_fd());
                    allocate = allocate.push_next(&mut import);
                }
                None if shared => allocate = allocate.push_next(&mut export),
                None => {}
            }
            let memory = device.allocate_memory(&allocate, None)?;
            device.bind_buffer_memory(buffer, memory, 0)?;
            let at = match place {
                Place::Device => None,
                _ => {
                    let flags = vk::MemoryMapFlags::empty();
                    Some(device.map_memory(memory, 0, vk::WHOLE_SIZE, flags)?.cast())
                }
            };
            self.all.push(Buffer { buffer, memory, at });
            Ok(())
        }
    }

    /// A descriptor of each.
    pub fn export(&self) -> Result<Vec<OwnedFd>> {
        let of = ash::khr::external_memory_fd::Device::new(&self.gpu.instance, &self.gpu.device);
        let get = |buffer: &Buffer| {
            let get = vk::MemoryGetFdInfoKHR::default().memory(buffer.memory).handle_type(MEMORY);
            // SAFETY: its own memory; the descriptor is new.
            unsafe { Ok(OwnedFd::from_raw_fd(of.get_memory_fd(&get)?)) }
        };
        self.all[..2].iter().map(get).collect()
    }

    /// A buffer that the host sees.
    fn host(&self, i: usize) -> Option<&'a mut [u32]> {
        // SAFETY: mapped from begin to end; the device does not use it meanwhile.
        self.all[i].at.map(|at| unsafe { std::slice::from_raw_parts_mut(at, self.count) })
    }

    fn copy(&self, from: usize, to: usize, waits: Option<vk::Semaphore>) -> Result<()> {
        let buffers = [from, to].map(|i| self.all[i].buffer);
        let waits: Vec<_> = waits.iter().map(|semaphore| submitted(*semaphore, 0)).collect();
        self.submit(&waits, &[], vk::Fence::null(), |device, commands| {
            let part = vk::BufferCopy { src_offset: 0, dst_offset: 0, size: 4 * self.count as u64 };
            // SAFETY: both are as long.
            unsafe { device.cmd_copy_buffer(commands, buffers[0], buffers[1], &[part]) };
            Ok(())
        })?;
        self.wait()
    }

    /// Gives a buffer these words.
    pub fn write(&self, i: usize, words: &[u32]) -> Result<()> {
        match self.host(i) {
            Some(at) => at.copy_from_slice(words),
            None => {
                self.host(2).context("a mapping")?.copy_from_slice(words);
                self.copy(2, i, None)?;
            }
        }
        Ok(())
    }

    /// Compares a buffer's words, as the device sees them and as the host does.
    pub fn read(&self, i: usize, expected: &[u32]) -> Result<()> {
        self.read_by(i, expected, None)
    }

    /// The same, when the binary semaphore is signalled.
    pub fn read_after(&self, signals: &Signals<'_>, i: usize, expected: &[u32]) -> Result<()> {
        self.read_by(i, expected, Some(signals.binary))
    }

    fn read_by(&self, i: usize, expected: &[u32], waits: Option<vk::Semaphore>) -> Result<()> {
        let own = self.host(2).context("a mapping")?;
        own.fill(POISON);
        self.copy(i, 2, waits)?;
        compare(own, expected).with_context(|| format!("buffer {i}"))?;
        match self.host(i) {
            Some(words) => compare(words, expected).with_context(|| format!("buffer {i}, by the host")),
            None => Ok(()),
        }
    }

    /// Has the shader turn these buffers, the first or the second time.
    pub fn turn(&self, list: &[usize], values: &Values, turn: usize, submit: &Submit) -> Result<()> {
        let waits: Vec<_> = submit.waits.iter().map(|value| submitted(submit.timeline, *value)).collect();
        let mut signals: Vec<_> =
            submit.signals.iter().map(|value| submitted(submit.timeline, *value)).collect();
        if submit.all {
            signals.push(submitted(submit.binary, 0));
        }
        let fence = if submit.all { submit.fence } else { vk::Fence::null() };
        let (count, layout) = (self.count as u32, self.gpu.layout);
        let pipeline = self.gpu.pipeline(Shader::Turn, LOCAL)?;
        self.submit(&waits, &signals, fence, |device, commands| {
            for i in list {
                let [a, b] = values.turns[*i][turn];
                let words = [count, a, b, 1, 1, 0, 0, 0];
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let (point, stage) = (vk::PipelineBindPoint::COMPUTE, vk::ShaderStageFlags::COMPUTE);
                // SAFETY: all of this device; the shader looks at `count` words.
                unsafe {
                    device.cmd_bind_pipeline(commands, point, pipeline);
                    device.cmd_bind_descriptor_sets(commands, point, layout, 0, &[self.sets[*i]], &[]);
                    device.cmd_push_constants(commands, layout, stage, 0, &bytes);
                    device.cmd_dispatch(commands, count.div_ceil(LOCAL), 1, 1);
                }
            }
            Ok(())
        })
    }

    fn submit(
        &self,
        waits: &[vk::SemaphoreSubmitInfo<'_>],
        signals: &[vk::SemaphoreSubmitInfo<'_>],
        fence: vk::Fence,
        record: impl FnOnce(&ash::Device, vk::CommandBuffer) -> Result<()>,
    ) -> Result<()> {
        let device = &self.gpu.device;
        let Ok(queue) = self.gpu.queues[0].queue.lock() else { bail!("a panic") };
        // SAFETY: all of this device; the pool lives until its work has ended.
        unsafe {
            let allocate =
                vk::CommandBufferAllocateInfo::default().command_pool(self.commands).command_buffer_count(1);
            let commands = device.allocate_command_buffers(&allocate)?[0];
            device.begin_command_buffer(commands, &vk::CommandBufferBeginInfo::default())?;
            let (stage, access) = (
                vk::PipelineStageFlags2::ALL_COMMANDS | vk::PipelineStageFlags2::HOST,
                vk::AccessFlags2::MEMORY_READ
                    | vk::AccessFlags2::MEMORY_WRITE
                    | vk::AccessFlags2::HOST_READ
                    | vk::AccessFlags2::HOST_WRITE,
            );
            let barrier = [vk::MemoryBarrier2::default()
                .src_stage_mask(stage)
                .src_access_mask(access)
                .dst_stage_mask(stage)
                .dst_access_mask(access)];
            let barrier = vk::DependencyInfo::default().memory_barriers(&barrier);
            device.cmd_pipeline_barrier2(commands, &barrier);
            record(device, commands)?;
            device.cmd_pipeline_barrier2(commands, &barrier);
            device.end_command_buffer(commands)?;
            let commands = [vk::CommandBufferSubmitInfo::default().command_buffer(commands)];
            let submit = vk::SubmitInfo2::default()
                .wait_semaphore_infos(waits)
                .command_buffer_infos(&commands)
                .signal_semaphore_infos(signals);
            device.queue_submit2(*queue, &[submit], fence)?;
        }
        Ok(())
    }

    /// Waits for all that was submitted.
    pub fn wait(&self) -> Result<()> {
        let device = &self.gpu.device;
        let Ok(queue) = self.gpu.queues[0].queue.lock() else { bail!("a panic") };
        // SAFETY: of this device, and in no other use.
        unsafe {
            device.queue_submit2(*queue, &[], self.fence)?;
            device.wait_for_fences(&[self.fence], true, timeout())?;
            device.reset_fences(&[self.fence])?;
        }
        Ok(())
    }
}

fn submitted(semaphore: vk::Semaphore, value: u64) -> vk::SemaphoreSubmitInfo<'static> {
    let stage = vk::PipelineStageFlags2::ALL_COMMANDS;
    vk::SemaphoreSubmitInfo::default().semaphore(semaphore).value(value).stage_mask(stage)
}

/// A timeline, a binary semaphore and a fence.
pub struct Signals<'a> {
    gpu: &'a Gpu,
    timeline: vk::Semaphore,
    binary: vk::Semaphore,
    fence: vk::Fence,
}

impl Drop for Signals<'_> {
    fn drop(&mut self) {
        let device = &self.gpu.device;
        // SAFETY: all of this device, whose work has ended.
        unsafe {
            let _ = device.device_wait_idle();
            device.destroy_semaphore(self.timeline, None);
            device.destroy_semaphore(self.binary, None);
            device.destroy_fence(self.fence, None);
        }
    }
}

impl<'a> Signals<'a> {
    /// To be exported.
    pub fn new(gpu: &'a Gpu) -> Result<Self> {
        let semaphore = |kind| {
            let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(kind);
            let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(SEMAPHORE);
            let create = vk::SemaphoreCreateInfo::default().push_next(&mut kind).push_next(&mut export);
            // SAFETY: given to `Drop`.
            unsafe { gpu.device.create_semaphore(&create, None) }
        };
        let mut export = vk::ExportFenceCreateInfo::default().handle_types(FENCE);
        let create = vk::FenceCreateInfo::default().push_next(&mut export);
        // SAFETY: as above.
        let fence = unsafe { gpu.device.create_fence(&create, None)? };
        let (timeline, binary) =
            (semaphore(vk::SemaphoreType::TIMELINE)?, semaphore(vk::SemaphoreType::BINARY)?);
        Ok(Self { gpu, timeline, binary, fence })
    }

    /// Those of another process.
    pub fn import(gpu: &'a Gpu, descriptors: impl Iterator<Item = OwnedFd>) -> Result<Self> {
        let new = Self::new(gpu)?;
        let list: Vec<OwnedFd> = descriptors.collect();
        let [timeline, binary, fence]: [OwnedFd; 3] = list.try_into().ok().context("three descriptors")?;
        let semaphores = ash::khr::external_semaphore_fd::Device::new(&gpu.instance, &gpu.device);
        for (semaphore, fd) in [(new.timeline, timeline), (new.binary, binary)] {
            let import = vk::ImportSemaphoreFdInfoKHR::default().semaphore(semaphore).handle_type(SEMAPHORE);
            // SAFETY: the driver owns the descriptor from here on.
            unsafe { semaphores.import_semaphore_fd(&import.fd(fd.into_raw_fd()))? };
        }
        let fences = ash::khr::external_fence_fd::Device::new(&gpu.instance, &gpu.device);
        let import = vk::ImportFenceFdInfoKHR::default().fence(new.fence).handle_type(FENCE);
        // SAFETY: as above.
        unsafe { fences.import_fence_fd(&import.fd(fence.into_raw_fd()))? };
        Ok(new)
    }

    /// A descriptor of each.
    pub fn export(&self) -> Result<Vec<OwnedFd>> {
        let semaphores = ash::khr::external_semaphore_fd::Device::new(&self.gpu.instance, &self.gpu.device);
        let fences = ash::khr::external_fence_fd::Device::new(&self.gpu.instance, &self.gpu.device);
        let mut list = Vec::new();
        // SAFETY: their own objects; the descriptors are new.
        unsafe {
            for semaphore in [self.timeline, self.binary] {
                let get = vk::SemaphoreGetFdInfoKHR::default().semaphore(semaphore).handle_type(SEMAPHORE);
                list.push(OwnedFd::from_raw_fd(semaphores.get_semaphore_fd(&get)?));
            }
            let get = vk::FenceGetFdInfoKHR::default().fence(self.fence).handle_type(FENCE);
            list.push(OwnedFd::from_raw_fd(fences.get_fence_fd(&get)?));
        }
        Ok(list)
    }

    /// A submission that waits for none of them and signals none.
    pub fn submit(&self) -> Submit {
        let &Self { timeline, binary, fence, .. } = self;
        Submit { timeline, binary, fence, waits: None, signals: None, all: false }
    }

    /// Waits for the timeline.
    pub fn wait(&self, value: u64) -> Result<()> {
        let (semaphores, values) = ([self.timeline], [value]);
        let wait = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: of this device.
        unsafe {
            self.gpu
                .device
                .wait_semaphores(&wait, timeout())
                .with_context(|| format!("the wait for {value}"))?;
            let reached = self.gpu.device.get_semaphore_counter_value(self.timeline)?;
            ensure!(reached >= value, "it is at {reached}");
        }
        Ok(())
    }

    /// Signals the timeline, by the host.
    pub fn reach(&self, value: u64) -> Result<()> {
        let signal = vk::SemaphoreSignalInfo::default().semaphore(self.timeline).value(value);
        // SAFETY: of this device.
        unsafe { self.gpu.device.signal_semaphore(&signal)? };
        Ok(())
    }

    /// Waits for the fence.
    pub fn wait_fence(&self) -> Result<()> {
        // SAFETY: of this device.
        unsafe { self.gpu.device.wait_for_fences(&[self.fence], true, timeout()) }.context("the fence")
    }
}
