//! Buffers: made, found, freed, counted.

use crate::error::memory;
use crate::gpu::Gpu;
use ash::vk;
use gpu_allocator::vulkan::{
    Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
};
use gpu_allocator::{AllocationSizes, MemoryLocation};
use std::collections::HashMap;
use wave32_device::{BufferId, DeviceError};

/// Memory blocks that small buffers share: device-local, and host-visible. Larger buffers get their own.
const DEVICE_BLOCK: u64 = 64 << 20;
const HOST_BLOCK: u64 = 16 << 20;

/// A buffer and its memory.
pub(crate) struct Buffer {
    pub(crate) raw: vk::Buffer,
    pub(crate) bytes: u64,
    pub(crate) allocation: Allocation,
}

impl Buffer {
    /// Its bytes, where the host may write them in place.
    pub(crate) fn mapped_mut(&mut self) -> Option<&mut [u8]> {
        let bytes = self.bytes as usize;
        self.allocation.mapped_slice_mut().and_then(|slice| slice.get_mut(..bytes))
    }
}

/// The buffers of one device.
pub(crate) struct Memory {
    allocator: Allocator,
    buffers: HashMap<BufferId, Buffer>,
    /// Ids are never reused, so that caches keyed by them cannot confuse two buffers.
    next: u64,
    in_use: u64,
    cap: Option<u64>,
}

