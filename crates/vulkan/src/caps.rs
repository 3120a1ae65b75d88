//! [`DeviceCaps`] of a Vulkan device: limits as the driver tells them, rates as modelled.
//!
//! Vulkan tells limits but no speeds. What no query answers is a documented guess by kind; it ranks plans
//! against each other and sizes the first submit, nothing depends on it for correctness.

use crate::adapter::Features;
use ash::{amd, ext, nv, vk};
use std::borrow::Cow;
use std::ffi::CStr;
use wave32_cards::Seen;
use wave32_cards::sysfs::{AMD as AMD_PCI, Files, ThisMachine, revision_and_memory};
use wave32_device::DeviceKind;
use wave32_solve::{Compiler, DeviceCaps, Tuned};

/// PCI vendor ids, for the meaning of "compute unit" only.
pub(crate) const AMD: u32 = AMD_PCI as u32;
const NVIDIA: u32 = 0x10de;

/// Extensions that count compute units, zero where absent, and that tell where the card is on the bus.
#[derive(Default)]
pub(crate) struct VendorProperties {
    amd: vk::PhysicalDeviceShaderCorePropertiesAMD<'static>,
    amd2: vk::PhysicalDeviceShaderCoreProperties2AMD<'static>,
    nv: vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV<'static>,
    bus: Option<vk::PhysicalDevicePCIBusInfoPropertiesEXT<'static>>,
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
        if has(ext::pci_bus_info::NAME) {
            properties =
                properties.push_next(self.bus.insert(vk::PhysicalDevicePCIBusInfoPropertiesEXT::default()));
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

    /// The card's address as sysfs writes it: `0000:03:00.0`.
    fn address(&self) -> Option<String> {
        let bus = self.bus?;
        Some(format!(
            "{:04x}:{:02x}:{:02x}.{:x}",
            bus.pci_domain, bus.pci_bus, bus.pci_device, bus.pci_function
        ))
    }
}

/// Limits and modelled rates: of a board that `wave32_cards` knows, its specification's; of others, guesses.
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
    kind: DeviceKind,
    memory_bytes: u64,
    wave_size: u32,
    vendor: &VendorProperties,
    features: &Features,
) -> DeviceCaps {
    let (storage_16bit, float16_math) = (features.storage16, features.storage16 && features.float16);
    // A kernel's part of a tile is 32 lanes'; processors, whose subgroups are smaller, make each part several times.
    let is_wave = wave_size == 32 || kind == DeviceKind::Cpu;
    let float16_matrix = storage_16bit && features.float16_matrix && is_wave;
    let float16_dot = storage_16bit && features.float16_dot;
    let limits = &properties.limits;
    if let Some(board) = board(&ThisMachine, properties, memory_bytes, vendor) {
        let of_board = DeviceCaps::of(board);
        let compiler = compiler(properties, board.target().name);
        let limited = limited(of_board, limits, wave_size);
        return DeviceCaps { storage_16bit, float16_math, float16_matrix, float16_dot, compiler, ..limited };
    }
    let cpu = kind == DeviceKind::Cpu;
    let compute_units = match kind {
        DeviceKind::Cpu => std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        DeviceKind::Discrete => vendor.units().unwrap_or(32),
        _ => vendor.units().unwrap_or(8),
    };
    let (clock_mhz, bandwidth_gbs) = match kind {
        DeviceKind::Cpu => (2500, 10.0),
        DeviceKind::Integrated => (1500, 50.0),
        _ if memory_bytes >= 64 << 30 => (1700, 30.0 * f64::from(compute_units)),
        _ => (1700, 10.0 * f64::from(compute_units)),
    };
    let lds_per_group = limits.max_compute_shared_memory_size;
    let guessed = DeviceCaps {
        compute_units,
        fma_per_clock: match properties.vendor_id {
            _ if cpu => 1,
            NVIDIA => 128,
            _ => 64,
        },
        clock_mhz,
        bandwidth_gbs,
        launch_us: if cpu { 20.0 } else { 4.0 },
        memory_bytes,
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
        max_group_threads: u32::MAX,
        max_groups: [u32::MAX; 3],
        max_range: u64::MAX,
        offset_alignment: 1,
        scalar_loads: cpu || properties.vendor_id == AMD,
        storage_16bit,
        compiler: if name(properties).contains("RADV NAVI1") { Compiler::Aco } else { Compiler::Other },
        tuned: Tuned::default(),
        float16_math,
        float16_matrix,
        float16_dot,
        float16_rate: match properties.vendor_id {
            _ if cpu => 1.0,
            AMD => 2.0,
            // The specification says 2 for Hopper; kernels measured there reach 1.1 to 1.5 of f32's. Compute capability 8.6, 8.9 and
            // 12.0 have 48 warps and no faster f16 ("CUDA C++ Programming Guide").
            NVIDIA if vendor.nv.shader_warps_per_sm != 48 => 1.3,
            _ => 1.0,
        },
    };
    limited(guessed, limits, wave_size)
}

