//! The report as data.

use serde::{Deserialize, Serialize};
use wave32_device::DeviceKind;
use wave32_solve::DeviceCaps;
use wave32_verify::bench;
use wave32_verify::protocol::{Ready, Verdict};
use wave32_verify::report as verify;

/// Version of this format.
pub const SCHEMA: u32 = 1;

/// Failures of a device that are kept; more of them tell nothing new.
const FAILURES: usize = 40;

/// Everything that was seen on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of wave32.
    pub wave32: String,
    /// Seconds since 1970 at the start.
    pub unix_time: u64,
    /// Seconds it took.
    pub seconds: f64,
    /// Seconds that it was allowed.
    pub limit_s: f64,
    /// True where the user stopped it.
    pub interrupted: bool,
    /// The machine.
    pub machine: Machine,
    /// What was done, in order, and how each part ended.
    pub parts: Vec<Part>,
    /// What could compute here.
    pub devices: Vec<Device>,
    /// Routes without a device, and why.
    pub absent: Vec<Absent>,
    /// What was verified, by device.
    pub checks: Vec<Check>,
    /// What was timed, by device.
    pub benches: Vec<Bench>,
    /// Temperatures and clocks.
    pub sensors: Sensors,
    /// What the kernel said of GPUs.
    pub kernel_log: KernelLog,
    /// What `wave32 doctor --json` says; null where it did not come to an end.
    pub doctor: serde_json::Value,
}

/// The machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its system.
    pub system: Option<String>,
    /// Its kernel.
    pub kernel: Option<String>,
    /// Its processor.
    pub processor: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Under Windows's subsystem for Linux.
    pub wsl: bool,
    /// In a container.
    pub container: bool,
    /// On wave32's virtual card.
    pub virtual_card: bool,
}

/// How a part ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// To its end.
    Done,
    /// Its time was over.
    Cut,
    /// The user stopped it.
    Stopped,
    /// It did not answer and was ended, or something in it hung.
    Hung,
    /// Something in it failed.
    Failed,
    /// It was not begun.
    Skipped,
}

impl State {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Cut => "cut short",
            Self::Stopped => "stopped",
            Self::Hung => "hung",
            Self::Failed => "failed",
            Self::Skipped => "left out",
        }
    }
}

/// A part of the work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// `doctor`, `verify vulkan:0`, ...
    pub name: String,
    /// How it ended.
    pub state: State,
    /// Seconds it took.
    pub seconds: f64,
    /// Why it did not come to its end, or what was left out.
    pub note: Option<String>,
}

/// What a device is, for whoever reads its figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// A GPU.
    Card,
    /// wave32's virtual card: the processor executes a card's instructions.
    VirtualCard,
    /// A Vulkan driver that computes on the processor.
    SoftwareDriver,
    /// The processor, by wave32's own backend.
    Processor,
}

impl Class {
    /// Of a device; `is_virtual` where the process runs on the virtual card.
    pub fn of(device: &wave32_verify::protocol::Device, is_virtual: bool) -> Self {
        let software = ["llvmpipe", "lavapipe", "swiftshader"];
        let name = device.name.to_lowercase();
        match device.kind {
            _ if device.id == "cpu" => Self::Processor,
            _ if software.iter().any(|word| name.contains(word)) => Self::SoftwareDriver,
            _ if is_virtual => Self::VirtualCard,
            DeviceKind::Cpu => Self::SoftwareDriver,
            _ => Self::Card,
        }
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::VirtualCard => "virtual card, executed on the CPU",
            Self::SoftwareDriver => "software driver, computes on the CPU",
            Self::Processor => "processor",
        }
    }
}

