//! gfx1011: Navi 12.

use super::{Chip, Family, Target};
use crate::MemoryKind::Hbm2;
use crate::{Board, Clocks, Memory};

pub(super) const TARGET: Target = Target {
    name: "gfx1011",
    family: Family::Gfx10_1,
    graphics_cores: &[(10, 1, 2)],
    pci: &[0x7360, 0x7362],
    integrated: false,
    elf: 0x34,
    code_of: Some("gfx1010"),
    registers: 1024,
    rocm_wheels: true,
    chip: Some(Chip { name: "Navi 12", shader_engines: 2, arrays_per_engine: 2, l2_kib: 4096 }),
    boards: BOARDS,
};

const BOARDS: &[Board] = &[
    Board {
        name: "Pro 5600M",
        devices: &[0x7360],
        revisions: &[0x41],
        compute_units: 40,
        clocks: Clocks { base: Some(822), game: None, boost: 1035 },
        memory: Memory { kind: Hbm2, mib: 8192, bus_bits: 2048, pin_mbps: 1540 },
        source: "techpowerup.com/gpu-specs/radeon-pro-5600m.c3612; boost/memory: AMD via anandtech.com/show/15853 (TPU 1144)",
    },
    Board {
        name: "Pro V520",
        devices: &[0x7360, 0x7362],
        revisions: &[0xc3],
        compute_units: 36,
        clocks: Clocks { base: Some(1000), game: None, boost: 1600 },
        memory: Memory { kind: Hbm2, mib: 8192, bus_bits: 2048, pin_mbps: 2000 },
        source: "techpowerup.com/gpu-specs/radeon-pro-v520.c3755; CU/memory/7.4 TFLOPS also inpact-hardware.com/article/2766/",
    },
];
