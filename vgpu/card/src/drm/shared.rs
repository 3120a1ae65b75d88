//! Syncobjs that descriptors lead to, for other processes and for other users of this one.
//!
//! The state of such a syncobj lies in a memory file, which the descriptor is: binary or a timeline, and a promise for each
//! fence. Whoever puts a fence there keeps the promise: a thread of each process, the relay, writes down that the fence is
//! done. Others look from time to time. The promises of a process that has ended count as kept, as the kernel's are.
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
}

/// Keeps promises, for as long as the process lives.
fn relay(changes: &'static Changes) {
    let of_others = || {
        let list = changes.relays.list();
        list.iter().flat_map(|(fences, _)| fences).any(|fence| fence.promise().is_some())
    };
    loop {
        let mut kept = Vec::new();
        changes.wait_for(i64::MAX, of_others, || {
            kept.extend(changes.relays.list().extract_if(.., |(fences, _)| done(fences)));
            !kept.is_empty()
        });
        for (_, promise) in kept {
            promise.page.keep(&promise);
        }
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
        header.last += 1;
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
