//! Buffers (`GEM_*`) and where the card sees them (`GEM_VA`).
//!
//! A buffer lives as long as it has a handle, a mapping, or a job that was submitted while it had one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use wave32_exec::Region;

use super::fence::Changes;
use super::handles::Handles;
use crate::errno::{Errno, Result};
use crate::memory::{Backing, Vm, canonical};
use crate::request::{Argument, args, call};
use crate::user::{self, PAGE};

args! {
    /// In: size, alignment, domains, flags. Out: the handle in the first word.
    Create { bytes: u64, alignment: u64, domains: u64, flags: u64 }
    Mmap { handle: u64 }
    Va { handle: u32, pad: u32, operation: u32, flags: u32, address: u64, offset: u64, bytes: u64 }
    Close { handle: u32, pad: u32 }
    Op { handle: u32, op: u32, value: u64 }
    Userptr { address: u64, bytes: u64, flags: u32, handle: u32 }
    /// In: the handle, flags, a timeout. Out: whether it is in use, where it lies.
    WaitIdle { handle: u32, flags: u32, timeout: u64 }
    Metadata { handle: u32, op: u32, flags: u64, tiling: u64, bytes: u32, data: [u32; 64], pad: u32 }
}

pub const GTT: u64 = 2;
pub const VRAM: u64 = 4;
const CPU_ACCESS: u64 = 1 << 0;
const NO_CPU_ACCESS: u64 = 1 << 1;
/// Of this process's address space alone.
const ALWAYS_VALID: u64 = 1 << 6;

const WRITEABLE: u32 = 1 << 2;
const PRT: u32 = 1 << 4;

/// What the host can see of the card's memory: a BAR that was not resized.
pub const VISIBLE_BYTES: u64 = 256 << 20;

/// A buffer.
pub struct Gem {
    pub vm: &'static Vm,
    /// None for memory of the program's own.
    backing: Option<Backing>,
    /// Where the card finds it.
    pub host: u64,
    /// Its size.
    pub bytes: u64,
    pub create: Create,
    /// It counts as a part of [`VISIBLE_BYTES`].
    visible: bool,
    /// The last job that was submitted before it was there.
    pub born: u64,
    /// What the program keeps with it.
    metadata: Mutex<Option<Metadata>>,
}

impl Drop for Gem {
    fn drop(&mut self) {
        if let Some(backing) = &self.backing {
            self.vm.release(backing);
        }
    }
}

impl Gem {
    /// One of the card's memory, or of pinned host memory.
    pub fn new(vm: &'static Vm, backing: Backing, create: Create, born: u64) -> Self {
        let visible = backing.vram && create.flags & CPU_ACCESS != 0;
        let (host, bytes) = (backing.host, backing.bytes);
        Self { vm, backing: Some(backing), host, bytes, create, visible, born, metadata: Mutex::default() }
    }

    fn vram(&self) -> bool {
        self.backing.as_ref().is_some_and(|backing| backing.vram)
    }

    fn metadata(&self, a: &mut Metadata) -> Result<()> {
        let mut kept = self.metadata.lock().unwrap_or_else(PoisonError::into_inner);
        match a.op {
            1 if a.bytes as usize > size_of_val(&a.data) => return Err(Errno::INVALID),
            1 => *kept = Some(*a),
            2 => {
                let none = Metadata { flags: 0, tiling: 0, bytes: 0, data: [0; 64], ..*a };
                *a = Metadata { handle: a.handle, op: a.op, ..kept.unwrap_or(none) };
            }
            _ => {}
        }
        Ok(())
    }

    /// Its memory, if others may have it.
    pub fn shareable(&self) -> Option<&Backing> {
        self.backing.as_ref().filter(|_| self.create.flags & ALWAYS_VALID == 0)
    }
}

struct Mapping {
    bytes: u64,
    offset: u64,
    readonly: bool,
    gem: Arc<Gem>,
}

/// What the card sees otherwise when jobs have ended.
pub struct Change {
    /// The last job that keeps it waiting.
    after: u64,
    /// The last job submitted before: later ones wait for what is shown.
    pub before: u64,
    base: u64,
    bytes: u64,
    /// None: it is hidden.
    pub shown: Option<Region>,
    /// Kept until then.
    _gem: Arc<Gem>,
}

