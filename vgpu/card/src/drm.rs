//! The functions of libdrm that ROCr and the thunk call on the render node.
//!
//! Calls on other devices, and on handles that are not the card's, go to the real library.

use std::ffi::{c_char, c_int, c_void};

use crate::cards::VirtualCard;
use crate::device::{self, Device};
use crate::preload::real;
use crate::topology::RENDER_MINOR;
use wave32_cards::{Board, MemoryKind};

/// What the card's handle points to: nothing is read through it.
static HANDLE: u8 = 0;

fn handle() -> *mut c_void {
    (&raw const HANDLE).cast_mut().cast()
}

const FAMILY_NAVI: u32 = 143;

/// `struct amdgpu_gpu_info` (`amdgpu.h` of libdrm), whose size callers rely on.
#[repr(C)]
struct GpuInfo {
    asic_id: u32,
    chip_rev: u32,
    chip_external_rev: u32,
    family_id: u32,
    ids_flags: u64,
    max_engine_clk: u64,
    max_memory_clk: u64,
    num_shader_engines: u32,
    num_shader_arrays_per_engine: u32,
    /// Pipes, tiling and rasteriser: graphics.
    graphics: [u32; 69],
    cu_active_number: u32,
    cu_ao_mask: u32,
    cu_bitmap: [u32; 16],
    vram_type: u32,
    vram_bit_width: u32,
    ce_ram_size: u32,
    vce_harvest_config: u32,
    pci_rev_id: u32,
}

const _: () = assert!(size_of::<GpuInfo>() == 416);

/// libdrm's: opens the render node.
///
/// # Safety
/// As of libdrm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmOpenRender(minor: c_int) -> c_int {
    if minor == RENDER_MINOR as c_int {
        return device::open(libc::O_CLOEXEC).unwrap_or(-1);
    }
    real!(drmOpenRender(minor: c_int) -> c_int, -1)
}

/// libdrm's: closes it.
///
/// # Safety
/// As of libdrm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmClose(fd: c_int) -> c_int {
    // SAFETY: closes a descriptor, as asked.
    unsafe { libc::close(fd) }
}

/// libdrm's.
///
/// # Safety
/// As of libdrm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_device_initialize(
    fd: c_int,
    major: *mut u32,
    minor: *mut u32,
    out: *mut *mut c_void,
) -> c_int {
    if Device::current().is_some_and(|device| device.owns(fd)) {
        if major.is_null() || minor.is_null() || out.is_null() {
            return -libc::EINVAL;
        }
        // SAFETY: libdrm's callers give places for all three.
        unsafe {
            (*major, *minor) = (3, 54);
            *out = handle();
        }
        return 0;
    }
    real!(amdgpu_device_initialize(fd: c_int, major: *mut u32, minor: *mut u32, out: *mut *mut c_void) -> c_int, -libc::ENODEV)
}

/// libdrm's.
///
/// # Safety
/// As of libdrm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_device_deinitialize(dev: *mut c_void) -> c_int {
    if dev == handle() {
        return 0;
    }
    real!(amdgpu_device_deinitialize(dev: *mut c_void) -> c_int, -libc::EINVAL)
}

/// libdrm's: a C string that stays.
///
/// # Safety
/// As of libdrm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_get_marketing_name(dev: *mut c_void) -> *const c_char {
    if dev != handle() {
        return real!(amdgpu_get_marketing_name(dev: *mut c_void) -> *const c_char, std::ptr::null());
    }
    static NAME: std::sync::OnceLock<std::ffi::CString> = std::sync::OnceLock::new();
    NAME.get_or_init(|| {
        let name = Device::current().map(|device| device.settings.card.board.full_name());
        std::ffi::CString::new(name.unwrap_or_default()).unwrap_or_default()
    })
    .as_ptr()
}

/// libdrm's: the descriptor that a device is used through.
///
/// # Safety
/// As of libdrm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_device_get_fd(dev: *mut c_void) -> c_int {
    if dev == handle() {
        return Device::current().and_then(|device| device.shared_descriptor().ok()).unwrap_or(-1);
    }
    real!(amdgpu_device_get_fd(dev: *mut c_void) -> c_int, -libc::EINVAL)
}

/// libdrm's.
///
/// # Safety
/// As of libdrm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_query_gpu_info(dev: *mut c_void, info: *mut c_void) -> c_int {
    if dev == handle() {
        let Some(device) = Device::current() else { return -libc::ENODEV };
        if info.is_null() {
            return -libc::EINVAL;
        }
        // SAFETY: the caller's structure is of this type.
        unsafe { info.cast::<GpuInfo>().write_unaligned(gpu_info(device.settings.card)) };
        return 0;
    }
    real!(amdgpu_query_gpu_info(dev: *mut c_void, info: *mut c_void) -> c_int, -libc::EINVAL)
}

fn gpu_info(card: VirtualCard) -> GpuInfo {
    let Board { compute_units, clocks, memory, .. } = card.board;
    GpuInfo {
        asic_id: card.device().into(),
        chip_rev: 0,
        // Where the numbers of each chip begin.
        chip_external_rev: match card.chip.name {
            "Navi 12" => 10,
            "Navi 14" => 20,
            _ => 2,
        },
        family_id: FAMILY_NAVI,
        ids_flags: 0,
        // kHz.
        max_engine_clk: u64::from(clocks.boost) * 1000,
        max_memory_clk: u64::from(card.memory_mhz()) * 1000,
        num_shader_engines: card.chip.shader_engines,
        num_shader_arrays_per_engine: card.chip.arrays_per_engine,
        graphics: [0; 69],
        cu_active_number: *compute_units,
        cu_ao_mask: 0,
        cu_bitmap: [0; 16],
        // `AMDGPU_VRAM_TYPE_*` of amdgpu_drm.h.
        vram_type: match memory.kind {
            MemoryKind::Gddr5 => 5,
            MemoryKind::Hbm2 => 6,
            MemoryKind::Gddr6 => 9,
            MemoryKind::Lpddr5 => 12,
        },
        vram_bit_width: memory.bus_bits,
        ce_ram_size: 0,
        vce_harvest_config: 0,
        pci_rev_id: card.revision().into(),
    }
}
