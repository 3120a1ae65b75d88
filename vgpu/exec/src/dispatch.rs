//! What to run, how, and what came of it.

use crate::{Descriptor, Wave};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use wave32_isa::{Form, Inst, Opcode};

/// A kernel dispatch, as the AQL packet has it (HSA System Architecture 2.9.6).
#[derive(Debug, Clone, Default)]
pub struct Dispatch {
    /// The kernel's name, for messages; empty where unknown.
    pub name: String,
    /// The kernel descriptor.
    pub descriptor: Descriptor,
    /// The descriptor's address (`kernel_object`).
    pub kernel_object: u64,
    /// Work-items in x, y, z; need not be multiples of the workgroup.
    pub grid: [u32; 3],
    /// Work-items of a workgroup.
    pub workgroup: [u16; 3],
    /// LDS bytes of a workgroup: static and dynamic.
    pub group_segment: u32,
    /// Scratch bytes of a work-item.
    pub private_segment: u32,
    /// Address of the arguments.
    pub kernarg: u64,
    /// Address of the packet (`dispatch_ptr`).
    pub packet: u64,
    /// Address of the queue (`amd_queue_t`).
    pub queue: u64,
    /// The dispatch id (its index in the queue).
    pub id: u64,
    /// User SGPRs (`COMPUTE_USER_DATA`), where a command buffer sets them; else the descriptor says what they hold.
    pub user: Option<Vec<u32>>,
    /// The id of the first workgroup.
    pub first_group: [u32; 3],
    /// One of the runtime's own copy and fill kernels: the strict card lets its loads from fine-grained memory, and its
    /// stores there, pass.
    pub trusted_copies: bool,
}

impl Dispatch {
    /// Workgroups in x, y, z; the last ones may be cut off.
    pub fn workgroups(&self) -> [u32; 3] {
        [0, 1, 2].map(|i| self.grid[i].div_ceil(u32::from(self.workgroup[i]).max(1)))
    }

    /// Address of the first instruction.
    pub fn entry(&self) -> u64 {
        self.kernel_object.wrapping_add_signed(self.descriptor.entry)
    }
}

/// How to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Stop with [`crate::Stop::Deadline`] after this long.
    pub deadline: Duration,
    /// The strict card's checks.
    pub strict: bool,
    /// Strict, but accesses past a buffer's records are what the program asked for: zeros, and nothing stored.
    pub robust: bool,
    /// Strict, but a finding does not stop the kernel: it is kept in [`Report::findings`], and the instruction runs as on a
    /// card. Of atomics it stops.
    pub keep_going: bool,
    /// Count instructions by class.
    pub count: bool,
    /// Remember which operations ran.
    pub coverage: bool,
    /// Who watches each instruction of some workgroups: a time model.
    pub trace: Option<Arc<dyn Trace>>,
    /// Run these workgroups only, by number (x runs fastest): a sample.
    pub only: Option<Arc<[u64]>>,
    /// Waves resident at once on the whole card, which is what blocks that wait for each other can rely on: 36 CUs of
    /// two SIMDs of 20 waves.
    pub resident_waves: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(60),
            strict: false,
            robust: false,
            keep_going: false,
            count: false,
            coverage: false,
            trace: None,
            only: None,
            resident_waves: 1440,
        }
    }
}

impl fmt::Debug for dyn Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trace")
    }
}

/// Watches workgroups, each on the thread that runs it.
pub trait Trace: Send + Sync {
    /// Who watches this workgroup, if anybody.
    fn workgroup(&self, id: [u32; 3]) -> Option<Box<dyn GroupTrace>>;
}

/// Watches a workgroup's waves.
pub trait GroupTrace: Send {
    /// A wave has executed the instruction at `pc`. `wave` is its state afterwards; `touched` what a memory instruction
    /// accessed: lane, address (of LDS: in the workgroup's), bytes.
    fn issued(&mut self, number: u32, wave: &Wave, pc: u64, inst: &Inst, touched: &[(u32, u64, u32)]);

    /// All waves have met at a barrier, or the last one has ended.
    fn met(&mut self);
}

