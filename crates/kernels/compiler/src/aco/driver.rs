//! The child's side: creates each pipeline on RADV's null device and writes down what it became.

use ash::{khr, vk};
use std::ffi::{CStr, c_char};
use std::path::Path;
use std::time::Duration;

#[path = "../../../../vulkan/src/dot.rs"]
mod dot;
use dot::MixedFloatDotProductFeatures;

/// What `.found` says of a kernel, besides the driver's statistics.
pub(super) const SUBGROUP_SIZE: &str = "subgroup size";
pub(super) const NANOSECONDS: &str = "nanoseconds";

/// What `list` says of a kernel that needs matrix instructions.
pub(super) const MATRIX: &str = "matrix";

/// The same of dot products.
pub(super) const DOT: &str = "dot";

/// Reads `list` and the SPIR-V in `folder`, writes `driver` and each kernel's `.stats`, `.isa` and `.found`, but of
/// kernels that need instructions which the driver does not offer.
pub(super) fn serve(folder: &Path) -> Result<(), String> {
    // SAFETY: the loader is the system's Vulkan loader, whose initialisation has no preconditions.
    let entry =
        unsafe { ash::Entry::load() }.map_err(|e| format!("the Vulkan loader (libvulkan.so.1): {e}"))?;
    let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
    let create = vk::InstanceCreateInfo::default().application_info(&application);
    // SAFETY: `create` and what it points to live through the call; no allocator.
    let instance =
        unsafe { entry.create_instance(&create, None) }.map_err(|e| format!("vkCreateInstance: {e}"))?;
    let result = with_instance(&instance, folder);
    // SAFETY: `with_instance` has destroyed all that it made from the instance.
    unsafe { instance.destroy_instance(None) };
    result
}

fn with_instance(instance: &ash::Instance, folder: &Path) -> Result<(), String> {
    // SAFETY: the instance is alive.
    let devices = unsafe { instance.enumerate_physical_devices() };
    let devices = devices.map_err(|e| format!("vkEnumeratePhysicalDevices: {e}"))?;
    let physical = *devices.first().ok_or("RADV shows no null device")?;
    let mut driver = vk::PhysicalDeviceDriverProperties::default();
    let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut driver);
    // SAFETY: the chain is well-formed and lives through the call.
    unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
    let driver = format!("{} {}", text(&driver.driver_name), text(&driver.driver_info));
    std::fs::write(folder.join("driver"), driver).map_err(|e| e.to_string())?;

    let mut v11 = vk::PhysicalDeviceVulkan11Features::default();
    let mut v12 = vk::PhysicalDeviceVulkan12Features::default();
    let mut v13 = vk::PhysicalDeviceVulkan13Features::default();
    let mut executable = vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default();
    let mut matrix = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
    // SAFETY: the instance is alive, the device is its own.
    let offered = unsafe { instance.enumerate_device_extension_properties(physical) };
    let offered = offered.map_err(|e| format!("vkEnumerateDeviceExtensionProperties: {e}"))?;
    let matrix_name = khr::cooperative_matrix::NAME;
    let is_offered = |name| offered.iter().any(|one| one.extension_name_as_c_str() == Ok(name));
    let (has_matrix, has_dot) =
        (is_offered(matrix_name), is_offered(MixedFloatDotProductFeatures::EXTENSION));
    let mut dot = MixedFloatDotProductFeatures::default();
    let mut features = vk::PhysicalDeviceFeatures2::default()
        .push_next(&mut v11)
        .push_next(&mut v12)
        .push_next(&mut v13)
        .push_next(&mut executable);
    if has_matrix {
        features = features.push_next(&mut matrix);
    }
    if has_dot {
        features = features.push_next(&mut dot);
    }
    // SAFETY: as above. What it reports as supported is then asked for in full.
    unsafe { instance.get_physical_device_features2(physical, &mut features) };
    features.features.robust_buffer_access = vk::FALSE; // the product leaves it off; it changes the code
    let queue = [vk::DeviceQueueCreateInfo::default().queue_family_index(0).queue_priorities(&[1.0])];
    let mut extensions = vec![khr::pipeline_executable_properties::NAME.as_ptr()];
    extensions.extend(has_matrix.then_some(matrix_name.as_ptr()));
    extensions.extend(has_dot.then_some(MixedFloatDotProductFeatures::EXTENSION.as_ptr()));
    let create = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queue)
        .enabled_extension_names(&extensions)
        .push_next(&mut features);
    // SAFETY: `create` and its chain live through the call; queue family 0 always exists.
    let device = unsafe { instance.create_device(physical, &create, None) };
    let device = device.map_err(|e| format!("vkCreateDevice: {e}"))?;
    let query = khr::pipeline_executable_properties::Device::new(instance, &device);
    let missing =
        [(MATRIX, matrix.cooperative_matrix == vk::TRUE), (DOT, dot.float16_with_float32_sum == vk::TRUE)];
    let missing: Vec<&str> = missing.into_iter().filter(|(_, has)| !has).map(|(needs, _)| needs).collect();
    let result = compile_all(&device, &query, folder, &missing);
    // SAFETY: `compile_all` has destroyed all that it made from the device, and submits nothing.
    unsafe { device.destroy_device(None) };
    result
}

