//! What is told about a program that is stuck.

use super::process::{Process, Region, Stat, folder};
use super::stack::{Frame, in_kernel, state};
use super::symbols::Symbols;
use std::fmt;
use std::time::Duration;

/// Frames that are shown.
const SHOWN: usize = 24;

/// A process that is stuck.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// The process.
    pub process: Process,
    /// Its name.
    pub name: String,
    /// The thread.
    pub tid: i32,
    /// How long it has been there.
    pub stuck: Duration,
    /// It used the CPU meanwhile: it spins, and does not sleep.
    pub spins: bool,
    /// The thread is in a call to the kernel that cannot be interrupted: `D`.
    pub uninterruptible: bool,
    /// Its calls, innermost first.
    pub frames: Vec<String>,
    /// What it waits for in the kernel.
    pub kernel: Vec<String>,
    /// The problem, as MIOpen's log told it last.
    pub command: Option<String>,
}

impl Diagnosis {
    pub(super) fn new(
        process: Process,
        tid: i32,
        frames: &[Frame],
        regions: &[Region],
        stuck: Duration,
        ticks: u64,
        command: Option<String>,
    ) -> Self {
        let mut symbols = Symbols::default();
        let shown = frames.iter().take(SHOWN);
        Self {
            name: Stat::read(&folder(process.pid)).map(|stat| stat.name).unwrap_or_default(),
            process,
            tid,
            stuck,
            // A tick is 10 ms: more than a twentieth of the time.
            spins: u128::from(ticks) * 10 * 20 > stuck.as_millis(),
            uninterruptible: state(process.pid, tid).is_some_and(|stat| stat.state == 'D'),
            frames: shown.map(|frame| symbols.describe(process.pid, frame.address, regions)).collect(),
            kernel: in_kernel(process.pid, tid),
            command,
        }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match (self.uninterruptible, self.spins) {
            (true, _) => "held by the kernel",
            (false, true) => "spinning on the CPU",
            (false, false) => "waiting",
        };
        let Self { process, name, tid, .. } = self;
        let seconds = self.stuck.as_secs_f64();
        let place = if self.frames.iter().any(|frame| frame.starts_with("libMIOpen")) {
            "in MIOpen"
        } else {
            "waiting for the GPU"
        };
        writeln!(f, "wave32 run: STUCK {place} for {seconds:.1} s: {name} (process {}), {how}", process.pid)?;
        writeln!(f, "  in that time no counter of the GPU grew, and the program made no other call")?;
        match &self.command {
            Some(line) => writeln!(f, "  the problem, as MIOpen told it last:\n    {line}")?,
            None => writeln!(f, "  MIOpen told of no problem (its version may not log them)")?,
        }
        writeln!(f, "  calls of thread {tid}, innermost first (return addresses found on its stack):")?;
        self.frames.iter().try_for_each(|frame| writeln!(f, "    {frame}"))?;
        if !self.kernel.is_empty() {
            writeln!(f, "  in the kernel:")?;
            self.kernel.iter().try_for_each(|frame| writeln!(f, "    {frame}"))?;
        }
        writeln!(f, "  what to do next:")?;
        writeln!(f, "    run it without MIOpen: wave32 run --route vulkan -- ...")?;
        if let Some(line) = &self.command {
            writeln!(f, "    see which of MIOpen's solvers do this problem safely: wave32 probe '{line}'")?;
        }
        writeln!(
            f,
            "    if later programs hang at once, the card needs a reset: reboot, and see dmesg for amdgpu's lines"
        )
    }
}
