//! Syncobjs that descriptors lead to, for other processes and for other users of this one.
//!
//! The state of such a syncobj lies in a memory file, which the descriptor is: binary or a timeline, and a promise for each
//! fence. Whoever puts a fence there keeps the promise: writes down that the fence is done. Others look from time to time. The promises of a process that has ended count as kept, as the kernel's are.
//!
//! Nothing is mapped: the file is read and written, so that what others write there can do no harm but be wrong.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::fence::{Changes, Fence, Fences};
use super::syncobj::{Held, done};
use crate::errno::{Errno, Result};
use crate::memory::{memory_file, memory_file_named, reopen};
use crate::request::args;
use crate::user::{Plain, bytes_of};

args! {
    /// The file's beginning. Kinds: 0 nothing, 1 binary, 2 a timeline.
    Header { kind: u64, points: u64, promises: u64, last: u64 }
    /// A point of the timeline, or the binary state: reached when the promise is kept; without one for number 0.
    Point { point: u64, place: u64, number: u64 }
    /// A promise's number twice, or one more where it is kept; the process that gave it, and when that began.
    Entry { word: u64, process: u64, namespace: u64, began: u64 }
}

const PREFIX: &str = "wave32-syncobj";
const PROMISES: u64 = 4096;
const POINTS: u64 = 1 << 28;
const BYTES: u64 = 1 << 29;
/// What there is room for, and more than anybody has.
const MOST: u64 = 1 << 20;

/// Whoever has the file locked lets it go in microseconds, or was stopped.
const LOCK_DEADLINE: Duration = Duration::from_secs(10);
/// How often it is looked after processes that have ended.
const LOOK_AFTER: u64 = 100_000_000;

/// A syncobj's file.
#[derive(Debug)]
pub struct Page {
    file: File,
    /// Held beside the file's lock, which knows processes alone.
    lock: Mutex<()>,
    /// When processes were looked after.
    looked: AtomicU64,
}

/// A fence of another process, or of this one: where it is told that it is done.
#[derive(Debug)]
pub struct Promise {
    page: Arc<Page>,
    place: u64,
    number: u64,
}

impl Promise {
    /// Whether the fence is done.
    pub fn is_kept(&self) -> bool {
        self.page.look_after();
        // Its place may be another's by now.
        self.page.entry(self.place).word != self.number << 1
    }
}

/// Fences of this process that others wait for, and the promises to be kept then.
#[derive(Debug, Default)]
pub struct Relays(Mutex<Vec<(Fences, Promise)>>);

impl Relays {
    fn list(&self) -> MutexGuard<'_, Vec<(Fences, Promise)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the promises whose fences are done.
    pub fn keep(&self) {
        let kept: Vec<_> = self.list().extract_if(.., |(fences, _)| done(fences)).collect();
        kept.iter().for_each(|(_, promise)| promise.page.keep(promise));
    }
}

/// Keeps promises for as long as the process lives, where the fences are others' promises: nobody announces those.
fn relay(changes: &'static Changes) {
    let relays = &changes.relays;
    let of_others = || relays.list().iter().flat_map(|(fences, _)| fences).any(|f| f.promise().is_some());
    loop {
        changes.wait_for(i64::MAX, of_others, || relays.list().iter().any(|(fences, _)| done(fences)));
        relays.keep();
        changes.announce();
    }
}

/// This process: its number, the namespace of that, when it began.
fn this_process() -> [u64; 3] {
    let id = std::process::id();
    let [began, _] = process(id).unwrap_or_default();
    [id.into(), namespace(), began]
}

fn namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino())
}

/// When a process began, and whether it has ended but for its parent to hear of it.
fn process(id: u32) -> Option<[u64; 2]> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before may hold anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    // A first thread that has ended before the others looks the same.
    let ended = matches!(*fields.first()?, "Z" | "X") && *fields.get(17)? == "1";
    Some([fields.get(19)?.parse().ok()?, ended.into()])
}

/// Whether the process that gave a promise has ended, as far as can be told.
fn has_ended(entry: &Entry) -> bool {
    // Another namespace's numbers say nothing here; nor is /proc there everywhere.
    if entry.namespace == 0 || entry.namespace != namespace() {
        return false;
    }
    let Ok(id) = libc::pid_t::try_from(entry.process) else { return false };
    match process(id as u32) {
        Some([began, ended]) => began != entry.began || ended != 0,
        // SAFETY: sends nothing.
        None => unsafe { libc::kill(id, 0) != 0 && Errno::last().0 == libc::ESRCH },
    }
}

/// The lock of a file, which ends with the process.
struct FileLock<'a>(&'a File);

