//! gfx1031: Navi 22.

use super::{Chip, Family, Target};
use crate::MemoryKind::Gddr6;
use crate::{Board, Clocks, Memory};

pub(super) const TARGET: Target = Target {
    name: "gfx1031",
    family: Family::Gfx10_3,
    graphics_cores: &[(10, 3, 2)],
    pci: &[0x73c0, 0x73c1, 0x73c3, 0x73da, 0x73db, 0x73dc, 0x73dd, 0x73de, 0x73df],
    integrated: false,
    elf: 0x37,
    code_of: None,
    registers: 1024,
    rocm_wheels: true,
    chip: Some(Chip { name: "Navi 22", shader_engines: 2, arrays_per_engine: 2, l2_kib: 3072 }),
    boards: BOARDS,
};

const BOARDS: &[Board] = &[
    Board {
        name: "RX 6700",
        devices: &[0x73df],
        revisions: &[0xdf, 0xff],
        compute_units: 36,
        clocks: Clocks { base: Some(1941), game: Some(2174), boost: 2450 },
        memory: Memory { kind: Gddr6, mib: 10240, bus_bits: 160, pin_mbps: 16000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-6700.c3716; game: itigic.com/de/amd-launches-its-rx-6700-specifications-and-performance/",
    },
    Board {
        name: "RX 6700 XT",
        devices: &[0x73df],
        revisions: &[0xc1, 0xc5],
        compute_units: 40,
        clocks: Clocks { base: Some(2321), game: Some(2424), boost: 2581 },
        memory: Memory { kind: Gddr6, mib: 12288, bus_bits: 192, pin_mbps: 16000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-6700-xt.c3695; game: kitguru.net/components/graphic-cards/matthew-wilson/asus-sapphire-and-powercolor-announce-custom-rx-6950-xt-rx-6750-xt-and-rx-6650-xt-graphics-cards/",
    },
    Board {
        name: "RX 6750 XT",
        devices: &[0x73df],
        revisions: &[0xc0],
        compute_units: 40,
        clocks: Clocks { base: Some(2150), game: Some(2495), boost: 2600 },
        memory: Memory { kind: Gddr6, mib: 12288, bus_bits: 192, pin_mbps: 18000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-6750-xt.c3879; game: kitguru.net/components/graphic-cards/matthew-wilson/asus-sapphire-and-powercolor-announce-custom-rx-6950-xt-rx-6750-xt-and-rx-6650-xt-graphics-cards/",
    },
];
