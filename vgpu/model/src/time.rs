//! What comes out: modelled times, and why they are what they are.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::Add;

/// What a launch's time is made of, mostly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Issue of vector ALU instructions.
    Valu,
    /// LDS banks.
    Lds,
    /// L0 and the way to it.
    L0,
    /// L2's bandwidth.
    L2,
    /// DRAM's bandwidth.
    Dram,
    /// Nothing is busy: waves wait for one another, for memory, for results.
    Latency,
    /// Too few workgroups for the WGPs, or a last round that fills only some.
    Tail,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Valu => "VALU issue",
            Self::Lds => "LDS",
            Self::L0 => "L0",
            Self::L2 => "L2",
            Self::Dram => "DRAM",
            Self::Latency => "latency",
            Self::Tail => "tail",
        })
    }
}

/// A modelled time in seconds, from `low` to `high`; as JSON in ms.
///
/// `low`: at the boost clock, all conflicts of VGPR banks hidden. `high`: at the game clock, none hidden.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Ms", into = "Ms")]
#[allow(missing_docs)] // its ends
pub struct Bracket {
    pub low: f64,
    pub high: f64,
}

#[derive(Serialize, Deserialize)]
struct Ms {
    low: f64,
    high: f64,
}

impl From<Bracket> for Ms {
    fn from(seconds: Bracket) -> Self {
        Self { low: seconds.low * 1e3, high: seconds.high * 1e3 }
    }
}

impl From<Ms> for Bracket {
    fn from(ms: Ms) -> Self {
        Self { low: ms.low * 1e-3, high: ms.high * 1e-3 }
    }
}

impl Add for Bracket {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { low: self.low + other.low, high: self.high + other.high }
    }
}

impl Sum for Bracket {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Self::add)
    }
}

impl fmt::Display for Bracket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} to {:.3} ms", self.low * 1e3, self.high * 1e3)
    }
}

/// Shares of the time that waves spend not issuing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// For ALU results and behind branches.
    pub dependency: f64,
    /// At `s_waitcnt` for vector memory.
    pub memory: f64,
    /// At `s_waitcnt` for LDS and scalar memory.
    pub local: f64,
    /// At barriers.
    pub barrier: f64,
    /// For a unit that another wave has.
    pub unit: f64,
}

/// The modelled time of one launch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaunchTime {
    /// The kernel.
    pub kernel: String,
    /// Workgroups.
    pub groups: u64,
    /// Waves of each.
    pub waves_per_group: u64,
    /// Workgroups that a WGP holds at once.
    pub resident: u64,
    /// Modelled, without what a launch costs by itself.
    #[serde(rename = "time_ms")]
    pub time: Bracket,
    /// Its low end in clocks of the card; the shares below are of that too.
    pub clocks: f64,
    /// What bounds it.
    pub bound: Bound,
    /// Share of the busiest WGP's time that its VALUs are busy (1: an instruction of 32 lanes each clock).
    pub valu: f64,
    /// Share that the transcendental units are busy.
    pub transcendental: f64,
    /// Share that LDS is busy, bank conflicts counted.
    pub lds: f64,
    /// Share that L0 or its way to L1 is busy.
    pub l0: f64,
    /// Share that the WGP's part of L2's bandwidth is used.
    pub l2: f64,
    /// Share that its part of DRAM's bandwidth is used.
    pub dram: f64,
    /// Workgroups of the average WGP over those of the busiest: 1 where all end together.
    pub even: f64,
    /// Where waves' time goes.
    pub waits: Waits,
    /// Bytes from and to DRAM, estimated.
    pub dram_bytes: u64,
    /// Wave instructions of a workgroup, on average.
    pub instructions_per_group: u64,
    /// Workgroups whose instructions were recorded.
    pub recorded: u64,
    /// Workgroups that were simulated on the WGP, of the `part` that the busiest has.
    pub simulated: u64,
    /// See `simulated`.
    pub part: u64,
}

impl LaunchTime {
    /// A unit that is busy this share of the time bounds the launch.
    const BUSY: f64 = 0.6;
    /// Below this evenness it is the tail.
    const EVEN: f64 = 0.7;

    pub(crate) fn with_bound(mut self) -> Self {
        let units = [
            (Bound::Valu, self.valu.max(self.transcendental)),
            (Bound::Lds, self.lds),
            (Bound::L0, self.l0),
            (Bound::L2, self.l2),
            (Bound::Dram, self.dram),
        ];
        let (unit, busy) = units.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("five units");
        self.bound = if self.even < Self::EVEN && unit != Bound::Dram {
            Bound::Tail
        } else if busy >= Self::BUSY {
            unit
        } else {
            Bound::Latency
        };
        self
    }
}

/// The modelled time of a plan.
#[derive(Debug, Clone, Serialize)]
pub struct PlanTime {
    /// The card.
    pub card: &'static str,
    /// The gfx target of the code that was looked at.
    pub code: String,
    /// Who made the code, and for which route.
    pub compiler: String,
    /// Modelled: all launches and what each costs by itself.
    #[serde(rename = "time_ms")]
    pub time: Bracket,
    /// Microseconds of it between launches.
    pub between_us: f64,
    /// In order.
    pub launches: Vec<LaunchTime>,
}

impl fmt::Display for PlanTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "modelled {} on {}, {} code of {} (a simulation of its workgroup processors from a sample of the \
             instructions; nothing was measured)",
            self.time, self.card, self.code, self.compiler
        )?;
        for l in &self.launches {
            let percent = |share: f64| (share * 100.0).round();
            writeln!(
                f,
                "  {}  {}: {} workgroups of {} waves, {} at once a WGP; bound by {}",
                l.time, l.kernel, l.groups, l.waves_per_group, l.resident, l.bound
            )?;
            writeln!(
                f,
                "            busy: VALU {}%, LDS {}%, L0 {}%, L2 {}%, DRAM {}% ({:.1} MB); WGPs evenly loaded {}%",
                percent(l.valu),
                percent(l.lds),
                percent(l.l0),
                percent(l.l2),
                percent(l.dram),
                l.dram_bytes as f64 / 1e6,
                percent(l.even)
            )?;
            let w = &l.waits;
            writeln!(
                f,
                "            waves wait: unit taken {}%, memory {}%, LDS and scalar {}%, results {}%, barriers {}%",
                percent(w.unit),
                percent(w.memory),
                percent(w.local),
                percent(w.dependency),
                percent(w.barrier)
            )?;
        }
        if self.between_us > 0.0 {
            writeln!(f, "  {:.3} ms  between launches", self.between_us * 1e-3)?;
        }
        Ok(())
    }
}