impl Memory {
    /// No buffers yet; `cap` bounds the bytes of all together.
    pub(crate) fn new(gpu: &Gpu, cap: Option<u64>) -> Result<Self, DeviceError> {
        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance: gpu.instance.raw.clone(),
            device: gpu.raw.clone(),
            physical_device: gpu.adapter.physical,
            debug_settings: gpu_allocator::AllocatorDebugSettings::default(),
            buffer_device_address: false,
            allocation_sizes: AllocationSizes::new(DEVICE_BLOCK, HOST_BLOCK),
        })
        .map_err(|error| memory(&error, 0, 0))?;
        Ok(Self { allocator, buffers: HashMap::new(), next: 1, in_use: 0, cap })
    }

    /// Bounds the bytes of all buffers made from now on.
    pub(crate) fn set_cap(&mut self, cap: Option<u64>) {
        self.cap = cap;
    }

    /// Bytes that buffers made from now on can have: what the driver says is left, within the cap.
    pub(crate) fn left(&self, gpu: &Gpu) -> u64 {
        let of_driver =
            available(gpu).unwrap_or_else(|| gpu.adapter.limits.heap_bytes.saturating_sub(self.in_use));
        self.cap.map_or(of_driver, |cap| of_driver.min(cap.saturating_sub(self.in_use)))
    }

    /// A buffer for kernels and copies.
    pub(crate) fn alloc(&mut self, gpu: &mut Gpu, bytes: u64) -> Result<BufferId, DeviceError> {
        if bytes == 0 {
            return Err(DeviceError::Misuse("a buffer has at least 1 byte".into()));
        }
        let total = self.in_use.checked_add(bytes);
        let out_of_memory = DeviceError::OutOfMemory { requested: bytes, in_use: self.in_use };
        let limits = gpu.adapter.limits;
        if bytes > limits.max_buffer
            || bytes > limits.heap_bytes
            || total.is_none_or(|total| self.cap.is_some_and(|cap| total > cap))
            || (bytes >= DEVICE_BLOCK && available(gpu).is_some_and(|left| bytes > left))
        {
            return Err(out_of_memory);
        }
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let buffer = self.create(gpu, bytes, usage, MemoryLocation::GpuOnly)?;
        let id = BufferId(self.next);
        self.next += 1;
        self.in_use += bytes;
        self.buffers.insert(id, buffer);
        Ok(id)
    }

    /// A buffer that is not counted and has no id, for staging.
    pub(crate) fn create(
        &mut self,
        gpu: &mut Gpu,
        bytes: u64,
        usage: vk::BufferUsageFlags,
        location: MemoryLocation,
    ) -> Result<Buffer, DeviceError> {
        let families = [gpu.family.index, gpu.family.copies.index];
        let mut info = vk::BufferCreateInfo::default().size(bytes).usage(usage);
        if families[0] != families[1] {
            info = info.sharing_mode(vk::SharingMode::CONCURRENT).queue_family_indices(&families);
        }
        // SAFETY: the size is at least 1 and at most the device's largest buffer.
        let raw =
            unsafe { gpu.raw.create_buffer(&info, None) }.map_err(|code| self.failed(gpu, bytes, code))?;
        // SAFETY: the buffer was just made.
        let requirements = unsafe { gpu.raw.get_buffer_memory_requirements(raw) };
        let desc = AllocationCreateDesc {
            name: "buffer",
            requirements,
            location,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        };
        let allocation = match self.allocator.allocate(&desc) {
            Ok(allocation) => allocation,
            Err(error) => {
                // SAFETY: never bound or used.
                unsafe { gpu.raw.destroy_buffer(raw, None) };
                return Err(memory(&error, bytes, self.in_use));
            }
        };
        // SAFETY: the memory meets the buffer's requirements and is bound to nothing else.
        match unsafe { gpu.raw.bind_buffer_memory(raw, allocation.memory(), allocation.offset()) } {
            Ok(()) => Ok(Buffer { raw, bytes, allocation }),
            Err(code) => {
                // Its memory stays with the allocator until the device goes; the driver is in trouble anyway.
                // SAFETY: never used.
                unsafe { gpu.raw.destroy_buffer(raw, None) };
                Err(self.failed(gpu, bytes, code))
            }
        }
    }

    fn failed(&self, gpu: &mut Gpu, requested: u64, code: vk::Result) -> DeviceError {
        match gpu.failed("vkCreateBuffer", code) {
            DeviceError::OutOfMemory { .. } => DeviceError::OutOfMemory { requested, in_use: self.in_use },
            other => other,
        }
    }

    /// Frees the buffer, which nothing in flight uses; false where there is none of that id.
    pub(crate) fn free(&mut self, gpu: &Gpu, id: BufferId) -> bool {
        let Some(buffer) = self.buffers.remove(&id) else { return false };
        self.in_use -= buffer.bytes;
        self.destroy_buffer(gpu, buffer);
        true
    }

    /// Destroys a buffer of [`Memory::create`], which nothing in flight uses.
    pub(crate) fn destroy_buffer(&mut self, gpu: &Gpu, buffer: Buffer) {
        // SAFETY: the caller knows that no work in flight uses it; the handle ends here.
        unsafe { gpu.raw.destroy_buffer(buffer.raw, None) };
        if let Err(error) = self.allocator.free(buffer.allocation) {
            log::warn!("freeing {} bytes of Vulkan memory failed: {error}", buffer.bytes);
        }
    }

    /// The buffer of that id.
    pub(crate) fn get(&self, id: BufferId) -> Result<&Buffer, DeviceError> {
        self.buffers.get(&id).ok_or_else(|| unknown(id))
    }

    /// Frees every buffer; nothing may be in flight.
    pub(crate) fn destroy(&mut self, gpu: &Gpu) {
        for (_, buffer) in std::mem::take(&mut self.buffers) {
            self.destroy_buffer(gpu, buffer);
        }
        self.in_use = 0;
    }
}

fn unknown(id: BufferId) -> DeviceError {
    DeviceError::Misuse(format!("buffer {} does not exist or was freed", id.0))
}

/// Bytes that the driver says can still be allocated in the largest device-local heap.
fn available(gpu: &Gpu) -> Option<u64> {
    if !gpu.adapter.features.memory_budget {
        return None;
    }
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut properties = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
    // SAFETY: the physical device is the instance's and has the extension.
    unsafe { gpu.instance.raw.get_physical_device_memory_properties2(gpu.adapter.physical, &mut properties) };
    let memory = properties.memory_properties;
    let heaps = memory.memory_heaps_as_slice().iter().enumerate();
    let local = heaps.filter(|(_, heap)| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
    let (largest, _) = local.max_by_key(|(_, heap)| heap.size)?;
    let (budget, usage) = (budget.heap_budget[largest], budget.heap_usage[largest]);
    (budget > 0).then(|| budget.saturating_sub(usage))
}