fn compile_all(
    device: &ash::Device,
    query: &khr::pipeline_executable_properties::Device,
    folder: &Path,
    missing: &[&str],
) -> Result<(), String> {
    let list = std::fs::read_to_string(folder.join("list")).map_err(|e| e.to_string())?;
    for (index, line) in list.lines().enumerate() {
        let [name, buffers, params, times, needs] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("list: {line}"));
        };
        if missing.contains(&needs) {
            continue;
        }
        let number = |word: &str| word.parse::<u32>().map_err(|e| format!("list: {line}: {e}"));
        let (buffers, params, times) = (number(buffers)?, number(params)?, number(times)?);
        let spirv = std::fs::read(folder.join(format!("{name}.spv"))).map_err(|e| e.to_string())?;
        let words =
            ash::util::read_spv(&mut std::io::Cursor::new(&spirv)).map_err(|e| format!("{name}: {e}"))?;
        let named = |e: String| format!("{name}: {e}");
        let mut found = String::new();
        let mut quickest: Option<Duration> = None;
        for _ in 0..times {
            let plain = vk::PipelineCreateFlags::empty();
            let time = Pipeline::new(device, &words, buffers, params, OURS, plain).map_err(named)?.time;
            quickest = Some(quickest.map_or(time, |least| least.min(time)));
        }
        if let Some(time) = quickest {
            found += &format!("{NANOSECONDS}\t{}\n", time.as_nanos());
        }
        if index == 0 {
            // Would it say so if it took another size than was asked for?
            let wide = Pipeline::new(device, &words, buffers, params, 64, CAPTURE).map_err(named)?;
            let said = subgroup_size(query, wide.pipeline).map_err(named)?;
            if said != 64 {
                return Err(format!(
                    "{name}: the driver was asked for waves of 64 lanes and tells of {said}"
                ));
            }
        }
        let pipeline = Pipeline::new(device, &words, buffers, params, OURS, CAPTURE).map_err(named)?;
        found += &format!("{SUBGROUP_SIZE}\t{}\n", subgroup_size(query, pipeline.pipeline).map_err(named)?);
        let (statistics, isa) = read_back(query, pipeline.pipeline).map_err(named)?;
        for (what, text) in [("stats", statistics), ("isa", isa), ("found", found)] {
            std::fs::write(folder.join(format!("{name}.{what}")), text).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

/// Lanes of a wave that the product asks for.
const OURS: u32 = 32;

/// Keeps what [`read_back`] reads. The driver then also disassembles, which takes time that the product does not spend.
const CAPTURE: vk::PipelineCreateFlags = vk::PipelineCreateFlags::from_raw(
    vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR.as_raw()
        | vk::PipelineCreateFlags::CAPTURE_INTERNAL_REPRESENTATIONS_KHR.as_raw(),
);

/// Processor time of this process, all threads: other programs on this machine do not add to it.
fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// A compute pipeline with what it is made of; destroyed together.
struct Pipeline<'a> {
    device: &'a ash::Device,
    module: vk::ShaderModule,
    set: vk::DescriptorSetLayout,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
    /// What compiling it took.
    time: Duration,
}

