//! Compute pipelines, made on first use and kept, on top of the driver's cache on disk.

use crate::cache::DiskCache;
use crate::error::at;
use crate::gpu::Gpu;
use crate::kernels::{Kernel, KernelSource, local_bytes, words};
use ash::vk;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wave32_device::DeviceError;

/// The cache is written at most this often while pipelines are being made, and once at the end.
const SAVE_EVERY: Duration = Duration::from_secs(2);

/// A kernel ready to launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pipeline {
    pub(crate) raw: vk::Pipeline,
    pub(crate) layout: vk::PipelineLayout,
    pub(crate) buffers: u32,
    pub(crate) params: u32,
}

/// All pipelines of one device, by kernel name.
pub(crate) struct Pipelines {
    source: Arc<dyn KernelSource>,
    made: HashMap<String, Pipeline>,
    /// Descriptor set layouts by number of buffers; pipeline layouts by that and the number of params.
    set_layouts: HashMap<u32, vk::DescriptorSetLayout>,
    layouts: HashMap<(u32, u32), vk::PipelineLayout>,
    cache: Option<vk::PipelineCache>,
    disk: Option<DiskCache>,
    unsaved: bool,
    saved: Instant,
}

impl Pipelines {
    /// None yet; kernels come from `source`.
    pub(crate) fn new(source: Arc<dyn KernelSource>, disk: Option<DiskCache>) -> Self {
        Self {
            source,
            made: HashMap::new(),
            set_layouts: HashMap::new(),
            layouts: HashMap::new(),
            cache: None,
            disk,
            unsaved: false,
            saved: Instant::now(),
        }
    }

    /// The pipeline of that kernel, compiled now if it is new.
    pub(crate) fn get(&mut self, gpu: &mut Gpu, name: &str) -> Result<Pipeline, DeviceError> {
        if let Some(pipeline) = self.made.get(name) {
            return Ok(*pipeline);
        }
        let unsupported = |why: String| DeviceError::Unsupported(format!("kernel `{name}`: {why}"));
        let kernel =
            self.source.kernel(name).ok_or_else(|| unsupported("there is none of that name".into()))?;
        let words = words(&kernel.spirv, &gpu.adapter.features).map_err(unsupported)?;
        let (caps, limits) = (&gpu.adapter.caps, &gpu.adapter.limits);
        for (what, needed, most) in [
            ("threads a workgroup", kernel.threads, caps.max_group_threads),
            ("storage buffers", kernel.buffers, limits.storage_buffers),
            ("bytes of local memory", local_bytes(&words), caps.lds_per_group),
            ("bytes of parameters", kernel.params.saturating_mul(4), limits.push_bytes),
        ] {
            if needed > most {
                return Err(unsupported(format!("it needs {needed} {what}, the device has {most}")));
            }
        }
        let layout = self.layout(gpu, kernel.buffers, kernel.params)?;
        let raw = self.compile(gpu, &kernel, &words, layout)?;
        let pipeline = Pipeline { raw, layout, buffers: kernel.buffers, params: kernel.params };
        self.made.insert(name.to_string(), pipeline);
        self.unsaved = true;
        if self.saved.elapsed() >= SAVE_EVERY {
            self.save(gpu);
        }
        Ok(pipeline)
    }

