//! What a program has on a device; all of it goes when this does.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use ash::vk;

use crate::gpu::Gpu;
use crate::program::{MAX_QUEUES, Place, Program, Range, What};

/// See the module. `Drop` wants all work ended.
pub struct Objects<'a> {
    pub gpu: &'a Gpu,
    memories: Vec<vk::DeviceMemory>,
    /// By block, where the host sees it.
    mapped: Vec<Option<usize>>,
    pub buffers: Vec<vk::Buffer>,
    /// By buffer, in its block.
    offsets: Vec<u64>,
    /// Reaches 1 when the buffers hold their first values.
    pub start: vk::Semaphore,
    /// For what comes before and after all actions.
    pub last_fence: vk::Fence,
    pub timelines: [vk::Semaphore; MAX_QUEUES],
    /// For each action: the timeline semaphore that it signals, if the host does the action.
    pub hosts: Vec<Option<vk::Semaphore>>,
    pub fences: Vec<Option<vk::Fence>>,
    /// By who signals and who waits.
    pub binaries: HashMap<(usize, usize), vk::Semaphore>,
    pub events: Vec<vk::Event>,
    pub queries: vk::QueryPool,
    /// Of threads.
    command_pools: Mutex<Vec<vk::CommandPool>>,
    descriptor_pools: Mutex<Vec<vk::DescriptorPool>>,
}

impl<'a> Objects<'a> {
    /// None yet.
    fn empty(gpu: &'a Gpu) -> Self {
        Self {
            gpu,
            memories: Vec::new(),
            mapped: Vec::new(),
            buffers: Vec::new(),
            offsets: Vec::new(),
            start: vk::Semaphore::null(),
            last_fence: vk::Fence::null(),
            timelines: [vk::Semaphore::null(); MAX_QUEUES],
            hosts: Vec::new(),
            fences: Vec::new(),
            binaries: HashMap::new(),
            events: Vec::new(),
            queries: vk::QueryPool::null(),
            command_pools: Mutex::default(),
            descriptor_pools: Mutex::default(),
        }
    }

    /// All of a program's, and a buffer of `staging` bytes of the host's behind its own.
    pub fn new(gpu: &'a Gpu, program: &Program, staging: u64) -> Result<Self> {
        let mut objects = Self::empty(gpu);
        let sizes: Vec<u64> = program.buffers.iter().map(|buffer| buffer.bytes).chain([staging]).collect();
        for bytes in &sizes {
            objects.buffers.push(objects.buffer(*bytes)?);
        }
        let places: Vec<Place> = program.blocks.iter().copied().chain([Place::HostCached]).collect();
        let mut of_block = program.buffers.iter().map(|b| (b.block, b.gap)).collect::<Vec<_>>();
        of_block.push((program.blocks.len(), 0));
        objects.offsets = vec![0; sizes.len()];
        for (block, place) in places.into_iter().enumerate() {
            objects.block(place, (0..sizes.len()).filter(|i| of_block[*i].0 == block), &of_block)?;
        }
        for timeline in objects.timelines.iter_mut().chain([&mut objects.start]) {
            *timeline = semaphore(gpu, Some(0))?;
        }
        let fence = vk::FenceCreateInfo::default();
        // SAFETY: the device is there.
        objects.last_fence = unsafe { gpu.device.create_fence(&fence, None)? };
        let event = vk::EventCreateInfo::default();
        for (i, action) in program.actions.iter().enumerate() {
            let host = matches!(action.what, What::Host(_));
            objects.hosts.push(if host { Some(semaphore(gpu, Some(0))?) } else { None });
            let submit = program.submit(i);
            // SAFETY: the device is there.
            let new = || unsafe { gpu.device.create_fence(&fence, None) };
            objects.fences.push(if submit.is_some_and(|submit| submit.fence) { Some(new()?) } else { None });
            for wait in submit.iter().flat_map(|submit| &submit.waits).filter(|wait| wait.binary) {
                if let Entry::Vacant(place) = objects.binaries.entry((wait.on, i)) {
                    place.insert(semaphore(gpu, None)?);
                }
            }
        }
        for _ in 0..program.events {
            // SAFETY: as above.
            objects.events.push(unsafe { gpu.device.create_event(&event, None)? });
        }
        if program.queries > 0 {
            let create = vk::QueryPoolCreateInfo::default()
                .query_type(vk::QueryType::TIMESTAMP)
                .query_count(program.queries as u32);
            // SAFETY: as above.
            objects.queries = unsafe { gpu.device.create_query_pool(&create, None)? };
        }
        Ok(objects)
    }

    fn buffer(&self, bytes: u64) -> Result<vk::Buffer> {
        use vk::BufferUsageFlags as Usage;
        let families = &self.gpu.families;
        let mut create = vk::BufferCreateInfo::default().size(bytes).usage(
            Usage::STORAGE_BUFFER | Usage::TRANSFER_SRC | Usage::TRANSFER_DST | Usage::INDIRECT_BUFFER,
        );
        if families.len() > 1 {
            create = create.sharing_mode(vk::SharingMode::CONCURRENT).queue_family_indices(families);
        }
        // SAFETY: the device is there.
        Ok(unsafe { self.gpu.device.create_buffer(&create, None)? })
    }

