//! The first device of the driver that the environment chooses, its queues, memory types and pipelines.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use ash::vk;

use crate::program::Place;
use crate::shaders::Shader;
use crate::work::ALIGNMENT;

/// Memory, semaphores and fences as descriptors.
const SHARING: [&CStr; 3] = [
    ash::khr::external_memory_fd::NAME,
    ash::khr::external_semaphore_fd::NAME,
    ash::khr::external_fence_fd::NAME,
];

/// A queue of the device.
pub struct Queue {
    pub family: u32,
    /// Whoever submits holds it.
    pub queue: Mutex<vk::Queue>,
}

/// See the module.
pub struct Gpu {
    _entry: ash::Entry,
    pub instance: ash::Instance,
    pub device: ash::Device,
    pub name: String,
    pub queues: Vec<Queue>,
    pub families: Vec<u32>,
    memory: vk::PhysicalDeviceMemoryProperties,
    pub set_layout: vk::DescriptorSetLayout,
    pub layout: vk::PipelineLayout,
    pipelines: Mutex<HashMap<(Shader, u32), vk::Pipeline>>,
}

impl Drop for Gpu {
    fn drop(&mut self) {
        let pipelines = std::mem::take(&mut *self.pipelines.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: all are of this device, and nothing of a program's is left: it borrows this.
        unsafe {
            pipelines.into_values().for_each(|pipeline| self.device.destroy_pipeline(pipeline, None));
            self.device.destroy_pipeline_layout(self.layout, None);
            self.device.destroy_descriptor_set_layout(self.set_layout, None);
            self.device.destroy_device(None);
            self.instance.destroy_instance(None);
        }
    }
}

impl Gpu {
    /// Opens it.
    pub fn open() -> Result<Self> {
        // SAFETY: the loader is a library that may be loaded; all handles are used in the order of the calls.
        unsafe {
            let entry = ash::Entry::load().context("no Vulkan loader")?;
            let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
            let create = vk::InstanceCreateInfo::default().application_info(&application);
            let instance = entry.create_instance(&create, None).context("no instance")?;
            let physical = *instance.enumerate_physical_devices()?.first().context("no device")?;
            let properties = instance.get_physical_device_properties(physical);
            let name = properties.device_name_as_c_str()?.to_string_lossy().into_owned();
            ensure!(properties.api_version >= vk::API_VERSION_1_3, "{name} is not of Vulkan 1.3");
            let limits = properties.limits;
            ensure!(limits.min_storage_buffer_offset_alignment <= ALIGNMENT, "{name}: offsets");
            let kinds = instance.get_physical_device_queue_family_properties(physical);
            let kinds =
                (0..).zip(kinds).filter(|(_, kind)| kind.queue_flags.contains(vk::QueueFlags::COMPUTE));
            let kinds: Vec<(u32, u32)> = kinds.map(|(family, kind)| (family, kind.queue_count)).collect();
            let priorities = [1.0; 16];
            let wanted: Vec<_> = kinds
                .iter()
                .map(|(family, count)| {
                    let priorities = &priorities[..*count as usize];
                    vk::DeviceQueueCreateInfo::default()
                        .queue_family_index(*family)
                        .queue_priorities(priorities)
                })
                .collect();
            let features = vk::PhysicalDeviceFeatures::default().shader_int64(true);
            let mut twelve = vk::PhysicalDeviceVulkan12Features::default().timeline_semaphore(true);
            let mut thirteen = vk::PhysicalDeviceVulkan13Features::default().synchronization2(true);
            let create = vk::DeviceCreateInfo::default()
                .queue_create_infos(&wanted)
                .enabled_features(&features)
                .push_next(&mut twelve)
                .push_next(&mut thirteen);
            // What `share` needs; lavapipe has less.
            let there = instance.enumerate_device_extension_properties(physical)?;
            let is_there =
                |name: &CStr| there.iter().any(|found| found.extension_name_as_c_str() == Ok(name));
            let names: Vec<_> =
                SHARING.iter().filter(|name| is_there(name)).map(|name| name.as_ptr()).collect();
            let create = create.enabled_extension_names(&names);
            let device = instance.create_device(physical, &create, None).context("no device")?;
            let queue = |(family, i)| Queue { family, queue: Mutex::new(device.get_device_queue(family, i)) };
            let queues =
                kinds.iter().flat_map(|(family, count)| (0..*count).map(|i| (*family, i))).map(queue);
            let queues = queues.collect();
            let binding = |i| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(i)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            };
            let bindings = [0, 1, 2].map(binding);
            let create = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
            let set_layout = device.create_descriptor_set_layout(&create, None)?;
            let (sets, constants) = (
                [set_layout],
                [vk::PushConstantRange { stage_flags: vk::ShaderStageFlags::COMPUTE, offset: 0, size: 32 }],
            );
            let create =
                vk::PipelineLayoutCreateInfo::default().set_layouts(&sets).push_constant_ranges(&constants);
            let layout = device.create_pipeline_layout(&create, None)?;
            let memory = instance.get_physical_device_memory_properties(physical);
            let families = kinds.iter().map(|(family, _)| *family).collect();
            let pipelines = Mutex::default();
            Ok(Self {
                _entry: entry,
                instance,
                device,
                name,
                queues,
                families,
                memory,
                set_layout,
                layout,
                pipelines,
            })
        }
    }

