//! Why a kernel was stopped.

use std::fmt;

/// Where in a dispatch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Location {
    /// The kernel's name, where known; else its descriptor's address.
    pub kernel: String,
    /// Byte offset of the instruction from the kernel's entry.
    pub offset: u64,
    /// Its text.
    pub instruction: String,
    /// Workgroup, wave in it, lane.
    pub workgroup: [u32; 3],
    /// See `workgroup`.
    pub wave: u32,
    /// The first lane concerned, where one is.
    pub lane: Option<u32>,
}

/// What the strict card finds; a real one may go on with wrong results, or hang.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the fields' names say it
pub enum Finding {
    /// A value that nothing wrote, in a register where it begins to matter.
    UninitialisedVgpr {
        register: u32,
        /// Where the lane last loaded LDS that nothing had written, if it did: the value may come from there.
        lds: Option<u32>,
    },
    UninitialisedSgpr {
        register: u32,
    },
    /// LDS that an atomic uses before anything wrote it; byte address in the workgroup's LDS.
    UninitialisedLds {
        address: u32,
    },
    /// A load's result used, or its source overwritten, without the `s_waitcnt` that waits for it.
    MissingWaitcnt {
        register: u32,
        /// A VGPR, not an SGPR.
        vector: bool,
        counter: &'static str,
    },
    /// Two waves used the same bytes of LDS, one writing, with no barrier between.
    LdsRace {
        address: u32,
        other_wave: u32,
    },
    /// Waves of a workgroup wait at different barriers; where the other one's is, in bytes from the kernel's entry.
    BarrierDivergence {
        other_wave: u32,
        other_offset: u64,
    },
    /// Past the LDS that the kernel declared.
    LdsOutOfBounds {
        address: u32,
        bytes: u32,
    },
    /// Device access to fine-grained memory.
    FineGrained {
        address: u64,
    },
    /// Atomic on host memory, without PCIe atomics.
    HostAtomic {
        address: u64,
    },
    /// Past a buffer's records: the card gives zeros and drops stores, which hides the mistake.
    BufferOutOfRange {
        address: u64,
        bytes: u32,
    },
    /// Not a multiple of what the access needs.
    Misaligned {
        address: u64,
        bytes: u32,
    },
}

/// Why a kernel did not finish.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the fields' names say it
pub enum Stop {
    /// No such instruction, or none that is known.
    IllegalInstruction { place: Location, reason: String },
    /// No allocation there, or not to be written.
    MemoryFault { place: Location, address: u64, bytes: u32, write: bool },
    /// The strict card's objection.
    Strict { place: Location, finding: Finding },
    /// `s_trap`: the program gave up.
    Trap { place: Location, id: u16 },
    /// `s_endpgm` was not reached in time.
    Deadline { place: Location },
    /// The dispatch itself contradicts the kernel or the card: a descriptor, a size.
    Dispatch { reason: String },
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.workgroup;
        write!(f, "{}", self.kernel)?;
        if !self.instruction.is_empty() {
            write!(f, ", `{}`", self.instruction)?;
        }
        // Functions that a kernel calls may lie before it.
        match self.offset as i64 {
            offset @ 0.. => write!(f, " at +{offset:#x}")?,
            offset => write!(f, " at -{:#x}", offset.unsigned_abs())?,
        }
        write!(f, ", workgroup {x},{y},{z}, wave {}", self.wave)?;
        self.lane.map_or(Ok(()), |lane| write!(f, ", lane {lane}"))
    }
}

const NEVER_WRITTEN: &str =
    "was never written, or holds what was computed from a register or LDS that never was";

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UninitialisedVgpr { register, lds } => {
                write!(f, "v{register} {NEVER_WRITTEN}")?;
                match lds {
                    Some(address) => {
                        write!(f, "; the lane loaded LDS {address:#x}, which nothing had written")
                    }
                    None => Ok(()),
                }
            }
            Self::UninitialisedSgpr { register } => write!(f, "s{register} {NEVER_WRITTEN}"),
            Self::UninitialisedLds { address } => {
                write!(f, "an atomic uses LDS {address:#x} before anything wrote it")
            }
            Self::MissingWaitcnt { register, vector, counter } => {
                let bank = if *vector { 'v' } else { 's' };
                write!(f, "{bank}{register} is used before `s_waitcnt` has waited for it ({counter})")
            }
            Self::LdsRace { address, other_wave } => {
                write!(f, "wave {other_wave} uses LDS {address:#x} too, with no barrier between")
            }
            Self::BarrierDivergence { other_wave, other_offset } => {
                write!(
                    f,
                    "wave {other_wave} of the workgroup waits at another barrier, the one at +{other_offset:#x}"
                )
            }
            Self::LdsOutOfBounds { address, bytes } => {
                write!(f, "{bytes} bytes at LDS {address:#x}, past what the kernel declared")
            }
            Self::FineGrained { address } => {
                write!(
                    f,
                    "{address:#x} is fine-grained memory, which the card cannot reach without PCIe atomics"
                )
            }
            Self::HostAtomic { address } => {
                write!(f, "an atomic on host memory at {address:#x}, with no PCIe atomics")
            }
            Self::BufferOutOfRange { address, bytes } => {
                write!(f, "{bytes} bytes at {address:#x}, past the buffer's records")
            }
            Self::Misaligned { address, bytes } => {
                write!(f, "{bytes} bytes at {address:#x}, which is not aligned as the access needs")
            }
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IllegalInstruction { place, reason } => write!(f, "{place}: {reason}"),
            Self::MemoryFault { place, address, bytes, write } => {
                let access = if *write { "write" } else { "read" };
                write!(
                    f,
                    "{place}: {access} of {bytes} bytes at {address:#x}, where no memory is allocated for it"
                )
            }
            Self::Strict { place, finding } => write!(f, "{place}: {finding}"),
            Self::Trap { place, id } => write!(f, "{place}: trap {id}, the program's own abort"),
            Self::Deadline { place } => {
                write!(
                    f,
                    "{place}: the kernel did not end within its deadline; `--deadline SECONDS` gives it more"
                )
            }
            Self::Dispatch { reason } => write!(f, "the dispatch is impossible: {reason}"),
        }
    }
}

impl std::error::Error for Stop {}
