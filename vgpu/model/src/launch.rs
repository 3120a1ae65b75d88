//! One launch: a sample of its workgroups recorded, a WGP's part simulated, the card's time worked out from that.

use crate::card::ModelCard;
use crate::constants as c;
use crate::hierarchy::Rates;
use crate::reuse::{self, Extent};
use crate::stream::{GroupStream, Recorded, Recorder, STORED};
#[cfg(feature = "plans")]
use crate::tensors::Tensors;
use crate::time::{Bound, Bracket, LaunchTime, Waits};
use crate::wgp::{self, Cause, Ran, Work};
use std::collections::BTreeSet;
use std::sync::Arc;
use wave32_exec::{Dispatch, Executor, Memory, Options, Report, Signals, Stop, Trace};

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
#[cfg(feature = "plans")]
pub fn launch(
    executor: &Executor<Tensors>,
    memory: &Tensors,
    dispatch: &Dispatch,
    tensors: &[(u64, u64)],
    card: &ModelCard,
    effort: Effort,
) -> Result<LaunchTime, LaunchError> {
    let options = Options { deadline: std::time::Duration::from_secs(60), ..Options::default() };
    let (sample, _) = record(executor, memory, dispatch, &options, &(), effort)?;
    time(&sample.recorded, dispatch, tensors, card, effort)
}

/// Records a sample of the workgroups of a launch that runs for its own sake.
pub struct Watch {
    recorder: Arc<Recorder>,
}

impl Watch {
    /// Groups of neighbours that are watched.
    const SAMPLES: u64 = 24;

    /// For a launch that has not begun.
    ///
    /// # Errors
    /// [`LaunchError::Shape`] where it has no work-items.
    pub fn new(dispatch: &Dispatch, effort: Effort) -> Result<Self, LaunchError> {
        let grid = workgroups(dispatch)?;
        let total: u64 = grid.iter().map(|&g| u64::from(g)).product();
        let chosen = match total {
            0..=128 => (0..total).collect(),
            _ => spread(grid, Self::SAMPLES).collect(),
        };
        Ok(Self { recorder: Arc::new(Recorder::new(dispatch).only(grid, chosen, effort.recorded)) })
    }

    /// What the executor's options take.
    pub fn trace(&self) -> Arc<dyn Trace> {
        self.recorder.clone()
    }

    /// What was recorded, once the launch has ended.
    ///
    /// # Errors
    /// [`LaunchError::Shape`] where none of the workgroups ran.
    pub fn finish(self) -> Result<Sample, LaunchError> {
        Sample::new(self.recorder.finish())
    }
}

/// What the watched workgroups of a launch did.
pub struct Sample {
    recorded: Recorded,
}

/// What a workgroup does, on average of those that were watched.
#[derive(Debug, Clone, Copy)]
pub struct GroupWork {
    /// Instructions of all its waves.
    pub instructions: f64,
    /// Lines of memory that it reads or writes.
    pub lines: f64,
}

impl GroupWork {
    /// Which workgroups are watched is partly chance, and those at an edge do less.
    const NEAR: f64 = 0.02;

    /// Whether launches of one kernel and grid of which this is true take the same time.
    pub fn is_near(&self, other: &Self) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= Self::NEAR * a.max(b);
        near(self.instructions, other.instructions) && near(self.lines, other.lines)
    }
}

impl Sample {
    fn new(recorded: Recorded) -> Result<Self, LaunchError> {
        if recorded.groups.is_empty() {
            return Err(LaunchError::Shape("none of the sampled workgroups ran".into()));
        }
        Ok(Self { recorded })
    }

    /// What a workgroup does, on average.
    pub fn work(&self) -> GroupWork {
        let groups = &self.recorded.groups;
        let mean =
            |of: fn(&GroupStream) -> u64| groups.iter().map(of).sum::<u64>() as f64 / groups.len() as f64;
        GroupWork { instructions: mean(|g| g.instructions()), lines: mean(|g| g.touched().count() as u64) }
    }

