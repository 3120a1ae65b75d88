//! The sysfs files that amdgpu would publish, as text by path below `/sys/devices/virtual/kfd/kfd/topology`.
//!
//! Names and meanings: `Documentation/ABI` and `drivers/gpu/drm/amd/amdkfd/kfd_topology.c` of Linux.

use std::fmt::Write as _;

use crate::cards::VirtualCard;

/// The id by which ioctls name the card; KFD takes a hash.
pub const GPU_ID: u32 = 0x5a31;
/// The card's node; node 0 is the processor.
pub const NODE: u32 = 1;
/// Minor number of the render node.
pub const RENDER_MINOR: u32 = 128;

/// Where the card is on the PCI bus.
pub const ADDRESS: &str = "0000:03:00.0";

/// The files of the card's PCI device, as text by path below it.
pub fn pci(card: VirtualCard) -> Vec<(String, String)> {
    let (device, revision) = (card.device(), card.revision());
    let event = format!(
        "DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_ID=1002:{device:04X}\nPCI_SUBSYS_ID=1002:0B36\nPCI_SLOT_NAME={ADDRESS}\n"
    );
    let files = [
        ("vendor", "0x1002\n".to_owned()),
        ("device", format!("{device:#06x}\n")),
        ("subsystem_vendor", "0x1002\n".to_owned()),
        ("subsystem_device", "0x0b36\n".to_owned()),
        ("revision", format!("{revision:#04x}\n")),
        ("class", "0x030000\n".to_owned()),
        ("uevent", event),
        ("pp_dpm_mclk", format!("0: 100Mhz\n1: {}Mhz *\n", card.memory_mhz())),
    ];
    files.into_iter().map(|(path, text)| (path.to_owned(), text)).collect()
}

/// amdgpu keeps 16 MiB of a board's memory to itself.
pub fn vram_bytes(card: VirtualCard) -> u64 {
    (u64::from(card.board.memory.mib) - 16) << 20
}

/// Of a link's flags: no PCIe atomics of 32 and of 64 bits (linux `include/uapi/linux/kfd_sysfs.h`).
const NO_ATOMICS: u64 = 1 << 2 | 1 << 3;

/// All files: path, text. `atomics`: whether the link to the processor carries PCIe atomics.
pub fn files(card: VirtualCard, processors: u32, host_bytes: u64, atomics: bool) -> Vec<(String, String)> {
    let mut files = vec![
        ("generation_id".to_owned(), "1\n".to_owned()),
        (
            "system_properties".to_owned(),
            properties(&[("platform_oem", 0), ("platform_id", 0), ("platform_rev", 0)]),
        ),
        ("nodes/0/gpu_id".to_owned(), "0\n".to_owned()),
        ("nodes/0/name".to_owned(), "\n".to_owned()),
        (
            "nodes/0/properties".to_owned(),
            properties(&[
                ("cpu_cores_count", processors.into()),
                ("simd_count", 0),
                ("mem_banks_count", 1),
                ("caches_count", HOST_CACHES.len() as u64),
                // A link towards the card would say that the host reaches all of its memory (a large BAR).
                ("io_links_count", 0),
                ("cpu_core_id_base", 0),
            ]),
        ),
        (
            "nodes/0/mem_banks/0/properties".to_owned(),
            properties(&[
                ("heap_type", 0),
                ("size_in_bytes", host_bytes),
                ("flags", 0),
                ("width", 0),
                ("mem_clk_max", 0),
            ]),
        ),
        (format!("nodes/{NODE}/gpu_id"), format!("{GPU_ID}\n")),
        (format!("nodes/{NODE}/name"), format!("{}\n", card.chip.driver_name())),
        (format!("nodes/{NODE}/properties"), node(card)),
        (
            format!("nodes/{NODE}/mem_banks/0/properties"),
            properties(&[
                // FRAME_BUFFER_PRIVATE: the host does not see it.
                ("heap_type", 2),
                ("size_in_bytes", vram_bytes(card)),
                ("flags", 0),
                ("width", card.board.memory.bus_bits.into()),
                ("mem_clk_max", card.memory_mhz().into()),
            ]),
        ),
        (
            format!("nodes/{NODE}/io_links/0/properties"),
            properties(&[
                // PCI Express.
                ("type", 2),
                ("version_major", 0),
                ("version_minor", 0),
                ("node_from", NODE.into()),
                ("node_to", 0),
                ("weight", 20),
                ("min_latency", 0),
                ("max_latency", 0),
                ("min_bandwidth", 0),
                ("max_bandwidth", 0),
                ("recommended_transfer_size", 0),
                ("flags", if atomics { 0 } else { NO_ATOMICS }),
            ]),
        ),
    ];
    let of_host = HOST_CACHES.iter().enumerate().map(|(index, row)| (0, index, 0, 64, *row));
    let caches = caches(card);
    let of_card = caches.iter().enumerate().map(|(index, row)| (NODE, index, SIMD_BASE, 128, *row));
    for (node, index, processor, line, (level, kib, kind)) in of_host.chain(of_card) {
        let mut text = properties(&[
            ("processor_id_low", processor),
            ("level", level),
            ("size", kib),
            ("cache_line_size", line),
            ("cache_lines_per_tag", 1),
            ("association", 16),
            ("latency", 0),
            ("type", kind),
        ]);
        text.push_str("sibling_map 1\n");
        files.push((format!("nodes/{node}/caches/{index}/properties"), text));
    }
    files
}