fn set_lock(file: &File, kind: i32) -> bool {
    // SAFETY: integers alone, and 0 is one.
    let mut lock = unsafe { std::mem::zeroed::<libc::flock>() };
    (lock.l_type, lock.l_whence) = (kind as i16, libc::SEEK_SET as i16);
    // SAFETY: the structure is read only.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) == 0 }
}

impl<'a> FileLock<'a> {
    fn new(file: &'a File) -> Self {
        let begun = Instant::now();
        while !set_lock(file, libc::F_WRLCK) {
            if begun.elapsed() > LOCK_DEADLINE {
                log!("a process has held a shared syncobj for {LOCK_DEADLINE:?}: it is taken from it");
                break;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        Self(file)
    }

    /// If it is free.
    fn now(file: &'a File) -> Option<Self> {
        set_lock(file, libc::F_WRLCK).then_some(Self(file))
    }
}

impl Drop for FileLock<'_> {
    fn drop(&mut self) {
        set_lock(self.0, libc::F_UNLCK);
    }
}

impl Page {
    /// A new one, for a syncobj that holds nothing.
    pub fn new(changes: &'static Changes) -> Result<Arc<Self>> {
        Self::of(memory_file(PREFIX, BYTES)?.as_raw_fd(), changes)
    }

    /// That of a descriptor.
    pub fn of(fd: RawFd, changes: &'static Changes) -> Result<Arc<Self>> {
        let found = memory_file_named(fd, PREFIX).filter(|(_, bytes)| *bytes == BYTES);
        found.ok_or(Errno::INVALID)?;
        if !changes.shared.swap(true, Ordering::AcqRel) {
            let spawned = std::thread::Builder::new().name("vgpu-relay".into()).spawn(move || relay(changes));
            if spawned.is_err() {
                changes.shared.store(false, Ordering::Release);
                return Err(Errno::NO_MEMORY);
            }
        }
        let file = File::from(reopen(fd, true)?);
        Ok(Arc::new(Self { file, lock: Mutex::default(), looked: AtomicU64::new(0) }))
    }

    /// A descriptor for the program.
    pub fn descriptor(&self) -> Result<OwnedFd> {
        reopen(self.file.as_raw_fd(), true)
    }

    /// Reads structures; zeros where the file has none.
    fn read<T: Plain>(&self, at: u64, count: u64) -> Vec<T> {
        // SAFETY: integers alone, and 0 is one.
        let mut list = vec![unsafe { std::mem::zeroed::<T>() }; count as usize];
        let bytes = size_of_val(list.as_slice());
        // SAFETY: so many bytes, and any make a `T`.
        let bytes = unsafe { std::slice::from_raw_parts_mut(list.as_mut_ptr().cast::<u8>(), bytes) };
        // The file has its size for good.
        let _ = self.file.read_exact_at(bytes, at);
        list
    }

    fn write<T: Plain>(&self, at: u64, list: &[T]) {
        if let Err(error) = self.file.write_all_at(bytes_of(list), at) {
            log!("a shared syncobj could not be written: {error}");
        }
    }

    fn header(&self) -> Header {
        let header = self.read::<Header>(0, 1)[0];
        Header { points: header.points.min(MOST), promises: header.promises.min(MOST), ..header }
    }

    fn entry(&self, place: u64) -> Entry {
        self.read(PROMISES + place.min(MOST) * size_of::<Entry>() as u64, 1)[0]
    }

    fn set_entry(&self, place: u64, entry: Entry) {
        self.write(PROMISES + place * size_of::<Entry>() as u64, &[entry]);
    }

    fn locked<R>(&self, action: impl FnOnce() -> R) -> R {
        let _threads = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let _processes = FileLock::new(&self.file);
        action()
    }

    /// Keeps a promise.
    fn keep(&self, promise: &Promise) {
        self.locked(|| {
            let entry = self.entry(promise.place);
            if entry.word == promise.number << 1 {
                self.set_entry(promise.place, Entry { word: entry.word | 1, ..entry });
            }
        });
    }

    /// Keeps the promises of processes that have ended, now and then.
    fn look_after(&self) {
        let now = crate::device::nanoseconds(libc::CLOCK_MONOTONIC);
        let before = self.looked.load(Ordering::Relaxed);
        if now.saturating_sub(before) < LOOK_AFTER {
            return;
        }
        self.looked.store(now, Ordering::Relaxed);
        // This may be asked while it is locked, here or for another syncobj: next time, then.
        let Ok(_threads) = self.lock.try_lock() else { return };
        let Some(_processes) = FileLock::now(&self.file) else { return };
        let count = self.header().promises;
        for (place, entry) in (0..).zip(self.read::<Entry>(PROMISES, count)) {
            if entry.word & 1 == 0 && has_ended(&entry) {
                log!("process {} ended before it signalled a shared syncobj", entry.process);
                self.set_entry(place, Entry { word: entry.word | 1, ..entry });
            }
        }
    }

