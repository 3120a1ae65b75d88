//! A workgroup's local data share, and what the strict card remembers of it.

use crate::Finding;

/// LDS as dwords.
#[derive(Debug, Default)]
pub struct Lds {
    /// Its dwords; what the dispatch asked for, rounded up to a dword.
    pub words: Vec<u32>,
    /// Its size in bytes; beyond it reads give 0 and writes are dropped.
    pub bytes: u32,
    /// The kernel runs in CU mode; in WGP mode gfx10.1 does not access several dwords at once rightly unless they are
    /// naturally aligned (LLVM's `lds-misaligned-bug`).
    pub cu_mode: bool,
    /// With the strict card: who did what to each dword.
    shadow: Option<Box<Shadow>>,
}

impl Lds {
    /// LDS of a new workgroup. Contents are undefined by the ABI; zero here.
    pub fn new(bytes: u32) -> Self {
        Self { words: vec![0; bytes.div_ceil(4) as usize], bytes, ..Self::default() }
    }

    /// The same, watched by the strict card.
    pub fn strict(bytes: u32) -> Self {
        let lds = Self::new(bytes);
        let shadow = Shadow { cells: vec![Cell::default(); lds.words.len()], epoch: 1 };
        Self { shadow: Some(Box::new(shadow)), ..lds }
    }

    /// All waves have come to a barrier: what they did before it is ordered before what they do next.
    pub fn barrier(&mut self) {
        if let Some(shadow) = &mut self.shadow {
            shadow.epoch += 1;
        }
    }

    /// Whether the strict card watches.
    pub(crate) fn watched(&self) -> bool {
        self.shadow.is_some()
    }

    /// `bytes` (1, 2, 4) at `addr`, of any alignment; zero beyond the end.
    pub(crate) fn load(&self, addr: u64, bytes: u32) -> u32 {
        if addr.is_multiple_of(4) && bytes == 4 {
            return self.words.get((addr / 4) as usize).copied().unwrap_or(0);
        }
        (0..bytes).fold(0, |value, i| value | self.byte(addr + u64::from(i)) << (8 * i))
    }

    fn byte(&self, addr: u64) -> u32 {
        self.words.get((addr / 4) as usize).map_or(0, |word| word >> (addr % 4 * 8) & 0xff)
    }

    /// The low `bytes` (1, 2, 4) of `value` to `addr`, of any alignment; nothing beyond the end.
    pub(crate) fn store(&mut self, addr: u64, bytes: u32, value: u32) {
        if addr.is_multiple_of(4) && bytes == 4 {
            if let Some(word) = self.words.get_mut((addr / 4) as usize) {
                *word = value;
            }
            return;
        }
        for i in 0..bytes {
            let at = addr + u64::from(i);
            if let Some(word) = self.words.get_mut((at / 4) as usize) {
                let shift = at % 4 * 8;
                *word = *word & !(0xff << shift) | (value >> (8 * i) & 0xff) << shift;
            }
        }
    }

    /// The strict card's opinion of `wave` doing this to `bytes` (at most 4) at `addr`, before it does it.
    pub(crate) fn check(&mut self, wave: u32, access: Touch, addr: u64, bytes: u32) -> Result<(), Finding> {
        let Some(shadow) = &mut self.shadow else { return Ok(()) };
        let address = addr as u32;
        if addr + u64::from(bytes) > u64::from(self.bytes) {
            return Err(Finding::LdsOutOfBounds { address, bytes });
        }
        if addr.is_multiple_of(4) && bytes == 4 && access == Touch::Read {
            let opinion = shadow.touch((addr / 4) as usize, wave, access, 0xf);
            return opinion.map_err(|other| complain(address, other));
        }
        let last = addr + u64::from(bytes) - 1;
        for dword in addr / 4..=last / 4 {
            let from = addr.max(dword * 4) - dword * 4;
            let to = last.min(dword * 4 + 3) - dword * 4;
            let part = (0xf >> (3 - (to - from))) << from;
            let i = dword as usize;
            let access = match access {
                Touch::Write { value } => {
                    let shift = (dword * 4 + from - addr) * 8;
                    let width = (to - from + 1) * 8;
                    let ones = u32::MAX >> (32 - width);
                    let new = value.checked_shr(shift as u32).unwrap_or(0) & ones;
                    let same = self.words[i] >> (from * 8) & ones == new;
                    if same && shadow.cells[i].initialised & part == part {
                        continue; // what is there already: nobody can tell when it came
                    }
                    access
                }
                other => other,
            };
            shadow.touch(i, wave, access, part).map_err(|other| complain((dword * 4) as u32, other))?;
        }
        Ok(())
    }
}

/// A race with another wave, or a read of what nobody wrote.
#[cold]
fn complain(address: u32, other_wave: Option<u32>) -> Finding {
    match other_wave {
        Some(other_wave) => Finding::LdsRace { address, other_wave },
        None => Finding::UninitialisedLds { address },
    }
}

/// What a wave does to a part of LDS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    Write { value: u32 },
    Atomic,
}

/// Who used LDS since the last barrier.
#[derive(Debug, Default)]
struct Shadow {
    cells: Vec<Cell>,
    /// Barriers passed, and one.
    epoch: u32,
}

/// What is known of a dword.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    /// A bit for each byte ever written.
    initialised: u8,
    written: By,
    atomic: By,
    read: By,
}

/// Which waves did it (two of them are enough to know), and between which barriers.
#[derive(Debug, Clone, Copy, Default)]
struct By {
    epoch: u32,
    first: u16,
    other: Option<u16>,
}

impl By {
    /// A wave other than `wave` that did it in `epoch`.
    fn other(self, wave: u32, epoch: u32) -> Option<u32> {
        if self.epoch != epoch {
            return None;
        }
        if u32::from(self.first) == wave { self.other.map(u32::from) } else { Some(u32::from(self.first)) }
    }

    fn note(&mut self, wave: u32, epoch: u32) {
        if self.epoch != epoch {
            *self = Self { epoch, first: wave as u16, other: None };
        } else if u32::from(self.first) != wave {
            self.other = Some(wave as u16);
        }
    }
}

impl Shadow {
    /// Err: the other wave of a race, or none for a read of what nobody wrote.
    fn touch(&mut self, i: usize, wave: u32, access: Touch, part: u8) -> Result<(), Option<u32>> {
        let epoch = self.epoch;
        let cell = &mut self.cells[i];
        if !matches!(access, Touch::Write { .. }) && cell.initialised & part != part {
            return Err(None);
        }
        if let Some(other) = cell.written.other(wave, epoch) {
            return Err(Some(other));
        }
        match access {
            Touch::Read => cell.read.note(wave, epoch),
            Touch::Atomic => cell.atomic.note(wave, epoch),
            Touch::Write { .. } => {
                if let Some(other) = cell.read.other(wave, epoch).or(cell.atomic.other(wave, epoch)) {
                    return Err(Some(other));
                }
                cell.written.note(wave, epoch);
                cell.initialised |= part;
            }
        }
        Ok(())
    }
}
