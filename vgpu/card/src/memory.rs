//! What the card's addresses mean: buffers, where their bytes lie, and [`wave32_exec::Memory`] over them.
//!
//! Buffers of the card's own memory and of pinned host memory lie in one sparse memory file, each at offsets of its own:
//! the runtime maps them from its render node, which is that file. The card uses a second mapping of each, so that the
//! runtime's own may stay inaccessible, as it is for the memory of a real board without a large BAR.

mod backing;
mod own;

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use wave32_exec::{Memory, Region};

use crate::errno::{Errno, Result};
use crate::events::Fault;
use crate::user::{PAGE, is_mapped};

pub use backing::Backing;
pub use own::{map_raw, memory_file, memory_file_named, reopen};

/// Flags of `AMDKFD_IOC_ALLOC_MEMORY_OF_GPU`.
pub mod flags {
    pub const VRAM: u32 = 1 << 0;
    pub const USERPTR: u32 = 1 << 2;
    pub const DOORBELL: u32 = 1 << 3;
    pub const MMIO_REMAP: u32 = 1 << 4;
    pub const COHERENT: u32 = 1 << 26;
    pub const WRITABLE: u32 = 1 << 31;
}

/// Where the doorbells lie in the file; the runtime masks this with 32 bits before it knows their size.
pub const DOORBELL_OFFSET: u64 = 0;
/// 1024 doorbells of 8 bytes.
pub const DOORBELL_BYTES: u64 = 8192;
const MMIO_OFFSET: u64 = 1 << 20;
const MMIO_BYTES: u64 = PAGE;
const FIRST_BUFFER_OFFSET: u64 = 1 << 32;
/// Sparse, so that this costs nothing: 128 TiB of offsets, never handed out twice.
const FILE_BYTES: u64 = 1 << 47;

/// What the card may see: all of a process's address space, but the page of null pointers.
pub const FIRST_ADDRESS: u64 = PAGE;
/// See [`FIRST_ADDRESS`].
pub const END_OF_ADDRESSES: u64 = 1 << 47;

#[derive(Debug, Clone, Copy)]
struct Buffer {
    region: Region,
    flags: u32,
    /// In the file; none for memory of the program's own.
    offset: Option<u64>,
    mapped: bool,
}

/// A mapping that may still be in use by a kernel that runs.
struct FreedMapping {
    address: u64,
    bytes: u64,
    offset: u64,
}

#[derive(Default)]
struct Table {
    buffers: BTreeMap<u64, Buffer>,
    next_handle: u64,
    next_offset: u64,
    vram_used: u64,
    host_used: u64,
}

/// All memory of one process's card.
pub struct Vm {
    file: RawFd,
    vram_bytes: u64,
    /// What may be pinned of the machine's memory.
    host_bytes: u64,
    doorbells: u64,
    table: Mutex<Table>,
    /// What is mapped for the card, by address.
    regions: RwLock<BTreeMap<u64, Region>>,
    generation: AtomicU64,
    users: AtomicUsize,
    freed: Mutex<Vec<FreedMapping>>,
    /// Buffers that lie in files of their own.
    own: RwLock<own::Owns>,
}

/// While one is held no mapping of the card's goes away.
pub struct InUse<'a>(&'a Vm);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        if self.0.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.unmap_freed();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a buffer's bytes in or out.
fn count(table: &mut Table, vram: bool, bytes: u64, more: bool) {
    let used = if vram { &mut table.vram_used } else { &mut table.host_used };
    *used = if more { *used + bytes } else { *used - bytes };
}

impl Vm {
    /// A card's memory over a new file, which the caller keeps open.
    pub fn new(file: RawFd, vram_bytes: u64, host_bytes: u64) -> Result<Self> {
        // SAFETY: no memory is involved.
        if unsafe { libc::ftruncate(file, FILE_BYTES as libc::off_t) } != 0 {
            return Err(Errno::last());
        }
        // A program that cut it short would take the pages away under the card. Kernels without seals do without.
        // SAFETY: as above.
        unsafe {
            libc::fcntl(file, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL)
        };
        let doorbells = map(file, DOORBELL_OFFSET, DOORBELL_BYTES)?;
        Ok(Self {
            file,
            vram_bytes,
            host_bytes,
            doorbells,
            table: Mutex::new(Table { next_offset: FIRST_BUFFER_OFFSET, next_handle: 1, ..Table::default() }),
            regions: RwLock::default(),
            generation: AtomicU64::new(1),
            users: AtomicUsize::new(0),
            freed: Mutex::default(),
            own: RwLock::default(),
        })
    }

