//! One physical device: what it is, what it can do, and whether it can run our kernels.

use crate::cache::Identity;
use crate::caps;
use crate::dot::MixedFloatDotProductFeatures;
use crate::error::at;
use crate::instance::{Instance, version_text};
use ash::{ext, khr, vk};
use std::cmp::Reverse;
use std::ffi::CStr;
use wave32_cards::targets::{self, Target};
use wave32_device::{DeviceError, DeviceInfo, DeviceKind};
use wave32_solve::DeviceCaps;

/// Everything that is asked of a physical device, once.
pub(crate) struct Adapter {
    pub(crate) physical: vk::PhysicalDevice,
    pub(crate) info: DeviceInfo,
    pub(crate) caps: DeviceCaps,
    pub(crate) features: Features,
    pub(crate) limits: Limits,
    pub(crate) identity: Identity,
    /// Why it cannot be used, or the queue family that it is used through.
    pub(crate) family: Result<Family, String>,
}

/// Optional features, enabled wherever they are there.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Features {
    pub(crate) timeline: bool,
    pub(crate) storage16: bool,
    pub(crate) float16: bool,
    /// Cooperative matrices of 16x16x16 f16 with sums in f32 in a subgroup, and the memory model that they need.
    pub(crate) float16_matrix: bool,
    /// Dot products of two f16 with a sum in f32.
    pub(crate) float16_dot: bool,
    pub(crate) int16: bool,
    pub(crate) int64: bool,
    pub(crate) float64: bool,
    pub(crate) storage8: bool,
    pub(crate) int8: bool,
    pub(crate) robust: bool,
    pub(crate) memory_budget: bool,
    pub(crate) device_fault: bool,
    /// The subgroup size control feature and its extension (core since 1.3).
    pub(crate) subgroup_control: bool,
    pub(crate) subgroup_extension: bool,
    pub(crate) full_subgroups: bool,
    /// Kinds of subgroup operations, as VkSubgroupFeatureFlags.
    pub(crate) subgroup_operations: u32,
    /// Subgroup size to require of pipelines; none where there is no choice.
    pub(crate) require_wave: Option<u32>,
}

/// Limits that are checked before calls, beyond those of [`DeviceCaps`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) push_bytes: u32,
    pub(crate) storage_buffers: u32,
    pub(crate) max_buffer: u64,
    pub(crate) timestamp_period_ns: f64,
    pub(crate) max_subgroups: u32,
    /// The larger of the device-local heaps.
    pub(crate) heap_bytes: u64,
}

/// The queue family in use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Family {
    pub(crate) index: u32,
    pub(crate) timestamp_bits: u32,
    /// Where copies run that go on beside the kernels.
    pub(crate) copies: CopyFamily,
}

/// The queues for copies between host and device that go on beside the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyFamily {
    pub(crate) index: u32,
    /// The first queue of the family that is for them.
    pub(crate) first: u32,
    /// How many there are, 2 at most: one up and one down. With 0 they go through the kernels' own queue.
    pub(crate) count: u32,
}

/// Every physical device, in the loader's order.
pub(crate) fn all(instance: &Instance) -> Result<Vec<Adapter>, DeviceError> {
    // SAFETY: the instance is alive.
    let devices =
        unsafe { instance.raw.enumerate_physical_devices() }.map_err(at("vkEnumeratePhysicalDevices"))?;
    devices.into_iter().enumerate().map(|(index, physical)| describe(instance, index, physical)).collect()
}

