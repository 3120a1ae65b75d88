//! Synchronisation objects (`drivers/gpu/drm/drm_syncobj.c` of Linux): places for fences, binary or along a timeline.

use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::fence::{Changes, Fence, Fences};
use super::handles::Handles;
use super::shared::Page;
use crate::errno::{Errno, Result};
use crate::request::{Argument, args, call};
use crate::user;

args! {
    Create { handle: u32, flags: u32 }
    Destroy { handle: u32, pad: u32 }
    Transfer { from: u32, to: u32, from_point: u64, to_point: u64, flags: u32, pad: u32 }
    Wait { handles: u64, deadline: i64, count: u32, flags: u32, first: u32, pad: u32 }
    TimelineWait { handles: u64, points: u64, deadline: i64, count: u32, flags: u32, first: u32, pad: u32 }
    Array { handles: u64, count: u32, pad: u32 }
    TimelineArray { handles: u64, points: u64, count: u32, flags: u32 }
}

const CREATE_SIGNALLED: u32 = 1;
const WAIT_ALL: u32 = 1;
const WAIT_FOR_SUBMIT: u32 = 2;
const WAIT_AVAILABLE: u32 = 4;
const LAST_SUBMITTED: u32 = 1;

/// As long as the kernel waits for somebody to submit what is to be copied.
const SUBMIT_NANOSECONDS: u64 = 5_000_000_000;

/// What a syncobj holds.
#[derive(Debug, Default)]
pub enum Held {
    #[default]
    Nothing,
    /// Binary.
    Binary(Fences),
    /// A timeline: a point is reached when its fences and those of all points before it are done.
    Timeline(Vec<(u64, Fences)>),
}

impl Held {
    /// Puts fences there: in place of all others for point 0, else as a point of the timeline.
    fn put(&mut self, point: u64, fences: Fences) {
        if point == 0 {
            *self = Self::Binary(fences);
            return;
        }
        let mut points = match std::mem::take(self) {
            Self::Nothing => Vec::new(),
            Self::Binary(before) => vec![(0, before)],
            Self::Timeline(points) => points,
        };
        // Points that are reached are no more than where the timeline is.
        let reached = points.iter().take_while(|(_, fences)| done(fences)).count();
        points.drain(..reached.saturating_sub(1));
        // Out of order counts with the last, as the kernel has it.
        let last = points.last().map_or(0, |(last, _)| *last);
        points.push((point.max(last), fences));
        *self = Self::Timeline(points);
    }

    /// See [`Syncobj::find`].
    fn find(&self, point: u64) -> Option<Fences> {
        match self {
            Self::Nothing => None,
            Self::Binary(fences) => (point == 0).then(|| fences.clone()),
            Self::Timeline(points) if point == 0 => {
                Some(points.iter().flat_map(|(_, f)| f.clone()).collect())
            }
            Self::Timeline(points) => {
                let at = points.iter().position(|(there, _)| *there >= point)?;
                Some(points[..=at].iter().flat_map(|(_, fences)| fences.clone()).collect())
            }
        }
    }

    /// See [`Syncobj::query`].
    fn query(&self, submitted: bool) -> u64 {
        match self {
            Self::Timeline(points) if submitted => points.last().map_or(0, |(point, _)| *point),
            Self::Timeline(points) => {
                points.iter().take_while(|(_, fences)| done(fences)).last().map_or(0, |(point, _)| *point)
            }
            _ => 0,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    held: Held,
    /// What it holds in place of that, once it is shared.
    page: Option<Arc<Page>>,
}

/// A place for fences.
#[derive(Debug, Default)]
pub struct Syncobj(Mutex<State>);

/// Whether all are.
pub fn done(fences: &Fences) -> bool {
    fences.iter().all(|fence| fence.is_done())
}

impl Syncobj {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look<R>(&self, look: impl FnOnce(&Held) -> R) -> R {
        let state = self.state();
        match &state.page {
            None => look(&state.held),
            Some(page) => page.look(look),
        }
    }

    fn change(&self, changes: &Changes, change: impl FnOnce(&mut Held)) {
        let mut state = self.state();
        match &state.page {
            None => change(&mut state.held),
            Some(page) => page.change(changes, change),
        }
    }

    /// That of a descriptor.
    fn shared(page: Arc<Page>) -> Self {
        Self(Mutex::new(State { held: Held::Nothing, page: Some(page) }))
    }

    #[cfg(test)]
    pub fn page(&self) -> Option<Arc<Page>> {
        self.state().page.clone()
    }

    /// A descriptor of it, for others to have it too.
    fn share(&self, changes: &'static Changes) -> Result<OwnedFd> {
        let mut state = self.state();
        let page = match &state.page {
            Some(page) => Arc::clone(page),
            None => {
                let page = Page::new(changes)?;
                let held = std::mem::take(&mut state.held);
                page.change(changes, |there| *there = held);
                state.page = Some(Arc::clone(&page));
                page
            }
        };
        page.descriptor()
    }

    /// Puts fences there: in place of all others for point 0, else as a point of the timeline.
    pub fn put(&self, changes: &Changes, point: u64, fences: Fences) {
        self.change(changes, |held| held.put(point, fences));
    }

    fn reset(&self, changes: &Changes) {
        self.change(changes, |held| *held = Held::Nothing);
    }

    /// The fences that make a point reached, or the last one for 0; none where nobody has submitted it.
    pub fn find(&self, point: u64) -> Option<Fences> {
        self.look(|held| held.find(point))
    }

    /// Where the timeline is: the last point that is reached, or that was submitted.
    pub fn query(&self, submitted: bool) -> u64 {
        self.look(|held| held.query(submitted))
    }
}

/// Syncobjs by handle.
#[derive(Debug, Default)]
pub struct Syncobjs {
    table: Mutex<Handles<Syncobj>>,
}

/// More than any program waits for at once.
const MAX_COUNT: u32 = 1 << 16;

impl Syncobjs {
    fn table(&self) -> MutexGuard<'_, Handles<Syncobj>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub fn left(&self) -> u64 {
        self.table().values().len() as u64
    }

    /// Forgets all that there is.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn clear(&self) {
        *self.table() = Handles::default();
    }