/// What came of a dispatch.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Workgroups and waves run.
    pub workgroups: u64,
    /// See `workgroups`.
    pub waves: u64,
    /// Instructions of all waves.
    pub instructions: u64,
    /// By class, with [`Options::count`].
    pub counts: Counts,
    /// Operations executed, with [`Options::coverage`].
    pub coverage: BTreeSet<Opcode>,
    /// With [`Options::keep_going`] the findings, one for each instruction, at most [`Report::MAX_FINDINGS`].
    pub findings: Vec<crate::Stop>,
}

/// Instructions issued and lanes that were on, by class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts(pub [Count; Class::ALL.len()]);

/// See [`Counts`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Wave instructions; a wave64's vector instruction is one.
    pub instructions: u64,
    /// Lanes that EXEC had on; scalar instructions count one.
    pub lanes: u64,
}

/// What an instruction keeps busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Vector ALU at full rate.
    Valu,
    /// Vector transcendentals, a quarter of the rate.
    Transcendental,
    /// Vector ALU on doubles, a sixteenth.
    Double,
    /// Scalar ALU.
    Salu,
    /// Scalar memory.
    Smem,
    /// Vector memory: flat, global, scratch, buffers.
    Vmem,
    /// LDS.
    Lds,
    /// Branches, calls.
    Branch,
    /// Barriers, waits, messages and the rest.
    Control,
}

impl Class {
    /// All of them, in the order of [`Counts`].
    pub const ALL: [Self; 9] = [
        Self::Valu,
        Self::Transcendental,
        Self::Double,
        Self::Salu,
        Self::Smem,
        Self::Vmem,
        Self::Lds,
        Self::Branch,
        Self::Control,
    ];
}

impl Class {
    /// Of lanes that EXEC turns on.
    pub(crate) fn is_vector(self) -> bool {
        matches!(self, Self::Valu | Self::Transcendental | Self::Double | Self::Vmem | Self::Lds)
    }

    /// Of an instruction.
    pub fn of(inst: &Inst) -> Self {
        match inst.form {
            _ if inst.op.is_transcendental() => Self::Transcendental,
            Form::Vop1 | Form::Vop2 | Form::Vopc | Form::Vop3 | Form::Vop3p => {
                let double = inst.args().iter().any(|a| a.ty == wave32_isa::Ty::F64);
                if double { Self::Double } else { Self::Valu }
            }
            Form::Smem => Self::Smem,
            Form::Ds => Self::Lds,
            Form::Flat | Form::Global | Form::Scratch | Form::Mubuf | Form::Mtbuf => Self::Vmem,
            _ if inst.op.is_branch() => Self::Branch,
            Form::Sopp => Self::Control,
            Form::Sop1 | Form::Sop2 | Form::Sopc | Form::Sopk => Self::Salu,
        }
    }
}

impl std::ops::Index<Class> for Counts {
    type Output = Count;

    fn index(&self, class: Class) -> &Count {
        &self.0[class as usize]
    }
}

impl Counts {
    pub(crate) fn add(&mut self, class: Class, lanes: u64) {
        let count = &mut self.0[class as usize];
        count.instructions += 1;
        count.lanes += lanes;
    }
}

impl Report {
    /// Of one dispatch.
    pub const MAX_FINDINGS: usize = 100;

    /// Keeps a finding unless its instruction has one.
    pub(crate) fn keep(&mut self, stop: crate::Stop) {
        let offset = |stop: &crate::Stop| match stop {
            crate::Stop::Strict { place, .. } => Some(place.offset),
            _ => None,
        };
        let known = self.findings.iter().any(|kept| offset(kept) == offset(&stop));
        if !known && self.findings.len() < Self::MAX_FINDINGS {
            self.findings.push(stop);
        }
    }

    /// Adds another's figures.
    pub fn merge(&mut self, other: Report) {
        self.workgroups += other.workgroups;
        self.waves += other.waves;
        self.instructions += other.instructions;
        other.findings.into_iter().for_each(|stop| self.keep(stop));
        for (mine, theirs) in self.counts.0.iter_mut().zip(other.counts.0) {
            mine.instructions += theirs.instructions;
            mine.lanes += theirs.lanes;
        }
        self.coverage.extend(other.coverage);
    }
}