/// Something that could compute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// `vulkan:0`, `hip:0`, `miopen`, `cpu`.
    pub id: String,
    /// Its name in its driver's words.
    pub name: String,
    /// Driver and version.
    pub driver: String,
    /// Mesa's version, where it is Mesa's driver.
    pub mesa: Option<String>,
    /// What sort of hardware its driver says it is.
    pub kind: DeviceKind,
    /// What it is.
    pub class: Class,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// Why it cannot be used.
    pub unusable: Option<String>,
    /// What solvers know of it.
    pub caps: Option<DeviceCaps>,
}

impl Device {
    /// Of a device that was listed.
    pub fn of(ready: &Ready, is_virtual: bool) -> Self {
        let device = &ready.device;
        Self {
            id: device.id.clone(),
            name: device.name.clone(),
            driver: device.driver.clone(),
            mesa: mesa(&device.driver),
            kind: device.kind,
            class: Class::of(device, is_virtual),
            memory_bytes: device.memory_bytes,
            unusable: device.unusable.clone(),
            caps: ready.caps.clone(),
        }
    }

    /// True where its times say something of hardware that has a model.
    pub fn is_modelled(&self) -> bool {
        self.class == Class::Card && self.caps.is_some()
    }
}

/// The version behind the word Mesa.
fn mesa(driver: &str) -> Option<String> {
    let rest = driver.split_once("Mesa ")?.1;
    let version: String = rest.chars().take_while(|c| !c.is_whitespace() && *c != ')' && *c != ',').collect();
    version.starts_with(|c: char| c.is_ascii_digit()).then_some(version)
}

/// A route without a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Absent {
    /// `vulkan`, `rocm` or `miopen`.
    pub route: String,
    /// Why.
    pub why: String,
}

/// What was verified on a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The device.
    pub device: String,
    /// What was chosen, in words.
    pub selection: String,
    /// Problems chosen; of equal ones, after scaling, one counts.
    pub problems: usize,
    /// Problems that there was no time for.
    pub not_run: usize,
    /// Larger problems were scaled down to this.
    pub scaled_to_gflop: Option<f64>,
    /// Seed of the operands.
    pub seed: u64,
    /// Seconds it took.
    pub seconds: f64,
    /// Counts by type and pass.
    pub groups: Vec<Group>,
    /// What failed, the first of them.
    pub failures: Vec<Failure>,
}

/// Counts of one type and pass.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// `f32`, `f16`.
    pub dtype: String,
    /// `fwd`, `bwd`, `wrw`.
    pub direction: String,
    /// Right.
    pub passed: usize,
    /// Anything that is wrong.
    pub failed: usize,
    /// Refused beforehand, with a reason.
    pub unsupported: usize,
    /// The normwise error that comes nearest to its bound.
    pub worst_error: Option<f64>,
    /// That bound.
    pub allowed: Option<f64>,
}

/// A problem that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// How.
    pub verdict: Verdict,
    /// Its name.
    pub label: String,
    /// Its line.
    pub line: String,
    /// What was seen.
    pub detail: String,
    /// The command that repeats it.
    pub repro: Option<String>,
}

impl Check {
    /// From a campaign on one device.
    pub fn of(device: &str, selection: &str, report: &verify::Report) -> Self {
        let planned = report.devices.first();
        let failed = report.rows.iter().filter(|row| row.outcome.verdict.is_failure());
        let failure = |row: &verify::Row| Failure {
            verdict: row.outcome.verdict,
            label: row.label.clone(),
            line: row.line.clone(),
            detail: row.outcome.detail.clone(),
            repro: row.repro.clone(),
        };
        let group = |([_, dtype, direction], tally): ([String; 3], verify::Tally)| Group {
            dtype,
            direction,
            passed: tally.of(Verdict::Pass),
            failed: tally.failed(),
            unsupported: tally.of(Verdict::Unsupported),
            worst_error: tally.worst.map(|(error, _)| error),
            allowed: tally.worst.map(|(_, bound)| bound),
        };
        Self {
            device: device.into(),
            selection: selection.into(),
            problems: planned.map_or(0, |d| d.distinct),
            not_run: report.not_run,
            scaled_to_gflop: planned.and_then(|d| d.max_gflop),
            seed: report.seed,
            seconds: report.elapsed_s,
            groups: report.groups().into_iter().map(group).collect(),
            failures: failed.take(FAILURES).map(failure).collect(),
        }
    }

