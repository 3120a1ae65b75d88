//! One launch: a sample of its workgroups recorded, a WGP's part simulated, the card's time worked out from that.

use crate::card::ModelCard;
use crate::constants as c;
use crate::hierarchy::Rates;
use crate::reuse::{self, Extent};
use crate::stream::{Recorded, Recorder};
use crate::tensors::Tensors;
use crate::time::{Bound, LaunchTime, Waits};
use crate::wgp::{self, Cause, Ran, Work};
use std::sync::Arc;
use std::time::Duration;
use wave32_exec::{Dispatch, Executor, Memory as _, Options, Stop};

/// How much is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Instructions recorded, about; at least three neighbouring workgroups are.
    pub recorded: u64,
    /// Instructions simulated on the WGP, about; at least one round of workgroups is.
    pub simulated: u64,
}

impl Effort {
    /// A second or so.
    pub const SAMPLE: Self = Self { recorded: 2_000_000, simulated: 6_000_000 };
    /// Every workgroup is recorded, and all that a WGP does is simulated: for small launches.
    pub const ALL: Self = Self { recorded: u64::MAX, simulated: u64::MAX };
}

/// Why a launch cannot be modelled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The executor stopped: its reason.
    #[error("the kernel could not be executed: {0}")]
    Stop(#[from] Stop),
    /// Nothing to do, or more than fits.
    #[error("{0}")]
    Shape(String),
}

/// Models a launch on a card. `tensors`: address and bytes of what it reads and writes.
///
/// # Errors
/// See [`LaunchError`].
pub fn launch(
    executor: &Executor<Tensors>,
    memory: &Tensors,
    dispatch: &Dispatch,
    tensors: &[(u64, u64)],
    card: &ModelCard,
    effort: Effort,
) -> Result<LaunchTime, LaunchError> {
    let descriptor = &dispatch.descriptor;
    let size = dispatch.workgroup.map(u32::from);
    let items: u64 = size.iter().map(|&s| u64::from(s)).product();
    if items == 0 || dispatch.grid.contains(&0) {
        return Err(LaunchError::Shape("a launch of no work-items".into()));
    }
    let grid = [0, 1, 2].map(|i| dispatch.grid[i].div_ceil(size[i]));
    let total: u64 = grid.iter().map(|&g| u64::from(g)).product();
    let wave64 = !descriptor.wave32();
    let waves = items.div_ceil(if wave64 { 64 } else { 32 });
    let resident = resident(dispatch, waves, wave64)?;
    let recorded = record(executor, memory, dispatch, grid, effort)?;
    let active = total.min(card.wgps) as f64;
    let most = 2.0 * c::FILL_CLOCK_BYTES as f64;
    let dram_bytes_clock = card.bandwidth * c::DRAM_PERCENT as f64 / 100.0 / card.clock;
    let rates = Rates {
        l2: ((card.l2_slices * c::L2_CLOCK_BYTES) as f64 / active).min(most),
        dram: (dram_bytes_clock / active).min(most),
        dram_latency: (c::DRAM_NS as f64 * 1e-9 * card.clock).round(),
        l1_lines: c::L1_BYTES / c::LINE * card.arrays / card.wgps,
    };
    let ranges: Vec<(u32, u32)> = tensors
        .iter()
        .map(|&(at, bytes)| ((at / c::LINE) as u32, (at + bytes).div_ceil(c::LINE) as u32))
        .collect();
    let extent = Extent { grid, at_once: resident * card.wgps, l2_lines: (card.l2_bytes / c::LINE) as f64 };
    let (tensors, dram_lines) = reuse::estimate(&recorded.groups, &ranges, &extent);
    // The busiest WGP's part.
    let part = total.div_ceil(card.wgps);
    let sampled = recorded.groups.len() as u64;
    let instructions = recorded.groups.iter().map(|g| g.instructions()).sum::<u64>() / sampled;
    let groups = simulated(part, resident, instructions, effort);
    let cu_mode = descriptor.rsrc1 >> 29 & 1 == 0;
    let work = Work {
        recorded: &recorded,
        wave64,
        cu_mode,
        groups: groups as usize,
        resident: resident as usize,
        rates,
        tensors: &tensors,
    };
    let ran = wgp::run(&work);
    let clocks = ran.end + (part - groups) as f64 * period(&ran.ended, resident as usize);
    let dram_bytes = dram_lines * c::LINE as f64;
    let floor = dram_bytes / dram_bytes_clock;
    let even = total as f64 / card.wgps as f64 / part as f64;
    Ok(LaunchTime {
        kernel: dispatch.name.clone(),
        groups: total,
        waves_per_group: waves,
        resident,
        seconds: clocks.max(floor) / card.clock,
        clocks: clocks.max(floor),
        bound: Bound::Latency,
        valu: ran.valu / ran.end,
        transcendental: ran.trans / ran.end,
        lds: ran.lds / ran.end,
        l0: ran.traffic.l0.max(ran.traffic.fill) / ran.end,
        l2: ran.traffic.l2 / ran.end,
        dram: (ran.traffic.dram / ran.end).max(floor / clocks.max(floor)),
        even,
        waits: waits(&ran),
        dram_bytes: dram_bytes as u64,
        instructions_per_group: instructions,
        recorded: sampled,
        simulated: groups,
        part,
    }
    .with_bound())
}