    /// The layout of descriptor sets with that many storage buffers.
    pub(crate) fn set_layout(
        &mut self,
        gpu: &Gpu,
        buffers: u32,
    ) -> Result<vk::DescriptorSetLayout, DeviceError> {
        if let Some(layout) = self.set_layouts.get(&buffers) {
            return Ok(*layout);
        }
        let binding = |index| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(index)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
        };
        let bindings: Vec<_> = (0..buffers).map(binding).collect();
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: the number of buffers is within the device's limit.
        let layout = unsafe { gpu.raw.create_descriptor_set_layout(&info, None) }
            .map_err(at("vkCreateDescriptorSetLayout"))?;
        self.set_layouts.insert(buffers, layout);
        Ok(layout)
    }

    fn layout(&mut self, gpu: &Gpu, buffers: u32, params: u32) -> Result<vk::PipelineLayout, DeviceError> {
        if let Some(layout) = self.layouts.get(&(buffers, params)) {
            return Ok(*layout);
        }
        let sets = [self.set_layout(gpu, buffers)?];
        let ranges =
            [vk::PushConstantRange::default().stage_flags(vk::ShaderStageFlags::COMPUTE).size(4 * params)];
        let mut info = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
        if params > 0 {
            info = info.push_constant_ranges(&ranges);
        }
        // SAFETY: the set layout is alive and the push constants are within the device's limit.
        let layout =
            unsafe { gpu.raw.create_pipeline_layout(&info, None) }.map_err(at("vkCreatePipelineLayout"))?;
        self.layouts.insert((buffers, params), layout);
        Ok(layout)
    }

    fn compile(
        &mut self,
        gpu: &mut Gpu,
        kernel: &Kernel,
        words: &[u32],
        layout: vk::PipelineLayout,
    ) -> Result<vk::Pipeline, DeviceError> {
        let cache = self.cache(gpu)?;
        let info = vk::ShaderModuleCreateInfo::default().code(words);
        // SAFETY: SPIR-V whose capabilities are enabled; kernel sources vouch for the rest, as compilers do.
        let module =
            unsafe { gpu.raw.create_shader_module(&info, None) }.map_err(at("vkCreateShaderModule"))?;
        let features = gpu.adapter.features;
        let mut stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(c"main");
        let mut size = vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default();
        if let Some(wave) = features.require_wave {
            // Where a card runs waves of 32 and of 64, ours are 32.
            if kernel.threads.div_ceil(wave) <= gpu.adapter.limits.max_subgroups {
                size = size.required_subgroup_size(wave);
                stage = stage.push_next(&mut size);
                if features.full_subgroups && kernel.threads.is_multiple_of(wave) {
                    stage = stage.flags(vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS);
                }
            }
        }
        let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout);
        // SAFETY: module, layout and cache are alive; the subgroup size is one the device lets us require.
        let made = unsafe { gpu.raw.create_compute_pipelines(cache, &[info], None) };
        // SAFETY: a pipeline does not need its module any more.
        unsafe { gpu.raw.destroy_shader_module(module, None) };
        match made {
            Ok(pipelines) => Ok(pipelines[0]),
            Err((_, code)) => Err(gpu.failed("vkCreateComputePipelines", code)),
        }
    }

    /// The driver's cache, filled from disk when it is first needed.
    fn cache(&mut self, gpu: &Gpu) -> Result<vk::PipelineCache, DeviceError> {
        if let Some(cache) = self.cache {
            return Ok(cache);
        }
        let stored = self.disk.as_ref().and_then(DiskCache::load).unwrap_or_default();
        let create = |data: &[u8]| {
            let info = vk::PipelineCacheCreateInfo::default().initial_data(data);
            // SAFETY: the data is empty or what this very driver returned, proven by identity and checksum.
            unsafe { gpu.raw.create_pipeline_cache(&info, None) }
        };
        let cache = create(&stored).or_else(|code| {
            log::warn!("the driver refuses the stored pipeline cache ({code:?}); starting a new one");
            create(&[])
        });
        let cache = cache.map_err(at("vkCreatePipelineCache"))?;
        self.cache = Some(cache);
        Ok(cache)
    }

    /// Writes the cache to disk if it has grown.
    pub(crate) fn save(&mut self, gpu: &Gpu) {
        let (true, Some(disk), Some(cache)) = (self.unsaved, &self.disk, self.cache) else { return };
        (self.unsaved, self.saved) = (false, Instant::now());
        // SAFETY: the cache is alive and used by `&mut self` only.
        match unsafe { gpu.raw.get_pipeline_cache_data(cache) } {
            Ok(data) => disk.save(&data),
            Err(code) => log::warn!("the driver does not give its pipeline cache out: {code:?}"),
        }
    }

    /// Destroys everything; nothing may be in flight.
    pub(crate) fn destroy(&mut self, gpu: &Gpu) {
        // SAFETY: the caller knows that nothing is in flight; the handles are forgotten here.
        unsafe {
            self.made.drain().for_each(|(_, pipeline)| gpu.raw.destroy_pipeline(pipeline.raw, None));
            self.layouts.drain().for_each(|(_, layout)| gpu.raw.destroy_pipeline_layout(layout, None));
            self.set_layouts
                .drain()
                .for_each(|(_, layout)| gpu.raw.destroy_descriptor_set_layout(layout, None));
            if let Some(cache) = self.cache.take() {
                gpu.raw.destroy_pipeline_cache(cache, None);
            }
        }
    }
}