    /// The modelled time. `buffers`: address and bytes of all that the launch may read and write.
    ///
    /// # Errors
    /// See [`LaunchError`].
    pub fn time(
        &self,
        dispatch: &Dispatch,
        buffers: &[(u64, u64)],
        card: &ModelCard,
        effort: Effort,
    ) -> Result<LaunchTime, LaunchError> {
        let touched: BTreeSet<u32> = self.recorded.groups.iter().flat_map(|group| group.touched()).collect();
        let used = |&(at, bytes): &(u64, u64)| {
            lines(at, bytes).into_iter().any(|(first, end)| touched.range(first..end).next().is_some())
        };
        let bound: BTreeSet<(u64, u64)> =
            self.recorded.groups.iter().flat_map(|group| group.bound.iter().copied()).collect();
        let buffers: Vec<_> = buffers.iter().flat_map(|&buffer| parts(buffer, &bound)).filter(used).collect();
        time(&self.recorded, dispatch, &buffers, card, effort)
    }
}

/// A buffer cut where what a launch bound begins and ends: the tensors in an allocation, and what lies between them.
fn parts((at, bytes): (u64, u64), bound: &BTreeSet<(u64, u64)>) -> Vec<(u64, u64)> {
    // Buffer descriptors hold 48 bits of an address.
    let at = at & ((1 << 48) - 1);
    let end = at + bytes;
    let within =
        bound.iter().flat_map(|&(first, bytes)| [first, first + bytes]).filter(|cut| (at..end).contains(cut));
    let cuts: BTreeSet<u64> = within.chain([at, end]).collect();
    cuts.iter().zip(cuts.iter().skip(1)).map(|(&first, &next)| (first, next - first)).collect()
}

/// Workgroups in x, y, z.
fn workgroups(dispatch: &Dispatch) -> Result<[u32; 3], LaunchError> {
    if dispatch.workgroup.contains(&0) || dispatch.grid.contains(&0) {
        return Err(LaunchError::Shape("a launch of no work-items".into()));
    }
    Ok(dispatch.workgroups())
}

/// The lines of a buffer, as [`Recorder`] numbers them: those that are read, those that are written.
fn lines(at: u64, bytes: u64) -> [(u32, u32); 2] {
    let first = (at / c::LINE) as u32 & (STORED - 1);
    let count = (at % c::LINE + bytes).div_ceil(c::LINE).min(STORED.into()) as u32;
    let end = first.saturating_add(count).min(STORED);
    [(first, end), (first | STORED, end + STORED)]
}

