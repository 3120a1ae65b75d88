//! The packets of command buffers ("PM4", type 3) as far as compute needs them: opcodes and fields as Linux
//! (`drivers/gpu/drm/amd/amdgpu/nvd.h`) and Mesa (`src/amd/common/sid.h`) name them.
//!
//! What has no meaning here, as nothing is cached and all is done in order, is passed over; what draws is refused by name.

use std::sync::atomic::Ordering;
use std::time::Instant;

use wave32_exec::Descriptor;

use crate::aql::error;
use crate::device::Device;
use crate::events::Fault;
use crate::memory::canonical;
use crate::queue::Failure;
use crate::sdma::compare;

/// Which ring a command buffer goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ring {
    /// Draws and dispatches.
    Graphics,
    /// Dispatches.
    Compute,
}

/// Command buffers within command buffers: as deep as firmware goes.
const MAX_DEPTH: u32 = 4;
/// Dwords of a command buffer, at most: 20 bits.
pub const MAX_DWORDS: u32 = 0xf_ffff;

mod op {
    pub const NOP: u32 = 0x10;
    pub const SET_BASE: u32 = 0x11;
    pub const CLEAR_STATE: u32 = 0x12;
    pub const DISPATCH_DIRECT: u32 = 0x15;
    pub const DISPATCH_INDIRECT: u32 = 0x16;
    pub const CONTEXT_CONTROL: u32 = 0x28;
    pub const WRITE_DATA: u32 = 0x37;
    pub const WAIT_REG_MEM: u32 = 0x3c;
    pub const INDIRECT_BUFFER: u32 = 0x3f;
    pub const COPY_DATA: u32 = 0x40;
    pub const PFP_SYNC_ME: u32 = 0x42;
    pub const EVENT_WRITE: u32 = 0x46;
    pub const RELEASE_MEM: u32 = 0x49;
    pub const DMA_DATA: u32 = 0x50;
    pub const ACQUIRE_MEM: u32 = 0x58;
    pub const SET_CONTEXT_REG: u32 = 0x69;
    pub const SET_SH_REG: u32 = 0x76;
    pub const SET_UCONFIG_REG: u32 = 0x79;
    pub const SET_UCONFIG_REG_INDEX: u32 = 0x7a;
    pub const SET_SH_REG_INDEX: u32 = 0x9b;
}

/// Names of what is refused.
const REFUSED: [(u32, &str); 16] = [
    (0x1e, "ATOMIC_MEM"),
    (0x20, "SET_PREDICATION"),
    (0x22, "COND_EXEC"),
    (0x24, "DRAW_INDIRECT"),
    (0x25, "DRAW_INDEX_INDIRECT"),
    (0x27, "DRAW_INDEX_2"),
    (0x2a, "INDEX_TYPE"),
    (0x2c, "DRAW_INDIRECT_MULTI"),
    (0x2d, "DRAW_INDEX_AUTO"),
    (0x2f, "NUM_INSTANCES"),
    (0x34, "STRMOUT_BUFFER_UPDATE"),
    (0x35, "DRAW_INDEX_OFFSET_2"),
    (0x38, "DRAW_INDEX_INDIRECT_MULTI"),
    (0x4c, "DISPATCH_MESH_DIRECT"),
    (0x8d, "DISPATCH_TASKMESH_GFX"),
    (0xaa, "DISPATCH_TASKMESH_DIRECT_ACE"),
];

/// Shader registers, by dword from 0xB000.
mod reg {
    pub const COUNT: usize = 0x400;
    pub const START: usize = 0x204;
    pub const NUM_THREAD: usize = 0x207;
    pub const PGM_LO: usize = 0x20c;
    pub const PGM_HI: usize = 0x20d;
    pub const RSRC1: usize = 0x212;
    pub const RSRC2: usize = 0x213;
    pub const TMPRING_SIZE: usize = 0x218;
    pub const RSRC3: usize = 0x228;
    pub const USER_DATA: usize = 0x240;
    pub const USER_COUNT: usize = 32;
}

