//! What the driver tells of the card (`INFO`): Navi 10, 12 and 14 as Linux describes them, from `crates/cards`.

use crate::cards::VirtualCard;
use crate::device::Device;
use crate::errno::{Errno, Result};
use crate::request::{Argument, args, call};
use crate::user::{self, PAGE, Plain};
use wave32_cards::{Board, MemoryKind};

use super::gem::{HIGH, LOW, VISIBLE_BYTES};

args! {
    Info { to: u64, bytes: u32, query: u32, parameters: [u32; 4] }
    DeviceInfo {
        device_id: u32, chip_rev: u32, external_rev: u32, pci_rev: u32,
        family: u32, num_shader_engines: u32, num_shader_arrays_per_engine: u32, gpu_counter_freq: u32,
        max_engine_clock: u64, max_memory_clock: u64,
        cu_active_number: u32, cu_ao_mask: u32, cu_bitmap: [[u32; 4]; 4],
        enabled_rb_pipes_mask: u32, num_rb_pipes: u32, num_hw_gfx_contexts: u32, pcie_gen: u32,
        ids_flags: u64, virtual_address_offset: u64, virtual_address_max: u64,
        virtual_address_alignment: u32, pte_fragment_size: u32, gart_page_size: u32, ce_ram_size: u32,
        vram_type: u32, vram_bit_width: u32, vce_harvest_config: u32, gc_double_offchip_lds_buf: u32,
        primitive_addresses: [u64; 4], primitive_sizes: [u32; 4],
        wave_front_size: u32, num_shader_visible_vgprs: u32, num_cu_per_sh: u32, num_tcc_blocks: u32,
        gs_vgt_table_depth: u32, gs_prim_buffer_depth: u32, max_gs_waves_per_vgt: u32, pcie_num_lanes: u32,
        cu_ao_bitmap: [[u32; 4]; 4],
        high_va_offset: u64, high_va_max: u64,
        pa_sc_tile_steering_override: u32, pad: u32,
        tcc_disabled_mask: u64, min_engine_clock: u64, min_memory_clock: u64,
        of_later_chips: [u32; 16],
    }
    HardwareIp {
        major: u32, minor: u32, capabilities: u64, ib_start_alignment: u32, ib_size_alignment: u32,
        rings: u32, discovery_version: u32,
    }
    Firmware { version: u32, feature: u32 }
    VramGtt { vram: u64, visible: u64, gtt: u64 }
    MaxIbs { of: [u32; 9] }
    Heap { total: u64, usable: u64, usage: u64, max_allocation: u64 }
    Memory { vram: Heap, visible: Heap, gtt: Heap }
}

const FAMILY_NAVI: u32 = 143;
const GB_ADDR_CONFIG: u32 = 0x263e;
/// What a job's command buffers are limited to.
const MAX_IBS: u32 = 192;
/// Discovery's version of the graphics core, 10.1.10 and so on.
const GRAPHICS: u32 = 0;
const COMPUTE: u32 = 1;

/// Render backends and L2 slices of a chip; and how its memory addresses are spread, of which Navi 14's is a guess.
fn slices(card: VirtualCard) -> (u32, u32) {
    if card.chip.shader_engines > 1 { (16, 0x0010_0044) } else { (8, 0x0010_0043) }
}

/// Compute units of the arrays of each engine, two at a time: the first arrays have more.
fn bitmap(card: VirtualCard) -> [[u32; 4]; 4] {
    let (engines, arrays) = (card.chip.shader_engines, card.chip.arrays_per_engine);
    let (all, pairs) = (engines * arrays, card.board.compute_units / 2);
    let mut map = [[0; 4]; 4];
    for engine in 0..engines {
        for array in 0..arrays {
            let place = engine * arrays + array;
            let count = 2 * (pairs / all + u32::from(place < pairs % all));
            map[engine as usize][array as usize] = (1 << count) - 1;
        }
    }
    map
}

fn device_info(card: VirtualCard) -> DeviceInfo {
    let Board { compute_units, clocks, memory, .. } = card.board;
    let map = bitmap(card);
    let backends = slices(card).0;
    // SAFETY: integers alone, and 0 is one.
    let none = unsafe { std::mem::zeroed::<DeviceInfo>() };
    DeviceInfo {
        device_id: card.device().into(),
        chip_rev: 2,
        // Where the numbers of each chip begin.
        external_rev: match card.chip.name {
            "Navi 12" => 10,
            "Navi 14" => 20,
            _ => 3,
        },
        pci_rev: card.revision().into(),
        family: FAMILY_NAVI,
        num_shader_engines: card.chip.shader_engines,
        num_shader_arrays_per_engine: card.chip.arrays_per_engine,
        // kHz, as the clocks below.
        gpu_counter_freq: 100_000,
        max_engine_clock: u64::from(clocks.boost) * 1000,
        max_memory_clock: u64::from(card.memory_mhz()) * 1000,
        cu_active_number: *compute_units,
        cu_ao_mask: map[0][0],
        cu_bitmap: map,
        enabled_rb_pipes_mask: (1 << backends) - 1,
        num_rb_pipes: backends,
        num_hw_gfx_contexts: 8,
        pcie_gen: 4,
        virtual_address_offset: LOW[0],
        virtual_address_max: LOW[1],
        virtual_address_alignment: PAGE as u32,
        pte_fragment_size: 2 << 20,
        gart_page_size: PAGE as u32,
        ce_ram_size: 65536,
        // `AMDGPU_VRAM_TYPE_*`.
        vram_type: match memory.kind {
            MemoryKind::Gddr5 => 5,
            MemoryKind::Hbm2 => 6,
            MemoryKind::Gddr6 => 9,
            MemoryKind::Lpddr5 => 12,
        },
        vram_bit_width: memory.bus_bits,
        wave_front_size: 32,
        num_shader_visible_vgprs: card.target.registers,
        num_cu_per_sh: map[0][0].count_ones(),
        num_tcc_blocks: backends,
        gs_vgt_table_depth: 32,
        gs_prim_buffer_depth: 1792,
        max_gs_waves_per_vgt: 32,
        pcie_num_lanes: 16,
        cu_ao_bitmap: map,
        high_va_offset: HIGH[0],
        high_va_max: HIGH[1],
        ..none
    }
}

