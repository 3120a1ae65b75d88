//! gfx1036.

use super::{Family, Target};

pub(super) const TARGET: Target = Target {
    name: "gfx1036",
    family: Family::Gfx10_3,
    graphics_cores: &[(10, 3, 6), (10, 3, 7)],
    pci: &[0x13c0, 0x1506, 0x164e],
    integrated: true,
    elf: 0x45,
    code_of: None,
    registers: 1024,
    rocm_wheels: true,
    chip: None,
    boards: &[],
};