    /// By its handle.
    pub fn get(&self, handle: u32) -> Result<Arc<Syncobj>> {
        self.table().get(handle).cloned().ok_or(Errno(libc::ENOENT))
    }

    pub fn create(&self, signalled: bool) -> u32 {
        let held = if signalled { Held::Binary(vec![Fence::done()]) } else { Held::Nothing };
        self.table().insert(Syncobj(Mutex::new(State { held, page: None })))
    }

    /// A descriptor of a syncobj.
    pub fn share(&self, changes: &'static Changes, handle: u32) -> Result<OwnedFd> {
        let shared = self.get(handle).map_err(|_| Errno::INVALID)?.share(changes);
        // The relay has what was under way.
        changes.announce();
        shared
    }

    /// A new handle of the syncobj behind a descriptor.
    pub fn open(&self, changes: &'static Changes, fd: RawFd) -> Result<u32> {
        let page = Page::of(fd, changes)?;
        Ok(self.table().insert(Syncobj::shared(page)))
    }

    fn list(&self, handles: u64, count: u32) -> Result<Vec<Arc<Syncobj>>> {
        if count == 0 || count > MAX_COUNT {
            return Err(Errno::INVALID);
        }
        user::read::<u32>(handles, count as usize)?.into_iter().map(|handle| self.get(handle)).collect()
    }

    /// The fences of a point that a job, or a copy, shall wait for.
    pub fn fences(&self, changes: &Changes, handle: u32, point: u64, flags: u32) -> Result<Fences> {
        let syncobj = self.get(handle)?;
        if let Some(fences) = syncobj.find(point) {
            return Ok(fences);
        }
        if flags & WAIT_FOR_SUBMIT == 0 {
            return Err(Errno::INVALID);
        }
        let now = crate::device::nanoseconds(libc::CLOCK_MONOTONIC);
        let mut found = None;
        changes.wait((now + SUBMIT_NANOSECONDS) as i64, || {
            found = syncobj.find(point);
            found.is_some()
        });
        found.ok_or(Errno(libc::ETIME))
    }

    /// Waits; the first that is done where any will do.
    fn wait(
        &self,
        changes: &Changes,
        (handles, points): (u64, Option<u64>),
        (count, flags, deadline): (u32, u32, i64),
    ) -> Result<u32> {
        if flags & !(WAIT_ALL | WAIT_FOR_SUBMIT | WAIT_AVAILABLE) != 0 {
            return Err(Errno::INVALID);
        }
        let list = self.list(handles, count)?;
        let points = match points {
            Some(points) if points != 0 => user::read::<u64>(points, list.len())?,
            _ => vec![0; list.len()],
        };
        let wanted: Vec<_> = list.iter().zip(points).collect();
        // Without leave to wait for somebody to submit it, it must be there.
        if flags & (WAIT_FOR_SUBMIT | WAIT_AVAILABLE) == 0
            && wanted.iter().any(|(syncobj, point)| syncobj.find(*point).is_none())
        {
            return Err(Errno::INVALID);
        }
        let ready = |(syncobj, point): &(&Arc<Syncobj>, u64)| {
            syncobj.find(*point).is_some_and(|fences| flags & WAIT_AVAILABLE != 0 || done(&fences))
        };
        let mut first = 0;
        let reached = changes.wait(deadline, || {
            if flags & WAIT_ALL != 0 {
                return wanted.iter().all(ready);
            }
            let found = wanted.iter().position(ready);
            first = found.unwrap_or(0) as u32;
            found.is_some()
        });
        if reached { Ok(first) } else { Err(Errno(libc::ETIME)) }
    }