#[derive(Default)]
pub struct Table {
    gems: Handles<Gem>,
    /// By address.
    mappings: BTreeMap<u64, Mapping>,
    /// In the order of the requests, which is the order in which they are done.
    pub changes: Vec<Change>,
    pub last_job: u64,
    pub jobs: BTreeSet<u64>,
    /// Jobs of these that are being executed.
    pub running: BTreeSet<u64>,
    /// A buffer is on its way to another file: jobs later than this one, which may use it, do not start.
    pub moving: Option<u64>,
    /// Buffers that have descriptors, by device and inode.
    pub files: BTreeMap<(u64, u64), Weak<Gem>>,
}

/// All buffers of a process.
#[derive(Default)]
pub struct Gems {
    table: Mutex<Table>,
}

impl Table {
    /// The handle of a buffer, a new one if it has none.
    pub fn handle_of(&mut self, gem: Arc<Gem>) -> u32 {
        let found = self.gems.find(&gem);
        found.unwrap_or_else(|| self.gems.insert_shared(gem))
    }

    fn gem(&self, handle: u32) -> Result<&Arc<Gem>> {
        self.gems.get(handle).ok_or(Errno(libc::ENOENT))
    }

    fn visible(&self) -> u64 {
        self.gems.values().filter(|gem| gem.visible).map(|gem| gem.bytes).sum()
    }

    /// Hides a mapping, now or when the jobs that may use it have ended.
    fn hide(&mut self, vm: &Vm, base: u64, bytes: u64, gem: Arc<Gem>) {
        if self.jobs.is_empty() {
            vm.hide_range(base, bytes);
        } else {
            let (after, before) = (self.last_job, self.last_job);
            self.changes.push(Change { after, before, base, bytes, shown: None, _gem: gem });
        }
    }

    /// Does what waited for jobs before the `oldest`.
    pub fn change(&mut self, vm: &Vm, oldest: u64) {
        for change in self.changes.extract_if(.., |change| change.after < oldest) {
            match change.shown {
                None => vm.hide_range(change.base, change.bytes),
                Some(region) => {
                    if vm.show(region).is_err() {
                        log!("no room for a mapping at {:#x}", change.base);
                    }
                }
            }
        }
    }

    /// Takes these addresses out of the mappings; parts of mappings around them stay.
    fn clear(&mut self, vm: &Vm, base: u64, bytes: u64) {
        let last = base + (bytes - 1);
        let touched: Vec<u64> = self
            .mappings
            .range(..=last)
            .rev()
            .take_while(|(at, mapping)| *at + (mapping.bytes - 1) >= base)
            .map(|(at, _)| *at)
            .collect();
        for at in touched {
            let Some(Mapping { bytes, offset, readonly, gem }) = self.mappings.remove(&at) else { continue };
            let part = |from: u64, to: u64| Mapping {
                bytes: to - from + 1,
                offset: offset + (from - at),
                readonly,
                gem: Arc::clone(&gem),
            };
            let end = at + (bytes - 1);
            if at < base {
                self.mappings.insert(at, part(at, base - 1));
            }
            if end > last {
                self.mappings.insert(last + 1, part(last + 1, end));
            }
            let (from, to) = (at.max(base), end.min(last));
            self.hide(vm, from, to - from + 1, gem);
        }
    }

    fn map(&mut self, vm: &Vm, base: u64, mapping: Mapping) -> Result<()> {
        let last = base + (mapping.bytes - 1);
        let taken = self.mappings.range(..=last).next_back();
        if taken.is_some_and(|(at, there)| *at + (there.bytes - 1) >= base) {
            return Err(Errno::INVALID);
        }
        let region = Region {
            base,
            bytes: mapping.bytes,
            token: mapping.gem.host + mapping.offset,
            // What ROCm calls fine-grained there is not: Vulkan's memory is not used by both sides at once.
            coherent: false,
            host: false,
            readonly: mapping.readonly,
        };
        // Jobs that were submitted before see what was there; those submitted from here on wait for them.
        let earlier = self.changes.iter().filter(|c| c.base <= last && c.base + (c.bytes - 1) >= base);
        match earlier.map(|change| change.after).max() {
            None => vm.show(region)?,
            Some(after) => self.changes.push(Change {
                after,
                before: self.last_job,
                base,
                bytes: mapping.bytes,
                shown: Some(region),
                _gem: Arc::clone(&mapping.gem),
            }),
        }
        self.mappings.insert(base, mapping);
        Ok(())
    }
}

/// Where buffers may be seen: libdrm hands out these addresses, DEV_INFO tells them.
pub const LOW: [u64; 2] = [0x20_0000, 1 << 47];
/// See [`LOW`].
pub const HIGH: [u64; 2] = [0xffff_8000_0000_0000, 0xffff_ffff_ffe0_0000];

