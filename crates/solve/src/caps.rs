//! What a solver may know of a device: numbers, never a card's name.

use crate::Tuned;
use serde::{Deserialize, Serialize};
use wave32_cards::Board;

/// Whose code the model has constants for (docs/model.md).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compiler {
    /// Mesa's, on RDNA1: what RADV runs.
    Aco,
    /// LLVM's, on RDNA1: what HIP runs.
    Llvm,
    /// Any other, or any other card: constants measured on an H200.
    #[default]
    Other,
}

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
    /// Bytes of memory on the device; 0 in what an earlier release wrote, which did not say.
    #[serde(default)]
    pub memory_bytes: u64,
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
    /// What all lanes read alike comes as one number that vector instructions take as it is: AMD's scalar loads, and
    /// processors. Elsewhere it costs as much as what each lane reads for itself.
    #[serde(default)]
    pub scalar_loads: bool,
    /// 16-bit loads and stores to buffers.
    pub storage_16bit: bool,
    /// What compiles the device's code, for the model only.
    #[serde(default)]
    pub compiler: Compiler,
    /// What was measured on the device; of no use to another process.
    #[serde(skip)]
    pub tuned: Tuned,
    /// Arithmetic in f16, two numbers an instruction.
    #[serde(default)]
    pub float16_math: bool,
    /// Matrix instructions of 16x16x16 f16 products with sums in f32, and a driver that offers them.
    #[serde(default)]
    pub float16_matrix: bool,
    /// Dot products of two f16 with a sum in f32, and a driver or compiler that offers them.
    #[serde(default)]
    pub float16_dot: bool,
    /// f16 multiply-adds that start in the time of an f32 one, for the model only.
    #[serde(default)]
    pub float16_rate: f64,
}

impl Compiler {
    /// This compiler, if the model knows its code for the target.
    pub fn of(target: &str, compiler: Self) -> Self {
        if wave32_cards::targets::is_rdna1(target) { compiler } else { Self::Other }
    }
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

    /// Workspace bytes of a plan at most, where the policy says nothing: the smaller of 512 MiB and an eighth of the
    /// device's memory. All of its memory counts, and not what is free now: a choice must not depend on what else runs.
    /// Where memory is short a smaller plan runs.
    pub fn workspace_cap(&self) -> u64 {
        self.eighth().min(512 << 20)
    }

    /// Bytes of prepared filters that are kept at most: an eighth of the device's memory, up to 2 GiB.
    pub fn kept_cap(&self) -> u64 {
        self.eighth().min(2 << 30)
    }

    /// An eighth of the memory; of a device that does not say, 512 MiB.
    fn eighth(&self) -> u64 {
        if self.memory_bytes == 0 { 512 << 20 } else { self.memory_bytes / 8 }
    }

    /// Where ranges of the workspace begin, in bytes: at multiples of this.
    pub fn region_alignment(&self) -> u64 {
        self.offset_alignment.max(256)
    }

    /// Capabilities of a board as a new RADV reports them, with the rates of its specification: the boost clock and the memory's
    /// full bandwidth.
    ///
    /// Of RDNA's compute units, each has two SIMD32s, and 64 KiB of LDS ("RDNA 1.0 Instruction Set Architecture", AMD 2020,
    /// chapters 2 and 3).
    pub fn of(board: &Board) -> Self {
        let simd = board.target().simd();
        Self {
            compute_units: board.compute_units,
            fma_per_clock: 64,
            clock_mhz: board.clocks.boost,
            bandwidth_gbs: board.memory.bandwidth_gbs(),
            launch_us: 5.0,
            memory_bytes: u64::from(board.memory.mib) << 20,
            wave_size: 32,
            threads_per_cu: 2 * simd.waves * 32,
            registers_per_cu: 2 * simd.registers * 32,
            lds_per_group: 64 << 10,
            lds_per_cu: 64 << 10,
            max_group_threads: 1024,
            max_groups: [u32::MAX, 65535, 65535],
            max_range: u64::from(u32::MAX),
            offset_alignment: 4,
            scalar_loads: true,
            storage_16bit: true,
            compiler: Compiler::of(board.target().name, Compiler::Aco),
            tuned: Tuned::default(),
            // v_pk_fma_f16: since Vega.
            float16_math: true,
            float16_matrix: board.target().has_matrix(),
            // Of the RX 5000 series few drivers offer them: RADV since Mesa 26.
            float16_dot: board.target().has_dot() && !wave32_cards::targets::is_rdna1(board.target().name),
            float16_rate: 2.0,
        }
    }

    /// Of the same card as HIP runs it: LLVM's code, without kernels of matrix instructions, which are for Vulkan, and with those of dot
    /// products where the target has them.
    #[must_use]
    pub fn by_hip(self, target: &str) -> Self {
        Self {
            compiler: Compiler::of(target, Compiler::Llvm),
            float16_matrix: false,
            float16_dot: wave32_cards::targets::dot_code_of(target).is_some(),
            ..self
        }
    }
}

/// The cards that plans are explained and modelled for where nobody names one: of RDNA1, one of each width.
///
/// # Panics
/// Never: `wave32_cards` has them.
pub fn usual_boards() -> [&'static Board; 3] {
    ["rx5600xt", "rx5700xt", "rx5500xt"].map(|id| wave32_cards::by_id(id).expect("a row of wave32_cards"))
}