/// Workgroups that a WGP holds at once: as VGPRs, wave slots and LDS allow.
fn resident(dispatch: &Dispatch, waves: u64, wave64: bool) -> Result<u64, LaunchError> {
    // Wave64 takes a register's two halves.
    let vgprs = (dispatch.descriptor.vgprs() as u64) << u8::from(wave64);
    let slots = c::SIMDS * (c::VGPRS / vgprs.max(1)).min(c::WAVES);
    let lds = u64::from(dispatch.group_segment).next_multiple_of(c::LDS_GRANULE);
    let by_lds = c::LDS_BYTES.checked_div(lds).map_or(u64::MAX, |workgroups| 2 * workgroups);
    match (slots / waves).min(by_lds) {
        0 => Err(LaunchError::Shape(format!(
            "a workgroup of {waves} waves of {vgprs} VGPRs with {lds} bytes of LDS does not fit a WGP"
        ))),
        resident => Ok(resident),
    }
}

/// Records workgroups spread over the grid, each with its neighbours in x and y.
fn record(
    executor: &Executor<Tensors>,
    memory: &Tensors,
    dispatch: &Dispatch,
    grid: [u32; 3],
    effort: Effort,
) -> Result<Recorded, LaunchError> {
    let entry = dispatch.kernel_object.wrapping_add_signed(dispatch.descriptor.entry);
    let recorder = Arc::new(Recorder::new(entry, !dispatch.descriptor.wave32()));
    let mut options =
        Options { deadline: Duration::from_secs(60), trace: Some(recorder.clone()), ..Options::default() };
    let total: u64 = grid.iter().map(|&g| u64::from(g)).product();
    let neighbours = |n: u64| {
        let (x, y) = (u64::from(grid[0]), u64::from(grid[1]));
        let right = (n % x + 1 < x).then_some(n + 1);
        let below = (n / x % y + 1 < y).then_some(n + x);
        [Some(n), right, below].into_iter().flatten().collect::<Vec<u64>>()
    };
    let middle =
        total / 2 - u64::from(total > 1 && total.is_multiple_of(u64::from(grid[0]))) * (total / 2).min(1);
    let first = neighbours(middle);
    options.only = Some(first.clone().into());
    let report = executor.run(memory, dispatch, &options, &())?;
    let each = (report.instructions / first.len() as u64).max(1);
    let more = (effort.recorded / each).min(total).saturating_sub(first.len() as u64);
    let mut rest: Vec<u64> = if more + first.len() as u64 >= total {
        (0..total).collect()
    } else {
        let strata = more / 3;
        (0..strata).flat_map(|i| neighbours((2 * i + 1) * total / (2 * strata))).collect()
    };
    rest.sort_unstable();
    rest.dedup();
    rest.retain(|n| !first.contains(n));
    if !rest.is_empty() {
        options.only = Some(rest.into());
        executor.run(memory, dispatch, &options, &())?;
    }
    let recorded = recorder.finish();
    debug_assert!(memory.generation() > 0);
    if recorded.elsewhere > 0 {
        return Err(LaunchError::Shape("the kernel calls code that lies far from it".into()));
    }
    Ok(recorded)
}

/// Workgroups to simulate of the `part` that a WGP runs: all, or two rounds and the odd ones, or what is affordable.
fn simulated(part: u64, resident: u64, instructions: u64, effort: Effort) -> u64 {
    let affordable = effort.simulated / instructions.max(1);
    if part <= affordable {
        return part;
    }
    let wanted = 2 * resident + part % resident;
    wanted.min(affordable).max(resident).min(part)
}

/// Clocks from one workgroup's end to the next one's, once the WGP is in its stride.
fn period(ended: &[f64], resident: usize) -> f64 {
    let mean = |ends: &[f64]| ends.iter().sum::<f64>() / ends.len() as f64;
    if ended.len() >= 2 * resident {
        (mean(&ended[resident..2 * resident]) - mean(&ended[..resident])) / resident as f64
    } else {
        ended.last().copied().unwrap_or(0.0) / ended.len().max(1) as f64
    }
}

fn waits(ran: &Ran) -> Waits {
    let all = ran.lost.iter().sum::<f64>() + ran.issued;
    let share = |cause: Cause| ran.lost[cause as usize] / all;
    Waits {
        dependency: share(Cause::Dependency),
        memory: share(Cause::Vector),
        local: share(Cause::Local),
        barrier: share(Cause::Barrier),
        unit: share(Cause::Unit),
    }
}