fn hardware(card: VirtualCard, kind: u32) -> HardwareIp {
    let rings = match kind {
        GRAPHICS => 1,
        COMPUTE => 0xf,
        _ => 0,
    };
    if rings == 0 {
        // Copies and video are not there: asked for, they would have to work.
        // SAFETY: integers alone.
        return unsafe { std::mem::zeroed() };
    }
    let stepping = card.target.graphics_cores.first().map_or(0, |core| core.2);
    HardwareIp {
        major: 10,
        minor: 0,
        capabilities: 0,
        ib_start_alignment: 32,
        ib_size_alignment: 32,
        rings,
        discovery_version: 10 << 16 | 1 << 8 | stepping,
    }
}

fn memory(device: &Device) -> Memory {
    let heap = |total: u64, usage: u64| Heap { total, usable: total, usage, max_allocation: total / 4 * 3 };
    let ([vram, gtt], [vram_used, gtt_used]) = (device.vm.sizes(), device.vm.used());
    Memory {
        vram: heap(vram, vram_used),
        visible: heap(VISIBLE_BYTES, device.drm.gems.visible()),
        gtt: heap(gtt, gtt_used),
    }
}

/// Writes as much of an answer as there is room for.
///
/// # Safety
/// The program said that it is to be written there; nothing of ours lies there.
unsafe fn answer<T: Plain>(a: &Info, value: T) -> Result<()> {
    let list = [value];
    let bytes = user::bytes_of(&list);
    // SAFETY: the caller's promise.
    unsafe { user::write_bytes(a.to, &bytes[..bytes.len().min(a.bytes as usize)]) }
}

/// Tells.
///
/// # Safety
/// What the request answers is written where the program said: nothing of ours lies there.
pub unsafe fn ioctl(device: &Device, at: Argument) -> Result<()> {
    let card = device.settings.card;
    // SAFETY: the caller's promise, handed on.
    unsafe {
        call(Argument { answered: false, ..at }, |a: &mut Info| {
            let [first, ..] = a.parameters;
            match a.query {
                // Whether the card works at all.
                0x00 => answer(a, 1u32),
                0x02 => answer(a, hardware(card, first)),
                0x03 => answer(a, u32::from(first <= COMPUTE)),
                0x05 => answer(a, device.ticks()),
                0x0e => answer(
                    a,
                    match first {
                        // ME, PFP, MEC.
                        4 => Firmware { version: 100, feature: 34 },
                        5 => Firmware { version: 155, feature: 34 },
                        8 => Firmware { version: 146, feature: 34 },
                        _ => Firmware { version: 0, feature: 0 },
                    },
                ),
                // Bytes moved, evictions, page faults, lost memory: none.
                0x0f | 0x18 | 0x1e => answer(a, 0u64),
                0x1f => answer(a, 0u32),
                0x10 => answer(a, device.vm.used()[0]),
                0x11 => answer(a, device.vm.used()[1]),
                0x14 => {
                    let [vram, gtt] = device.vm.sizes();
                    answer(a, VramGtt { vram, visible: VISIBLE_BYTES, gtt })
                }
                0x15 if first == GB_ADDR_CONFIG && a.parameters[1] == 1 => answer(a, slices(card).1),
                0x16 => answer(a, device_info(card)),
                0x17 => answer(a, device.drm.gems.visible()),
                0x19 => answer(a, memory(device)),
                0x20 => answer(a, 0u64),
                // Command buffers of a job, for each kind of ring.
                0x22 => answer(a, MaxIbs { of: [MAX_IBS, MAX_IBS, 0, 0, 0, 0, 0, 0, 0] }),
                _ => Err(Errno::INVALID),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_compute_units_are_in_the_bitmap() {
        for card in VirtualCard::all() {
            let bits: u32 = bitmap(card).iter().flatten().map(|row| row.count_ones()).sum();
            assert_eq!(bits, card.board.compute_units, "{}", card.board.name);
        }
        let small = bitmap(VirtualCard::by_id("rx5500xt").unwrap());
        assert_eq!(small[0], [0xfff, 0x3ff, 0, 0]);
    }
}
