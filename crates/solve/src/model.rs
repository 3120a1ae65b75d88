//! The cost model: seconds that a plan should take, from counts and [`DeviceCaps`] alone.
//!
//! On RDNA1 the code of each compiler has a table of its own ([`crate::rates`]). What follows is for other devices, and for
//! variants that the table lacks.
//!
//! A tile kernel is bound by arithmetic, by memory, or by having too few workgroups to fill the card. The
//! constants were fitted to measurements (docs/model.md); they rank candidates and promise nothing.

use crate::{DeviceCaps, Launch, Model, Plan};
use wave32_params::variants::{self, Variant};

/// Of launches that run side by side, what decides how long they take.
#[derive(Debug, Clone, Copy, Default)]
struct Stage {
    /// Workgroups of all.
    groups: u64,
    /// The longest reduction.
    depth: u64,
    /// Bytes of all through memory.
    bytes: u64,
    /// Seconds of scalar kernels.
    scalar: f64,
}

/// Modelled seconds of a plan. Launches that do not wait for each other run side by side: their workgroups add up.
pub fn cost(plan: &Plan, caps: &DeviceCaps) -> f64 {
    if let Some(seconds) = crate::rates::cost(plan, caps) {
        return seconds;
    }
    let mut seconds = 0.0;
    let mut rest = plan.launches.as_slice();
    let waits = plan.waits();
    while let Some(first) = rest.first() {
        let variant = variants::find(&first.kernel);
        // Solvers put such launches next to each other; all of them are variants of one kernel source.
        let source = |launch: &Launch| variants::find(&launch.kernel).map(|v| v.source.as_str());
        let of_first = variant.map(|v| v.source.as_str());
        let alike = rest.iter().take_while(|launch| source(launch) == of_first).count();
        let (stage, after) = rest.split_at(alike);
        seconds += stage_seconds(variant, stage, caps);
        // What does not wait for the launch before it costs none of its own: Winograd's two transforms.
        let at = plan.launches.len() - rest.len();
        if at > 0 && !waits[at] {
            seconds -= 0.75 * launch_seconds(caps);
        }
        rest = after;
    }
    seconds
}

fn stage_seconds(variant: Option<&Variant>, launches: &[Launch], caps: &DeviceCaps) -> f64 {
    let mut stage = Stage::default();
    for launch in launches {
        let groups = launch.grid.iter().map(|&n| u64::from(n)).product::<u64>();
        stage.groups += groups;
        match launch.model {
            Model::Tiles { depth } => {
                stage.depth = stage.depth.max(depth);
                stage.bytes += launch.bytes;
            }
            Model::Scalar { multiply_adds, beside } => {
                let threads = groups as f64 * f64::from(variant.map_or(256, |v| v.threads));
                let threads = threads * 4.0 / variant.map_or(4.0, waves);
                stage.scalar += scalar_seconds((multiply_adds + beside) as f64, threads, launch.bytes, caps);
            }
            Model::Rows { multiply_adds } => {
                stage.scalar += rows_seconds(multiply_adds, groups, launch.bytes, caps)
            }
            Model::Stream { bytes } => stage.bytes += bytes,
        }
    }
    let count = launches.len() as f64;
    match (launches[0].model, variant) {
        (Model::Tiles { .. }, Some(variant)) => {
            tile_seconds(variant, &stage, caps) + (0.75 + 0.25 * count) * launch_seconds(caps)
        }
        (Model::Scalar { .. }, _) => stage.scalar + 1e-6 + (0.6 + 0.25 * count) * launch_seconds(caps),
        (Model::Rows { .. }, _) => stage.scalar + (0.75 + 0.25 * count) * launch_seconds(caps),
        _ => stream_seconds(stage.bytes, caps) + launch_seconds(caps),
    }
}

/// Registers a thread of a tile kernel needs, about: accumulators, fragments, staging, addresses.
fn registers(variant: &Variant) -> f64 {
    let (tm, tn) = (variant.define("TM") as f64, variant.define("TN") as f64);
    if variant.is_matrix() {
        // The sums, and two operands' parts of 16 by 16.
        return (variant.define("BM") * variant.define("BN")) as f64 / f64::from(variant.threads) + 68.0;
    }
    // Sums in f16 come on top, two a register.
    let sums = if variant.is_half() { 1.5 } else { 1.0 };
    tm * tn * sums + tm + tn + 44.0
}

