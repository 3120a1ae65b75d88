//! The cards that can be had, by their public figures. Plain data; the launcher lists the same table.

/// A card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Card {
    /// What `--card` takes.
    pub id: &'static str,
    /// Marketing name.
    pub name: &'static str,
    /// `gfx_target_version` of KFD: major * 10000 + minor * 100 + stepping.
    pub gfx: u32,
    /// LLVM's name of the target.
    pub target: &'static str,
    /// AMD's code name.
    pub asic: &'static str,
    /// PCI device and revision.
    pub device: u16,
    /// See `device`.
    pub revision: u8,
    /// Compute units.
    pub compute_units: u32,
    /// Shader engines; each has two shader arrays.
    pub shader_engines: u32,
    /// Boost clock in MHz.
    pub clock_mhz: u32,
    /// Memory in MiB.
    pub vram_mib: u64,
    /// Bits of the memory bus.
    pub bus_bits: u32,
    /// Memory clock in MHz as amdgpu reports it: a sixteenth of GDDR6's rate per pin.
    pub memory_mhz: u32,
    /// L2 in KiB, as amdgpu's table for the ASIC has it.
    pub l2_kib: u32,
}

/// The table; the first is what one gets without asking.
pub const CARDS: [Card; 4] = [
    Card {
        id: "rx5600xt",
        name: "AMD Radeon RX 5600 XT",
        gfx: 100_100,
        target: "gfx1010",
        asic: "Navi 10",
        device: 0x731f,
        revision: 0xca,
        compute_units: 36,
        shader_engines: 2,
        clock_mhz: 1560,
        vram_mib: 6 << 10,
        bus_bits: 192,
        memory_mhz: 750,
        l2_kib: 4096,
    },
    Card {
        id: "rx5700xt",
        name: "AMD Radeon RX 5700 XT",
        gfx: 100_100,
        target: "gfx1010",
        asic: "Navi 10",
        device: 0x731f,
        revision: 0xc1,
        compute_units: 40,
        shader_engines: 2,
        clock_mhz: 1905,
        vram_mib: 8 << 10,
        bus_bits: 256,
        memory_mhz: 875,
        l2_kib: 4096,
    },
    Card {
        id: "rx5500xt",
        name: "AMD Radeon RX 5500 XT",
        gfx: 100_102,
        target: "gfx1012",
        asic: "Navi 14",
        device: 0x7340,
        revision: 0xc5,
        compute_units: 22,
        shader_engines: 1,
        clock_mhz: 1845,
        vram_mib: 8 << 10,
        bus_bits: 128,
        memory_mhz: 875,
        l2_kib: 2048,
    },
    Card {
        id: "rx5500xt-4gb",
        name: "AMD Radeon RX 5500 XT",
        gfx: 100_102,
        target: "gfx1012",
        asic: "Navi 14",
        device: 0x7340,
        revision: 0xc5,
        compute_units: 22,
        shader_engines: 1,
        clock_mhz: 1845,
        vram_mib: 4 << 10,
        bus_bits: 128,
        memory_mhz: 875,
        l2_kib: 2048,
    },
];

impl Card {
    /// By its `id`.
    pub fn by_id(id: &str) -> Option<&'static Card> {
        CARDS.iter().find(|card| card.id == id)
    }

    /// Memory bandwidth in GB/s (10^9).
    #[allow(dead_code)] // only the launcher's list has it
    pub fn bandwidth_gbs(&self) -> u32 {
        self.bus_bits / 8 * self.memory_mhz * 16 / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_public_specifications() {
        let figures: Vec<_> =
            CARDS.iter().map(|c| (c.id, c.compute_units, c.bandwidth_gbs(), c.vram_mib >> 10)).collect();
        assert_eq!(
            figures,
            [
                ("rx5600xt", 36, 288, 6),
                ("rx5700xt", 40, 448, 8),
                ("rx5500xt", 22, 224, 8),
                ("rx5500xt-4gb", 22, 224, 4)
            ]
        );
    }
}
