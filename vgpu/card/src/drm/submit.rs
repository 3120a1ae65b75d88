//! Contexts and what is submitted to them (`CTX`, `CS`, `WAIT_CS`): a thread for each ring of a context runs its jobs in order.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::fence::{Fence, Fences};
use super::gem::Gem;
use super::jobs::JobGuard;
use super::pm4::{Engine, MAX_DWORDS, Ring};
use crate::device::Device;
use crate::errno::{Errno, Result};
use crate::request::{Argument, args, call};
use crate::user;

args! {
    /// In: operation, flags, context, priority. Out: the context; or flags of 64 bits, hangs, what was reset.
    Ctx { operation: u32, flags: u32, context: u32, priority: i32 }
    /// In. Out: the job's number in the first 8 bytes.
    Cs { context: u32, list: u32, chunks: u32, flags: u32, at: u64 }
    Chunk { id: u32, dwords: u32, data: u64 }
    Ib { pad: u32, flags: u32, address: u64, bytes: u32, ip: u32, instance: u32, ring: u32 }
    UserFence { handle: u32, offset: u32 }
    Dependency { ip: u32, instance: u32, ring: u32, context: u32, number: u64 }
    Timeline { handle: u32, flags: u32, point: u64 }
    BoList { operation: u32, list: u32, count: u32, entry_bytes: u32, entries: u64 }
    BoEntry { handle: u32, priority: u32 }
    /// In: a job's number, timeout, ip, instance, ring, context. Out: 1 where it is busy still.
    WaitCs { number: u64, timeout: u64, ip: u32, instance: u32, ring: u32, context: u32 }
    WaitFences { fences: u64, count: u32, all: u32, timeout: u64 }
    FenceOf { context: u32, ip: u32, instance: u32, ring: u32, number: u64 }
}

/// More than any program has in one job.
const MAX_CHUNKS: u32 = 1 << 12;
/// Rings of compute; graphics has one.
const COMPUTE_RINGS: u32 = 4;
/// Numbers of jobs that are remembered, done, to be waited for.
const REMEMBERED: usize = 256;

/// What became of a context.
const INTACT: u8 = 0;
const GUILTY: u8 = 1;

/// What a ring's thread does.
struct Job {
    waits: Fences,
    buffers: Vec<(u64, u32)>,
    user_fence: Option<(Arc<Gem>, u64, u64)>,
    fence: Arc<Fence>,
    /// Buffers of the job's list stay until it ended.
    _buffers: Vec<Arc<Gem>>,
    guard: JobGuard,
}

struct Lane {
    jobs: Sender<Job>,
    last: u64,
    fences: BTreeMap<u64, Arc<Fence>>,
}

/// A context.
pub struct Context {
    state: AtomicU8,
    lanes: Mutex<BTreeMap<(Ring, u32), Lane>>,
}

/// Things by number, and the last number that was given.
type Numbered<T> = Mutex<(u32, BTreeMap<u32, T>)>;

/// Contexts and lists of buffers.
#[derive(Default)]
pub struct Contexts {
    table: Numbered<Arc<Context>>,
    lists: Numbered<Vec<Arc<Gem>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ring(ip: u32, instance: u32, ring: u32) -> Result<(Ring, u32)> {
    match (ip, instance, ring) {
        (0, 0, 0) => Ok((Ring::Graphics, 0)),
        (1, 0, 0..COMPUTE_RINGS) => Ok((Ring::Compute, ring)),
        _ => Err(Errno::INVALID),
    }
}

impl Context {
    /// The fence of a job; none of one that ended long ago.
    fn fence(&self, at: (Ring, u32), number: u64) -> Result<Option<Arc<Fence>>> {
        let lanes = lock(&self.lanes);
        let Some(lane) = lanes.get(&at) else {
            return if number == 0 || number == u64::MAX { Ok(None) } else { Err(Errno::INVALID) };
        };
        let number = if number == u64::MAX { lane.last } else { number };
        if number > lane.last {
            return Err(Errno::INVALID);
        }
        Ok(lane.fences.get(&number).cloned())
    }