    /// What it holds, while it is locked.
    fn load(self: &Arc<Self>) -> Held {
        let header = self.header();
        let points = self.read::<Point>(POINTS, header.points);
        let mut points = points.into_iter().map(|Point { point, place, number }| {
            let promise = Promise { page: Arc::clone(self), place, number };
            (point, if number == 0 { Vec::new() } else { vec![Fence::promised(promise)] })
        });
        match header.kind {
            1 => Held::Binary(points.next().map(|(_, fences)| fences).unwrap_or_default()),
            2 => Held::Timeline(points.collect()),
            _ => Held::Nothing,
        }
    }

    /// A new promise, while it is locked: where, and its number.
    fn promise(&self, header: &mut Header, all: &[Entry]) -> (u64, u64) {
        header.last = header.last.wrapping_add(1).max(1);
        let free = all.iter().position(|entry| entry.word & 1 == 1).map(|place| place as u64);
        let place = free.unwrap_or(header.promises).min(MOST - 1);
        header.promises = header.promises.max(place + 1);
        let [process, namespace, began] = this_process();
        self.set_entry(place, Entry { word: header.last << 1, process, namespace, began });
        (place, header.last)
    }

    /// Writes down what it shall hold, while it is locked. Promises for fences of others are handed to the relay.
    fn store(self: &Arc<Self>, changes: &Changes, held: Held) {
        let mut header = self.header();
        let (kind, points) = match held {
            Held::Nothing => (0, Vec::new()),
            Held::Binary(fences) => (1, vec![(0, fences)]),
            Held::Timeline(points) => (2, points),
        };
        let mut written = Vec::with_capacity(points.len());
        for (point, fences) in points {
            let own = |fence: &Arc<Fence>| {
                fence.promise().filter(|p| Arc::ptr_eq(&p.page, self)).map(|p| (p.place, p.number))
            };
            let (place, number) = match &fences[..] {
                _ if done(&fences) => (0, 0),
                [one] if own(one).is_some() => own(one).unwrap_or_default(),
                _ => {
                    let all = self.read::<Entry>(PROMISES, header.promises);
                    let (place, number) = self.promise(&mut header, &all);
                    let promise = Promise { page: Arc::clone(self), place, number };
                    changes.relays.list().push((fences, promise));
                    (place, number)
                }
            };
            written.push(Point { point, place, number });
        }
        written.truncate(MOST as usize);
        self.write(POINTS, &written);
        self.write(0, &[Header { kind, points: written.len() as u64, ..header }]);
    }

    /// Looks at what it holds.
    pub fn look<R>(self: &Arc<Self>, look: impl FnOnce(&Held) -> R) -> R {
        let held = self.locked(|| self.load());
        look(&held)
    }

