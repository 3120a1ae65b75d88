//! gfx1030: Navi 21.

use super::{Chip, Family, Target};
use crate::MemoryKind::Gddr6;
use crate::{Board, Clocks, Memory};

pub(super) const TARGET: Target = Target {
    name: "gfx1030",
    family: Family::Gfx10_3,
    graphics_cores: &[(10, 3, 0)],
    pci: &[0x73a0, 0x73a1, 0x73a2, 0x73a3, 0x73a5, 0x73a8, 0x73a9, 0x73ab, 0x73ac, 0x73ad, 0x73ae, 0x73af, 0x73bf],
    integrated: false,
    elf: 0x36,
    code_of: Some("gfx1030"),
    registers: 1024,
    rocm_wheels: true,
    chip: Some(Chip { name: "Navi 21", shader_engines: 4, arrays_per_engine: 2, l2_kib: 4096 }),
    boards: BOARDS,
};

const BOARDS: &[Board] = &[
    Board {
        name: "RX 6800",
        devices: &[0x73bf],
        revisions: &[0xc3],
        compute_units: 60,
        clocks: Clocks { base: Some(1700), game: Some(1815), boost: 2105 },
        memory: Memory { kind: Gddr6, mib: 16384, bus_bits: 256, pin_mbps: 16000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-6800.c3713; game: pcper.com/2020/10/amd-radeon-rx-6000-lineup-detailed/",
    },
    Board {
        name: "RX 6800 XT",
        devices: &[0x73bf],
        revisions: &[0xc1],
        compute_units: 72,
        clocks: Clocks { base: Some(1825), game: Some(2015), boost: 2250 },
        memory: Memory { kind: Gddr6, mib: 16384, bus_bits: 256, pin_mbps: 16000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-6800-xt.c3694; game: pcper.com/2020/10/amd-radeon-rx-6000-lineup-detailed/",
    },
    Board {
        name: "RX 6900 XT",
        devices: &[0x73af, 0x73bf],
        revisions: &[0xc0],
        compute_units: 80,
        clocks: Clocks { base: Some(1825), game: Some(2015), boost: 2250 },
        memory: Memory { kind: Gddr6, mib: 16384, bus_bits: 256, pin_mbps: 16000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-6900-xt.c3481; game: pcper.com/2020/10/amd-radeon-rx-6000-lineup-detailed/",
    },
    Board {
        name: "RX 6950 XT",
        devices: &[0x73a5],
        revisions: &[0xc0],
        compute_units: 80,
        clocks: Clocks { base: Some(1860), game: Some(2100), boost: 2310 },
        memory: Memory { kind: Gddr6, mib: 16384, bus_bits: 256, pin_mbps: 18000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-6950-xt.c3875; game: kitguru.net/components/graphic-cards/matthew-wilson/asus-sapphire-and-powercolor-announce-custom-rx-6950-xt-rx-6750-xt-and-rx-6650-xt-graphics-cards/",
    },
];