    /// Hands a job to its ring's thread; its number.
    fn submit(
        self: &Arc<Self>,
        device: &'static Device,
        at: (Ring, u32),
        fence: &Arc<Fence>,
        job: impl FnOnce(u64) -> Job,
    ) -> Result<u64> {
        let mut lanes = lock(&self.lanes);
        let lane = match lanes.entry(at) {
            Entry::Occupied(lane) => lane.into_mut(),
            Entry::Vacant(place) => {
                let (jobs, waiting) = channel::<Job>();
                let context = Arc::clone(self);
                std::thread::Builder::new()
                    .name(format!("vgpu-{:?}-{}", at.0, at.1).to_lowercase())
                    .spawn(move || waiting.iter().for_each(|job| context.run(device, at.0, job)))
                    .map_err(|_| Errno::NO_MEMORY)?;
                place.insert(Lane { jobs, last: 0, fences: BTreeMap::new() })
            }
        };
        lane.last += 1;
        while lane.fences.len() >= REMEMBERED && lane.fences.values().next().is_some_and(|f| f.is_done()) {
            lane.fences.pop_first();
        }
        lane.fences.insert(lane.last, Arc::clone(fence));
        lane.jobs.send(job(lane.last)).map_err(|_| Errno(libc::EIO))?;
        Ok(lane.last)
    }

    fn run(&self, device: &'static Device, ring: Ring, job: Job) {
        let drm = &device.drm;
        // Whatever it waits for ends by its own deadline.
        let ready = || job.waits.iter().all(|fence| fence.is_done()) && job.guard.start();
        drm.changes.wait(i64::MAX, ready);
        if self.state.load(Ordering::Acquire) == INTACT {
            let in_use = device.vm.in_use();
            let mut engine = Engine::new(device, ring);
            let mut run = || job.buffers.iter().try_for_each(|(at, dwords)| engine.run(*at, *dwords));
            // A bug of ours, of which the panic's message tells, is a hang of the card's: the program hears of it.
            let ran = catch_unwind(AssertUnwindSafe(&mut run));
            if !matches!(ran, Ok(Ok(()))) {
                log!("the context is lost: {:?} ring", ring);
                device.executor.write_report(device);
                self.state.store(GUILTY, Ordering::Release);
                drm.resets.fetch_add(1, Ordering::AcqRel);
            }
            drop(in_use);
        }
        if let Some((gem, offset, number)) = &job.user_fence {
            // SAFETY: inside the buffer, which the job keeps; aligned to 8 bytes.
            unsafe { &*((gem.host + offset) as *const std::sync::atomic::AtomicU64) }
                .store(*number, Ordering::Release);
        }
        let fence = Arc::clone(&job.fence);
        // What was to go away when the job ended is gone before anybody hears that it did.
        drop(job);
        drm.changes.complete(&fence);
    }
}

impl Contexts {
    /// How many there are.
    pub fn left(&self) -> u64 {
        lock(&self.table).1.len() as u64
    }

    /// Ends all that there is.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn clear(&self) {
        let table = std::mem::take(&mut lock(&self.table).1);
        table.values().for_each(|context| lock(&context.lanes).clear());
        lock(&self.lists).1.clear();
    }

    fn get(&self, number: u32) -> Result<Arc<Context>> {
        lock(&self.table).1.get(&number).cloned().ok_or(Errno::INVALID)
    }

    fn ctx(&self, device: &Device, a: &mut Ctx) -> Result<()> {
        match a.operation {
            1 => {
                // Above normal is for those who may.
                if a.priority > 0 {
                    return Err(Errno(libc::EACCES));
                }
                let mut table = lock(&self.table);
                table.0 += 1;
                let number = table.0;
                let context = Context { state: AtomicU8::new(INTACT), lanes: Mutex::default() };
                table.1.insert(number, Arc::new(context));
                *a = Ctx { operation: number, flags: 0, context: 0, priority: 0 };
            }
            2 => {
                let context = lock(&self.table).1.remove(&a.context).ok_or(Errno::INVALID)?;
                // Its threads end behind the last job.
                lock(&context.lanes).clear();
            }
            operation @ (3 | 4) => {
                let guilty = self.get(a.context)?.state.load(Ordering::Acquire) == GUILTY;
                let resets = device.drm.resets.load(Ordering::Acquire);
                // Flags: reset, guilty. What was reset: nothing, by this context, by another.
                let (flags, status) = match (guilty, resets) {
                    (true, _) => (0b101, 1),
                    (false, 0) => (0, 0),
                    (false, _) => (0b001, 2),
                };
                *a = match operation {
                    3 => Ctx { operation: 0, flags: 0, context: resets, priority: status },
                    _ => Ctx { operation: flags, flags: 0, context: 0, priority: 0 },
                };
            }
            // Clocks that do not change.
            5 => *a = Ctx { operation: 0, flags: 0, context: 0, priority: 0 },
            _ => return Err(Errno::INVALID),
        }
        Ok(())
    }