fn time(
    recorded: &Recorded,
    dispatch: &Dispatch,
    tensors: &[(u64, u64)],
    card: &ModelCard,
    effort: Effort,
) -> Result<LaunchTime, LaunchError> {
    if recorded.elsewhere > 0 {
        return Err(LaunchError::Shape("the kernel calls code that lies far from it".into()));
    }
    let descriptor = &dispatch.descriptor;
    let grid = workgroups(dispatch)?;
    let total: u64 = grid.iter().map(|&g| u64::from(g)).product();
    let items: u64 = dispatch.workgroup.iter().map(|&s| u64::from(s)).product();
    let wave64 = !descriptor.wave32();
    let waves = items.div_ceil(if wave64 { 64 } else { 32 });
    let resident = resident(dispatch, waves, wave64)?;
    let active = total.min(card.wgps) as f64;
    let most = 2.0 * c::FILL_CLOCK_BYTES as f64;
    let ranges: Vec<(u32, u32)> = tensors.iter().flat_map(|&(at, bytes)| lines(at, bytes)).collect();
    let extent = Extent { grid, at_once: resident * card.wgps, l2_lines: (card.l2_bytes / c::LINE) as f64 };
    let (tensors, dram_lines) = reuse::estimate(&recorded.groups, &ranges, &extent);
    let dram_bytes = dram_lines * c::LINE as f64;
    // The busiest WGP's part.
    let part = total.div_ceil(card.wgps);
    let sampled = recorded.groups.len() as u64;
    let mean = |of: fn(&GroupStream) -> u64| recorded.groups.iter().map(of).sum::<u64>() / sampled;
    let (instructions, simulable) = (mean(GroupStream::instructions), mean(GroupStream::recorded));
    // Of a long wave the first part is simulated: the rest goes at its pace.
    let cut = instructions as f64 / simulable.max(1) as f64;
    let groups = simulated(part, resident, simulable, effort);
    let run = |clock: f64, bank_conflicts: bool| {
        let dram_bytes_clock = card.bandwidth * c::DRAM_PERCENT as f64 / 100.0 / clock;
        let rates = Rates {
            l2: ((card.l2_slices * c::L2_CLOCK_BYTES) as f64 / active).min(most),
            dram: (dram_bytes_clock / active).min(most),
            dram_latency: (c::DRAM_NS as f64 * 1e-9 * clock).round(),
            l1_lines: c::L1_BYTES / c::LINE * card.arrays / card.wgps,
        };
        let ran = wgp::run(&Work {
            recorded,
            wave64,
            cu_mode: descriptor.rsrc1 >> 29 & 1 == 0,
            groups: groups as usize,
            resident: resident as usize,
            rates,
            tensors: &tensors,
            bank_conflicts,
        });
        let clocks = (ran.end + (part - groups) as f64 * period(&ran.ended, resident as usize)) * cut;
        let floor = dram_bytes / dram_bytes_clock;
        (ran, clocks.max(floor), floor)
    };
    let (ran, clocks, floor) = run(card.clock, false);
    let (_, slow_clocks, _) = run(card.game_clock, true);
    let low = clocks / card.clock;
    let even = total as f64 / card.wgps as f64 / part as f64;
    Ok(LaunchTime {
        kernel: dispatch.name.clone(),
        groups: total,
        waves_per_group: waves,
        resident,
        time: Bracket { low, high: (slow_clocks / card.game_clock).max(low) },
        clocks,
        bound: Bound::Latency,
        valu: ran.valu / ran.end,
        transcendental: ran.trans / ran.end,
        lds: ran.lds / ran.end,
        l0: ran.traffic.l0.max(ran.traffic.fill) / ran.end,
        l2: ran.traffic.l2 / ran.end,
        dram: (ran.traffic.dram / ran.end).max(floor / clocks),
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

/// Workgroup `n`, and those beside it in x and y.
fn neighbours(grid: [u32; 3], n: u64) -> Vec<u64> {
    let (x, y) = (u64::from(grid[0]), u64::from(grid[1]));
    let right = (n % x + 1 < x).then_some(n + 1);
    let below = (n / x % y + 1 < y).then_some(n + x);
    [Some(n), right, below].into_iter().flatten().collect()
}

/// So many workgroups at even distances, with their neighbours.
fn spread(grid: [u32; 3], count: u64) -> impl Iterator<Item = u64> {
    let total: u64 = grid.iter().map(|&g| u64::from(g)).product();
    (0..count).flat_map(move |i| neighbours(grid, (2 * i + 1) * total / (2 * count)))
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

/// Runs and records workgroups spread over the grid, each with its neighbours in x and y, and no others. The report counts
/// them only.
///
/// # Errors
/// See [`LaunchError`].
pub fn record<M: Memory>(
    executor: &Executor<M>,
    memory: &M,
    dispatch: &Dispatch,
    options: &Options,
    signals: &dyn Signals,
    effort: Effort,
) -> Result<(Sample, Report), LaunchError> {
    let grid = workgroups(dispatch)?;
    let recorder = Arc::new(Recorder::new(dispatch));
    let mut options = Options { trace: Some(recorder.clone()), ..options.clone() };
    let total: u64 = grid.iter().map(|&g| u64::from(g)).product();
    let middle =
        total / 2 - u64::from(total > 1 && total.is_multiple_of(u64::from(grid[0]))) * (total / 2).min(1);
    let first = neighbours(grid, middle);
    options.only = Some(first.clone().into());
    let mut report = executor.run(memory, dispatch, &options, signals)?;
    let each = (report.instructions / first.len() as u64).max(1);
    let more = (effort.recorded / each).min(total).saturating_sub(first.len() as u64);
    let mut rest: Vec<u64> = if more + first.len() as u64 >= total {
        (0..total).collect()
    } else {
        spread(grid, more / 3).collect()
    };
    rest.sort_unstable();
    rest.dedup();
    rest.retain(|n| !first.contains(n));
    if !rest.is_empty() {
        options.only = Some(rest.into());
        report.merge(executor.run(memory, dispatch, &options, signals)?);
    }
    Ok((Sample::new(recorder.finish())?, report))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_cut_where_their_tensors_begin_and_end() {
        // As the driver names an allocation, and as descriptors name what lies in it: without the upper 16 bits.
        let allocation = (0xffff_8001_0000_0000, 0x1000);
        let bound = [(0x8001_0000_0100, 0x200), (0x8001_0000_0300, 0x100), (0x9000_0000_0000, 0x100)];
        let expected = [
            (0x8001_0000_0000, 0x100),
            (0x8001_0000_0100, 0x200),
            (0x8001_0000_0300, 0x100),
            (0x8001_0000_0400, 0xc00),
        ];
        assert_eq!(parts(allocation, &bound.into()), expected);
        assert_eq!(parts((0x2000, 0x100), &BTreeSet::new()), [(0x2000, 0x100)]);
    }
}