    /// The card's memory that is left.
    pub fn available(&self) -> u64 {
        self.vram_bytes - lock(&self.table).vram_used
    }

    /// A new buffer at `address` of the card; of `USERPTR` ones `host` is where the program has it. Handle and offset in
    /// the file.
    pub fn allocate(&self, address: u64, bytes: u64, host: u64, flags: u32) -> Result<(u64, u64)> {
        if bytes == 0
            || !bytes.is_multiple_of(PAGE)
            || !address.is_multiple_of(PAGE)
            || address.checked_add(bytes).is_none()
        {
            return Err(Errno::INVALID);
        }
        let vram = flags & flags::VRAM != 0;
        let own = flags & (flags::USERPTR | flags::DOORBELL | flags::MMIO_REMAP);
        if u32::from(vram) + own.count_ones() > 1 {
            return Err(Errno::INVALID);
        }
        match own {
            flags::USERPTR if !host.is_multiple_of(PAGE) => return Err(Errno::INVALID),
            flags::USERPTR if !is_mapped(host, bytes) => return Err(Errno::FAULT),
            flags::DOORBELL if bytes > DOORBELL_BYTES => return Err(Errno::INVALID),
            flags::MMIO_REMAP if bytes > MMIO_BYTES => return Err(Errno::INVALID),
            _ => {}
        }
        let offset = match own {
            flags::USERPTR => None,
            flags::DOORBELL => Some(DOORBELL_OFFSET),
            flags::MMIO_REMAP => Some(MMIO_OFFSET),
            _ => Some(self.reserve(bytes, vram)?),
        };
        let token = match offset {
            None => host,
            Some(offset) => map(self.file, offset, bytes).inspect_err(|_| {
                if own == 0 {
                    count(&mut lock(&self.table), vram, bytes, false);
                }
            })?,
        };
        let region = Region {
            base: address,
            bytes,
            token,
            coherent: flags & flags::COHERENT != 0,
            host: !vram,
            readonly: flags & flags::WRITABLE == 0,
        };
        let mut table = lock(&self.table);
        let handle = table.next_handle;
        table.next_handle += 1;
        table.buffers.insert(handle, Buffer { region, flags, offset, mapped: false });
        Ok((handle, offset.unwrap_or(host)))
    }

    /// A place in the file, if there is so much of the card's memory, or of the machine's.
    fn reserve(&self, bytes: u64, vram: bool) -> Result<u64> {
        let mut table = lock(&self.table);
        let left = if vram { self.vram_bytes - table.vram_used } else { self.host_bytes - table.host_used };
        let offset = table.next_offset;
        // A page between, so that no access runs from one into the next.
        let next = offset.checked_add(bytes).and_then(|end| end.checked_add(PAGE));
        table.next_offset =
            next.filter(|next| bytes <= left && *next <= FILE_BYTES).ok_or(Errno::NO_MEMORY)?;
        count(&mut table, vram, bytes, true);
        Ok(offset)
    }

    /// Frees it. A kernel that still uses it faults from now on.
    pub fn free(&self, handle: u64) -> Result<()> {
        let buffer = {
            let mut table = lock(&self.table);
            let buffer = table.buffers.remove(&handle).ok_or(Errno::INVALID)?;
            if buffer.offset.is_some_and(|offset| offset >= FIRST_BUFFER_OFFSET) {
                count(&mut table, buffer.flags & flags::VRAM != 0, buffer.region.bytes, false);
            }
            self.hide(&buffer);
            buffer
        };
        if let Some(offset) = buffer.offset {
            lock(&self.freed).push(FreedMapping {
                address: buffer.region.token,
                bytes: buffer.region.bytes,
                offset,
            });
        }
        if self.users.load(Ordering::Acquire) == 0 {
            self.unmap_freed();
        }
        Ok(())
    }

