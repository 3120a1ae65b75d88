//! A submit program as data. Actions are in an order in which they may run one by one: each waits for earlier ones alone.

use crate::shaders::Shader;

/// Queues that a program may ask for.
pub const MAX_QUEUES: usize = 3;
/// Actions of a program, at most: they are bits of a word.
pub const MAX_ACTIONS: usize = 24;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Program {
    pub seed: u64,
    /// Which of the device's queues each is: modulo as many as there are.
    pub queues: Vec<usize>,
    pub threads: usize,
    /// Allocations.
    pub blocks: Vec<Place>,
    pub buffers: Vec<Buffer>,
    pub actions: Vec<Action>,
    /// In which order the actions are issued where each queue is a queue of the device's own.
    pub issue: Vec<usize>,
    pub events: usize,
    pub queries: usize,
}

/// Where an allocation lies, if the device has such a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Device,
    /// The card's, seen by the host.
    Shared,
    Host,
    HostCached,
}

#[derive(Debug, Clone)]
pub struct Buffer {
    /// Buffers of a block lie one behind the other.
    pub block: usize,
    /// Unused bytes before it.
    pub gap: u64,
    pub bytes: u64,
}

#[derive(Debug, Clone)]
pub struct Action {
    pub thread: usize,
    pub what: What,
}

#[derive(Debug, Clone)]
pub enum What {
    Submit(Submit),
    Host(Host),
}

/// A batch for a queue. It always signals the queue's timeline.
#[derive(Debug, Clone, Default)]
pub struct Submit {
    pub queue: usize,
    pub waits: Vec<Wait>,
    pub buffers: Vec<CommandBuffer>,
    pub value: u64,
    pub fence: bool,
    /// By `vkQueueSubmit2`.
    pub two: bool,
    /// In one call with the thread's action before, if that is for the same queue.
    pub join: bool,
    /// A last barrier lets the host see all.
    pub to_host: bool,
}

/// For an earlier action: of a batch, its timeline or a semaphore of their own.
#[derive(Debug, Clone)]
pub struct Wait {
    pub on: usize,
    pub binary: bool,
}

#[derive(Debug, Clone, Default)]
pub struct CommandBuffer {
    pub commands: Vec<Command>,
    /// How often the batch has it.
    pub times: usize,
}

/// What a thread does itself: waits, changes words, signals a timeline of its own.
#[derive(Debug, Clone, Default)]
pub struct Host {
    pub waits: Vec<HostWait>,
    /// Each word becomes its product with the first number, plus the second.
    pub touch: Option<(Range, u32, u32)>,
    pub value: u64,
}

#[derive(Debug, Clone)]
pub struct HostWait {
    pub on: usize,
    /// By the batch's fence, if it has one.
    pub fence: bool,
    /// Looks again and again.
    pub poll: bool,
}

/// A part of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub buffer: usize,
    pub at: u64,
    pub bytes: u64,
}

impl Range {
    pub fn end(&self) -> u64 {
        self.at + self.bytes
    }

    pub fn meets(&self, other: &Self) -> bool {
        self.buffer == other.buffer && self.at < other.end() && other.at < self.end()
    }

    pub fn holds(&self, other: &Self) -> bool {
        self.buffer == other.buffer && self.at <= other.at && other.end() <= self.end()
    }
}

#[derive(Debug, Clone)]
pub enum Command {
    Fill {
        to: Range,
        value: u32,
    },
    /// With the words of [`words`].
    Update {
        to: Range,
        seed: u64,
    },
    /// Regions: from, to, bytes.
    Copy {
        from: usize,
        to: usize,
        regions: Vec<[u64; 3]>,
    },
    Dispatch(Dispatch),
    Barrier(Barrier),
    SetEvent {
        event: usize,
        barrier: Barrier,
    },
    WaitEvent {
        event: usize,
        barrier: Barrier,
    },
    Timestamp {
        query: usize,
        two: bool,
    },
    /// In a secondary command buffer.
    Secondary(Vec<Command>),
}

#[derive(Debug, Clone)]
pub struct Dispatch {
    pub shader: Shader,
    /// Size of a workgroup.
    pub local: u32,
    /// By binding; none where the shader has none.
    pub bindings: [Option<Range>; 3],
    /// Push constants: see `shaders/common.glsl`.
    pub parameters: [u32; 8],
    pub grid: Grid,
}

#[derive(Debug, Clone)]
pub enum Grid {
    Groups([u32; 3]),
    /// First workgroup and how many.
    From([u32; 3], [u32; 3]),
    Indirect(Range),
}

/// Bits of scopes.
pub const COMPUTE: u8 = 1;
pub const TRANSFER: u8 = 2;
pub const INDIRECT: u8 = 4;
pub const HOST: u8 = 8;
/// All that queues do.
pub const QUEUE: u8 = COMPUTE | TRANSFER | INDIRECT;

#[derive(Debug, Clone)]
pub struct Barrier {
    /// In the style of synchronization2.
    pub two: bool,
    /// [`QUEUE`] is written as all commands.
    pub from: u8,
    pub to: u8,
    /// None: all memory.
    pub ranges: Vec<Range>,
}

/// Words from a seed.
pub fn words(seed: u64, count: usize) -> Vec<u32> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32 ^ (state >> 16) as u32
    };
    (0..count).map(|_| next()).collect()
}

impl Program {
    /// What a buffer holds before all actions.
    pub fn initial(&self, buffer: usize) -> Vec<u8> {
        let count = self.buffers[buffer].bytes as usize / 4;
        words(self.seed ^ (buffer as u64 + 1) << 40, count)
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect()
    }

    /// The batch of an action.
    pub fn submit(&self, action: usize) -> Option<&Submit> {
        match &self.actions[action].what {
            What::Submit(submit) => Some(submit),
            What::Host(_) => None,
        }
    }

    /// For each action, as bits, all that have ended when it has.
    pub fn done(&self) -> Vec<u64> {
        let mut done: Vec<u64> = Vec::new();
        let mut last = [0; MAX_QUEUES];
        for (i, action) in self.actions.iter().enumerate() {
            let waited = match &action.what {
                What::Submit(submit) => {
                    let waits = submit.waits.iter().fold(last[submit.queue], |all, wait| all | done[wait.on]);
                    last[submit.queue] = waits | 1 << i;
                    waits
                }
                What::Host(host) => host.waits.iter().fold(0, |all, wait| all | done[wait.on]),
            };
            done.push(waited | 1 << i);
        }
        done
    }
}
