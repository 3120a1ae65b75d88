//! gfx1152.

use super::{Family, Target};

pub(super) const TARGET: Target = Target {
    name: "gfx1152",
    family: Family::Gfx11,
    graphics_cores: &[(11, 5, 2)],
    pci: &[0x1114],
    integrated: true,
    elf: 0x55,
    code_of: None,
    registers: 1024,
    rocm_wheels: true,
    chip: None,
    boards: &[],
};