    /// Lets the card see it; whether it holds the doorbells, and where the program mapped them then. No two buffers may
    /// share an address.
    pub fn map_for_card(&self, handle: u64) -> Result<Option<u64>> {
        let mut table = lock(&self.table);
        let buffer = table.buffers.get_mut(&handle).ok_or(Errno::INVALID)?;
        let region = buffer.region;
        if !buffer.mapped {
            let end = region.base + region.bytes;
            if region.base < FIRST_ADDRESS || end > END_OF_ADDRESSES {
                return Err(Errno::INVALID);
            }
            let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
            if regions.range(..end).next_back().is_some_and(|(_, last)| last.base + last.bytes > region.base)
            {
                return Err(Errno::INVALID);
            }
            regions.insert(region.base, region);
            buffer.mapped = true;
            self.generation.fetch_add(1, Ordering::Release);
        }
        Ok((buffer.flags & flags::DOORBELL != 0).then_some(region.base))
    }

    /// Hides it from the card.
    pub fn unmap_from_card(&self, handle: u64) -> Result<()> {
        let mut table = lock(&self.table);
        let buffer = table.buffers.get_mut(&handle).ok_or(Errno::INVALID)?;
        self.hide(buffer);
        buffer.mapped = false;
        Ok(())
    }

    /// Takes it out of what the card sees, if it was there: what else has its address may be another buffer.
    fn hide(&self, buffer: &Buffer) {
        if buffer.mapped {
            self.regions.write().unwrap_or_else(PoisonError::into_inner).remove(&buffer.region.base);
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// Keeps mappings in place.
    pub fn in_use(&self) -> InUse<'_> {
        self.users.fetch_add(1, Ordering::AcqRel);
        InUse(self)
    }

    /// Returns the bytes of what was freed to the system.
    fn unmap_freed(&self) {
        let freed: Vec<FreedMapping> = {
            let mut list = lock(&self.freed);
            if self.users.load(Ordering::Acquire) != 0 {
                return;
            }
            list.drain(..).collect()
        };
        for mapping in freed {
            // SAFETY: it was mapped by `map` with this size, left the tables, and nobody holds `InUse`.
            unsafe { libc::munmap(mapping.address as *mut libc::c_void, mapping.bytes as usize) };
            if mapping.offset >= FIRST_BUFFER_OFFSET {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                // SAFETY: touches the file only, at offsets that nothing else uses.
                unsafe { libc::fallocate(self.file, mode, mapping.offset as i64, mapping.bytes as i64) };
            }
        }
    }

    /// The value of the doorbell in `slot`.
    pub fn doorbell(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < DOORBELL_BYTES as usize / 8);
        // SAFETY: the mapping is `DOORBELL_BYTES` long, aligned to pages, and stays as long as `self`.
        unsafe { &*(self.doorbells as *const AtomicU64).add(slot) }
    }

    /// Where the host finds `bytes` at `address`, if all of them are in one buffer.
    fn at(&self, address: u64, bytes: u64) -> Option<u64> {
        let region = self.region(address)?;
        region.holds(address, bytes).then(|| region.token + (address - region.base))
    }

    /// 64 bits at an aligned address, to be used while [`InUse`] is held.
    pub fn word64(&self, address: u64) -> Option<&AtomicU64> {
        if !address.is_multiple_of(8) {
            return None;
        }
        let at = self.at(address, 8)?;
        // SAFETY: inside a buffer's mapping, aligned as both begin at pages; it stays while the caller holds `InUse`.
        Some(unsafe { &*(at as *const AtomicU64) })
    }

    /// 32 bits at an aligned address, to be used while [`InUse`] is held.
    pub fn word32(&self, address: u64) -> Option<&AtomicU32> {
        if !address.is_multiple_of(4) {
            return None;
        }
        let at = self.at(address, 4)?;
        // SAFETY: as in `word64`.
        Some(unsafe { &*(at as *const AtomicU32) })
    }

