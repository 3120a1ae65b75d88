//! What the strict card remembers of LDS: for each byte whether it was ever written, and which waves used it since the
//! last barrier. A row of bytes for each question, so that a wave's access becomes a few operations on vectors.

use std::ops::Range;

/// See the module. Waves count from 1; 0 is none.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    initialised: Vec<u8>,
    /// Who wrote it since the last barrier.
    written: Vec<u8>,
    /// Who read it or changed it atomically, first, and who else: two are enough to know one that is not the writer.
    used: Vec<u8>,
    other: Vec<u8>,
    /// All bytes used since the last barrier lie here.
    since: Range<usize>,
}

/// Why an access is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrong {
    /// Nobody wrote it.
    Uninitialised,
    /// This wave uses it too.
    Race(u32),
}

impl Shadow {
    pub(super) fn new(bytes: usize) -> Self {
        let row = || vec![0; bytes];
        Self { initialised: row(), written: row(), used: row(), other: row(), since: 0..0 }
    }

    pub(super) fn barrier(&mut self) {
        let since = std::mem::take(&mut self.since);
        for row in [&mut self.written, &mut self.used, &mut self.other] {
            row[since.clone()].fill(0);
        }
    }

    /// Whether `wave` may read these bytes.
    #[inline(always)]
    pub(super) fn may_read(&self, at: Range<usize>, wave: u32) -> bool {
        let me = wave as u8 + 1;
        let mut wrong = 0;
        for (&initialised, &written) in self.initialised[at.clone()].iter().zip(&self.written[at]) {
            wrong |= u8::from(initialised == 0) | u8::from(written != 0) & u8::from(written != me);
        }
        wrong == 0
    }

    /// `wave` has read these bytes or changed them atomically.
    #[inline(always)]
    pub(super) fn note_use(&mut self, at: Range<usize>, wave: u32) {
        let me = wave as u8 + 1;
        self.note(&at);
        for (used, other) in self.used[at.clone()].iter_mut().zip(&mut self.other[at]) {
            *used = if *used == 0 { me } else { *used };
            *other = if *used != me && *other == 0 { me } else { *other };
        }
    }

    /// What is wrong with `wave` reading these bytes, or changing them atomically: the first such byte.
    #[cold]
    pub(super) fn reading(&self, mut at: Range<usize>, wave: u32) -> Option<(usize, Wrong)> {
        at.find_map(|i| {
            let wrong = if self.initialised[i] == 0 { Some(Wrong::Uninitialised) } else { None };
            wrong.or(race(self.written[i], wave)).map(|wrong| (i, wrong))
        })
    }

    /// Lets `wave` write these bytes where `changed`: who stores what is there already cannot be told from who does not.
    ///
    /// # Errors
    /// The first byte where it races with another.
    #[inline(always)]
    pub(super) fn write<const N: usize>(
        &mut self,
        at: usize,
        wave: u32,
        changed: [bool; N],
    ) -> Result<(), (usize, Wrong)> {
        let me = wave as u8 + 1;
        self.note(&(at..at + N));
        let initialised: &mut [u8; N] = self.initialised[at..].first_chunk_mut().expect("inside");
        let written: &mut [u8; N] = self.written[at..].first_chunk_mut().expect("inside");
        let used: &[u8; N] = self.used[at..].first_chunk().expect("inside");
        let other: &[u8; N] = self.other[at..].first_chunk().expect("inside");
        for i in 0..N {
            if !changed[i] && initialised[i] != 0 {
                continue;
            }
            if let Some(wrong) = race(written[i], wave).or(race(used[i], wave)).or(race(other[i], wave)) {
                return Err((at + i, wrong));
            }
            (initialised[i], written[i]) = (1, me);
        }
        Ok(())
    }

    #[inline(always)]
    fn note(&mut self, at: &Range<usize>) {
        let since = &mut self.since;
        *since = if since.start >= since.end {
            at.clone()
        } else {
            since.start.min(at.start)..since.end.max(at.end)
        };
    }
}

/// Whether `who` used it and is another wave.
#[inline(always)]
fn race(who: u8, wave: u32) -> Option<Wrong> {
    (who != 0 && u32::from(who) != wave + 1).then(|| Wrong::Race(u32::from(who) - 1))
}
