//! The golden table of resources: one row per variant, compiler and target; and its gates.

use crate::elf::KernelMetadata;
use crate::isa::{LoopStats, hottest_loop, instruction_count};
use crate::{CompileError, aco};
use std::fmt::Write;
use wave32_cards::targets::{self, Simd};
use wave32_params::variants::Variant;
use wave32_problem::DType;

/// Most LDS bytes a variant may use: what Vulkan drivers offer at least on the cards we run on.
pub const LDS_LIMIT: u32 = 32768;
/// Least share of multiply-adds in the hottest loop of a variant marked `MAIN=1`.
pub const FMA_GATE: f64 = 0.85;

/// What one compiler made of one variant for one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The variant's name.
    pub variant: String,
    /// `aco` or `llvm`.
    pub compiler: &'static str,
    /// `navi10`, ... or `gfx1010`, ...
    pub target: String,
    /// Vector registers.
    pub vgprs: u32,
    /// Scalar registers.
    pub sgprs: u32,
    /// LDS bytes.
    pub lds_bytes: u32,
    /// Spilled vector registers.
    pub vgpr_spills: u32,
    /// Spilled scalar registers.
    pub sgpr_spills: u32,
    /// Scratch bytes (a lane: llvm; a wave: aco).
    pub scratch_bytes: u32,
    /// Waves a SIMD keeps resident, by registers and LDS.
    pub occupancy: u32,
    /// Bytes of code.
    pub code_bytes: u32,
    /// Instructions of the whole kernel.
    pub instructions: u32,
    /// Its hottest loop.
    pub hot: LoopStats,
}

/// The SIMDs of a target (`gfx1010`) or chip (`navi10`); of one that is not known, those of gfx1010, which have the fewest
/// registers.
fn simd(name: &str) -> Simd {
    let chip = |target: &&&targets::Target| target.chip.is_some_and(|chip| chip.driver_name() == name);
    let named = targets::by_name(name).or_else(|| targets::TARGETS.iter().find(chip).copied());
    named.unwrap_or(targets::TARGETS[0]).simd()
}

/// LDS bytes of a work-group processor, shared by the workgroups on its four SIMDs.
const LDS_PER_WGP: u32 = 128 << 10;

/// Waves a SIMD keeps resident: as many whole workgroups as registers, wave slots and LDS of a
/// work-group processor hold, spread over its four SIMDs.
fn occupancy(target: &str, vgprs: u32, lds_bytes: u32, threads: u32) -> u32 {
    let simd = simd(target);
    let by_registers = simd.registers / vgprs.max(1).next_multiple_of(simd.granule);
    let group_waves = threads.div_ceil(32);
    let groups = 4 * by_registers.min(simd.waves) / group_waves;
    let groups =
        if lds_bytes == 0 { groups } else { groups.min(LDS_PER_WGP / lds_bytes.next_multiple_of(512)) };
    groups * group_waves / 4
}

impl Row {
    /// From a code object's metadata and the kernel's disassembly.
    pub fn llvm(variant: &Variant, target: &str, metadata: &KernelMetadata, isa: &str) -> Self {
        Self {
            variant: variant.name.clone(),
            compiler: "llvm",
            target: target.to_string(),
            vgprs: metadata.vgprs,
            sgprs: metadata.sgprs,
            lds_bytes: metadata.lds_bytes,
            vgpr_spills: metadata.vgpr_spills,
            sgpr_spills: metadata.sgpr_spills,
            scratch_bytes: metadata.scratch_bytes,
            occupancy: occupancy(target, metadata.vgprs, metadata.lds_bytes, variant.threads),
            code_bytes: metadata.code_bytes,
            instructions: instruction_count(isa),
            hot: hottest_loop(isa),
        }
    }