    fn bo_list(&self, device: &Device, a: &mut BoList) -> Result<()> {
        let mut lists = lock(&self.lists);
        match a.operation {
            0 | 2 => {
                let gems = entries(device, a)?;
                let number = if a.operation == 0 { lists.0 + 1 } else { a.list };
                lists.0 = lists.0.max(number);
                lists.1.insert(number, gems);
                a.operation = number;
                a.list = 0;
            }
            1 => {
                lists.1.remove(&a.list).ok_or(Errno::INVALID)?;
            }
            _ => return Err(Errno::INVALID),
        }
        Ok(())
    }

    fn cs(&self, device: &'static Device, a: &mut Cs) -> Result<()> {
        let drm = &device.drm;
        let context = self.get(a.context)?;
        if context.state.load(Ordering::Acquire) != INTACT {
            return Err(Errno(libc::ECANCELED));
        }
        if a.chunks == 0 || a.chunks > MAX_CHUNKS {
            return Err(Errno::INVALID);
        }
        let mut parts = Parts::default();
        if a.list != 0 {
            parts.gems = lock(&self.lists).1.get(&a.list).cloned().ok_or(Errno(libc::ENOENT))?;
        }
        for at in user::read::<u64>(a.at, a.chunks as usize)? {
            let chunk = user::read::<Chunk>(at, 1)?[0];
            self.chunk(device, chunk, &mut parts)?;
        }
        let at = parts.ring.ok_or(Errno::INVALID)?;
        let fence = Arc::new(Fence::default());
        let guard = drm.gems.begin(&device.vm);
        // Before the job may end: who waits for the syncobj must find it.
        let Parts { waits, buffers, signals, gems, user_fence, .. } = parts;
        for (syncobj, point) in signals {
            syncobj.put(&drm.changes, point, vec![Arc::clone(&fence)]);
        }
        let number = context.submit(device, at, &fence, |number| Job {
            waits,
            buffers,
            user_fence: user_fence.map(|(gem, offset)| (gem, offset, number)),
            fence: Arc::clone(&fence),
            _buffers: gems,
            guard,
        })?;
        drm.changes.announce();
        [a.context, a.list] = [number as u32, (number >> 32) as u32];
        Ok(())
    }

    fn chunk(&self, device: &'static Device, chunk: Chunk, parts: &mut Parts) -> Result<()> {
        let drm = &device.drm;
        fn list<T: user::Plain>(chunk: Chunk) -> Result<Vec<T>> {
            let count = chunk.dwords as usize * 4 / size_of::<T>();
            if count > 1 << 16 { Err(Errno::INVALID) } else { user::read(chunk.data, count) }
        }
        match chunk.id {
            1 => {
                for ib in list::<Ib>(chunk)?.into_iter().take(1) {
                    let at = ring(ib.ip, ib.instance, ib.ring)?;
                    let odd = ib.bytes % 4 != 0 || ib.bytes / 4 > MAX_DWORDS;
                    if parts.ring.is_some_and(|other| other != at) || odd {
                        return Err(Errno::INVALID);
                    }
                    parts.ring = Some(at);
                    if device.settings.trace {
                        log!(
                            "job on {at:?}: command buffer {:#x}, {} bytes, flags {}",
                            ib.address,
                            ib.bytes,
                            ib.flags
                        );
                    }
                    // Constant engines ran beside the graphics ring; nothing is left to them.
                    if ib.flags & 1 == 0 {
                        parts.buffers.push((ib.address, ib.bytes / 4));
                    }
                }
            }
            2 => {
                for fence in list::<UserFence>(chunk)?.into_iter().take(1) {
                    let gem = drm.gems.get(fence.handle)?;
                    let offset = u64::from(fence.offset);
                    if !offset.is_multiple_of(8) || offset + 8 > gem.bytes {
                        return Err(Errno::INVALID);
                    }
                    parts.user_fence = Some((gem, offset));
                }
            }
            3 | 7 => {
                for on in list::<Dependency>(chunk)? {
                    let context = self.get(on.context)?;
                    parts.waits.extend(context.fence(ring(on.ip, on.instance, on.ring)?, on.number)?);
                }
            }
            4 => {
                for handle in list::<u32>(chunk)? {
                    parts.waits.extend(drm.syncobjs.fences(&drm.changes, handle, 0, 0)?);
                }
            }
            5 => {
                for handle in list::<u32>(chunk)? {
                    parts.signals.push((drm.syncobjs.get(handle)?, 0));
                }
            }
            6 => {
                for header in list::<BoList>(chunk)?.into_iter().take(1) {
                    parts.gems.extend(entries(device, &header)?);
                }
            }
            8 => {
                for wait in list::<Timeline>(chunk)? {
                    let found = drm.syncobjs.fences(&drm.changes, wait.handle, wait.point, wait.flags)?;
                    parts.waits.extend(found);
                }
            }
            9 => {
                for signal in list::<Timeline>(chunk)? {
                    parts.signals.push((drm.syncobjs.get(signal.handle)?, signal.point));
                }
            }
            // Shadow memory of the graphics ring's state, which is not kept.
            0x0a => {}
            _ => return Err(Errno::INVALID),
        }
        Ok(())
    }

