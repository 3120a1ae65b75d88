//! gfx1035.

use super::{Family, Target};

pub(super) const TARGET: Target = Target {
    name: "gfx1035",
    family: Family::Gfx10_3,
    graphics_cores: &[(10, 3, 3)],
    pci: &[0x164d, 0x1681],
    integrated: true,
    elf: 0x3d,
    code_of: None,
    registers: 1024,
    rocm_wheels: true,
    chip: None,
    boards: &[],
};