fn describe(instance: &Instance, index: usize, physical: vk::PhysicalDevice) -> Result<Adapter, DeviceError> {
    // SAFETY: (this and the queries below) `physical` is of this instance, and every out-structure chained
    // in is one that the device's version or a listed extension defines.
    let extensions = unsafe { instance.raw.enumerate_device_extension_properties(physical) }
        .map_err(at("vkEnumerateDeviceExtensionProperties"))?;
    let has = |name: &CStr| extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(name));
    // SAFETY: as above.
    let basic = unsafe { instance.raw.get_physical_device_properties(physical) };
    let api = basic.api_version.min(instance.api);
    // SAFETY: as above.
    let memory = unsafe { instance.raw.get_physical_device_memory_properties(physical) };
    let heaps = memory.memory_heaps_as_slice().iter();
    let local = heaps.filter(|h| h.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL)).map(|h| h.size);
    let memory_bytes = local.max().unwrap_or(0);

    let kind = match basic.device_type {
        vk::PhysicalDeviceType::DISCRETE_GPU => DeviceKind::Discrete,
        vk::PhysicalDeviceType::INTEGRATED_GPU => DeviceKind::Integrated,
        vk::PhysicalDeviceType::CPU => DeviceKind::Cpu,
        vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::Virtual,
        _ => DeviceKind::Other,
    };
    let name =
        basic.device_name_as_c_str().map_or_else(|_| "unnamed".into(), CStr::to_string_lossy).into_owned();
    let mut info = DeviceInfo {
        id: format!("vulkan:{index}"),
        name,
        driver: version_text(basic.driver_version),
        kind,
        memory_bytes,
    };
    let has_subgroup_control = api >= vk::API_VERSION_1_3 || has(ext::subgroup_size_control::NAME);
    let mut p11 = vk::PhysicalDeviceVulkan11Properties::default();
    let mut driver = vk::PhysicalDeviceDriverProperties::default();
    let mut sizes = vk::PhysicalDeviceSubgroupSizeControlProperties::default();
    let mut maintenance4 = vk::PhysicalDeviceMaintenance4Properties::default();
    let mut vendor = caps::VendorProperties::default();
    let mut properties = vk::PhysicalDeviceProperties2::default();
    let mut f11 = vk::PhysicalDeviceVulkan11Features::default();
    let mut f12 = vk::PhysicalDeviceVulkan12Features::default();
    let mut control = vk::PhysicalDeviceSubgroupSizeControlFeatures::default();
    let mut fault = vk::PhysicalDeviceFaultFeaturesEXT::default();
    let mut matrix = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
    let mut dot = MixedFloatDotProductFeatures::default();
    let mut features = vk::PhysicalDeviceFeatures2::default();
    if api >= vk::API_VERSION_1_2 {
        properties = properties.push_next(&mut p11).push_next(&mut driver);
        features = features.push_next(&mut f11).push_next(&mut f12);
        if has_subgroup_control {
            properties = properties.push_next(&mut sizes);
            features = features.push_next(&mut control);
        }
        if api >= vk::API_VERSION_1_3 {
            properties = properties.push_next(&mut maintenance4);
        }
        if has(ext::device_fault::NAME) {
            features = features.push_next(&mut fault);
        }
        if has(khr::cooperative_matrix::NAME) {
            features = features.push_next(&mut matrix);
        }
        if has(MixedFloatDotProductFeatures::EXTENSION) {
            features = features.push_next(&mut dot);
        }
        properties = vendor.chain(properties, &has);
        // SAFETY: as above.
        unsafe {
            instance.raw.get_physical_device_properties2(physical, &mut properties);
            instance.raw.get_physical_device_features2(physical, &mut features);
        }
    }
    let core = features.features;
    let compute = vk::ShaderStageFlags::COMPUTE;
    let may_choose = control.subgroup_size_control == vk::TRUE
        && sizes.required_subgroup_size_stages.contains(compute)
        && sizes.min_subgroup_size < sizes.max_subgroup_size
        && (sizes.min_subgroup_size..=sizes.max_subgroup_size).contains(&32);
    let float16_matrix = matrix.cooperative_matrix == vk::TRUE
        && f12.vulkan_memory_model == vk::TRUE
        && f12.shader_float16 == vk::TRUE
        && has_matrix_instructions(driver.driver_id, basic.device_id)
        && instance.multiplies_float16(physical);
    let features = Features {
        float16_matrix,
        float16_dot: dot.float16_with_float32_sum == vk::TRUE && f12.shader_float16 == vk::TRUE,
        timeline: f12.timeline_semaphore == vk::TRUE,
        storage16: f11.storage_buffer16_bit_access == vk::TRUE,
        float16: f12.shader_float16 == vk::TRUE,
        int16: core.shader_int16 == vk::TRUE,
        int64: core.shader_int64 == vk::TRUE,
        float64: core.shader_float64 == vk::TRUE,
        storage8: f12.storage_buffer8_bit_access == vk::TRUE,
        int8: f12.shader_int8 == vk::TRUE,
        robust: core.robust_buffer_access == vk::TRUE,
        memory_budget: has(ext::memory_budget::NAME),
        device_fault: fault.device_fault == vk::TRUE,
        subgroup_control: control.subgroup_size_control == vk::TRUE,
        subgroup_extension: has(ext::subgroup_size_control::NAME),
        full_subgroups: control.compute_full_subgroups == vk::TRUE,
        subgroup_operations: match p11.subgroup_supported_stages.contains(compute) {
            true => p11.subgroup_supported_operations.as_raw(),
            false => 0,
        },
        require_wave: may_choose.then_some(32),
    };
    if let (Ok(name), Ok(text)) = (driver.driver_name_as_c_str(), driver.driver_info_as_c_str()) {
        let text = format!("{} {}", name.to_string_lossy(), text.to_string_lossy());
        if !text.trim().is_empty() {
            info.driver = text.trim().to_string();
        }
    }
    let limits = Limits {
        push_bytes: basic.limits.max_push_constants_size,
        storage_buffers: basic
            .limits
            .max_per_stage_descriptor_storage_buffers
            .min(basic.limits.max_descriptor_set_storage_buffers),
        max_buffer: match maintenance4.max_buffer_size {
            0 => memory_bytes,
            bytes => bytes,
        },
        timestamp_period_ns: f64::from(basic.limits.timestamp_period),
        max_subgroups: sizes.max_compute_workgroup_subgroups,
        heap_bytes: memory_bytes,
    };
    let wave = features.require_wave.unwrap_or(p11.subgroup_size.max(1));
    let caps = caps::model(&basic, kind, memory_bytes, wave, &vendor, &features);
    // SAFETY: as above.
    let families = unsafe { instance.raw.get_physical_device_queue_family_properties(physical) };
    let family = if api < vk::API_VERSION_1_2 {
        let text = version_text(basic.api_version);
        Err(format!("its driver offers Vulkan {text}, 1.2 is needed: update the driver"))
    } else if !features.timeline {
        Err("its driver lacks timeline semaphores: update the driver".into())
    } else if basic.limits.timestamp_period <= 0.0 {
        Err("its driver has no GPU timestamps: update the driver".into())
    } else {
        choose_family(&families, basic.vendor_id == caps::AMD && kind == DeviceKind::Discrete)
    };
    let identity = Identity {
        vendor: basic.vendor_id,
        device: basic.device_id,
        driver_version: basic.driver_version,
        driver_uuid: p11.driver_uuid,
        device_uuid: p11.device_uuid,
        cache_uuid: basic.pipeline_cache_uuid,
    };
    Ok(Adapter { physical, info, caps, features, limits, identity, family })
}

