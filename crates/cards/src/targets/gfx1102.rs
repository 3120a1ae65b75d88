//! gfx1102: Navi 33.

use super::{Chip, Family, Target};
use crate::MemoryKind::Gddr6;
use crate::{Board, Clocks, Memory};

pub(super) const TARGET: Target = Target {
    name: "gfx1102",
    family: Family::Gfx11,
    graphics_cores: &[(11, 0, 2)],
    pci: &[0x73f0, 0x7480, 0x7481, 0x7483, 0x7487, 0x7489, 0x748b, 0x7499],
    integrated: false,
    elf: 0x47,
    code_of: None,
    registers: 1024,
    rocm_wheels: true,
    chip: Some(Chip { name: "Navi 33", shader_engines: 2, arrays_per_engine: 2, l2_kib: 2048 }),
    boards: BOARDS,
};

const BOARDS: &[Board] = &[
    Board {
        name: "RX 7600",
        devices: &[0x7480],
        revisions: &[0xcf],
        compute_units: 32,
        clocks: Clocks { base: Some(1720), game: Some(2250), boost: 2655 },
        memory: Memory { kind: Gddr6, mib: 8192, bus_bits: 128, pin_mbps: 18000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-7600.c4153; game: guru3d.com/articles-pages/radeon-rx-7600-review,4.html (its boost 2625)",
    },
    Board {
        name: "RX 7600 XT",
        devices: &[0x7480],
        revisions: &[0xc0],
        compute_units: 32,
        clocks: Clocks { base: Some(1980), game: Some(2470), boost: 2755 },
        memory: Memory { kind: Gddr6, mib: 16384, bus_bits: 128, pin_mbps: 18000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-7600-xt.c4190; game: club386.com/amd-radeon-rx-9060-xt-may-sit-710mhz-higher-than-rx-9070",
    },
];