/// Runs a job's command buffers, one after the other.
pub struct Engine {
    device: &'static Device,
    ring: Ring,
    registers: Vec<u32>,
    /// Where indirect dispatches' offsets count from.
    indirect_base: u64,
    started: Instant,
}

/// A command that cannot be done.
fn refused(what: &str) -> Failure {
    log!("a command buffer: {what}");
    Failure::Queue(error::FORMAT)
}

fn long(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn memory<T>(result: Result<T, Fault>) -> Result<T, Failure> {
    result.map_err(Failure::Memory)
}

impl Engine {
    /// For a job.
    pub fn new(device: &'static Device, ring: Ring) -> Self {
        Self { device, ring, registers: vec![0; reg::COUNT], indirect_base: 0, started: Instant::now() }
    }

    /// Runs the command buffer of so many dwords at `address`.
    pub fn run(&mut self, address: u64, dwords: u32) -> Result<(), Failure> {
        self.buffer(address, dwords, 0)
    }

    fn is_late(&self) -> bool {
        self.started.elapsed() > self.device.settings.deadline
    }

    fn buffer(&mut self, address: u64, dwords: u32, depth: u32) -> Result<(), Failure> {
        let mut next = Some((address, dwords));
        while let Some((address, dwords)) = next {
            // Buffers may go on in one another for ever.
            if self.is_late() {
                log!("a command buffer did not end within its deadline");
                return Err(Failure::Queue(error::TRAP));
            }
            let address = canonical(address);
            let mut bytes = vec![0; 4 * dwords as usize];
            self.device.vm.get(address, &mut bytes).ok_or(Failure::absent(address))?;
            let words: Vec<u32> =
                bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
            next = self.packets(&words, depth)?;
        }
        Ok(())
    }

    /// Does packets up to the end, or up to one that goes on in another buffer: where that is.
    fn packets(&mut self, words: &[u32], depth: u32) -> Result<Option<(u64, u32)>, Failure> {
        let mut at = 0;
        while let Some(&header) = words.get(at) {
            let (kind, count, opcode) = (header >> 30, header >> 16 & 0x3fff, header >> 8 & 0xff);
            at += 1;
            match kind {
                // Padding of one dword.
                2 => continue,
                3 if opcode == op::NOP && count == 0x3fff => continue,
                3 => {}
                _ => return Err(refused(&format!("no packet of type 3: {header:#010x}"))),
            }
            let body = words.get(at..at + count as usize + 1);
            let body = body.ok_or_else(|| refused(&format!("packet {opcode:#x} is cut off")))?;
            at += body.len();
            if self.device.settings.trace {
                log!("{:?} packet {opcode:#04x}: {body:x?}", self.ring);
            }
            if opcode == op::INDIRECT_BUFFER {
                let [low, high, control, ..] = *body else { return Err(refused("a short INDIRECT_BUFFER")) };
                let (address, dwords) = (long(low, high), control & MAX_DWORDS);
                if control >> 20 & 1 == 1 {
                    return Ok(Some((address, dwords)));
                }
                if depth == MAX_DEPTH {
                    return Err(refused("command buffers too deep in one another"));
                }
                self.buffer(address, dwords, depth + 1)?;
                continue;
            }
            self.packet(opcode, body)?;
        }
        Ok(None)
    }

    fn packet(&mut self, opcode: u32, body: &[u32]) -> Result<(), Failure> {
        let short = || refused(&format!("packet {opcode:#x} is too short"));
        let word = |i: usize| body.get(i).copied().ok_or_else(short);
        let address = |i: usize| Ok(canonical(long(word(i)?, word(i + 1)?)));
        let vm = &self.device.vm;
        match opcode {
            op::SET_SH_REG | op::SET_SH_REG_INDEX => {
                let first = (word(0)? & 0xffff) as usize;
                let values = &body[1..];
                let places = self.registers.get_mut(first..first + values.len());
                places.ok_or_else(|| refused("a shader register that there is not"))?.copy_from_slice(values);
            }
            op::DISPATCH_DIRECT => self.dispatch([word(0)?, word(1)?, word(2)?], word(3)?)?,
            op::DISPATCH_INDIRECT => {
                let (at, initiator) = match self.ring {
                    Ring::Compute => (address(0)?, word(2)?),
                    Ring::Graphics => (self.indirect_base.wrapping_add(word(0)?.into()), word(1)?),
                };
                let mut sizes = [0; 12];
                vm.get(at, &mut sizes).ok_or(Failure::absent(at))?;
                let size =
                    |i: usize| u32::from_le_bytes([sizes[i], sizes[i + 1], sizes[i + 2], sizes[i + 3]]);
                self.dispatch([size(0), size(4), size(8)], initiator)?;
            }
            op::SET_BASE if word(0)? == 1 => self.indirect_base = address(1)?,
            op::WRITE_DATA => {
                let control = word(0)?;
                if !matches!(control >> 8 & 15, 1 | 2 | 5) {
                    return Err(refused(&format!("WRITE_DATA to place {}", control >> 8 & 15)));
                }
                let (to, step) = (address(1)?, if control >> 16 & 1 == 1 { 0 } else { 4 });
                for (i, value) in (0..).zip(&body[3..]) {
                    memory(vm.target32(to.wrapping_add(step * i)))?.store(*value, Ordering::Release);
                }
            }
            op::COPY_DATA => self.copy_data(word(0)?, [word(1)?, word(2)?], address(3)?)?,
            op::RELEASE_MEM => {
                let (to, data) = (address(2)?, long(word(4)?, word(5)?));
                match word(1)? >> 29 {
                    0 => {}
                    1 => memory(vm.target32(to))?.store(data as u32, Ordering::Release),
                    2 => memory(vm.target64(to))?.store(data, Ordering::Release),
                    3 => memory(vm.target64(to))?.store(self.device.ticks(), Ordering::Release),
                    other => return Err(refused(&format!("RELEASE_MEM of data {other}"))),
                }
                self.device.progress.advance();
            }
            op::WAIT_REG_MEM => self.wait(word(0)?, address(1)?, [word(3)?, word(4)?])?,
            op::DMA_DATA => self.dma_data(body)?,
            // Events that write something have an address.
            op::EVENT_WRITE if body.len() > 1 => {
                return Err(refused(&format!("EVENT_WRITE of event {:#x}", word(0)? & 63)));
            }
            op::NOP
            | op::SET_BASE
            | op::CLEAR_STATE
            | op::CONTEXT_CONTROL
            | op::PFP_SYNC_ME
            | op::EVENT_WRITE
            | op::ACQUIRE_MEM
            | op::SET_CONTEXT_REG
            | op::SET_UCONFIG_REG
            | op::SET_UCONFIG_REG_INDEX => {}
            other => {
                let name =
                    REFUSED.iter().find(|(code, _)| *code == other).map_or("unknown", |(_, name)| name);
                return Err(refused(&format!(
                    "packet {other:#x} ({name}): the card computes, it does not draw"
                )));
            }
        }
        Ok(())
    }

    fn dispatch(&self, sizes: [u32; 3], initiator: u32) -> Result<(), Failure> {
        const ENABLE: u32 = 1 << 0;
        const PARTIAL: u32 = 1 << 1;
        const FROM_ZERO: u32 = 1 << 2;
        const IN_THREADS: u32 = 1 << 5;
        const WAVE32: u32 = 1 << 15;
        if initiator & ENABLE == 0 {
            return Ok(());
        }
        let at = |register: usize| self.registers[register];
        let three = |first: usize| [0, 1, 2].map(|i| self.registers[first + i]);
        let workgroup = three(reg::NUM_THREAD).map(|register| register & 0xffff);
        let edge = three(reg::NUM_THREAD).map(|register| register >> 16);
        let first_group = if initiator & FROM_ZERO != 0 { [0; 3] } else { three(reg::START) };
        let grid = [0, 1, 2].map(|i| {
            if initiator & IN_THREADS != 0 {
                return sizes[i];
            }
            let groups = sizes[i].saturating_sub(first_group[i]);
            let full = groups.saturating_mul(workgroup[i]);
            let cut = initiator & PARTIAL != 0 && edge[i] != 0 && groups > 0;
            if cut { full - workgroup[i].saturating_sub(edge[i]) } else { full }
        });
        if grid.contains(&0) {
            return Ok(());
        }
        let (rsrc1, rsrc2) = (at(reg::RSRC1), at(reg::RSRC2));
        let wave32 = initiator & WAVE32 != 0;
        let wave_scratch = (at(reg::TMPRING_SIZE) >> 12 & 0x1fff) * 1024;
        let entry = canonical(long(at(reg::PGM_LO), at(reg::PGM_HI) & 0xff) << 8);
        let dispatch = wave32_exec::Dispatch {
            name: format!("shader {entry:#x}"),
            descriptor: Descriptor {
                rsrc1,
                rsrc2,
                rsrc3: at(reg::RSRC3),
                properties: u16::from(wave32) << 10,
                ..Descriptor::default()
            },
            kernel_object: entry,
            grid,
            workgroup: workgroup.map(|size| size as u16),
            group_segment: (rsrc2 >> 15 & 0x1ff) * 512,
            private_segment: wave_scratch / if wave32 { 32 } else { 64 },
            user: Some(self.registers[reg::USER_DATA..reg::USER_DATA + reg::USER_COUNT].to_vec()),
            first_group,
            ..wave32_exec::Dispatch::default()
        };
        self.device.executor.run_shader(self.device, &dispatch)
    }

    fn copy_data(&self, control: u32, source: [u32; 2], to: u64) -> Result<(), Failure> {
        let vm = &self.device.vm;
        let wide = control >> 16 & 1 == 1;
        let from = canonical(long(source[0], source[1]));
        let absent = || Failure::absent(from);
        let value = match control & 15 {
            1 | 2 if wide => vm.word64(from).ok_or_else(absent)?.load(Ordering::Acquire),
            1 | 2 => vm.word32(from).ok_or_else(absent)?.load(Ordering::Acquire).into(),
            5 => long(source[0], source[1]),
            9 => self.device.ticks(),
            other => return Err(refused(&format!("COPY_DATA from place {other}"))),
        };
        match control >> 8 & 15 {
            1 | 2 | 5 if wide => memory(vm.target64(to))?.store(value, Ordering::Release),
            1 | 2 | 5 => memory(vm.target32(to))?.store(value as u32, Ordering::Release),
            other => return Err(refused(&format!("COPY_DATA to place {other}"))),
        }
        Ok(())
    }

    fn dma_data(&self, body: &[u32]) -> Result<(), Failure> {
        let [control, from_low, from_high, to_low, to_high, command, ..] = *body else {
            return Err(refused("a short DMA_DATA"));
        };
        let (from, to) = (canonical(long(from_low, from_high)), canonical(long(to_low, to_high)));
        let bytes = u64::from(command & 0x3ff_ffff);
        let vm = &self.device.vm;
        match (control >> 29 & 3, control >> 20 & 3) {
            // To nowhere: it only fetches into a cache.
            (_, 2) => Ok(()),
            (0 | 3, 0 | 3) => memory(vm.copy(to, from, bytes)),
            (2, 0 | 3) => memory(vm.fill(to, from_low, bytes)),
            (from, to) => Err(refused(&format!("DMA_DATA from place {from} to place {to}"))),
        }
    }

    /// Waits for a word of memory, as long as a kernel may run.
    fn wait(&self, control: u32, at: u64, [wanted, mask]: [u32; 2]) -> Result<(), Failure> {
        if control >> 4 & 1 == 0 {
            return Err(refused("WAIT_REG_MEM for a register"));
        }
        let word = self.device.vm.word32(at).ok_or(Failure::absent(at))?;
        let holds = || compare(control & 7, word.load(Ordering::Acquire) & mask, wanted);
        let started = Instant::now();
        let late = || started.elapsed() > self.device.settings.deadline;
        if self.device.progress.wait(holds, late) {
            return Ok(());
        }
        log!("a command buffer: WAIT_REG_MEM at {at:#x} did not end within its deadline");
        Err(Failure::Queue(error::TRAP))
    }
}
