//! What the strict card remembers of LDS: for each byte whether what it holds was ever written, and which waves used it
//! since the last barrier. A row of bytes for each question, so that a wave's access becomes a few operations on vectors.

// Rows of bytes are indexed alike.
#![allow(clippy::needless_range_loop)]

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

    /// Whether `wave` may read these bytes, and all of them were written.
    #[inline(always)]
    pub(super) fn may_read(&self, at: Range<usize>, wave: u32) -> bool {
        let me = wave as u8 + 1;
        let (initialised, a) = self.initialised[at.clone()].as_chunks();
        let (written, b) = self.written[at].as_chunks();
        let wrong = wrong::<WIDE>(initialised, written, me);
        let ((initialised, a), (written, b)) = (a.as_chunks(), b.as_chunks());
        let wrong = wrong | self::wrong::<4>(initialised, written, me);
        wrong | self::wrong::<1>(a.as_chunks().0, b.as_chunks().0, me) == 0
    }

    /// `wave` has read these bytes or changed them atomically.
    #[inline(always)]
    pub(super) fn note_use(&mut self, at: Range<usize>, wave: u32) {
        let me = wave as u8 + 1;
        self.note(&at);
        let (used, a) = self.used[at.clone()].as_chunks_mut();
        let (other, b) = self.other[at].as_chunks_mut();
        note_use::<WIDE>(used, other, me);
        let ((used, a), (other, b)) = (a.as_chunks_mut(), b.as_chunks_mut());
        note_use::<4>(used, other, me);
        note_use::<1>(a.as_chunks_mut().0, b.as_chunks_mut().0, me);
    }

    /// The first of these bytes that `wave` may not read, or change atomically, because another wrote it.
    #[cold]
    pub(super) fn race(&self, mut at: Range<usize>, wave: u32) -> Option<(usize, Wrong)> {
        at.find_map(|i| race(self.written[i], wave).map(|wrong| (i, wrong)))
    }

    /// The first of these bytes that nobody wrote.
    #[cold]
    pub(super) fn unwritten(&self, mut at: Range<usize>) -> Option<usize> {
        at.find(|&i| self.initialised[i] == 0)
    }

    /// What was written here is undefined.
    #[cold]
    pub(super) fn forget(&mut self, at: Range<usize>) {
        self.initialised[at].fill(0);
    }

    /// Lets `wave` write these bytes where `changed` is not 0: who stores what is there already cannot be told from who
    /// does not.
    ///
    /// # Errors
    /// The first byte where it races with another.
    #[inline(always)]
    pub(super) fn write<const N: usize>(
        &mut self,
        at: usize,
        wave: u32,
        changed: [u8; N],
    ) -> Result<(), (usize, Wrong)> {
        let me = wave as u8 + 1;
        self.note(&(at..at + N));
        let initialised: &mut [u8; N] = self.initialised[at..].first_chunk_mut().expect("inside");
        let written: &mut [u8; N] = self.written[at..].first_chunk_mut().expect("inside");
        let used: &[u8; N] = self.used[at..].first_chunk().expect("inside");
        let other: &[u8; N] = self.other[at..].first_chunk().expect("inside");
        let mut races = [0; N];
        for i in 0..N {
            let new = u8::from(changed[i] != 0) | u8::from(initialised[i] == 0);
            races[i] = new & (theirs(written[i], me) | theirs(used[i], me) | theirs(other[i], me));
        }
        let race = |i: usize| [written[i], used[i], other[i]].into_iter().find_map(|who| race(who, wave));
        if let Some(i) = races.iter().position(|&race| race != 0)
            && let Some(wrong) = race(i)
        {
            return Err((at + i, wrong));
        }
        for i in 0..N {
            let new = changed[i] != 0 || initialised[i] == 0;
            written[i] = if new { me } else { written[i] };
            initialised[i] = 1;
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

/// Bytes that are looked at as one vector; accesses of more than one dword have as many, or many times as many.
const WIDE: usize = 16;

/// 1 where `who` is another wave.
#[inline(always)]
fn theirs(who: u8, me: u8) -> u8 {
    u8::from(who != 0) & u8::from(who != me)
}

/// Not 0 where a byte may not be read by `me`.
#[inline(always)]
fn wrong<const N: usize>(initialised: &[[u8; N]], written: &[[u8; N]], me: u8) -> u8 {
    let mut wrong = [0; N];
    for (initialised, written) in initialised.iter().zip(written) {
        for i in 0..N {
            wrong[i] |= u8::from(initialised[i] == 0) | theirs(written[i], me);
        }
    }
    wrong.iter().fold(0, |all, x| all | x)
}

/// See [`Shadow::note_use`].
#[inline(always)]
fn note_use<const N: usize>(used: &mut [[u8; N]], other: &mut [[u8; N]], me: u8) {
    for (used, other) in used.iter_mut().zip(other) {
        for i in 0..N {
            used[i] = if used[i] == 0 { me } else { used[i] };
            other[i] = if used[i] != me && other[i] == 0 { me } else { other[i] };
        }
    }
}

/// `who`, if another wave.
#[inline(always)]
fn race(who: u8, wave: u32) -> Option<Wrong> {
    (who != 0 && u32::from(who) != wave + 1).then(|| Wrong::Race(u32::from(who) - 1))
}