    fn wait_cs(&self, device: &Device, a: &mut WaitCs) -> Result<()> {
        let fence = self.get(a.context)?.fence(ring(a.ip, a.instance, a.ring)?, a.number)?;
        let deadline = i64::try_from(a.timeout).unwrap_or(i64::MAX);
        let done = fence.is_none_or(|fence| device.drm.changes.wait(deadline, || fence.is_done()));
        a.number = u64::from(!done);
        Ok(())
    }

    fn wait_fences(&self, device: &Device, a: &mut WaitFences) -> Result<()> {
        if a.count == 0 || a.count > MAX_CHUNKS {
            return Err(Errno::INVALID);
        }
        let list = user::read::<FenceOf>(a.fences, a.count as usize)?;
        let fences = list
            .iter()
            .map(|f| self.get(f.context)?.fence(ring(f.ip, f.instance, f.ring)?, f.number))
            .collect::<Result<Vec<_>>>()?;
        let deadline = i64::try_from(a.timeout).unwrap_or(i64::MAX);
        let done = |fence: &Option<Arc<Fence>>| fence.as_ref().is_none_or(|fence| fence.is_done());
        let mut first = 0;
        let reached = device.drm.changes.wait(deadline, || {
            first = fences.iter().position(done).unwrap_or(0);
            if a.all != 0 { fences.iter().all(done) } else { fences.iter().any(done) }
        });
        a.fences = u64::from(reached) | (first as u64) << 32;
        Ok(())
    }

    /// Does a request about contexts; none where it is about something else.
    ///
    /// # Safety
    /// What the request answers is written where the program said: nothing of ours lies there.
    pub unsafe fn ioctl(&self, device: &'static Device, number: u32, at: Argument) -> Option<Result<()>> {
        // SAFETY: the caller's promise, handed on.
        Some(unsafe {
            match number {
                0x42 => call(at, |a| self.ctx(device, a)),
                0x43 => call(at, |a| self.bo_list(device, a)),
                0x44 => call(at, |a| self.cs(device, a)),
                0x49 => call(at, |a| self.wait_cs(device, a)),
                0x52 => call(at, |a| self.wait_fences(device, a)),
                _ => return None,
            }
        })
    }
}

/// What a submission consists of.
#[derive(Default)]
struct Parts {
    ring: Option<(Ring, u32)>,
    buffers: Vec<(u64, u32)>,
    waits: Fences,
    signals: Vec<(Arc<super::syncobj::Syncobj>, u64)>,
    gems: Vec<Arc<Gem>>,
    user_fence: Option<(Arc<Gem>, u64)>,
}

/// The buffers of a list.
fn entries(device: &Device, a: &BoList) -> Result<Vec<Arc<Gem>>> {
    if a.count > 1 << 16 || a.entry_bytes as usize != size_of::<BoEntry>() {
        return Err(Errno::INVALID);
    }
    let list = user::read::<BoEntry>(a.entries, a.count as usize)?;
    list.iter().map(|entry| device.drm.gems.get(entry.handle)).collect()
}
