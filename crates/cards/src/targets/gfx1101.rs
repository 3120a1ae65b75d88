//! gfx1101: Navi 32.

use super::{Chip, Family, Target};
use crate::MemoryKind::Gddr6;
use crate::{Board, Clocks, Memory};

pub(super) const TARGET: Target = Target {
    name: "gfx1101",
    family: Family::Gfx11,
    graphics_cores: &[(11, 0, 3)],
    pci: &[0x73c4, 0x73c5, 0x73c8, 0x7460, 0x7461, 0x7470, 0x7478, 0x747e],
    integrated: false,
    elf: 0x46,
    code_of: None,
    registers: 1536,
    rocm_wheels: true,
    chip: Some(Chip { name: "Navi 32", shader_engines: 3, arrays_per_engine: 2, l2_kib: 4096 }),
    boards: BOARDS,
};

const BOARDS: &[Board] = &[
    Board {
        name: "RX 7700 XT",
        devices: &[0x747e],
        revisions: &[0xff],
        compute_units: 54,
        clocks: Clocks { base: Some(1435), game: Some(2171), boost: 2544 },
        memory: Memory { kind: Gddr6, mib: 12288, bus_bits: 192, pin_mbps: 18000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-7700-xt.c3911; game: avmagazine.it/news/gaming/amd-arrivano-le-gpu-radeon-rx-7700-xt-e-rx-7800-xt_20570.html",
    },
    Board {
        name: "RX 7800 XT",
        devices: &[0x747e],
        revisions: &[0xc8],
        compute_units: 60,
        clocks: Clocks { base: Some(1295), game: Some(2124), boost: 2430 },
        memory: Memory { kind: Gddr6, mib: 16384, bus_bits: 256, pin_mbps: 19500 },
        source: "techpowerup.com/gpu-specs/radeon-rx-7800-xt.c3839; game: avmagazine.it/news/gaming/amd-arrivano-le-gpu-radeon-rx-7700-xt-e-rx-7800-xt_20570.html",
    },
];