    /// Changes what it holds.
    pub fn change(self: &Arc<Self>, changes: &Changes, change: impl FnOnce(&mut Held)) {
        self.locked(|| {
            let mut held = self.load();
            change(&mut held);
            self.store(changes, held);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drm::syncobj::Syncobjs;

    fn now() -> i64 {
        crate::device::nanoseconds(libc::CLOCK_MONOTONIC) as i64
    }

    /// Within ten seconds.
    fn comes(changes: &Changes, what: impl Fn() -> bool) -> bool {
        changes.wait(now() + 10_000_000_000, what)
    }

    /// Two processes' syncobjs, as far as they know; and a handle of the same one in each.
    fn shared() -> [(&'static Changes, &'static Syncobjs, u32); 2] {
        let [one, other] = [(); 2].map(|()| -> (&'static Changes, &'static Syncobjs) {
            (Box::leak(Box::default()), Box::leak(Box::default()))
        });
        let handle = one.1.create(false);
        let file = one.1.share(one.0, handle).unwrap();
        let there = other.1.open(other.0, file.as_raw_fd()).unwrap();
        [(one.0, one.1, handle), (other.0, other.1, there)]
    }

    #[test]
    fn a_binary_one_is_signalled_over_there() {
        let [(changes, one, handle), (far, other, there)] = shared();
        let (here, there) = (one.get(handle).unwrap(), other.get(there).unwrap());
        assert!(there.find(0).is_none());
        let fence = Arc::new(Fence::default());
        here.put(changes, 0, vec![Arc::clone(&fence)]);
        let found = there.find(0).unwrap();
        assert!(!done(&found) && !comes_soon(far, &found));
        // What was found stays what it was when another takes its place.
        there.put(far, 0, vec![Fence::done()]);
        assert!(done(&here.find(0).unwrap()) && !done(&found));
        changes.complete(&fence);
        assert!(comes(far, || done(&found)));
    }

    fn comes_soon(changes: &Changes, fences: &Fences) -> bool {
        changes.wait(now() + 5_000_000, || done(fences))
    }

    #[test]
    fn timelines_go_on_at_both_ends() {
        let [(changes, one, handle), (far, other, there)] = shared();
        let (here, there) = (one.get(handle).unwrap(), other.get(there).unwrap());
        let fences = [(); 3].map(|()| Arc::new(Fence::default()));
        here.put(changes, 1, vec![Arc::clone(&fences[0])]);
        there.put(far, 4, vec![Arc::clone(&fences[1])]);
        here.put(changes, 6, vec![Arc::clone(&fences[2]), Fence::done()]);
        assert_eq!([here.query(true), there.query(true), there.query(false)], [6, 6, 0]);
        far.complete(&fences[1]);
        changes.complete(&fences[0]);
        assert!(comes(far, || there.query(false) == 4) && comes(changes, || here.query(false) == 4));
        let last = there.find(5).unwrap();
        assert!(!done(&last) && there.find(7).is_none());
        changes.complete(&fences[2]);
        assert!(comes(far, || done(&last)));
        // Points that were reached are forgotten, and promises used again.
        for point in 7..100 {
            here.put(changes, point, vec![Fence::done()]);
        }
        assert_eq!((there.query(false), there.query(true)), (99, 99));
    }

    #[test]
    fn what_was_there_is_shared() {
        let changes: &'static Changes = Box::leak(Box::default());
        let syncobjs: &'static Syncobjs = Box::leak(Box::default());
        let (signalled, pending) = (syncobjs.create(true), syncobjs.create(false));
        let fence = Arc::new(Fence::default());
        syncobjs.get(pending).unwrap().put(changes, 3, vec![Arc::clone(&fence)]);
        let again = [signalled, pending].map(|handle| {
            let file = syncobjs.share(changes, handle).unwrap();
            syncobjs.open(changes, file.as_raw_fd()).unwrap()
        });
        let [signalled, timeline] = again.map(|handle| syncobjs.get(handle).unwrap());
        assert!(done(&signalled.find(0).unwrap()) && timeline.query(false) == 0);
        changes.complete(&fence);
        assert!(comes(changes, || timeline.query(false) == 3));
        // A copy of fences of other syncobjs.
        let fence = Arc::new(Fence::default());
        signalled.put(changes, 0, vec![Arc::clone(&fence)]);
        timeline.put(changes, 8, signalled.find(0).unwrap());
        assert_eq!(timeline.query(false), 3);
        changes.complete(&fence);
        assert!(comes(changes, || timeline.query(false) == 8));
    }

    #[test]
    fn what_is_no_syncobj_is_refused() {
        let changes: &'static Changes = Box::leak(Box::default());
        let syncobjs: &'static Syncobjs = Box::leak(Box::default());
        let null = File::open("/dev/null").unwrap();
        let short = memory_file(PREFIX, 4096).unwrap();
        for fd in [-1, 1 << 20, null.as_raw_fd(), short.as_raw_fd()] {
            assert_eq!(syncobjs.open(changes, fd), Err(Errno::INVALID));
        }
        assert_eq!(syncobjs.share(changes, 5).map(drop), Err(Errno::INVALID));
        assert_eq!(syncobjs.left(), 0);
    }

    #[test]
    fn a_process_that_ended_keeps_its_promises() {
        let [(_, one, handle), (far, other, there)] = shared();
        let page = one.get(handle).unwrap().page().unwrap();
        let there = other.get(there).unwrap();
        // As a process of another time would have left it; then as one that lives.
        for (began, ends) in [(1, true), (this_process()[2], false)] {
            let [process, namespace, _] = this_process();
            page.locked(|| {
                let mut header = Header { kind: 1, points: 1, ..page.header() };
                let (place, number) = page.promise(&mut header, &[]);
                page.set_entry(place, Entry { word: number << 1, process, namespace, began });
                page.write(POINTS, &[Point { point: 0, place, number }]);
                page.write(0, &[header]);
            });
            let found = there.find(0).unwrap();
            assert_eq!(far.wait(now() + 400_000_000, || done(&found)), ends);
        }
    }

    #[test]
    fn nonsense_in_the_file_does_no_harm() {
        let [(changes, one, handle), (_, other, there)] = shared();
        let page = one.get(handle).unwrap().page().unwrap();
        let there = other.get(there).unwrap();
        for kind in [1, 2, 3, u64::MAX] {
            page.write(0, &[Header { kind, points: 5, promises: 7, last: u64::MAX - 1 }]);
            page.write(POINTS, &[Point { point: u64::MAX, place: u64::MAX, number: 9 }; 5]);
            let _ = (there.find(0).map(|fences| done(&fences)), there.find(4), there.query(true));
            one.get(handle).unwrap().put(changes, 2, vec![Arc::new(Fence::default())]);
        }
    }
}