impl Gems {
    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By its handle.
    pub fn get(&self, handle: u32) -> Result<Arc<Gem>> {
        self.table().gem(handle).cloned()
    }

    /// Bytes of visible memory in use.
    pub fn visible(&self) -> u64 {
        self.table().visible()
    }

    /// Buffers, and their bytes, that are there.
    pub fn left(&self) -> (u64, u64) {
        let table = self.table();
        let mapped = table.mappings.values().map(|mapping| &mapping.gem);
        let all: BTreeMap<_, _> =
            table.gems.values().chain(mapped).map(|gem| (Arc::as_ptr(gem), gem.bytes)).collect();
        (all.len() as u64, all.values().sum())
    }

    /// Closes all that there is.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn clear(&self, vm: &Vm) {
        let handles = self.table().gems.handles();
        handles.into_iter().for_each(|handle| self.close(vm, handle).expect("its own handle"));
    }

    fn create(&self, vm: &'static Vm, a: &mut Create) -> Result<()> {
        let create = *a;
        let bytes =
            a.bytes.checked_next_multiple_of(PAGE).filter(|bytes| *bytes > 0).ok_or(Errno::INVALID)?;
        if a.domains & (GTT | VRAM) == 0 || a.domains & !(GTT | VRAM) != 0 {
            return Err(Errno::INVALID);
        }
        let mut table = self.table();
        let wants_visible = a.flags & CPU_ACCESS != 0;
        let fits = !wants_visible || table.visible().saturating_add(bytes) <= VISIBLE_BYTES;
        let mut backing = Err(Errno::NO_MEMORY);
        if a.domains & VRAM != 0 && fits {
            backing = vm.back(bytes, true);
        }
        if backing.is_err() && a.domains & GTT != 0 {
            backing = vm.back(bytes, false);
        }
        let backing = backing?;
        let gem = Gem::new(vm, backing, Create { bytes, ..create }, table.last_job);
        let handle = table.gems.insert(gem);
        *a = Create { bytes: handle.into(), alignment: 0, domains: 0, flags: 0 };
        Ok(())
    }

    fn userptr(&self, vm: &'static Vm, a: &mut Userptr) -> Result<()> {
        if a.bytes == 0 || !a.bytes.is_multiple_of(PAGE) || !a.address.is_multiple_of(PAGE) {
            return Err(Errno::INVALID);
        }
        if !user::is_mapped(a.address, a.bytes) {
            return Err(Errno::FAULT);
        }
        let create = Create { bytes: a.bytes, alignment: PAGE, domains: GTT, flags: 0 };
        let (host, bytes, metadata) = (a.address, a.bytes, Mutex::default());
        let gem = Gem { vm, backing: None, host, bytes, create, visible: false, born: 0, metadata };
        a.handle = self.table().gems.insert(gem);
        Ok(())
    }

    fn close(&self, vm: &Vm, handle: u32) -> Result<()> {
        let mut table = self.table();
        let gem = table.gems.remove(handle).ok_or(Errno::INVALID)?;
        let of_it = |(at, m): (&u64, &Mapping)| Arc::ptr_eq(&m.gem, &gem).then_some((*at, m.bytes));
        let mapped: Vec<(u64, u64)> = table.mappings.iter().filter_map(of_it).collect();
        for (base, bytes) in mapped {
            table.mappings.remove(&base);
            table.hide(vm, base, bytes, Arc::clone(&gem));
        }
        Ok(())
    }

    fn va(&self, vm: &Vm, a: &Va) -> Result<()> {
        let base = canonical(a.address);
        let last = base.checked_add(a.bytes.wrapping_sub(1)).ok_or(Errno::INVALID)?;
        let inside = |[from, end]: [u64; 2]| base >= from && last < end;
        let whole = [base, a.bytes, a.offset].iter().all(|value| value.is_multiple_of(PAGE));
        if a.bytes == 0 || !whole || !(inside(LOW) || inside(HIGH)) {
            return Err(Errno::INVALID);
        }
        let mut table = self.table();
        match a.operation {
            // Map, or replace what is there. Without a buffer: a place for parts of a sparse one.
            1 | 4 if a.flags & PRT != 0 && a.handle == 0 => {
                table.clear(vm, base, a.bytes);
                Ok(())
            }
            operation @ (1 | 4) => {
                let gem = Arc::clone(table.gem(a.handle)?);
                if a.offset.checked_add(a.bytes).is_none_or(|end| end > gem.bytes) {
                    return Err(Errno::INVALID);
                }
                if operation == 4 {
                    table.clear(vm, base, a.bytes);
                }
                let readonly = a.flags & WRITEABLE == 0;
                table.map(vm, base, Mapping { bytes: a.bytes, offset: a.offset, readonly, gem })
            }
            2 if a.flags & PRT != 0 && a.handle == 0 => Ok(()),
            2 => {
                let gem = Arc::clone(table.gem(a.handle)?);
                let there = table.mappings.get(&base).filter(|mapping| Arc::ptr_eq(&mapping.gem, &gem));
                let bytes = there.ok_or(Errno(libc::ENOENT))?.bytes;
                table.mappings.remove(&base);
                table.hide(vm, base, bytes, gem);
                Ok(())
            }
            3 => {
                table.clear(vm, base, a.bytes);
                Ok(())
            }
            _ => Err(Errno::INVALID),
        }
    }

    /// Does a request about buffers; none where it is about something else.
    ///
    /// # Safety
    /// What the request answers is written where the program said: nothing of ours lies there.
    pub unsafe fn ioctl(
        &self,
        vm: &'static Vm,
        changes: &Changes,
        number: u32,
        at: Argument,
    ) -> Option<Result<()>> {
        // SAFETY: the caller's promise, handed on.
        Some(unsafe {
            match number {
                0x09 => call(Argument { answered: false, ..at }, |a: &mut Close| self.close(vm, a.handle)),
                0x40 => call(at, |a| self.create(vm, a)),
                0x41 => call(at, |a: &mut Mmap| {
                    let gem = self.get(a.handle as u32)?;
                    if gem.create.flags & NO_CPU_ACCESS != 0 {
                        return Err(Errno(libc::EPERM));
                    }
                    a.handle = gem.backing.as_ref().ok_or(Errno(libc::EPERM))?.offset;
                    Ok(())
                }),
                // Tiling and the like, which the program alone knows to read.
                0x46 => call(at, |a: &mut Metadata| self.get(a.handle)?.metadata(a)),
                0x47 => call(at, |a: &mut WaitIdle| {
                    let gem = self.get(a.handle)?;
                    // Of which job it is is not kept: all that were submitted.
                    let deadline = i64::try_from(a.timeout).unwrap_or(i64::MAX);
                    let idle = changes.wait(deadline, || self.is_idle());
                    (a.handle, a.flags) = (u32::from(!idle), if gem.vram() { VRAM } else { GTT } as u32);
                    Ok(())
                }),
                0x48 => call(Argument { answered: false, ..at }, |a: &mut Va| self.va(vm, a)),
                0x50 => call(at, |a: &mut Op| {
                    let gem = self.get(a.handle)?;
                    if a.op != 0 {
                        return Err(Errno::INVALID);
                    }
                    user::write_bytes(a.value, user::bytes_of(&[gem.create]))
                }),
                0x51 => call(at, |a| self.userptr(vm, a)),
                _ => return None,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use wave32_exec::Memory;

    use super::*;

    const AT: u64 = 1 << 40;

    fn created(gems: &Gems, vm: &'static Vm) -> u32 {
        let mut create = Create { bytes: PAGE, alignment: PAGE, domains: VRAM, flags: 0 };
        gems.create(vm, &mut create).unwrap();
        create.bytes as u32
    }

    fn map(gems: &Gems, vm: &Vm, handle: u32) {
        let operation = 1;
        let va = Va { handle, pad: 0, operation, flags: WRITEABLE, address: AT, offset: 0, bytes: PAGE };
        gems.va(vm, &va).unwrap();
    }

    fn seen(vm: &Vm) -> Option<u64> {
        vm.region(AT).map(|region| region.token)
    }

    #[test]
    fn a_job_sees_what_was_mapped_when_it_was_submitted() {
        // SAFETY: makes a descriptor, which the test leaves open.
        let file =
            unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        let vm: &'static Vm = Box::leak(Box::new(Vm::new(file, 1 << 20, 1 << 20).unwrap()));
        let gems: &'static Gems = Box::leak(Box::default());
        let first = created(gems, vm);
        map(gems, vm, first);
        let before = seen(vm);
        let job = gems.begin(vm);
        gems.close(vm, first).unwrap();
        let second = created(gems, vm);
        map(gems, vm, second);
        let next = gems.begin(vm);
        assert_eq!(seen(vm), before, "the job may read it still");
        assert!(job.start() && !next.start());
        drop(job);
        assert!(next.start());
        assert_eq!(seen(vm), Some(gems.get(second).unwrap().host));
        gems.close(vm, second).unwrap();
        assert_ne!(seen(vm), None);
        drop(next);
        assert_eq!((seen(vm), gems.left()), (None, (0, 0)));
    }
}
