//! [`DeviceCaps`] of a Vulkan device: limits as the driver tells them, rates as modelled.
//!
//! Vulkan tells limits but no speeds. What no query answers is a documented guess by kind; it ranks plans
//! against each other and sizes the first submit, nothing depends on it for correctness.

use ash::{amd, nv, vk};
use std::ffi::CStr;
use wave32_solve::DeviceCaps;

/// PCI vendor ids, for the meaning of "compute unit" only.
pub(crate) const AMD: u32 = 0x1002;
const NVIDIA: u32 = 0x10de;

/// Vendor extensions that count compute units; zero where absent.
#[derive(Default)]
pub(crate) struct VendorProperties {
    amd: vk::PhysicalDeviceShaderCorePropertiesAMD<'static>,
    amd2: vk::PhysicalDeviceShaderCoreProperties2AMD<'static>,
    nv: vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV<'static>,
}

impl VendorProperties {
    /// Asks for those that the device has.
    pub(crate) fn chain<'a>(
        &'a mut self,
        mut properties: vk::PhysicalDeviceProperties2<'a>,
        has: &dyn Fn(&CStr) -> bool,
    ) -> vk::PhysicalDeviceProperties2<'a> {
        if has(amd::shader_core_properties::NAME) {
            properties = properties.push_next(&mut self.amd);
        }
        if has(amd::shader_core_properties2::NAME) {
            properties = properties.push_next(&mut self.amd2);
        }
        if has(nv::shader_sm_builtins::NAME) {
            properties = properties.push_next(&mut self.nv);
        }
        properties
    }

    /// Compute units or multiprocessors, where the driver tells.
    fn units(&self) -> Option<u32> {
        let a = &self.amd;
        let all = a.shader_engine_count * a.shader_arrays_per_engine_count * a.compute_units_per_shader_array;
        [self.amd2.active_compute_unit_count, all, self.nv.shader_sm_count]
            .into_iter()
            .find(|&units| units > 0)
    }
}

/// Limits and modelled rates.
///
/// - Compute units: the driver's count, else 32 for a discrete card, 8 for others, host threads for a CPU.
/// - f32 FMAs a clock: 128 for an NVIDIA multiprocessor (since Maxwell), 64 for an AMD compute unit and
///   any other; 1 for a CPU thread, which is what Mesa's software rasteriser reaches of its vector units.
/// - Clock: 1.7 GHz discrete, 1.5 GHz integrated, 2.5 GHz CPU.
/// - Bandwidth: 10 GB/s a compute unit, typical of GDDR6 cards, or 30 GB/s with 64 GiB and more, which
///   only HBM cards carry; 50 GB/s integrated, 10 GB/s CPU.
/// - Register file: 65536 words (RDNA1's two SIMDs; NVIDIA since Kepler). Resident threads: the driver's
///   warps on NVIDIA, else RDNA1's 1280.
/// - LDS of a unit: 64 KB on AMD, 96 KB on NVIDIA (Volta's least), else two workgroups' worth.
pub(crate) fn model(
    properties: &vk::PhysicalDeviceProperties,
    kind: &str,
    memory_bytes: u64,
    wave_size: u32,
    vendor: &VendorProperties,
    storage_16bit: bool,
) -> DeviceCaps {
    let limits = &properties.limits;
    let cpu = kind == "cpu";
    let compute_units = match kind {
        "cpu" => std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        "discrete" => vendor.units().unwrap_or(32),
        _ => vendor.units().unwrap_or(8),
    };
    let (clock_mhz, bandwidth_gbs) = match kind {
        "cpu" => (2500, 10.0),
        "integrated" => (1500, 50.0),
        _ if memory_bytes >= 64 << 30 => (1700, 30.0 * f64::from(compute_units)),
        _ => (1700, 10.0 * f64::from(compute_units)),
    };
    let lds_per_group = limits.max_compute_shared_memory_size;
    DeviceCaps {
        compute_units,
        fma_per_clock: match properties.vendor_id {
            _ if cpu => 1,
            NVIDIA => 128,
            _ => 64,
        },
        clock_mhz,
        bandwidth_gbs,
        launch_us: if cpu { 20.0 } else { 4.0 },
        wave_size,
        threads_per_cu: match vendor.nv.shader_warps_per_sm {
            0 => 2 * 20 * 32,
            warps => warps * 32,
        },
        registers_per_cu: 2 * 1024 * 32,
        lds_per_group,
        lds_per_cu: match properties.vendor_id {
            AMD => lds_per_group.max(64 << 10),
            NVIDIA => lds_per_group.max(96 << 10),
            _ => lds_per_group.saturating_mul(2),
        },
        max_group_threads: limits
            .max_compute_work_group_invocations
            .min(limits.max_compute_work_group_size[0]),
        max_groups: limits.max_compute_work_group_count,
        max_range: u64::from(limits.max_storage_buffer_range),
        offset_alignment: limits.min_storage_buffer_offset_alignment.max(1),
        storage_16bit,
    }
}