/// Whether cooperative matrices are this driver's matrix instructions on the device. Others offer them on cards that have none (AMD's own
/// drivers: llama.cpp's pull request 11074), slowly (Mesa's for Intel: 10597), or crash when they are asked for sizes (AMDVLK's issue 422).
fn has_matrix_instructions(driver: vk::DriverId, device: u32) -> bool {
    let target = || u16::try_from(device).ok().and_then(targets::by_pci).and_then(targets::by_name);
    match driver {
        vk::DriverId::NVIDIA_PROPRIETARY => true,
        vk::DriverId::MESA_RADV => target().is_some_and(Target::has_matrix),
        _ => false,
    }
}

/// A family with compute and timestamps: on discrete AMD cards one without graphics, whose ring the
/// desktop does not share; elsewhere the first, which is the one that drivers are tuned on.
fn choose_family(
    families: &[vk::QueueFamilyProperties],
    prefer_compute_only: bool,
) -> Result<Family, String> {
    let usable = families
        .iter()
        .zip(0u32..)
        .filter(|(f, _)| f.queue_flags.contains(vk::QueueFlags::COMPUTE) && f.queue_count > 0);
    if usable.clone().next().is_none() {
        return Err("it has no compute queue".into());
    }
    let timed = usable.filter(|(f, _)| f.timestamp_valid_bits > 0);
    timed
        .min_by_key(|(f, _)| prefer_compute_only && f.queue_flags.contains(vk::QueueFlags::GRAPHICS))
        .map(|(f, index)| Family {
            index,
            timestamp_bits: f.timestamp_valid_bits,
            copies: choose_copy_family(families, index),
        })
        .ok_or_else(|| "its compute queues have no timestamps: update the driver".into())
}

