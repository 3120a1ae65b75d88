//! What a solver may know of a device: numbers, never a card's name.

use serde::{Deserialize, Serialize};

/// Capabilities and modelled rates of one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceCaps {
    /// Compute units (AMD) or multiprocessors (NVIDIA); a guess where the driver does not tell.
    pub compute_units: u32,
    /// f32 fused multiply-adds a compute unit starts per clock.
    pub fma_per_clock: u32,
    /// Sustained clock in MHz, for the model only.
    pub clock_mhz: u32,
    /// Memory bandwidth in GB/s (10^9), for the model only.
    pub bandwidth_gbs: f64,
    /// Microseconds from the end of one dependent launch to the start of the next, for the model.
    pub launch_us: f64,
    /// Lanes of a wavefront (subgroup) as kernels will run.
    pub wave_size: u32,
    /// Threads a compute unit keeps resident at best.
    pub threads_per_cu: u32,
    /// 32-bit registers of one compute unit's register file.
    pub registers_per_cu: u32,
    /// LDS (shared memory) bytes a workgroup may use.
    pub lds_per_group: u32,
    /// LDS bytes of a compute unit, shared by its resident workgroups.
    pub lds_per_cu: u32,
    /// Most threads in a workgroup.
    pub max_group_threads: u32,
    /// Most workgroups along x, y, z.
    pub max_groups: [u32; 3],
    /// Largest buffer range a kernel can address, in bytes.
    pub max_range: u64,
    /// Byte alignment of a binding's offset.
    pub offset_alignment: u64,
    /// 16-bit loads and stores to buffers.
    pub storage_16bit: bool,
}

impl DeviceCaps {
    /// Peak f32 rate in FLOP/s (two a fused multiply-add).
    pub fn peak_flops(&self) -> f64 {
        2.0 * f64::from(self.compute_units) * f64::from(self.fma_per_clock) * f64::from(self.clock_mhz) * 1e6
    }

    /// The two floors: seconds that `flops` and `bytes` need at least, at peak rate and bandwidth.
    pub fn floors(&self, flops: u64, bytes: u64) -> (f64, f64) {
        (flops as f64 / self.peak_flops(), bytes as f64 / (self.bandwidth_gbs * 1e9))
    }
}

/// A card whose speed we model; figures from its public specification.
#[derive(Debug, Clone, Copy)]
pub struct CardModel {
    /// Marketing name.
    pub name: &'static str,
    /// gfx target of its code objects.
    pub target: &'static str,
    compute_units: u32,
    clock_mhz: u32,
    bandwidth_gbs: f64,
}

/// The RDNA1 cards that `explain` prints modelled floors for: compute units, boost clock, bandwidth.
pub const CARDS: [CardModel; 3] = [
    CardModel {
        name: "RX 5600 XT",
        target: "gfx1010",
        compute_units: 36,
        clock_mhz: 1560,
        bandwidth_gbs: 288.0,
    },
    CardModel {
        name: "RX 5700 XT",
        target: "gfx1010",
        compute_units: 40,
        clock_mhz: 1905,
        bandwidth_gbs: 448.0,
    },
    CardModel {
        name: "RX 5500 XT",
        target: "gfx1012",
        compute_units: 22,
        clock_mhz: 1845,
        bandwidth_gbs: 224.0,
    },
];

impl CardModel {
    /// Capabilities of this card as RADV reports them, with the specification's rates.
    ///
    /// Per compute unit of RDNA1 ("RDNA 1.0 Instruction Set Architecture", AMD 2020, chapters 2 and 3):
    /// two SIMD32s, each with 1024 VGPRs a lane and 20 wavefronts; 64 KB of LDS.
    pub fn caps(&self) -> DeviceCaps {
        DeviceCaps {
            compute_units: self.compute_units,
            fma_per_clock: 64,
            clock_mhz: self.clock_mhz,
            bandwidth_gbs: self.bandwidth_gbs,
            launch_us: 5.0,
            wave_size: 32,
            threads_per_cu: 2 * 20 * 32,
            registers_per_cu: 2 * 1024 * 32,
            lds_per_group: 64 << 10,
            lds_per_cu: 64 << 10,
            max_group_threads: 1024,
            max_groups: [u32::MAX, 65535, 65535],
            max_range: u64::from(u32::MAX),
            offset_alignment: 4,
            storage_16bit: true,
        }
    }
}
