//! The cost model: seconds that a launch should take, from counts and [`DeviceCaps`] alone.
//!
//! A tile kernel is bound by arithmetic, by memory, or by having too few workgroups to fill the card. The
//! constants were fitted to measurements (docs/model.md); they rank candidates and promise nothing.

use crate::DeviceCaps;
use wave32_params::variants::Variant;

/// What a tile kernel does in one launch.
#[derive(Debug, Clone, Copy)]
pub struct TileWork {
    /// Workgroups.
    pub groups: u64,
    /// Reduction steps each workgroup makes (tile depth included).
    pub depth: u64,
    /// Share of its instructions in the hot loop that are FMAs at best.
    pub efficiency: f64,
    /// Bytes through memory.
    pub bytes: u64,
}

/// Registers a thread of a tile kernel needs, about: accumulators, fragments, staging, addresses.
fn registers(variant: &Variant) -> f64 {
    let (tm, tn) = (variant.define("TM") as f64, variant.define("TN") as f64);
    tm * tn + tm + tn + 44.0
}

/// Seconds of one launch of a tile kernel, launch overhead left out.
pub fn tile_seconds(variant: &Variant, work: &TileWork, caps: &DeviceCaps) -> f64 {
    let threads = f64::from(variant.threads);
    let (bm, bn, bk) =
        (variant.define("BM") as f64, variant.define("BN") as f64, variant.define("BK") as f64);
    let lds = 8.0 * bk * (bm + bn);
    let resident = (f64::from(caps.registers_per_cu) / (threads * registers(variant)))
        .min(f64::from(caps.threads_per_cu) / threads)
        .min(f64::from(caps.lds_per_cu) / lds)
        .floor()
        .max(1.0);
    let cus = f64::from(caps.compute_units);
    let per_cu = (work.groups as f64 / cus).ceil();
    let at_once = per_cu.min(resident);
    // One wavefront a SIMD nearly suffices: its 64 independent accumulators hide the FMA's latency.
    let simds = f64::from(caps.fma_per_clock) / 32.0;
    let waves = at_once * threads / 32.0;
    let filled = (waves / (1.15 * simds)).min(1.0);
    let rate = f64::from(caps.fma_per_clock) * f64::from(caps.clock_mhz) * 1e6 * work.efficiency * filled;
    // Filling the pipeline, first loads and the stores of a workgroup: about 2000 clocks a round.
    let rounds = (per_cu / resident).ceil();
    let latency = rounds * 2000.0 / (f64::from(caps.clock_mhz) * 1e6);
    let arithmetic = per_cu * bm * bn * work.depth as f64 / rate + latency;
    arithmetic.max(stream_seconds(work.bytes, caps))
}

/// Seconds to move `bytes` at three quarters of the bandwidth.
pub fn stream_seconds(bytes: u64, caps: &DeviceCaps) -> f64 {
    bytes as f64 / (caps.bandwidth_gbs * 0.75e9)
}

/// Seconds that a dependent launch costs beside its work.
pub fn launch_seconds(caps: &DeviceCaps) -> f64 {
    caps.launch_us * 1e-6
}

/// Longest f32 chain of additions whose rounding error stays within the promise of 1.5e-6.
///
/// A chain of d random terms has a relative error of about 2.4e-8 * sqrt(d/2): 1.1e-6 at 4096.
pub const LONGEST_CHAIN: u32 = 4096;

/// Split counts tried along the reduction.
pub const SPLITS: [u32; 13] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128];

/// Slices in a chunk: all of them, or so few that a chain stays short (f32 only, `exact` true).
pub fn chunk(slices: u32, slice_depth: u32, exact: bool) -> u32 {
    let longest = (LONGEST_CHAIN / slice_depth).max(1);
    if !exact || slices <= longest { slices.max(1) } else { slices.div_ceil(slices.div_ceil(longest)) }
}