/// The family that can do nothing but copy, whose queues are the copy engines; or else more queues of the kernels' family.
fn choose_copy_family(families: &[vk::QueueFamilyProperties], kernels: u32) -> CopyFamily {
    let copies_alone = |f: &vk::QueueFamilyProperties| {
        let rest = f.queue_flags & !(vk::QueueFlags::TRANSFER | vk::QueueFlags::SPARSE_BINDING);
        f.queue_flags.contains(vk::QueueFlags::TRANSFER) && rest.is_empty() && f.queue_count > 0
    };
    if let Some((f, index)) = families.iter().zip(0u32..).find(|(f, _)| copies_alone(f)) {
        return CopyFamily { index, first: 0, count: f.queue_count.min(2) };
    }
    match families[kernels as usize].queue_count - 1 {
        0 => CopyFamily { index: kernels, first: 0, count: 0 },
        others => CopyFamily { index: kernels, first: 1, count: others.min(2) },
    }
}

/// Rank for the automatic choice; larger is better.
pub(crate) fn rank(info: &DeviceInfo) -> (Reverse<DeviceKind>, u64) {
    (Reverse(info.kind), info.memory_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrix_instructions_are_trusted_of_few_drivers() {
        let [navi10, navi21, navi31, navi48] = [0x731f, 0x73bf, 0x744c, 0x7550];
        let radv = |device| has_matrix_instructions(vk::DriverId::MESA_RADV, device);
        assert!(radv(navi31) && radv(navi48) && !radv(navi10) && !radv(navi21) && !radv(0x67df));
        assert!(has_matrix_instructions(vk::DriverId::NVIDIA_PROPRIETARY, 0x2335));
        for driver in [vk::DriverId::AMD_PROPRIETARY, vk::DriverId::AMD_OPEN_SOURCE] {
            assert!(!has_matrix_instructions(driver, navi31));
        }
        assert!(!has_matrix_instructions(vk::DriverId::INTEL_OPEN_SOURCE_MESA, 0x56a0));
    }

    fn family(flags: vk::QueueFlags, bits: u32) -> vk::QueueFamilyProperties {
        vk::QueueFamilyProperties::default().queue_flags(flags).queue_count(1).timestamp_valid_bits(bits)
    }

    #[test]
    fn families_are_chosen_by_timestamps_and_kind() {
        let (g, c, t) = (vk::QueueFlags::GRAPHICS, vk::QueueFlags::COMPUTE, vk::QueueFlags::TRANSFER);
        let both = [family(t, 64), family(g | c, 64), family(c, 48)];
        assert_eq!(choose_family(&both, true).map(|f| (f.index, f.timestamp_bits)), Ok((2, 48)));
        assert_eq!(choose_family(&both, false).map(|f| f.index), Ok(1));
        let untimed = [family(g | c, 64), family(c, 0)];
        assert_eq!(choose_family(&untimed, true).map(|f| f.index), Ok(0));
        assert!(choose_family(&[family(c, 0)], true).is_err_and(|e| e.contains("timestamps")));
        assert!(choose_family(&[family(t, 64)], false).is_err_and(|e| e.contains("no compute queue")));
    }

    #[test]
    fn copies_have_queues_of_their_own_where_there_are_any() {
        let (g, c, t) = (vk::QueueFlags::GRAPHICS, vk::QueueFlags::COMPUTE, vk::QueueFlags::TRANSFER);
        let copies = |families: &[_]| choose_family(families, false).map(|f| f.copies);
        let video = family(t | vk::QueueFlags::VIDEO_DECODE_KHR, 64);
        let engines = family(t | vk::QueueFlags::SPARSE_BINDING, 64).queue_count(5);
        let found = CopyFamily { index: 2, first: 0, count: 2 };
        assert_eq!(copies(&[family(g | c | t, 64), video, engines]), Ok(found));
        let more = CopyFamily { index: 0, first: 1, count: 1 };
        assert_eq!(copies(&[family(g | c | t, 64).queue_count(2), video]), Ok(more));
        assert_eq!(copies(&[family(c, 64)]), Ok(CopyFamily { index: 0, first: 0, count: 0 }));
    }

    #[test]
    fn discrete_cards_come_first_then_memory() {
        let info = |kind, memory_bytes| DeviceInfo {
            id: String::new(),
            name: String::new(),
            driver: String::new(),
            kind,
            memory_bytes,
        };
        let order = [
            (DeviceKind::Other, 99),
            (DeviceKind::Cpu, 99),
            (DeviceKind::Virtual, 9),
            (DeviceKind::Integrated, 64),
            (DeviceKind::Discrete, 4),
            (DeviceKind::Discrete, 8),
        ];
        let ranks: Vec<_> = order.iter().map(|&(kind, bytes)| rank(&info(kind, bytes))).collect();
        assert!(ranks.is_sorted(), "{ranks:?}");
    }
}