/// The host's, as [`caches`]; type 4 is a processor's. Without these the runtime looks in places of sysfs that
/// virtual machines leave empty, and aborts.
const HOST_CACHES: [(u64, u64, u64); 3] = [(1, 32, 5), (2, 1024, 5), (3, 32 << 10, 5)];

const SIMD_BASE: u64 = 0x8000_1000;
const SIMDS_PER_CU: u32 = 2;

/// Level, KiB, type (1 data, 2 instructions, 8 of a GPU): one row for each kind of cache of RDNA1.
fn caches(card: VirtualCard) -> [(u64, u64, u64); 5] {
    [(1, 16, 9), (1, 32, 10), (1, 16, 9), (1, 128, 9), (2, card.chip.l2_kib.into(), 9)]
}

fn node(card: VirtualCard) -> String {
    let arrays = card.chip.shader_engines * card.chip.arrays_per_engine;
    properties(&[
        ("cpu_cores_count", 0),
        ("simd_count", (card.board.compute_units * SIMDS_PER_CU).into()),
        ("mem_banks_count", 1),
        ("caches_count", caches(card).len() as u64),
        ("io_links_count", 1),
        ("p2p_links_count", 0),
        ("cpu_core_id_base", 0),
        ("simd_id_base", SIMD_BASE),
        ("max_waves_per_simd", 20),
        ("lds_size_in_kb", 64),
        ("gds_size_in_kb", 0),
        ("num_gws", 0),
        ("wave_front_size", 32),
        ("array_count", arrays.into()),
        ("simd_arrays_per_engine", card.chip.arrays_per_engine.into()),
        ("cu_per_simd_array", card.board.compute_units.div_ceil(arrays).into()),
        ("simd_per_cu", SIMDS_PER_CU.into()),
        ("max_slots_scratch_cu", 32),
        ("gfx_target_version", card.target.kfd().into()),
        ("vendor_id", 0x1002),
        ("device_id", card.device().into()),
        ("location_id", 0x0300),
        ("domain", 0),
        ("drm_render_minor", RENDER_MINOR.into()),
        ("hive_id", 0),
        ("num_sdma_engines", 2),
        ("num_sdma_xgmi_engines", 0),
        ("num_sdma_queues_per_engine", 8),
        ("num_cp_queues", 8),
        ("max_engine_clk_fcompute", card.board.clocks.boost.into()),
        ("local_mem_size", vram_bytes(card)),
        ("fw_version", 150),
        ("capability", CAPABILITY),
        ("debug_prop", 0),
        ("sdma_fw_version", 35),
        ("unique_id", 0),
        ("num_xcc", 1),
        ("max_engine_clk_ccompute", 3000),
    ])
}

/// Doorbells of 64 bits with AQL semantics (type 2), four watch points.
const CAPABILITY: u64 = 2 << 12 | 2 << 8 | 1 << 7;

fn properties(rows: &[(&str, u64)]) -> String {
    rows.iter().fold(String::new(), |mut text, (name, value)| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{name} {value}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::USUAL;

    fn value(card: VirtualCard, path: &str, name: &str) -> u64 {
        let files = files(card, 2, 1 << 34, true);
        let (_, text) = files.iter().find(|(at, _)| at == path).unwrap();
        let line = text.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
        line.split(' ').nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn shader_arrays_hold_all_compute_units() {
        for card in VirtualCard::all() {
            let at = |name| value(card, "nodes/1/properties", name);
            assert!(
                at("array_count") * at("cu_per_simd_array") >= u64::from(card.board.compute_units),
                "{}",
                card.board.name
            );
            assert_eq!(at("simd_count") / at("simd_per_cu"), u64::from(card.board.compute_units));
        }
    }

    #[test]
    fn every_counted_thing_has_its_files() {
        let card = VirtualCard::by_id(USUAL).unwrap();
        let files = files(card, 2, 1 << 34, true);
        for (count, folder) in
            [("mem_banks_count", "mem_banks"), ("caches_count", "caches"), ("io_links_count", "io_links")]
        {
            for node in [0, 1] {
                let stated = value(card, &format!("nodes/{node}/properties"), count);
                let prefix = format!("nodes/{node}/{folder}/");
                let there = files.iter().filter(|(path, _)| path.starts_with(&prefix)).count() as u64;
                assert_eq!(stated, there, "{prefix}");
            }
        }
    }
}
