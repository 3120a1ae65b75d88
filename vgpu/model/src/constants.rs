//! Every figure that the model stands on, in one table, with where it is from.

/// One figure of the model.
#[derive(Debug, Clone, Copy)]
pub struct Constant {
    /// Its name in the code.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
    /// Clocks, bytes ...
    pub unit: &'static str,
    /// Where it is from; `estimate` where nothing public was found.
    pub source: &'static str,
}

macro_rules! constants {
    ($($name:ident = $value:literal $unit:literal, $source:literal;)*) => {
        $(#[doc = concat!($unit, ": ", $source)] pub const $name: u64 = $value;)*

        /// All of them, for the document and for people.
        pub const CONSTANTS: &[Constant] = &[
            $(Constant { name: stringify!($name), value: $value, unit: $unit, source: $source }),*
        ];
    };
}

constants! {
    SIMDS = 4 "SIMDs of a WGP", "RDNA whitepaper (AMD, 2019): two CUs of two SIMD32 each";
    VGPRS = 1024 "wave32 VGPRs of a SIMD", "RDNA whitepaper; RDNA 1.0 ISA 3.6.2";
    WAVES = 20 "waves of a SIMD", "RDNA whitepaper; LLVM getMaxWavesPerEU for gfx1010";
    VALU_CLOCKS = 1 "clocks a wave32 instruction keeps the VALU", "RDNA whitepaper: 32 lanes a clock; packed and mixed f16 alike";
    TRANS_CLOCKS = 4 "clocks a wave32 transcendental keeps its unit", "RDNA whitepaper: 8 lanes a clock";
    QUARTER_CLOCKS = 4 "clocks of 32-bit integer multiplies", "LLVM SISchedule.td: WriteQuarterRate32, WriteIntMul";
    DOUBLE_CLOCKS = 16 "clocks of f64 instructions", "f64 at 1/16 rate (public specification of Navi 10)";
    VGPR_BANKS = 4 "banks of each SIMD's VGPRs, a register in the bank of its number modulo 4; a bank reads one register a clock", "LLVM 13 GCNRegBankReassign.cpp, for gfx10; how much of it hardware hides is not public: nothing, and all, are the two ends of each modelled time";
    VALU_LATENCY = 5 "clocks to a dependent instruction", "LLVM SISchedule.td, GFX10SpeedModel: Write32Bit, WriteFloatFMA";
    WIDE_LATENCY = 6 "clocks, 64-bit results", "LLVM SISchedule.td, GFX10SpeedModel: Write64Bit";
    TRANS_LATENCY = 10 "clocks", "LLVM SISchedule.td, GFX10SpeedModel: WriteTrans32";
    QUARTER_LATENCY = 8 "clocks", "LLVM SISchedule.td, GFX10SpeedModel: WriteQuarterRate32, WriteIntMul";
    DOUBLE_LATENCY = 22 "clocks", "LLVM SISchedule.td, GFX10SpeedModel: WriteDouble";
    SALU_LATENCY = 2 "clocks", "LLVM SISchedule.td, GFX10SpeedModel: WriteSALU";
    TAKEN_CLOCKS = 32 "clocks until a taken branch's target issues", "LLVM SISchedule.td, GFX10SpeedModel: WriteBranch";
    NOT_TAKEN_CLOCKS = 8 "clocks behind a branch that is not taken", "estimate";
    LDS_BANKS = 32 "banks of 4 bytes in each of a WGP's two LDS halves", "RDNA 1.0 ISA 10.1; RDNA whitepaper";
    LDS_BYTES = 65536 "bytes of an LDS half", "RDNA 1.0 ISA 10.1";
    LDS_GRANULE = 512 "bytes LDS is given out in", "LLVM getLdsDwGranularity for gfx10";
    LDS_LATENCY = 40 "clocks from issue to result without conflicts", "estimate: LLVM's GFX10SpeedModel has 20 (a scheduling figure), GCN's documents 64";
    SMEM_LATENCY = 40 "clocks, hit in the scalar cache", "estimate: LLVM's GFX10SpeedModel has 20 (a scheduling figure)";
    SCALAR_BYTES = 16384 "bytes of a WGP's scalar cache", "RDNA whitepaper";
    L0_BYTES = 16384 "bytes of a CU's vector cache", "RDNA whitepaper";
    L0_CLOCK_BYTES = 128 "bytes a clock from L0: a line", "RDNA whitepaper";
    LINE = 128 "bytes of a line, all levels", "RDNA whitepaper";
    FILL_CLOCK_BYTES = 64 "bytes a clock between a CU's L0 and L1, each way", "RDNA whitepaper";
    L1_BYTES = 131072 "bytes of a shader array's L1", "RDNA whitepaper";
    L2_CLOCK_BYTES = 64 "bytes a clock of each L2 slice, a slice for each 16 bits of memory bus", "RDNA whitepaper: 16 slices at 256 bits";
    L0_LATENCY = 90 "clocks", "Chips and Cheese, 'Measuring GPU Memory Latency': L2 is 66 ns behind L0 on RDNA2 and an Infinity Cache hit, 20 ns behind L2, takes 123 ns; no figure for RDNA1 was found";
    L1_LATENCY = 140 "clocks", "estimate between L0 and L2";
    L2_LATENCY = 230 "clocks", "see L0_LATENCY: 103 ns";
    DRAM_NS = 206 "ns", "Chips and Cheese, same article: 226 ns on RDNA2, less 20 ns of an Infinity Cache that RDNA1 lacks; 321 clocks at 1.56 GHz, where LLVM's GFX10SpeedModel has WriteVMEM 320";
    LAUNCH_US = 5 "us from one dependent launch's end to the next one's start", "estimate; the solvers count with the same";
    DRAM_PERCENT = 85 "percent of the bus rate that long streams reach", "estimate";
}

#[cfg(test)]
mod tests {
    use super::CONSTANTS;

    #[test]
    fn the_document_has_this_table() {
        let document = include_str!("../../../docs/model_vgpu.md");
        for c in CONSTANTS {
            let row = format!("| {} | {} | {} | {} |\n", c.name, c.value, c.unit, c.source);
            assert!(document.contains(&row), "docs/model_vgpu.md lacks: {row}");
        }
    }
}
