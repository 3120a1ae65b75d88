//! What a workgroup's waves issued, recorded while the executor runs them.

use crate::banks;
use crate::constants::LINE;
use crate::issue::Issue;
use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use wave32_exec::{Class, Dispatch, GroupTrace, SHARED_BASE, Trace, Wave};
use wave32_isa::{Access, Inst};

/// An event's bit: only one half of a wave64 had lanes on.
pub(crate) const ONE_HALF: u32 = 1 << 31;
/// A line's bit: this workgroup touches it for the first time.
pub(crate) const FIRST: u32 = 1 << 31;
/// A line's bit: it is written. What reads and what writes a line count apart: both move it.
pub(crate) const STORED: u32 = 1 << 30;
/// Instructions that are recorded of a wave; of those behind them, the lines that are new.
const RECORDED: usize = 100_000;
/// Code that is watched reaches this far from the kernel's entry, in dwords.
const REACH: u64 = 1 << 18;

/// What a memory instruction did, in the order of the wave's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Did {
    /// Kept LDS banks for so many clocks.
    Lds(u32),
    /// Touched lines `from..to` of the wave's list, and moved bytes.
    Lines { from: u32, to: u32, bytes: u32 },
}

/// A wave's instructions in their order.
#[derive(Debug, Default)]
pub(crate) struct WaveStream {
    /// Places in the code, in dwords, and [`ONE_HALF`].
    pub(crate) events: Vec<u32>,
    pub(crate) did: Vec<Did>,
    /// Line numbers (address / 128, of which 30 bits), [`STORED`] and [`FIRST`].
    pub(crate) lines: Vec<u32>,
}

/// A workgroup's waves.
#[derive(Debug, Default)]
pub(crate) struct GroupStream {
    pub(crate) id: [u32; 3],
    pub(crate) waves: Vec<WaveStream>,
    /// Instructions of all waves behind those that were recorded, and the lines that these touched first.
    pub(crate) behind: u64,
    pub(crate) lines_behind: Vec<u32>,
    /// Address and bytes of what buffer instructions were told that they may access.
    pub(crate) bound: BTreeSet<(u64, u64)>,
}

impl GroupStream {
    /// Instructions that were recorded.
    pub(crate) fn recorded(&self) -> u64 {
        self.waves.iter().map(|w| w.events.len() as u64).sum()
    }

    pub(crate) fn instructions(&self) -> u64 {
        self.recorded() + self.behind
    }

    /// The lines it touches, each once, with [`STORED`].
    pub(crate) fn touched(&self) -> impl Iterator<Item = u32> {
        let recorded =
            self.waves.iter().flat_map(|w| w.lines.iter().filter(|l| **l & FIRST != 0).map(|l| l & !FIRST));
        recorded.chain(self.lines_behind.iter().copied())
    }
}

/// What all watched workgroups issued.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) groups: Vec<GroupStream>,
    /// By place in the code.
    pub(crate) code: Vec<Option<Issue>>,
    /// All workgroups'.
    pub(crate) instructions: u64,
    /// Instructions elsewhere, which were not recorded.
    pub(crate) elsewhere: u64,
}

/// Records every workgroup it is asked about.
#[derive(Debug)]
pub(crate) struct Recorder {
    entry: u64,
    wave64: bool,
    chosen: Option<Chosen>,
    all: Arc<Mutex<Recorded>>,
}

/// Which workgroups are recorded.
#[derive(Debug)]
struct Chosen {
    grid: [u32; 3],
    numbers: BTreeSet<u64>,
    /// No further ones once so many instructions were recorded.
    instructions: u64,
}

impl Recorder {
    /// For all workgroups of a launch.
    pub(crate) fn new(dispatch: &Dispatch) -> Self {
        let wave64 = !dispatch.descriptor.wave32();
        Self { entry: dispatch.entry(), wave64, chosen: None, all: Arc::default() }
    }

    /// Records these workgroups of the grid only (x runs fastest), until so many instructions were recorded.
    pub(crate) fn only(self, grid: [u32; 3], numbers: BTreeSet<u64>, instructions: u64) -> Self {
        Self { chosen: Some(Chosen { grid, numbers, instructions }), ..self }
    }

    /// What was recorded; workgroups in the order of their ids.
    pub(crate) fn finish(&self) -> Recorded {
        let mut recorded = std::mem::take(&mut *self.all.lock().unwrap_or_else(PoisonError::into_inner));
        recorded.groups.sort_by_key(|g| [g.id[2], g.id[1], g.id[0]]);
        recorded
    }
}

