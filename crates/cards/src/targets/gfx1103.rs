//! gfx1103: Phoenix.

use super::{Chip, Family, Target};

pub(super) const TARGET: Target = Target {
    name: "gfx1103",
    family: Family::Gfx11,
    graphics_cores: &[(11, 0, 1), (11, 0, 4)],
    pci: &[0x15bf, 0x15c8, 0x1900, 0x1901],
    integrated: true,
    elf: 0x44,
    code_of: None,
    registers: 1024,
    rocm_wheels: true,
    chip: Some(Chip { name: "Phoenix", shader_engines: 1, arrays_per_engine: 2, l2_kib: 2048 }),
    boards: &[],
};
