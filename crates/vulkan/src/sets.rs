//! Descriptor sets, kept for as long as their buffers live: a repeated launch writes none.

use crate::error::at;
use crate::gpu::Gpu;
use ash::vk;
use std::collections::HashMap;
use wave32_device::{BufferId, DeviceError};

/// Sets a pool holds, with this many descriptors a set on average.
const POOL_SETS: u32 = 256;
const POOL_DESCRIPTORS: u32 = 256 * 4;
/// More cached sets than this are all dropped when the next plan is bound.
const MOST: usize = 8192;

/// One bound range: buffer, first byte, bytes.
pub(crate) type Range = (BufferId, u64, u64);

/// The sets, by what is bound.
///
/// Buffer ids are never reused, so an entry can only ever mean the buffer it was made for. Sets are
/// freed and pools reset only between operations, when nothing is in flight.
#[derive(Default)]
pub(crate) struct Sets {
    pools: Vec<vk::DescriptorPool>,
    made: HashMap<Vec<Range>, (vk::DescriptorSet, vk::DescriptorPool)>,
}

impl Sets {
    /// Makes room where a very long sequence of different buffers has filled the cache. Sets handed out
    /// before become invalid, so this is for the start of an operation.
    pub(crate) fn trim(&mut self, gpu: &Gpu) {
        if self.made.len() >= MOST {
            self.destroy(gpu);
        }
    }

    /// The set with these ranges (and the Vulkan buffers behind them) at bindings 0, 1, ...
    pub(crate) fn get(
        &mut self,
        gpu: &Gpu,
        layout: vk::DescriptorSetLayout,
        ranges: &[Range],
        buffers: &[vk::Buffer],
    ) -> Result<vk::DescriptorSet, DeviceError> {
        if let Some((set, _)) = self.made.get(ranges) {
            return Ok(*set);
        }
        let (set, pool) = self.allocate(gpu, layout)?;
        let infos: Vec<_> = ranges
            .iter()
            .zip(buffers)
            .map(|(&(_, offset, size), &buffer)| {
                [vk::DescriptorBufferInfo::default().buffer(buffer).offset(offset).range(size)]
            })
            .collect();
        let writes: Vec<_> = infos
            .iter()
            .zip(0..)
            .map(|(info, binding)| {
                vk::WriteDescriptorSet::default()
                    .dst_set(set)
                    .dst_binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .buffer_info(info)
            })
            .collect();
        // SAFETY: the set is new, so not in use; its layout has these bindings; the caller checked each
        // range against its buffer and the device's limits.
        unsafe { gpu.raw.update_descriptor_sets(&writes, &[]) };
        self.made.insert(ranges.to_vec(), (set, pool));
        Ok(set)
    }

    fn allocate(
        &mut self,
        gpu: &Gpu,
        layout: vk::DescriptorSetLayout,
    ) -> Result<(vk::DescriptorSet, vk::DescriptorPool), DeviceError> {
        let layouts = [layout];
        let try_pool = |pool| {
            let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&layouts);
            // SAFETY: pool and layout are alive; the pool is used by `&mut self` only.
            unsafe { gpu.raw.allocate_descriptor_sets(&info) }.map(|sets| (sets[0], pool))
        };
        // Newest first: the older ones are full except for freed sets.
        for &pool in self.pools.iter().rev() {
            match try_pool(pool) {
                Err(vk::Result::ERROR_OUT_OF_POOL_MEMORY | vk::Result::ERROR_FRAGMENTED_POOL) => {}
                other => return other.map_err(at("vkAllocateDescriptorSets")),
            }
        }
        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(POOL_DESCRIPTORS)];
        let info = vk::DescriptorPoolCreateInfo::default()
            .flags(vk::DescriptorPoolCreateFlags::FREE_DESCRIPTOR_SET)
            .max_sets(POOL_SETS)
            .pool_sizes(&sizes);
        // SAFETY: plain creation.
        let pool =
            unsafe { gpu.raw.create_descriptor_pool(&info, None) }.map_err(at("vkCreateDescriptorPool"))?;
        self.pools.push(pool);
        try_pool(pool).map_err(at("vkAllocateDescriptorSets"))
    }

    /// Drops the sets that bind this buffer, which nothing in flight uses.
    pub(crate) fn forget(&mut self, gpu: &Gpu, buffer: BufferId) {
        self.made.retain(|ranges, (set, pool)| {
            let keep = ranges.iter().all(|(id, ..)| *id != buffer);
            if !keep {
                // SAFETY: nothing is in flight; the set is of this pool, which allows single frees.
                let freed = unsafe { gpu.raw.free_descriptor_sets(*pool, &[*set]) };
                if let Err(code) = freed {
                    log::warn!("vkFreeDescriptorSets: {code:?}");
                }
            }
            keep
        });
    }

    /// Drops everything; nothing may be in flight.
    pub(crate) fn destroy(&mut self, gpu: &Gpu) {
        self.made.clear();
        for pool in self.pools.drain(..) {
            // SAFETY: the caller knows that nothing is in flight; sets go with their pool.
            unsafe { gpu.raw.destroy_descriptor_pool(pool, None) };
        }
    }
}