impl Trace for Recorder {
    fn workgroup(&self, id: [u32; 3]) -> Option<Box<dyn GroupTrace>> {
        if let Some(chosen) = &self.chosen {
            let [x, y, z] = id.map(u64::from);
            let number = (z * u64::from(chosen.grid[1]) + y) * u64::from(chosen.grid[0]) + x;
            let recorded = || self.all.lock().unwrap_or_else(PoisonError::into_inner).instructions;
            if !chosen.numbers.contains(&number) || recorded() >= chosen.instructions {
                return None;
            }
        }
        Some(Box::new(Group {
            entry: self.entry,
            wave64: self.wave64,
            stream: GroupStream { id, ..GroupStream::default() },
            code: Vec::new(),
            elsewhere: 0,
            seen: HashSet::default(),
            all: self.all.clone(),
        }))
    }
}

struct Group {
    entry: u64,
    wave64: bool,
    stream: GroupStream,
    code: Vec<Option<Issue>>,
    elsewhere: u64,
    seen: HashSet<u32>,
    all: Arc<Mutex<Recorded>>,
}

impl GroupTrace for Group {
    fn issued(&mut self, number: u32, wave: &Wave, pc: u64, inst: &Inst, touched: &[(u32, u64, u32)]) {
        let place = pc.wrapping_sub(self.entry) / 4;
        if place >= REACH {
            self.elsewhere += 1;
            return;
        }
        let at = place as usize;
        if self.code.len() <= at {
            self.code.resize(at + 1, None);
        }
        let issue = self.code[at].get_or_insert_with(|| Issue::of(inst, self.wave64));
        let counted = issue.vmcnt || issue.vscnt || issue.lgkmcnt;
        while self.stream.waves.len() <= number as usize {
            self.stream.waves.push(WaveStream::default());
        }
        let GroupStream { waves, behind, lines_behind, bound, .. } = &mut self.stream;
        bound.extend(bound_buffer(wave, inst, touched));
        let stream = &mut waves[number as usize];
        let local = |address: u64| address & !0xffff_ffff == SHARED_BASE;
        let lds = || Class::of(inst) == Class::Lds || touched.first().is_some_and(|t| local(t.1));
        if stream.events.len() >= RECORDED {
            *behind += 1;
            if counted && !lds() {
                lines_behind.extend(touched_lines(touched, issue.vscnt).filter(|&tag| self.seen.insert(tag)));
            }
            return;
        }
        let one_half = wave.wave64 && (wave.sgpr[126] == 0 || wave.sgpr[127] == 0);
        stream.events.push(place as u32 | if one_half { ONE_HALF } else { 0 });
        if counted {
            let did = if lds() {
                Did::Lds(banks::clocks(touched) as u32)
            } else {
                lines(stream, &mut self.seen, touched, issue.vscnt)
            };
            stream.did.push(did);
        }
    }

    fn met(&mut self) {}
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.elsewhere += self.elsewhere;
        all.instructions += self.stream.instructions();
        all.groups.push(std::mem::take(&mut self.stream));
        if all.code.len() < self.code.len() {
            all.code.resize(self.code.len(), None);
        }
        for (known, mine) in all.code.iter_mut().zip(self.code.drain(..)) {
            if known.is_none() {
                *known = mine;
            }
        }
    }
}

/// The buffer that an instruction's four scalar registers describe (RDNA ISA 8.1.8), where what it touched lies in it.
fn bound_buffer(wave: &Wave, inst: &Inst, touched: &[(u32, u64, u32)]) -> Option<(u64, u64)> {
    let &(_, address, _) = touched.first()?;
    let mut read = inst.args().iter().filter(|arg| arg.dwords == 4 && arg.access == Access::R);
    let words = read.find_map(|arg| arg.operand.as_sgpr())?;
    let word = |i| u64::from(wave.sgpr[(words + i) & 127]);
    let (base, bytes) = (word(0) | (word(1) & 0xffff) << 32, word(2));
    let is_raw = word(1) >> 16 & 0x3fff == 0;
    (is_raw && (base..base + bytes).contains(&address)).then_some((base, bytes))
}

/// The lines of an instruction, in the order of its lanes, with [`STORED`].
fn touched_lines(touched: &[(u32, u64, u32)], stored: bool) -> impl Iterator<Item = u32> {
    let lines =
        |&(_, address, bytes): &(u32, u64, u32)| address / LINE..(address + u64::from(bytes)).div_ceil(LINE);
    touched
        .iter()
        .flat_map(lines)
        .map(move |line| line as u32 & (STORED - 1) | if stored { STORED } else { 0 })
}

/// The different lines of an instruction, in the order of its lanes.
fn lines(stream: &mut WaveStream, seen: &mut HashSet<u32>, touched: &[(u32, u64, u32)], stored: bool) -> Did {
    let from = stream.lines.len();
    let mut last = None;
    for tag in touched_lines(touched, stored) {
        if last != Some(tag) && !stream.lines[from..].iter().any(|l| l & !FIRST == tag) {
            stream.lines.push(if seen.insert(tag) { tag | FIRST } else { tag });
        }
        last = Some(tag);
    }
    let moved = touched.iter().map(|t| t.2).sum();
    Did::Lines { from: from as u32, to: stream.lines.len() as u32, bytes: moved }
}
