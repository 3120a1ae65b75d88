//! gfx1200: Navi 44.

use super::{Chip, Family, Target};
use crate::MemoryKind::Gddr6;
use crate::{Board, Clocks, Memory};

pub(super) const TARGET: Target = Target {
    name: "gfx1200",
    family: Family::Gfx12,
    graphics_cores: &[(12, 0, 0)],
    pci: &[0x7590],
    integrated: false,
    elf: 0x48,
    code_of: None,
    registers: 1536,
    rocm_wheels: true,
    chip: Some(Chip { name: "Navi 44", shader_engines: 2, arrays_per_engine: 2, l2_kib: 4096 }),
    boards: BOARDS,
};

const BOARDS: &[Board] = &[
    Board {
        name: "RX 9060 XT",
        devices: &[0x7590],
        revisions: &[0xc0],
        compute_units: 32,
        clocks: Clocks { base: Some(1700), game: Some(2530), boost: 3130 },
        memory: Memory { kind: Gddr6, mib: 16384, bus_bits: 128, pin_mbps: 20000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-9060-xt-16-gb.c4293; game: corsair.com/ca/en/explorer/diy-builder/blogs/amd-rx-9060-xt-vs-9070-whats-the-difference (listed there as 'base')",
    },
    Board {
        name: "RX 9060 XT 8 GB",
        devices: &[0x7590],
        revisions: &[0xc0],
        compute_units: 32,
        clocks: Clocks { base: Some(1700), game: Some(2530), boost: 3130 },
        memory: Memory { kind: Gddr6, mib: 8192, bus_bits: 128, pin_mbps: 20000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-9060-xt-8-gb.c4251; game: corsair.com/ca/en/explorer/diy-builder/blogs/amd-rx-9060-xt-vs-9070-whats-the-difference (listed there as 'base')",
    },
];