fn name(properties: &vk::PhysicalDeviceProperties) -> Cow<'_, str> {
    properties.device_name_as_c_str().unwrap_or_default().to_string_lossy()
}

/// RADV's is ACO. AMD's own drivers have compilers of their own, for which LLVM's code stands.
fn compiler(properties: &vk::PhysicalDeviceProperties, target: &str) -> Compiler {
    Compiler::of(target, if name(properties).contains("RADV") { Compiler::Aco } else { Compiler::Llvm })
}

/// What the driver limits, as it says.
fn limited(rates: DeviceCaps, limits: &vk::PhysicalDeviceLimits, wave_size: u32) -> DeviceCaps {
    DeviceCaps {
        wave_size,
        lds_per_group: limits.max_compute_shared_memory_size,
        max_group_threads: limits
            .max_compute_work_group_invocations
            .min(limits.max_compute_work_group_size[0]),
        max_groups: limits.max_compute_work_group_count,
        max_range: u64::from(limits.max_storage_buffer_range),
        offset_alignment: limits.min_storage_buffer_offset_alignment.max(1),
        ..rates
    }
}

/// The board, where this is one of AMD's that is known. Vulkan tells neither revision nor memory clock; the kernel does.
fn board(
    files: &impl Files,
    properties: &vk::PhysicalDeviceProperties,
    memory_bytes: u64,
    vendor: &VendorProperties,
) -> Option<&'static wave32_cards::Board> {
    let name = name(properties);
    let device = u16::try_from(properties.device_id).ok().filter(|_| properties.vendor_id == AMD)?;
    let (revision, memory_mhz) =
        vendor.address().map_or((None, None), |address| revision_and_memory(files, &address));
    let seen = Seen {
        device,
        revision,
        name: &name,
        compute_units: vendor.units(),
        memory_bytes: Some(memory_bytes),
        memory_mhz,
    };
    wave32_cards::find(&seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What RADV of Mesa 25 tells of a card of that name, and its limits.
    fn recorded(name: &str, device: u32) -> vk::PhysicalDeviceProperties {
        let mut properties = vk::PhysicalDeviceProperties::default().vendor_id(AMD).device_id(device);
        for (to, from) in properties.device_name.iter_mut().zip(name.bytes()) {
            *to = from as std::ffi::c_char;
        }
        properties.device_type = vk::PhysicalDeviceType::DISCRETE_GPU;
        properties.limits.max_compute_shared_memory_size = 64 << 10;
        properties.limits.max_compute_work_group_invocations = 1024;
        properties.limits.max_compute_work_group_size = [1024; 3];
        properties.limits.max_compute_work_group_count = [u32::MAX, 65535, 65535];
        properties.limits.max_storage_buffer_range = u32::MAX;
        properties.limits.min_storage_buffer_offset_alignment = 4;
        properties
    }

    /// What RADV offers of 16 bits.
    fn half() -> Features {
        Features { storage16: true, float16: true, ..Features::default() }
    }

    fn caps_of(name: &str, device: u32, units: u32, gib: u64) -> DeviceCaps {
        let mut vendor = VendorProperties::default();
        vendor.amd2.active_compute_unit_count = units;
        model(&recorded(name, device), DeviceKind::Discrete, gib << 30, 32, &vendor, &half())
    }

    #[test]
    fn a_card_gets_the_figures_that_explain_prints_for_it() {
        for (device, gib) in [(0x731f, 6), (0x731f, 8), (0x7340, 4), (0x7340, 8)] {
            for board in wave32_cards::rdna1().filter(|board| board.devices.contains(&(device as u16))) {
                let same_memory = board.memory.mib == (gib as u32) << 10;
                // Without the kernel's files the faster memory is not told from the slower.
                if !same_memory || board.name.ends_with("Gbps") {
                    continue;
                }
                let told = board.full_name() + " (RADV NAVI10)";
                let seen = caps_of(&told, device, board.compute_units, gib);
                assert_eq!(seen, DeviceCaps::of(board), "{told}");
            }
        }
    }

    #[test]
    fn a_card_with_matrix_instructions_gets_them_too() {
        let board = wave32_cards::by_id("rx7900xtx").unwrap();
        let mut vendor = VendorProperties::default();
        vendor.amd2.active_compute_unit_count = board.compute_units;
        let properties = recorded("AMD Radeon RX 7900 XTX (RADV NAVI31)", 0x744c);
        let features = Features { float16_matrix: true, float16_dot: true, ..half() };
        let seen = model(&properties, DeviceKind::Discrete, 24 << 30, 32, &vendor, &features);
        assert_eq!(seen, DeviceCaps::of(board));
        assert!(seen.float16_matrix && seen.float16_dot);
        // An older driver has no dot products.
        let features = Features { float16_dot: false, ..features };
        let seen = model(&properties, DeviceKind::Discrete, 24 << 30, 32, &vendor, &features);
        assert_eq!(seen, DeviceCaps { float16_dot: false, ..DeviceCaps::of(board) });
    }

    struct Sysfs(&'static str);

    impl Files for Sysfs {
        fn text(&self, path: &str) -> Option<String> {
            match path.strip_prefix("/sys/bus/pci/devices/0000:0a:00.0/")? {
                "revision" => Some("0xca\n".into()),
                "pp_dpm_mclk" => Some(format!("0: 100Mhz\n3: {}Mhz *\n", self.0)),
                _ => None,
            }
        }

        fn names(&self, _folder: &str) -> Vec<String> {
            Vec::new()
        }
    }

    #[test]
    fn the_kernel_tells_the_faster_memory_from_the_slower() {
        let properties = recorded("AMD Radeon RX 5600 XT (RADV NAVI10)", 0x731f);
        let mut vendor = VendorProperties::default();
        vendor.amd2.active_compute_unit_count = 36;
        let name =
            |mhz, vendor: &VendorProperties| board(&Sysfs(mhz), &properties, 6 << 30, vendor).unwrap().name;
        assert_eq!(name("875", &vendor), "RX 5600 XT", "no address");
        let bus = vk::PhysicalDevicePCIBusInfoPropertiesEXT { pci_bus: 10, ..Default::default() };
        vendor.bus = Some(bus);
        assert_eq!(name("875", &vendor), "RX 5600 XT 14 Gbps");
        assert_eq!(name("750", &vendor), "RX 5600 XT");
    }

    #[test]
    fn what_is_not_known_is_guessed_by_its_kind() {
        let unknown = caps_of("AMD Radeon Graphics (RADV NAVI10)", 0x731f, 10, 8);
        assert_eq!((unknown.compute_units, unknown.clock_mhz), (10, 1700), "no board has 10");
        let mut other = recorded("NVIDIA H200", 0x731f);
        other.vendor_id = NVIDIA;
        let caps = model(&other, DeviceKind::Discrete, 141 << 30, 32, &VendorProperties::default(), &half());
        assert_eq!((caps.fma_per_clock, caps.compute_units), (128, 32), "an id of AMD's is none of others'");
    }
}