impl<'a> Pipeline<'a> {
    fn new(
        device: &'a ash::Device,
        spirv: &[u32],
        buffers: u32,
        params: u32,
        wave: u32,
        flags: vk::PipelineCreateFlags,
    ) -> Result<Self, String> {
        // Filled from the top; what is still null at an error is skipped by Vulkan's destroy calls.
        let mut made = Self {
            device,
            module: vk::ShaderModule::null(),
            set: vk::DescriptorSetLayout::null(),
            layout: vk::PipelineLayout::null(),
            pipeline: vk::Pipeline::null(),
            time: Duration::ZERO,
        };
        let create = vk::ShaderModuleCreateInfo::default().code(spirv);
        // SAFETY: the words are glslang's output for this very environment.
        made.module =
            unsafe { device.create_shader_module(&create, None) }.map_err(|e| format!("module: {e}"))?;
        let binding = |index| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(index)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
        };
        let bindings: Vec<_> = (0..buffers).map(binding).collect();
        let create = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: the bindings live through the call.
        made.set =
            unsafe { device.create_descriptor_set_layout(&create, None) }.map_err(|e| format!("set: {e}"))?;
        let sets = [made.set];
        let ranges =
            [vk::PushConstantRange::default().stage_flags(vk::ShaderStageFlags::COMPUTE).size(4 * params)];
        let ranges = if params == 0 { &ranges[..0] } else { &ranges[..] };
        let create = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets).push_constant_ranges(ranges);
        // SAFETY: the set layout is alive.
        made.layout =
            unsafe { device.create_pipeline_layout(&create, None) }.map_err(|e| format!("layout: {e}"))?;
        let mut size =
            vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default().required_subgroup_size(wave);
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(made.module)
            .name(c"main")
            .push_next(&mut size);
        let create = vk::ComputePipelineCreateInfo::default().stage(stage).layout(made.layout).flags(flags);
        let before = processor_time();
        // SAFETY: module and layout are alive; the stage's chain lives through the call.
        let result = unsafe { device.create_compute_pipelines(vk::PipelineCache::null(), &[create], None) };
        made.time = processor_time() - before;
        made.pipeline = result.map_err(|(_, e)| format!("pipeline: {e}"))?[0];
        Ok(made)
    }
}

impl Drop for Pipeline<'_> {
    fn drop(&mut self) {
        // SAFETY: all four are this device's own or null, and nothing was submitted that uses them.
        unsafe {
            self.device.destroy_pipeline(self.pipeline, None);
            self.device.destroy_pipeline_layout(self.layout, None);
            self.device.destroy_descriptor_set_layout(self.set, None);
            self.device.destroy_shader_module(self.module, None);
        }
    }
}

/// Lanes of a wave of the pipeline's code.
fn subgroup_size(
    query: &khr::pipeline_executable_properties::Device,
    pipeline: vk::Pipeline,
) -> Result<u32, String> {
    let info = vk::PipelineInfoKHR::default().pipeline(pipeline);
    // SAFETY: the pipeline is alive and the feature is enabled.
    let executables = unsafe { query.get_pipeline_executable_properties(&info) };
    match executables.map_err(|e| format!("executables: {e}"))?[..] {
        [one] => Ok(one.subgroup_size),
        ref other => Err(format!("{} executables, one was expected", other.len())),
    }
}

/// The statistics as `name<TAB>value` lines, and the ISA.
fn read_back(
    query: &khr::pipeline_executable_properties::Device,
    pipeline: vk::Pipeline,
) -> Result<(String, String), String> {
    let info = vk::PipelineExecutableInfoKHR::default().pipeline(pipeline).executable_index(0);
    // SAFETY: the pipeline was made with CAPTURE_STATISTICS and has one executable, its shader.
    let statistics = unsafe { query.get_pipeline_executable_statistics(&info) };
    let mut lines = String::new();
    for statistic in statistics.map_err(|e| format!("statistics: {e}"))? {
        if statistic.format == vk::PipelineExecutableStatisticFormatKHR::UINT64 {
            // SAFETY: the format says which member of the union is set.
            let value = unsafe { statistic.value.u64 };
            lines += &format!("{}\t{value}\n", text(&statistic.name));
        }
    }
    let failed = |e| format!("internal representations: {e}");
    // SAFETY: as above; the first call asks for the number and sizes of the texts.
    let mut texts =
        unsafe { query.get_pipeline_executable_internal_representations(&info) }.map_err(failed)?;
    let mut buffers: Vec<Vec<u8>> = texts.iter().map(|t| vec![0; t.data_size]).collect();
    for (text, buffer) in texts.iter_mut().zip(&mut buffers) {
        text.p_data = buffer.as_mut_ptr().cast();
    }
    let mut count = texts.len() as u32;
    let fetch = query.fp().get_pipeline_executable_internal_representations_khr;
    // SAFETY: `texts` has `count` elements, each with a buffer of the size that the driver asked for.
    unsafe { fetch(query.device(), &info, &mut count, texts.as_mut_ptr()) }.result().map_err(failed)?;
    let assembly = texts.iter().zip(&buffers).find(|(t, _)| text(&t.name).contains("Assembly"));
    let (_, bytes) = assembly.ok_or("the driver gives no ISA")?;
    let isa = CStr::from_bytes_until_nul(bytes).map_err(|e| e.to_string())?;
    Ok((lines, isa.to_string_lossy().into_owned()))
}

/// The text in a fixed array of a Vulkan struct.
fn text(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