    /// From the driver's statistics. Occupancy is ours, not the driver's: Mesa 22.3 counts 40 waves32
    /// a SIMD of RDNA1, which has slots for 20.
    ///
    /// # Errors
    /// [`CompileError::ReadBack`] where the driver lacks a statistic.
    pub fn aco(variant: &Variant, family: &str, compiled: &aco::Compiled) -> Result<Self, CompileError> {
        let number = |names: &[&str]| {
            let value = names.iter().find_map(|&n| compiled.statistics.get(n));
            value.map(|&v| v as u32).ok_or_else(|| CompileError::ReadBack {
                what: format!("RADV's statistics of {}", variant.name),
                reason: format!("no `{}` among {:?}", names[0], compiled.statistics.keys()),
            })
        };
        let (vgprs, lds_bytes) = (number(&["VGPRs"])?, number(&["LDS size", "LDS Size"])?);
        Ok(Self {
            variant: variant.name.clone(),
            compiler: "aco",
            target: family.to_string(),
            vgprs,
            sgprs: number(&["SGPRs"])?,
            lds_bytes,
            vgpr_spills: number(&["Spilled VGPRs"])?,
            sgpr_spills: number(&["Spilled SGPRs"])?,
            scratch_bytes: number(&["Scratch size", "Scratch Size", "Scratch"])?,
            occupancy: occupancy(family, vgprs, lds_bytes, variant.threads),
            code_bytes: number(&["Code size", "Code Size"])?,
            instructions: number(&["Instructions"])?,
            hot: hottest_loop(&compiled.isa),
        })
    }

    /// The gates every variant passes: no spills, no scratch, LDS within the limit.
    ///
    /// # Errors
    /// One line that names the variant, the compiler and what it broke.
    pub fn gate(&self) -> Result<(), String> {
        let Self { variant, compiler, target, .. } = self;
        let found = [
            ("spilled VGPRs", self.vgpr_spills, 0),
            ("spilled SGPRs", self.sgpr_spills, 0),
            ("bytes of scratch", self.scratch_bytes, 0),
            ("bytes of LDS", self.lds_bytes, LDS_LIMIT),
        ];
        match found.iter().find(|(_, value, limit)| value > limit) {
            Some((what, value, limit)) => {
                Err(format!("{variant} on {compiler} {target}: {value} {what}, at most {limit} allowed"))
            }
            None => Ok(()),
        }
    }

    /// The gate of variants marked `MAIN=1`: the share of multiply-adds.
    ///
    /// # Errors
    /// One line that names the variant, the compiler and the share.
    pub fn gate_main(&self) -> Result<(), String> {
        let share = self.hot.share();
        if share >= FMA_GATE {
            return Ok(());
        }
        let Self { variant, compiler, target, hot, .. } = self;
        Err(format!(
            "{variant} on {compiler} {target}: {} of {} instructions of the hottest loop are FMAs, {:.1} %, \
             at least {:.0} % wanted",
            hot.fma,
            hot.instructions,
            share * 100.0,
            FMA_GATE * 100.0
        ))
    }
}

/// Is this variant marked `MAIN=1` in the table?
pub fn is_main(variant: &Variant) -> bool {
    variant.defines.get("MAIN") == Some(&1)
}

/// Every gate that a row of `rows` fails, one line each. The share of multiply-adds is asked of the f32
/// kernels marked `MAIN=1`, as compiled for the RX 5000 cards (gfx1010, navi10).
pub fn problems(rows: &[Row], variants: &[&Variant]) -> Vec<String> {
    let main = |row: &&Row| {
        let marked = |v: &Variant| v.name == row.variant && v.dtype == DType::F32 && is_main(v);
        ["navi10", "gfx1010"].contains(&row.target.as_str()) && variants.iter().any(|v| marked(v))
    };
    let shares = rows.iter().filter(main).filter_map(|row| row.gate_main().err());
    rows.iter().filter_map(|row| row.gate().err()).chain(shares).collect()
}

/// Column names of the table.
pub const COLUMNS: &str = "variant\tcompiler\ttarget\tvgprs\tsgprs\tlds\tvgpr_spills\tsgpr_spills\tscratch\t\
                           occupancy\tcode_bytes\tinstructions\thot_fma\thot_instructions";

/// The table as text: versions in the header, rows sorted.
pub fn render(versions: &[(&str, &str)], mut lines: Vec<String>) -> String {
    let mut text = String::from("# Made by `cargo run -p wave32-kernelc --example golden -- --bless`.\n");
    for (what, version) in versions {
        writeln!(text, "# {what}: {version}").expect("a String takes every write");
    }
    text.push_str(COLUMNS);
    text.push('\n');
    lines.sort();
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

impl Row {
    /// As a line of the table.
    pub fn line(&self) -> String {
        let numbers = [
            self.vgprs,
            self.sgprs,
            self.lds_bytes,
            self.vgpr_spills,
            self.sgpr_spills,
            self.scratch_bytes,
            self.occupancy,
            self.code_bytes,
            self.instructions,
            self.hot.fma,
            self.hot.instructions,
        ];
        let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
        format!("{}\t{}\t{}\t{}", self.variant, self.compiler, self.target, numbers.join("\t"))
    }
}
