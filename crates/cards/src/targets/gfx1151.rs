//! gfx1151: Strix Halo.

use super::{Chip, Family, Target};

pub(super) const TARGET: Target = Target {
    name: "gfx1151",
    family: Family::Gfx11,
    graphics_cores: &[(11, 5, 1)],
    pci: &[0x1586],
    integrated: true,
    elf: 0x4a,
    code_of: None,
    registers: 1536,
    rocm_wheels: true,
    chip: Some(Chip { name: "Strix Halo", shader_engines: 2, arrays_per_engine: 2, l2_kib: 2048 }),
    boards: &[],
};