    /// Why the card may not write there, if it may not.
    fn writable(&self, address: u64) -> std::result::Result<Region, Fault> {
        match self.region(address) {
            Some(region) if !region.readonly => Ok(region),
            found => Err(Fault { address, readonly: found.is_some() }),
        }
    }

    /// As [`Vm::word64`], to be written.
    pub fn target64(&self, address: u64) -> std::result::Result<&AtomicU64, Fault> {
        self.writable(address)?;
        self.word64(address).ok_or(Fault { address, readonly: false })
    }

    /// As [`Vm::word32`], to be written.
    pub fn target32(&self, address: u64) -> std::result::Result<&AtomicU32, Fault> {
        self.writable(address)?;
        self.word32(address).ok_or(Fault { address, readonly: false })
    }

    /// Copies out; none where not all of it is the card's to see.
    pub fn get(&self, address: u64, out: &mut [u8]) -> Option<()> {
        let region = self.region(address).filter(|region| region.holds(address, out.len() as u64))?;
        self.read(&region, address, out);
        Some(())
    }

    /// Address and bytes of all that the card sees.
    pub fn buffers(&self) -> Vec<(u64, u64)> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.values().map(|region| (region.base, region.bytes)).collect()
    }

    /// Copies within the card's memory, through buffers' ends, up to the first address that is not there or not to be
    /// written. To be used while [`InUse`] is held.
    pub fn copy(&self, to: u64, from: u64, bytes: u64) -> std::result::Result<(), Fault> {
        let left = |region: &Region, address: u64| {
            (region.token + (address - region.base), region.base + region.bytes - address)
        };
        let mut done = 0;
        while done < bytes {
            // Past the last address comes the first, at which nothing is.
            let (source, target) = (from.wrapping_add(done), to.wrapping_add(done));
            let readable = self.region(source).ok_or(Fault { address: source, readonly: false })?;
            let writable = self.writable(target)?;
            let ((read, readable), (write, writable)) = (left(&readable, source), left(&writable, target));
            let count = readable.min(writable).min(bytes - done);
            // SAFETY: both ranges lie in buffers' mappings; they may overlap, hence `copy`.
            unsafe { std::ptr::copy(read as *const u8, write as *mut u8, count as usize) };
            done += count;
        }
        Ok(())
    }

    /// Fills with dwords, up to the first address that is not there or not to be written. To be used while [`InUse`] is
    /// held.
    pub fn fill(&self, to: u64, value: u32, bytes: u64) -> std::result::Result<(), Fault> {
        for done in (0..bytes).step_by(4) {
            self.target32(to.wrapping_add(done))?.store(value, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// An address of 48 bits with its sign in the upper 16; others as they are.
pub fn canonical(address: u64) -> u64 {
    if address >> 47 == 1 { address | 0xffff << 48 } else { address }
}

/// Maps `bytes` at `offset` of the file for the card; not in children of the process.
fn map(file: RawFd, offset: u64, bytes: u64) -> Result<u64> {
    let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let at = unsafe { map_raw(0, bytes, protection, kind, file, offset) };
    if at == -1 {
        return Err(Errno::last());
    }
    // SAFETY: our own mapping; a child that inherited it would keep the file's pages alive.
    unsafe { libc::madvise(at as *mut libc::c_void, bytes as usize, libc::MADV_DONTFORK) };
    Ok(at as u64)
}

impl Memory for Vm {
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn region(&self, addr: u64) -> Option<Region> {
        // Descriptors and registers carry 48 bits of an address; the answer is in the form that was asked.
        let whole = canonical(addr);
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let (_, region) = regions.range(..=whole).next_back()?;
        region
            .holds(whole, 1)
            .then(|| Region { base: region.base.wrapping_sub(whole.wrapping_sub(addr)), ..*region })
    }

    fn read(&self, region: &Region, addr: u64, out: &mut [u8]) {
        let at = region.token + (addr - region.base);
        // SAFETY: the caller checked the range against the region, whose mapping stays while a dispatch runs. Other
        // threads may write meanwhile; aligned accesses of 4 and 8 bytes are single ones.
        unsafe {
            match out.len() {
                4 if at.is_multiple_of(4) => {
                    out.copy_from_slice(&(*(at as *const AtomicU32)).load(Ordering::Relaxed).to_ne_bytes())
                }
                8 if at.is_multiple_of(8) => {
                    out.copy_from_slice(&(*(at as *const AtomicU64)).load(Ordering::Relaxed).to_ne_bytes())
                }
                count => std::ptr::copy_nonoverlapping(at as *const u8, out.as_mut_ptr(), count),
            }
        }
    }

    fn write(&self, region: &Region, addr: u64, bytes: &[u8]) {
        let at = region.token + (addr - region.base);
        // SAFETY: as in `read`.
        unsafe {
            match *bytes {
                [a, b, c, d] if at.is_multiple_of(4) => {
                    (*(at as *const AtomicU32)).store(u32::from_ne_bytes([a, b, c, d]), Ordering::Relaxed)
                }
                [a, b, c, d, e, f, g, h] if at.is_multiple_of(8) => (*(at as *const AtomicU64))
                    .store(u64::from_ne_bytes([a, b, c, d, e, f, g, h]), Ordering::Relaxed),
                _ => std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()),
            }
        }
    }

    fn update32(&self, region: &Region, addr: u64, f: impl Fn(u32) -> u32) -> u32 {
        // SAFETY: as in `read`; the caller keeps the alignment.
        let word = unsafe { &*((region.token + (addr - region.base)) as *const AtomicU32) };
        word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(f(old))).unwrap_or_else(|old| old)
    }

    fn update64(&self, region: &Region, addr: u64, f: impl Fn(u64) -> u64) -> u64 {
        // SAFETY: as in `update32`.
        let word = unsafe { &*((region.token + (addr - region.base)) as *const AtomicU64) };
        word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(f(old))).unwrap_or_else(|old| old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const BASE: u64 = 1 << 40;

    fn vm() -> Vm {
        // SAFETY: makes a descriptor, which the test leaves open.
        let file =
            unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        assert!(file >= 0);
        Vm::new(file, 64 * MIB, 64 * MIB).unwrap()
    }

    fn buffer(vm: &Vm, address: u64, bytes: u64, flags: u32) -> u64 {
        let handle = vm.allocate(address, bytes, 0, flags).unwrap().0;
        vm.map_for_card(handle).unwrap();
        handle
    }

    #[test]
    fn sizes_and_places_that_make_no_sense_are_refused() {
        let vm = vm();
        let refused = |address, bytes, host, flags| vm.allocate(address, bytes, host, flags).unwrap_err();
        for (address, bytes) in
            [(BASE, 0), (BASE, 1), (BASE + 1, PAGE), (u64::MAX - 4095, PAGE), (BASE, u64::MAX - 4095)]
        {
            assert_eq!(refused(address, bytes, 0, flags::VRAM), Errno::INVALID, "{address:#x} {bytes:#x}");
        }
        assert_eq!(refused(BASE, 65 * MIB, 0, flags::VRAM), Errno::NO_MEMORY);
        for bytes in [65 * MIB, FILE_BYTES, 1 << 62, !(PAGE - 1) - BASE] {
            assert_eq!(refused(BASE, bytes, 0, flags::WRITABLE), Errno::NO_MEMORY, "{bytes:#x}");
        }
        assert_eq!(refused(BASE, 2 * DOORBELL_BYTES, 0, flags::DOORBELL), Errno::INVALID);
        assert_eq!(refused(BASE, 2 * PAGE, 0, flags::MMIO_REMAP), Errno::INVALID);
        assert_eq!(refused(BASE, PAGE, 0, flags::DOORBELL | flags::VRAM), Errno::INVALID);
        for (host, errno) in
            [(0, Errno::FAULT), (1 << 47, Errno::FAULT), (1, Errno::INVALID), (!(PAGE - 1), Errno::FAULT)]
        {
            assert_eq!(refused(BASE, PAGE, host, flags::USERPTR), errno, "{host:#x}");
        }
        assert_eq!(vm.available(), 64 * MIB, "what was refused holds nothing");
        for address in [0, LAST, LAST + PAGE, 1 << 62] {
            let (handle, _) = vm.allocate(address, 2 * PAGE, 0, 0).unwrap();
            assert_eq!(vm.map_for_card(handle), Err(Errno::INVALID), "{address:#x}");
            vm.free(handle).unwrap();
        }
    }

    const LAST: u64 = END_OF_ADDRESSES - PAGE;

    #[test]
    fn no_buffer_takes_anothers_addresses() {
        let vm = vm();
        let first = buffer(&vm, BASE, 4 * PAGE, flags::WRITABLE);
        vm.target32(BASE).unwrap().store(7, Ordering::Relaxed);
        for (address, pages) in [(0, 4), (0, 1), (1, 1), (3, 1), (3, 9), (u64::MAX, 2), (u64::MAX, 9)] {
            let address = BASE.wrapping_add(address.wrapping_mul(PAGE));
            let (other, _) = vm.allocate(address, pages * PAGE, 0, flags::WRITABLE).unwrap();
            assert_eq!(vm.map_for_card(other), Err(Errno::INVALID), "{address:#x} of {pages}");
            // Neither takes the first away.
            vm.unmap_from_card(other).unwrap();
            vm.free(other).unwrap();
            assert_eq!(vm.word32(BASE).unwrap().load(Ordering::Relaxed), 7);
        }
        let after = buffer(&vm, BASE + 4 * PAGE, PAGE, flags::WRITABLE);
        assert_eq!(vm.map_for_card(first), Ok(None), "again is no harm");
        vm.unmap_from_card(first).unwrap();
        vm.unmap_from_card(first).unwrap();
        assert!(vm.word32(BASE).is_none() && vm.word32(BASE + 4 * PAGE).is_some());
        vm.free(first).unwrap();
        vm.free(after).unwrap();
        assert_eq!((vm.free(first), vm.map_for_card(first)), (Err(Errno::INVALID), Err(Errno::INVALID)));
    }

    #[test]
    fn copies_and_fills_stop_at_what_is_not_theirs() {
        let vm = vm();
        buffer(&vm, BASE, PAGE, flags::WRITABLE);
        buffer(&vm, BASE + PAGE, PAGE, flags::WRITABLE);
        buffer(&vm, BASE + 2 * PAGE, PAGE, 0);
        let absent = |address| Err(Fault { address, readonly: false });
        let readonly = Err(Fault { address: BASE + 2 * PAGE, readonly: true });
        vm.fill(BASE, 0x0102_0304, 2 * PAGE).unwrap();
        assert_eq!(vm.fill(BASE, 5, 2 * PAGE + 4), readonly);
        assert_eq!(vm.fill(BASE + PAGE, 6, PAGE), Ok(()), "through the end of one");
        assert_eq!(vm.copy(BASE + 1, BASE + PAGE - 3, 6), Ok(()));
        let mut bytes = [0; 8];
        vm.get(BASE, &mut bytes).unwrap();
        assert_eq!(bytes, [5, 0, 0, 0, 6, 0, 0, 0]);
        assert_eq!(vm.copy(BASE, BASE + 2 * PAGE, PAGE), Ok(()));
        assert_eq!(vm.copy(BASE + 2 * PAGE, BASE, 1), readonly);
        assert_eq!(vm.copy(BASE, BASE + 2 * PAGE, PAGE + 1), absent(BASE + 3 * PAGE));
        assert_eq!(vm.fill(BASE + 2, 0, 4), absent(BASE + 2));
        for wild in [0, u64::MAX, u64::MAX - 3, 1 << 47] {
            assert_eq!(vm.copy(BASE, wild, 16), absent(wild));
            assert_eq!(vm.copy(wild, BASE, 16), absent(wild));
            assert_eq!(vm.fill(wild, 0, 16), absent(wild));
        }
    }

    #[test]
    fn the_file_cannot_be_cut_short() {
        let vm = vm();
        // SAFETY: no memory is involved.
        assert_ne!(unsafe { libc::ftruncate(vm.file, 0) }, 0);
    }
}
