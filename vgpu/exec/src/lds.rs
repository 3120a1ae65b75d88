//! A workgroup's local data share, and what the strict card remembers of it.

mod shadow;

use crate::Finding;
use shadow::{Shadow, Wrong};

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
    /// With the strict card: who did what to each byte.
    shadow: Option<Box<Shadow>>,
    /// What the instruction that is being run moves that is undefined: nothing, as a rule.
    traffic: Option<Box<Traffic>>,
}

/// What an instruction moves that is undefined. Dwords count from 0 in each lane; of each the lanes, a mask for each half.
#[derive(Debug)]
pub(crate) struct Traffic {
    stored: [[u32; 2]; 4],
    /// Nobody had written what was loaded.
    pub loaded: [[u32; 2]; 4],
    /// Where, of each lane.
    pub addresses: [Option<u32>; 64],
}

impl Default for Traffic {
    fn default() -> Self {
        Self { stored: [[0; 2]; 4], loaded: [[0; 2]; 4], addresses: [None; 64] }
    }
}

impl Lds {
    /// LDS of a new workgroup. Contents are undefined by the ABI; zero here.
    pub fn new(bytes: u32) -> Self {
        Self { words: vec![0; bytes.div_ceil(4) as usize], bytes, ..Self::default() }
    }

    /// The same, watched by the strict card.
    pub fn strict(bytes: u32) -> Self {
        let lds = Self::new(bytes);
        let shadow = Shadow::new(4 * lds.words.len());
        Self { shadow: Some(Box::new(shadow)), ..lds }
    }

    /// All waves have come to a barrier: what they did before it is ordered before what they do next.
    pub fn barrier(&mut self) {
        if let Some(shadow) = &mut self.shadow {
            shadow.barrier();
        }
    }

    /// The strict card looks away from now on.
    pub(crate) fn unwatch(&mut self) {
        self.shadow = None;
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

    /// The strict card's opinion of `wave` doing this to `bytes` (at most 4) at `addr`, before it does it. Of a load that
    /// it allows, the first byte that nobody wrote.
    pub(crate) fn check(
        &mut self,
        wave: u32,
        access: Touch,
        addr: u64,
        bytes: u32,
    ) -> Result<Option<u32>, Finding> {
        let Some(shadow) = &mut self.shadow else { return Ok(None) };
        let address = addr as u32;
        if addr + u64::from(bytes) > u64::from(self.bytes) {
            return Err(Finding::LdsOutOfBounds { address, bytes });
        }
        let at = addr as usize;
        let all = at..at + bytes as usize;
        let mut unwritten = None;
        let wrong = match access {
            Touch::Load | Touch::Use => {
                shadow.note_use(all.clone(), wave);
                if shadow.may_read(all.clone(), wave) {
                    return Ok(None);
                }
                let race = shadow.race(all.clone(), wave);
                unwritten = shadow.unwritten(all);
                let used = unwritten.filter(|_| access == Touch::Use);
                used.map(|byte| (byte, Wrong::Uninitialised)).or(race)
            }
            Touch::Write { value, defined } => {
                let old = |i: usize| (self.words[i / 4] >> (i % 4 * 8)) as u8;
                let new = value.to_le_bytes();
                // Nobody knows whether an undefined value is the one that is there.
                let changed = |i: usize, new: u8| if defined { new ^ old(i) } else { 0xff };
                let race =
                    all.clone().zip(new).find_map(|(i, new)| shadow.write(i, wave, [changed(i, new)]).err());
                if !defined && race.is_none() {
                    shadow.forget(all);
                }
                race
            }
        };
        wrong.map_or(Ok(unwritten.map(|byte| byte as u32)), |wrong| Err(complain(wrong)))
    }

    /// In which lanes each dword that the next instruction stores is undefined.
    pub(crate) fn storing(&mut self, undefined: [[u32; 2]; 4]) {
        if self.watched() && undefined != [[0; 2]; 4] {
            self.traffic.get_or_insert_default().stored = undefined;
        }
    }

    /// Whether the instruction moves anything undefined, as far as is known.
    #[inline(always)]
    pub(crate) fn moves_undefined(&self) -> bool {
        self.traffic.is_some()
    }

    /// Whether the dword that the instruction stores is defined in this lane.
    pub(crate) fn stores_defined(&self, dword: usize, half: usize, lane: usize) -> bool {
        self.traffic.as_ref().is_none_or(|traffic| traffic.stored[dword][half] >> lane & 1 == 0)
    }

    /// Takes note that a dword that the instruction loads in this lane is undefined: nobody wrote `address`.
    #[cold]
    pub(crate) fn found_unwritten(&mut self, dword: usize, half: usize, lane: usize, address: u32) {
        let traffic = self.traffic.get_or_insert_default();
        traffic.loaded[dword][half] |= 1 << lane;
        traffic.addresses[32 * half + lane].get_or_insert(address);
    }

    /// The instruction is done; what it moved that is undefined.
    pub(crate) fn settle(&mut self) -> Option<Box<Traffic>> {
        self.traffic.take()
    }

    /// Takes note of `wave` reading `dwords` from each of `places`, which lie inside, unless the strict card objects, or
    /// nobody wrote a part of it: [`Lds::check`] knows.
    #[inline(always)]
    pub(crate) fn admit_reads<I: Iterator<Item = usize>>(
        &mut self,
        wave: u32,
        places: impl Fn() -> I,
        dwords: usize,
    ) -> bool {
        let Some(shadow) = &mut self.shadow else { return true };
        let bytes = |place: usize| 4 * place..4 * (place + dwords);
        if !places().all(|place| shadow.may_read(bytes(place), wave)) {
            return false;
        }
        places().for_each(|place| shadow.note_use(bytes(place), wave));
        true
    }

    /// Stores a dword of `wave` at `place`, which lies inside, unless the strict card objects; see
    /// [`Lds::admit_reads`].
    #[inline(always)]
    pub(crate) fn admit_write(&mut self, wave: u32, place: usize, value: u32) -> bool {
        let Some(shadow) = &mut self.shadow else { return true };
        let changed = (self.words[place] ^ value).to_le_bytes();
        shadow.write(4 * place, wave, changed).is_ok()
    }
}

/// A race with another wave, or an atomic's use of what nobody wrote.
#[cold]
fn complain((byte, wrong): (usize, Wrong)) -> Finding {
    let address = byte as u32;
    match wrong {
        Wrong::Race(other_wave) => Finding::LdsRace { address, other_wave },
        Wrong::Uninitialised => Finding::UninitialisedLds { address },
    }
}

/// What a wave does to a part of LDS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    Load,
    /// Changes it atomically, or takes it for the operand of an atomic.
    Use,
    Write {
        value: u32,
        defined: bool,
    },
}
