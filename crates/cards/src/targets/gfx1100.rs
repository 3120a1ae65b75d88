//! gfx1100: Navi 31.

use super::{Chip, Family, Target};
use crate::MemoryKind::Gddr6;
use crate::{Board, Clocks, Memory};

pub(super) const TARGET: Target = Target {
    name: "gfx1100",
    family: Family::Gfx11,
    graphics_cores: &[(11, 0, 0)],
    pci: &[0x7448, 0x7449, 0x744a, 0x744b, 0x744c, 0x745e],
    integrated: false,
    elf: 0x41,
    code_of: Some("gfx1100"),
    registers: 1536,
    rocm_wheels: true,
    chip: Some(Chip { name: "Navi 31", shader_engines: 6, arrays_per_engine: 2, l2_kib: 6144 }),
    boards: BOARDS,
};

const BOARDS: &[Board] = &[
    Board {
        name: "RX 7900 GRE",
        devices: &[0x744c],
        revisions: &[0xce],
        compute_units: 80,
        clocks: Clocks { base: Some(1287), game: Some(1880), boost: 2245 },
        memory: Memory { kind: Gddr6, mib: 16384, bus_bits: 256, pin_mbps: 18000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-7900-gre.c4166; game: cnews.cz/clanky/radeon-rx-7900-gre-vydan-specifikace-tdp-a-cena-bude-k-dostani-i-u-nas-pres-oem-trh/",
    },
    Board {
        name: "RX 7900 XT",
        devices: &[0x744c],
        revisions: &[0xcc],
        compute_units: 84,
        clocks: Clocks { base: Some(1387), game: Some(2000), boost: 2394 },
        memory: Memory { kind: Gddr6, mib: 20480, bus_bits: 320, pin_mbps: 20000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-7900-xt.c3912; game: guru3d.com/articles-pages/radeon-rx-7600-review,4.html (AMD rounds: game 2000, boost 2400)",
    },
    Board {
        name: "RX 7900 XTX",
        devices: &[0x744c],
        revisions: &[0xc8],
        compute_units: 96,
        clocks: Clocks { base: Some(1929), game: Some(2300), boost: 2498 },
        memory: Memory { kind: Gddr6, mib: 24576, bus_bits: 384, pin_mbps: 20000 },
        source: "techpowerup.com/gpu-specs/radeon-rx-7900-xtx.c3941; game: guru3d.com/articles-pages/radeon-rx-7600-review,4.html (AMD rounds: game 2300, boost 2500)",
    },
];