    /// Right, failed, unsupported.
    pub fn counts(&self) -> [usize; 3] {
        let sum = |count: fn(&Group) -> usize| self.groups.iter().map(count).sum();
        [sum(|g| g.passed), sum(|g| g.failed), sum(|g| g.unsupported)]
    }

    /// The group whose error comes nearest to its bound.
    pub fn worst(&self) -> Option<(f64, f64)> {
        let pairs = self.groups.iter().filter_map(|g| Some((g.worst_error?, g.allowed?)));
        pairs.max_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)))
    }
}

/// What was timed on a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bench {
    /// The device.
    pub device: String,
    /// How time was taken.
    pub clock: String,
    /// Rates of the floors.
    pub rates: Option<bench::Rates>,
    /// Problems chosen.
    pub problems: usize,
    /// Problems that there was no time for.
    pub not_run: usize,
    /// Layers left out as too large.
    pub too_large: Vec<String>,
    /// In the order measured.
    pub rows: Vec<BenchRow>,
}

/// A timed problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchRow {
    /// As `wave32 bench` measured it.
    #[serde(flatten)]
    pub row: bench::Row,
    /// What the cost model says for this device, in milliseconds; none where there is no model of it.
    pub model_ms: Option<f64>,
}

impl BenchRow {
    /// Modelled over measured: 1 is as fast as the model says, 2 is twice as fast.
    pub fn against_model(&self) -> Option<f64> {
        Some(self.model_ms? / self.row.median_ms()?)
    }
}

impl Bench {
    /// Geometric mean of modelled over measured of one pass, or of all.
    pub fn against_model(&self, direction: Option<&str>) -> Option<f64> {
        let rows = self.rows.iter().filter(|r| direction.is_none_or(|d| r.row.direction == d));
        bench::geometric_mean(rows.filter_map(BenchRow::against_model))
    }

    /// Rows without times.
    pub fn failures(&self) -> impl Iterator<Item = &BenchRow> {
        self.rows.iter().filter(|row| row.row.error.is_some())
    }
}

/// Temperatures and clocks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sensors {
    /// By card.
    pub cards: Vec<CardReadings>,
    /// Why there are none.
    pub note: Option<String>,
}

/// A card's readings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CardReadings {
    /// Its place on the PCI bus.
    pub address: String,
    /// Its kernel driver.
    pub driver: String,
    /// In time.
    pub readings: Vec<Reading>,
}

/// One look at a card.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Seconds since the start.
    pub at_s: f64,
    /// The part that ran: `before`, `after`, or its name.
    pub during: String,
    /// Temperature of the chip's edge, in degrees Celsius.
    pub edge_c: Option<f64>,
    /// The hottest place of the chip.
    pub junction_c: Option<f64>,
    /// Its memory.
    pub memory_c: Option<f64>,
    /// Clock of the compute units, in MHz.
    pub shader_mhz: Option<f64>,
    /// Clock of the memory.
    pub memory_mhz: Option<f64>,
    /// Watts.
    pub power_w: Option<f64>,
    /// Turns of the fan in a minute.
    pub fan_rpm: Option<f64>,
    /// Percent of time that it is busy.
    pub busy_percent: Option<f64>,
}

/// What the kernel said of GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelLog {
    /// Where it was read.
    pub source: Option<String>,
    /// The latest lines.
    pub lines: Vec<LogLine>,
    /// Earlier ones that are left out.
    pub left_out: usize,
    /// Why it could not be read.
    pub note: Option<String>,
}

/// A line of the kernel's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// The line.
    pub text: String,
    /// True where it was not there before this report began.
    pub new: bool,
}
