//! What an instruction can reach beside its wave's registers, and the kinds of handlers.

use crate::{Args, Dispatch, Finding, Lds, Memory, Region, Wave};

/// Executes a vector instruction on the wave's current half of 32 lanes; called once for each half.
pub type VectorFn = fn(&mut Wave, &Args);

/// Executes a scalar instruction, once.
pub type ScalarFn = fn(&mut Wave, &Args);

/// Executes a memory instruction. Vector memory and LDS: called for each half, `wave.half` set, whatever EXEC is.
/// Scalar memory: called once.
pub type MemoryFn<M> = for<'e> fn(&mut Wave, &mut Env<'e, M>, &Args) -> Result<(), Box<Fault>>;

/// What a memory instruction works on.
pub struct Env<'a, M> {
    /// The GPU's memory.
    pub memory: &'a M,
    /// Regions lately used.
    pub regions: &'a mut Regions,
    /// The workgroup's LDS.
    pub lds: &'a mut Lds,
    /// The wave's scratch as the hardware swizzles it: dword `d` of lane `l` is word `d * lanes + l`. A kernel sees it
    /// at [`crate::SCRATCH_BASE`], or through the private aperture.
    pub scratch: &'a mut [u32],
    /// The card's way to the host.
    pub signals: &'a dyn Signals,
    /// The wave's number in its workgroup.
    pub wave: u32,
    /// Find what a real card would not.
    pub strict: bool,
    /// But accesses past a buffer's records.
    pub robust: bool,
    /// What is run: whose arguments and packet it may read, wherever they lie.
    pub dispatch: &'a Dispatch,
    /// Where one wants them: the accesses of this instruction, for the time model. Lane, address, bytes.
    pub touched: Option<&'a mut Vec<(u32, u64, u32)>>,
}

/// What a wave sends to the host, and the clock it reads.
pub trait Signals: Sync {
    /// `s_sendmsg(MSG_INTERRUPT)` with M0: an event to raise.
    fn interrupt(&self, m0: u32) {
        let _ = m0;
    }

    /// The counter behind `s_memrealtime`, 100 MHz; `s_memtime` is derived from it.
    fn realtime(&self) -> u64 {
        0
    }
}

/// Nobody listens; the clock stands still.
impl Signals for () {}

/// Why an instruction cannot be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The first lane concerned, where one is.
    pub lane: Option<u32>,
    /// What is wrong.
    pub kind: FaultKind,
}

/// See [`Fault`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// No allocation there, or not to be written.
    Memory {
        /// The access.
        address: u64,
        /// Its size.
        bytes: u32,
        /// A store or an atomic.
        write: bool,
    },
    /// The strict card's objection.
    Strict(Finding),
    /// Something this executor cannot do.
    Illegal(String),
}

impl Fault {
    /// No allocation at `address`.
    pub fn memory(lane: Option<u32>, address: u64, bytes: u32, write: bool) -> Box<Self> {
        Box::new(Self { lane, kind: FaultKind::Memory { address, bytes, write } })
    }

    /// The strict card's objection.
    pub fn strict(lane: Option<u32>, finding: Finding) -> Box<Self> {
        Box::new(Self { lane, kind: FaultKind::Strict(finding) })
    }

    /// What this executor cannot do.
    pub fn illegal(reason: impl Into<String>) -> Box<Self> {
        Box::new(Self { lane: None, kind: FaultKind::Illegal(reason.into()) })
    }
}

/// The few regions that a thread's waves used last.
#[derive(Debug, Default)]
pub struct Regions {
    generation: u64,
    recent: [Option<Region>; 8],
    oldest: usize,
}

impl Regions {
    /// The allocation that holds all of `bytes` at `addr`.
    #[inline]
    pub fn find<M: Memory>(&mut self, memory: &M, addr: u64, bytes: u64) -> Option<Region> {
        if self.generation == memory.generation()
            && let Some(found) = self.recent.iter().flatten().find(|r| r.holds(addr, bytes))
        {
            return Some(*found);
        }
        self.look_up(memory, addr, bytes)
    }

    #[cold]
    fn look_up<M: Memory>(&mut self, memory: &M, addr: u64, bytes: u64) -> Option<Region> {
        let generation = memory.generation();
        if self.generation != generation {
            *self = Self { generation, ..Self::default() };
        }
        let region = memory.region(addr).filter(|r| r.holds(addr, bytes))?;
        self.recent[self.oldest] = Some(region);
        self.oldest = (self.oldest + 1) % self.recent.len();
        Some(region)
    }
}
