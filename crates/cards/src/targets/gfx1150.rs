//! gfx1150: Strix Point.

use super::{Chip, Family, Target};

pub(super) const TARGET: Target = Target {
    name: "gfx1150",
    family: Family::Gfx11,
    graphics_cores: &[(11, 5, 0)],
    pci: &[0x150e],
    integrated: true,
    elf: 0x43,
    code_of: None,
    registers: 1024,
    rocm_wheels: true,
    chip: Some(Chip { name: "Strix Point", shader_engines: 1, arrays_per_engine: 2, l2_kib: 2048 }),
    boards: &[],
};
