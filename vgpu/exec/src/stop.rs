//! Why a kernel was stopped.

/// Where in a dispatch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
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
    /// A register read before anything wrote it.
    UninitialisedVgpr {
        register: u32,
    },
    UninitialisedSgpr {
        register: u32,
    },
    /// LDS read before anything wrote it; byte address in the workgroup's LDS.
    UninitialisedLds {
        address: u32,
    },
    /// A load's result used, or its source overwritten, without the `s_waitcnt` that waits for it.
    MissingWaitcnt {
        register: u32,
        counter: &'static str,
    },
    /// Two waves used the same bytes of LDS, one writing, with no barrier between.
    LdsRace {
        address: u32,
        other_wave: u32,
    },
    /// Past the LDS that the kernel declared.
    LdsOutOfBounds {
        address: u32,
        bytes: u32,
    },
    /// Some waves wait at a barrier that others have ended without.
    BarrierDivergence {
        waiting: u32,
        ended: u32,
    },
    /// Device access to fine-grained memory.
    FineGrained {
        address: u64,
    },
    /// Atomic on host memory, without PCIe atomics.
    HostAtomic {
        address: u64,
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
    IllegalInstruction {
        place: Place,
        reason: String,
    },
    /// No allocation there, or not to be written.
    MemoryFault {
        place: Place,
        address: u64,
        bytes: u32,
        write: bool,
    },
    /// The strict card's objection.
    Strict {
        place: Place,
        finding: Finding,
    },
    /// `s_trap`, or `s_endpgm` not reached within the deadline.
    Trap {
        place: Place,
        id: u16,
    },
    Deadline {
        place: Place,
    },
    /// The dispatch itself contradicts the kernel or the card: a descriptor, a size.
    Dispatch {
        reason: String,
    },
}