    /// Does a request about syncobjs; none where it is about something else.
    ///
    /// # Safety
    /// What the request answers is written where the program said: nothing of ours lies there.
    pub unsafe fn ioctl(&self, changes: &Changes, number: u32, at: Argument) -> Option<Result<()>> {
        // SAFETY: the caller's promise, handed on.
        Some(unsafe {
            match number {
                0xbf => call(at, |a: &mut Create| {
                    if a.flags & !CREATE_SIGNALLED != 0 {
                        return Err(Errno::INVALID);
                    }
                    a.handle = self.create(a.flags != 0);
                    Ok(())
                }),
                0xc0 => call(at, |a: &mut Destroy| {
                    self.table().remove(a.handle).map(|_| ()).ok_or(Errno::INVALID)
                }),
                0xc3 => call(at, |a: &mut Wait| {
                    a.first = self.wait(changes, (a.handles, None), (a.count, a.flags, a.deadline))?;
                    Ok(())
                }),
                0xc4 => call(at, |a: &mut Array| {
                    self.list(a.handles, a.count)?.iter().for_each(|syncobj| syncobj.reset(changes));
                    Ok(())
                }),
                0xc5 => call(at, |a: &mut Array| {
                    self.list(a.handles, a.count)?
                        .iter()
                        .for_each(|syncobj| syncobj.put(changes, 0, vec![Fence::done()]));
                    changes.announce();
                    Ok(())
                }),
                0xca => call(at, |a: &mut TimelineWait| {
                    let what = (a.handles, Some(a.points));
                    a.first = self.wait(changes, what, (a.count, a.flags, a.deadline))?;
                    Ok(())
                }),
                0xcb => call(at, |a: &mut TimelineArray| {
                    let list = self.list(a.handles, a.count)?;
                    let submitted = a.flags & LAST_SUBMITTED != 0;
                    let points: Vec<u64> = list.iter().map(|syncobj| syncobj.query(submitted)).collect();
                    user::write_bytes(a.points, user::bytes_of(&points))
                }),
                0xcc => call(at, |a: &mut Transfer| {
                    let to = self.get(a.to)?;
                    let fences = self.fences(changes, a.from, a.from_point, a.flags)?;
                    to.put(changes, a.to_point, fences);
                    changes.announce();
                    Ok(())
                }),
                0xcd => call(at, |a: &mut TimelineArray| {
                    let list = self.list(a.handles, a.count)?;
                    let points = user::read::<u64>(a.points, list.len())?;
                    list.iter()
                        .zip(points)
                        .for_each(|(syncobj, point)| syncobj.put(changes, point, vec![Fence::done()]));
                    changes.announce();
                    Ok(())
                }),
                _ => return None,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending() -> Arc<Fence> {
        Arc::new(Fence::default())
    }

    #[test]
    fn a_point_is_reached_when_all_before_it_are() {
        let changes = Changes::default();
        let syncobj = Syncobj::default();
        let (first, second) = (pending(), pending());
        syncobj.put(&changes, 5, vec![Arc::clone(&first)]);
        syncobj.put(&changes, 9, vec![Arc::clone(&second)]);
        assert_eq!((syncobj.query(false), syncobj.query(true)), (0, 9));
        assert!(syncobj.find(10).is_none());
        changes.complete(&second);
        assert_eq!(syncobj.query(false), 0);
        assert!(!done(&syncobj.find(6).unwrap()) && !done(&syncobj.find(0).unwrap()));
        changes.complete(&first);
        assert_eq!(syncobj.query(false), 9);
        assert!(done(&syncobj.find(1).unwrap()) && done(&syncobj.find(9).unwrap()));
        // Out of order: with the last.
        syncobj.put(&changes, 7, vec![pending()]);
        assert_eq!((syncobj.query(true), syncobj.query(false)), (9, 9));
    }

    #[test]
    fn binary_ones_hold_the_last_fence() {
        let changes = Changes::default();
        let syncobj = Syncobj::default();
        assert!(syncobj.find(0).is_none());
        let fence = pending();
        syncobj.put(&changes, 0, vec![Arc::clone(&fence)]);
        assert!(!done(&syncobj.find(0).unwrap()) && syncobj.find(1).is_none());
        syncobj.put(&changes, 0, vec![Fence::done()]);
        assert!(done(&syncobj.find(0).unwrap()));
        syncobj.reset(&changes);
        assert!(syncobj.find(0).is_none());
    }

    #[test]
    fn waits_end_at_their_deadline_or_before() {
        let changes = Changes::default();
        let now = || nanoseconds_now();
        assert!(!changes.wait(now() - 1, || false));
        let begin = now();
        assert!(!changes.wait(begin + 20_000_000, || false));
        assert!(now() - begin >= 20_000_000);
        let fence = pending();
        std::thread::scope(|scope| {
            scope.spawn(|| changes.complete(&fence));
            assert!(changes.wait(i64::MAX, || fence.is_done()));
        });
    }

    fn nanoseconds_now() -> i64 {
        crate::device::nanoseconds(libc::CLOCK_MONOTONIC) as i64
    }
}
