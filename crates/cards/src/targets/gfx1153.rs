//! gfx1153.

use super::{Family, Target};

pub(super) const TARGET: Target = Target {
    name: "gfx1153",
    family: Family::Gfx11,
    graphics_cores: &[(11, 5, 3)],
    pci: &[0x1902],
    integrated: true,
    elf: 0x58,
    code_of: None,
    registers: 1024,
    rocm_wheels: true,
    chip: None,
    boards: &[],
};
