//! gfx1033: Van Gogh.

use super::{Chip, Family, Target};
use crate::MemoryKind::Lpddr5;
use crate::{Board, Clocks, Memory};

pub(super) const TARGET: Target = Target {
    name: "gfx1033",
    family: Family::Gfx10_3,
    graphics_cores: &[(10, 3, 1)],
    pci: &[0x163f, 0x1435],
    integrated: true,
    elf: 0x39,
    code_of: None,
    registers: 1024,
    rocm_wheels: true,
    chip: Some(Chip { name: "Van Gogh", shader_engines: 1, arrays_per_engine: 1, l2_kib: 1024 }),
    boards: BOARDS,
};

const BOARDS: &[Board] = &[
    Board {
        name: "Steam Deck",
        devices: &[0x163f],
        revisions: &[0xae, 0xe1],
        compute_units: 8,
        clocks: Clocks { base: Some(1000), game: None, boost: 1600 },
        memory: Memory { kind: Lpddr5, mib: 16384, bus_bits: 128, pin_mbps: 5500 },
        source: "techpowerup.com/gpu-specs/steam-deck-gpu.c3897; memory 128-bit 5.5 Gbps 88 GB/s: Valve via en.gramatune.com/valve-reveals-more-hardware-info-on-steam-deck-gaming-handheld/ (TPU 176 GB/s is double)",
    },
    Board {
        name: "Steam Deck OLED",
        devices: &[0x1435],
        revisions: &[0xae],
        compute_units: 8,
        clocks: Clocks { base: Some(1000), game: None, boost: 1600 },
        memory: Memory { kind: Lpddr5, mib: 16384, bus_bits: 128, pin_mbps: 6400 },
        source: "techpowerup.com/gpu-specs/steam-deck-oled-gpu.c4185; memory LPDDR5-6400: only a weak source (visualfoodie.com)",
    },
];
