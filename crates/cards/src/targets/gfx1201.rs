//! gfx1201: Navi 48.

use super::{Chip, Family, Target};
use crate::MemoryKind::Gddr6;
use crate::{Board, Clocks, Memory};

pub(super) const TARGET: Target = Target {
    name: "gfx1201",
    family: Family::Gfx12,
    graphics_cores: &[(12, 0, 1)],
    pci: &[0x7550, 0x7551],
    integrated: false,
    elf: 0x4e,
    code_of: Some("gfx1201"),
    registers: 1536,
    rocm_wheels: true,
    chip: Some(Chip { name: "Navi 48", shader_engines: 4, arrays_per_engine: 2, l2_kib: 8192 }),
    boards: BOARDS,
};

const BOARDS: &[Board] = &[
    Board {
        name: "RX 9070",
        devices: &[0x7550],
        revisions: &[0xc3],
        compute_units: 56,
        clocks: Clocks { base: Some(1330), game: Some(2070), boost: 2520 },
        memory: Memory { kind: Gddr6, mib: 16384, bus_bits: 256, pin_mbps: 20000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-9070.c4250; game: club386.com/amd-radeon-rx-9060-xt-may-sit-710mhz-higher-than-rx-9070",
    },
    Board {
        name: "RX 9070 XT",
        devices: &[0x7550],
        revisions: &[0xc0],
        compute_units: 64,
        clocks: Clocks { base: Some(1660), game: Some(2400), boost: 2970 },
        memory: Memory { kind: Gddr6, mib: 16384, bus_bits: 256, pin_mbps: 20000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-9070-xt.c4229; game: azhotdeal.com/exploring-amds-radeon-rx-9070-series-specifications/ (VideoCardz)",
    },
];