    /// A memory type among `allowed` for a place: the first that has what is wanted and nothing that is not, else any that
    /// does.
    pub fn memory_type(&self, place: Place, allowed: u32) -> Result<u32> {
        use vk::MemoryPropertyFlags as Flags;
        let seen = Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
        let (must, want, not) = match place {
            Place::Device => (Flags::empty(), Flags::DEVICE_LOCAL, Flags::HOST_VISIBLE),
            Place::Shared => (seen, Flags::DEVICE_LOCAL, Flags::empty()),
            Place::Host => (seen, Flags::empty(), Flags::DEVICE_LOCAL | Flags::HOST_CACHED),
            Place::HostCached => (seen, Flags::HOST_CACHED, Flags::DEVICE_LOCAL),
        };
        let fits = |i: &u32| allowed >> i & 1 == 1 && self.flags(*i).contains(must);
        let distance = |i: &u32| {
            let flags = self.flags(*i);
            (want & !flags).as_raw().count_ones() + (not & flags).as_raw().count_ones()
        };
        (0..self.memory.memory_type_count).filter(fits).min_by_key(distance).context("no memory type")
    }

    fn flags(&self, kind: u32) -> vk::MemoryPropertyFlags {
        self.memory.memory_types[kind as usize].property_flags
    }

    /// A shader's pipeline for workgroups of `local`, made once.
    pub fn pipeline(&self, shader: Shader, local: u32) -> Result<vk::Pipeline> {
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipeline) = pipelines.get(&(shader, local)) {
            return Ok(*pipeline);
        }
        let (code, name) = (shader.spirv()?, CString::new("main")?);
        let (entries, size) =
            ([vk::SpecializationMapEntry { constant_id: 0, offset: 0, size: 4 }], local.to_le_bytes());
        let constants = vk::SpecializationInfo::default().map_entries(&entries).data(&size);
        // SAFETY: the module lives until the pipeline is made of it; all else is this device's.
        let made = unsafe {
            let module = vk::ShaderModuleCreateInfo::default().code(&code);
            let module = self.device.create_shader_module(&module, None)?;
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(&name)
                .specialization_info(&constants);
            let create = vk::ComputePipelineCreateInfo::default()
                .flags(vk::PipelineCreateFlags::DISPATCH_BASE)
                .stage(stage)
                .layout(self.layout);
            let made = self.device.create_compute_pipelines(vk::PipelineCache::null(), &[create], None);
            self.device.destroy_shader_module(module, None);
            made
        };
        let Ok([pipeline]) = made.as_deref() else { bail!("{shader:?}: no pipeline") };
        pipelines.insert((shader, local), *pipeline);
        Ok(*pipeline)
    }
}
