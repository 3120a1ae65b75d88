//! gfx1013: Cyan Skillfish.

use super::{Chip, Family, Target};
use crate::MemoryKind::Gddr6;
use crate::{Board, Clocks, Memory};

pub(super) const TARGET: Target = Target {
    name: "gfx1013",
    family: Family::Gfx10_1,
    graphics_cores: &[(10, 1, 3), (10, 1, 4)],
    pci: &[0x13f9, 0x13fa, 0x13fb, 0x13fc, 0x13fe, 0x143f],
    integrated: true,
    elf: 0x42,
    code_of: None,
    registers: 1024,
    rocm_wheels: false,
    chip: Some(Chip { name: "Cyan Skillfish", shader_engines: 2, arrays_per_engine: 2, l2_kib: 4096 }),
    boards: BOARDS,
};

const BOARDS: &[Board] = &[
    Board {
        name: "BC-250",
        devices: &[0x13fe],
        revisions: &[0x00],
        compute_units: 24,
        clocks: Clocks { base: Some(1500), game: None, boost: 2000 },
        memory: Memory { kind: Gddr6, mib: 16384, bus_bits: 256, pin_mbps: 14000 },
        source: "github.com/elektricM/amd-bc250-docs docs/hardware/specifications.md (community)",
    },
];