/// Seconds of one launch of a tile kernel, launch overhead left out.
fn tile_seconds(variant: &Variant, work: &Stage, caps: &DeviceCaps) -> f64 {
    let threads = f64::from(variant.threads);
    let efficiency = variant.define("EFF") as f64 / 100.0;
    let (bm, bn, bk) =
        (variant.define("BM") as f64, variant.define("BN") as f64, variant.define("BK") as f64);
    // Matrix instructions are priced by EFF alone, in parts of the f32 rate.
    let rate = if variant.is_half() || variant.is_dot() { caps.float16_rate } else { 1.0 };
    let bytes = if variant.keeps_f16() { 2.0 } else { 4.0 };
    let lds = 2.0 * bytes * bk * (bm + bn);
    let resident = (f64::from(caps.registers_per_cu) / (threads * registers(variant)))
        .min(f64::from(caps.threads_per_cu) / threads)
        .min(f64::from(caps.lds_per_cu) / lds)
        .floor()
        .max(1.0);
    let cus = f64::from(caps.compute_units);
    let per_cu = (work.groups as f64 / cus).ceil();
    let at_once = per_cu.min(resident);
    // So many wavefronts keep enough loads in flight; their independent accumulators hide the latency of FMAs.
    let filled = (at_once * threads / 32.0 / 4.6).min(1.0);
    let rate = rate * f64::from(caps.fma_per_clock) * f64::from(caps.clock_mhz) * 1e6 * efficiency * filled;
    // Filling the pipeline, first loads and the stores of a workgroup: about 2000 clocks a round. Sums of matrix instructions go
    // through LDS part by part.
    let clocks = if variant.is_matrix() { 10_000.0 } else { 2000.0 };
    let rounds = (per_cu / resident).ceil();
    let latency = rounds * clocks / (f64::from(caps.clock_mhz) * 1e6);
    let arithmetic = per_cu * bm * bn * work.depth as f64 / rate + latency;
    arithmetic.max(stream_seconds(work.bytes, caps))
}

/// The multiply-adds of a kernel whose variants say their rate (EFF), as [`Model::Scalar`] weighs them.
pub fn at_rate(variant: &Variant, multiply_adds: f64) -> Model {
    let share = SCALAR_EFFICIENCY * 100.0 / variant.define("EFF") as f64;
    Model::Scalar { multiply_adds: (multiply_adds * share) as u64, beside: 0 }
}

/// FMAs a clock that threads which make their results alone reach of the peak: loads, bounds and addresses take the rest.
pub const SCALAR_EFFICIENCY: f64 = 0.12;

/// Seconds for multiply-adds spread over `threads`, and `bytes` through memory.
fn scalar_seconds(multiply_adds: f64, threads: f64, bytes: u64, caps: &DeviceCaps) -> f64 {
    let lanes = f64::from(caps.compute_units) * f64::from(caps.fma_per_clock);
    // Latency is hidden from about four wavefronts a SIMD on.
    let filled = (threads / (4.0 * lanes)).min(1.0);
    let rate = lanes * f64::from(caps.clock_mhz) * 1e6 * SCALAR_EFFICIENCY * filled;
    (multiply_adds / rate).max(stream_seconds(bytes, caps))
}

/// Wavefronts a SIMD that hide latency: threads with many independent sums need fewer of them.
fn waves(variant: &Variant) -> f64 {
    let of = |name| variant.defines.get(name).map(|&value| value as f64);
    match (of("WAVES"), of("NX"), of("NY")) {
        (Some(waves), ..) => waves,
        (None, Some(nx), Some(ny)) if variant.source == "window" => 32.0 / (nx * ny),
        _ => 4.0,
    }
}

/// Multiply-adds a clock that kernels with their sums in registers reach of the peak.
const ROWS_EFFICIENCY: f64 = 0.5;
/// Workgroups per compute unit that keep enough loads in flight.
const ROWS_GROUPS: f64 = 2.5;

/// Seconds of workgroups that read one operand once and keep their sums in registers.
fn rows_seconds(multiply_adds: u64, groups: u64, bytes: u64, caps: &DeviceCaps) -> f64 {
    let cus = f64::from(caps.compute_units);
    let filled = (groups as f64 / (ROWS_GROUPS * cus)).min(1.0);
    let rate = cus * f64::from(caps.fma_per_clock) * f64::from(caps.clock_mhz) * 1e6 * ROWS_EFFICIENCY;
    (multiply_adds as f64 / rate).max(stream_seconds(bytes, caps)) / filled
}

/// Seconds to move `bytes` at three quarters of the bandwidth.
fn stream_seconds(bytes: u64, caps: &DeviceCaps) -> f64 {
    bytes as f64 / (caps.bandwidth_gbs * 0.75e9)
}

/// Seconds that a dependent launch costs beside its work.
fn launch_seconds(caps: &DeviceCaps) -> f64 {
    caps.launch_us * 1e-6
}

/// Longest f32 chain of additions whose rounding error stays within the promise of 1.5e-6.
///
/// A chain of d random terms has a relative error of about 2.4e-8 * sqrt(d/2): 1.1e-6 at 4096.
pub const LONGEST_CHAIN: u32 = 4096;

/// Split counts tried along the reduction; 9, 18 and 5, 10, 20 fill cards of 36 and 40 compute units evenly.
pub const SPLITS: [u32; 20] = [1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 16, 18, 20, 24, 32, 48, 64, 128, 256, 512];

/// Slices in a chunk: all of them, or so few that a chain stays short (f32 only, `exact` true).
pub fn chunk(slices: u32, slice_depth: u32, exact: bool) -> u32 {
    let longest = (LONGEST_CHAIN / slice_depth).max(1);
    if !exact || slices <= longest { slices.max(1) } else { slices.div_ceil(slices.div_ceil(longest)) }
}