    /// Memory of a place, with these buffers in it.
    fn block(
        &mut self,
        place: Place,
        which: impl Iterator<Item = usize>,
        gaps: &[(usize, u64)],
    ) -> Result<()> {
        let device = &self.gpu.device;
        let (mut end, mut allowed) = (0u64, u32::MAX);
        let which: Vec<usize> = which.collect();
        for i in &which {
            // SAFETY: the buffer is there.
            let needs = unsafe { device.get_buffer_memory_requirements(self.buffers[*i]) };
            self.offsets[*i] = (end + gaps[*i].1).next_multiple_of(needs.alignment);
            end = self.offsets[*i] + needs.size;
            allowed &= needs.memory_type_bits;
        }
        let kind = self.gpu.memory_type(place, allowed)?;
        let create = vk::MemoryAllocateInfo::default().allocation_size(end.max(4096)).memory_type_index(kind);
        // SAFETY: each buffer lies within the memory, and is bound once. It is mapped once, until it is freed.
        unsafe {
            let memory = device.allocate_memory(&create, None)?;
            self.memories.push(memory);
            for i in which {
                device.bind_buffer_memory(self.buffers[i], memory, self.offsets[i])?;
            }
            let seen = place != Place::Device;
            let at = if seen {
                Some(device.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())? as usize)
            } else {
                None
            };
            self.mapped.push(at);
        }
        Ok(())
    }

    /// Reads words of a block that the host sees, or writes them where told to.
    pub fn host(
        &self,
        block: usize,
        range: Range,
        mut change: impl FnMut(usize, u32) -> Option<u32>,
    ) -> Result<()> {
        let base = self.mapped[block].context("the host does not see it")?;
        let at = (base + (self.offsets[range.buffer] + range.at) as usize) as *mut u32;
        for i in 0..range.bytes as usize / 4 {
            // SAFETY: within the mapping, which lives as long as this does; the program orders who else has these words.
            unsafe {
                let word = at.add(i);
                if let Some(new) = change(i, word.read_volatile()) {
                    word.write_volatile(new);
                }
            }
        }
        Ok(())
    }

    /// A pool of a thread's.
    pub fn command_pool(&self, family: u32) -> Result<vk::CommandPool> {
        let create = vk::CommandPoolCreateInfo::default().queue_family_index(family);
        // SAFETY: the device is there.
        let pool = unsafe { self.gpu.device.create_command_pool(&create, None)? };
        self.command_pools.lock().unwrap_or_else(PoisonError::into_inner).push(pool);
        Ok(pool)
    }

    /// A pool of so many sets.
    pub fn descriptor_pool(&self, sets: u32) -> Result<vk::DescriptorPool> {
        let sizes =
            [vk::DescriptorPoolSize { ty: vk::DescriptorType::STORAGE_BUFFER, descriptor_count: sets * 3 }];
        let create = vk::DescriptorPoolCreateInfo::default().max_sets(sets).pool_sizes(&sizes);
        // SAFETY: the device is there.
        let pool = unsafe { self.gpu.device.create_descriptor_pool(&create, None)? };
        self.descriptor_pools.lock().unwrap_or_else(PoisonError::into_inner).push(pool);
        Ok(pool)
    }
}

/// A timeline from a value, or a binary one.
fn semaphore(gpu: &Gpu, from: Option<u64>) -> Result<vk::Semaphore> {
    let mut kind = vk::SemaphoreTypeCreateInfo::default()
        .semaphore_type(vk::SemaphoreType::TIMELINE)
        .initial_value(from.unwrap_or_default());
    let mut create = vk::SemaphoreCreateInfo::default();
    if from.is_some() {
        create = create.push_next(&mut kind);
    }
    // SAFETY: the device is there.
    Ok(unsafe { gpu.device.create_semaphore(&create, None)? })
}

impl Drop for Objects<'_> {
    fn drop(&mut self) {
        let device = &self.gpu.device;
        let take = |pools: &mut Mutex<Vec<vk::CommandPool>>| {
            std::mem::take(pools.get_mut().unwrap_or_else(PoisonError::into_inner))
        };
        let command_pools = take(&mut self.command_pools);
        let pools = self.descriptor_pools.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: all are of this device, each once, and all work has ended. Null is fine.
        unsafe {
            command_pools.into_iter().for_each(|pool| device.destroy_command_pool(pool, None));
            pools.drain(..).for_each(|pool| device.destroy_descriptor_pool(pool, None));
            device.destroy_query_pool(self.queries, None);
            self.events.drain(..).for_each(|event| device.destroy_event(event, None));
            let hosts = self.hosts.drain(..).flatten();
            let semaphores = self
                .timelines
                .into_iter()
                .chain([self.start])
                .chain(hosts)
                .chain(self.binaries.drain().map(|(_, s)| s));
            semaphores.for_each(|semaphore| device.destroy_semaphore(semaphore, None));
            device.destroy_fence(self.last_fence, None);
            self.fences.drain(..).flatten().for_each(|fence| device.destroy_fence(fence, None));
            self.buffers.drain(..).for_each(|buffer| device.destroy_buffer(buffer, None));
            self.memories.drain(..).for_each(|memory| device.free_memory(memory, None));
        }
    }
}
