//! gfx1034: Navi 24.

use super::{Chip, Family, Target};
use crate::MemoryKind::Gddr6;
use crate::{Board, Clocks, Memory};

pub(super) const TARGET: Target = Target {
    name: "gfx1034",
    family: Family::Gfx10_3,
    graphics_cores: &[(10, 3, 5)],
    pci: &[0x7420, 0x7421, 0x7422, 0x7423, 0x7424, 0x743f],
    integrated: false,
    elf: 0x3e,
    code_of: None,
    registers: 1024,
    rocm_wheels: true,
    chip: Some(Chip { name: "Navi 24", shader_engines: 1, arrays_per_engine: 2, l2_kib: 1024 }),
    boards: BOARDS,
};

const BOARDS: &[Board] = &[
    Board {
        name: "RX 6400",
        devices: &[0x743f],
        revisions: &[0xc7, 0xd7],
        compute_units: 12,
        clocks: Clocks { base: Some(1923), game: None, boost: 2321 },
        memory: Memory { kind: Gddr6, mib: 4096, bus_bits: 64, pin_mbps: 16000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-6400.c3813; memory/IC also club386.com/amd-launches-199-radeon-rx-6500-xt-graphics-card-cheaper-rdna-2/",
    },
    Board {
        name: "RX 6500 XT",
        devices: &[0x743f],
        revisions: &[0xc1],
        compute_units: 16,
        clocks: Clocks { base: Some(2310), game: Some(2610), boost: 2815 },
        memory: Memory { kind: Gddr6, mib: 4096, bus_bits: 64, pin_mbps: 18000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-6500-xt.c3850; game/memory: club386.com/amd-launches-199-radeon-rx-6500-xt-graphics-card-cheaper-rdna-2/",
    },
];
