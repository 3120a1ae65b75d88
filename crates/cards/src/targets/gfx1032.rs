//! gfx1032: Navi 23.

use super::{Chip, Family, Target};
use crate::MemoryKind::Gddr6;
use crate::{Board, Clocks, Memory};

pub(super) const TARGET: Target = Target {
    name: "gfx1032",
    family: Family::Gfx10_3,
    graphics_cores: &[(10, 3, 4)],
    pci: &[0x73e0, 0x73e1, 0x73e2, 0x73e3, 0x73e8, 0x73e9, 0x73ea, 0x73eb, 0x73ec, 0x73ed, 0x73ef, 0x73ff],
    integrated: false,
    elf: 0x38,
    code_of: None,
    registers: 1024,
    rocm_wheels: true,
    chip: Some(Chip { name: "Navi 23", shader_engines: 2, arrays_per_engine: 2, l2_kib: 2048 }),
    boards: BOARDS,
};

const BOARDS: &[Board] = &[
    Board {
        name: "RX 6600",
        devices: &[0x73ff],
        revisions: &[0xc7],
        compute_units: 28,
        clocks: Clocks { base: Some(1626), game: Some(2044), boost: 2491 },
        memory: Memory { kind: Gddr6, mib: 8192, bus_bits: 128, pin_mbps: 14000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-6600.c3696; game: overclock3d.net/news/gpu_displays/amd_s_rx_6500_xt_is_amd_s_highest_clock_speeds_rx_6000_series_product/1",
    },
    Board {
        name: "RX 6600 XT",
        devices: &[0x73ff],
        revisions: &[0xc1],
        compute_units: 32,
        clocks: Clocks { base: Some(1968), game: Some(2359), boost: 2589 },
        memory: Memory { kind: Gddr6, mib: 8192, bus_bits: 128, pin_mbps: 16000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-6600-xt.c3774; game: kitguru.net/components/graphic-cards/matthew-wilson/asus-sapphire-and-powercolor-announce-custom-rx-6950-xt-rx-6750-xt-and-rx-6650-xt-graphics-cards/",
    },
    Board {
        name: "RX 6650 XT",
        devices: &[0x73ef],
        revisions: &[0xc1],
        compute_units: 32,
        clocks: Clocks { base: Some(2055), game: Some(2410), boost: 2635 },
        memory: Memory { kind: Gddr6, mib: 8192, bus_bits: 128, pin_mbps: 17500 },
        source: "techpowerup.com/gpu-specs/radeon-rx-6650-xt.c3898; game/memory: kitguru.net/components/graphic-cards/matthew-wilson/asus-sapphire-and-powercolor-announce-custom-rx-6950-xt-rx-6750-xt-and-rx-6650-xt-graphics-cards/",
    },
];
