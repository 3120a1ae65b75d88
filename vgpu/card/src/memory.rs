//! What the card's addresses mean: buffers, where their bytes lie, and [`wave32_exec::Memory`] over them.
//!
//! Buffers of the card's own memory and of pinned host memory lie in one sparse memory file, each at offsets of its own:
//! the runtime maps them from its render node, which is that file. The card uses a second mapping of each, so that the
//! runtime's own may stay inaccessible, as it is for the memory of a real board without a large BAR.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use wave32_exec::{Memory, Region};

use crate::errno::{Errno, Result};

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
const FIRST_BUFFER_OFFSET: u64 = 1 << 32;
const PAGE: u64 = 4096;
/// Sparse, so that this costs nothing: 128 TiB of offsets, never handed out twice.
const FILE_BYTES: u64 = 1 << 47;

#[derive(Debug, Clone, Copy)]
struct Buffer {
    region: Region,
    flags: u32,
    /// In the file; none for memory of the program's own.
    offset: Option<u64>,
    mapped: bool,
}

/// A mapping that may still be in use by a kernel that runs.
struct Doomed {
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
}

/// All memory of one process's card.
pub struct Vm {
    file: RawFd,
    vram_bytes: u64,
    doorbells: u64,
    table: Mutex<Table>,
    /// What is mapped for the card, by address.
    regions: RwLock<BTreeMap<u64, Region>>,
    generation: AtomicU64,
    users: AtomicUsize,
    doomed: Mutex<Vec<Doomed>>,
}

/// While one is held no mapping of the card's goes away.
pub struct InUse<'a>(&'a Vm);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        if self.0.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.bury();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Vm {
    /// A card's memory over a new file, which the caller keeps open.
    pub fn new(file: RawFd, vram_bytes: u64) -> Result<Self> {
        // SAFETY: no memory is involved.
        if unsafe { libc::ftruncate(file, FILE_BYTES as libc::off_t) } != 0 {
            return Err(Errno::last());
        }
        let doorbells = map(file, DOORBELL_OFFSET, DOORBELL_BYTES)?;
        Ok(Self {
            file,
            vram_bytes,
            doorbells,
            table: Mutex::new(Table { next_offset: FIRST_BUFFER_OFFSET, next_handle: 1, ..Table::default() }),
            regions: RwLock::default(),
            generation: AtomicU64::new(1),
            users: AtomicUsize::new(0),
            doomed: Mutex::default(),
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
        let offset = {
            let mut table = lock(&self.table);
            if vram {
                if bytes > self.vram_bytes - table.vram_used {
                    return Err(Errno::NO_MEMORY);
                }
                table.vram_used += bytes;
            }
            if flags & flags::USERPTR != 0 {
                None
            } else if flags & flags::DOORBELL != 0 {
                Some(DOORBELL_OFFSET)
            } else if flags & flags::MMIO_REMAP != 0 {
                Some(MMIO_OFFSET)
            } else {
                let offset = table.next_offset;
                // A page between, so that no access runs from one into the next.
                table.next_offset += bytes + PAGE;
                Some(offset)
            }
        };
        let token = match offset {
            None => host,
            Some(offset) => match map(self.file, offset, bytes) {
                Ok(at) => at,
                Err(errno) => {
                    lock(&self.table).vram_used -= if vram { bytes } else { 0 };
                    return Err(errno);
                }
            },
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

    /// Frees it. A kernel that still uses it faults from now on.
    pub fn free(&self, handle: u64) -> Result<()> {
        let buffer = {
            let mut table = lock(&self.table);
            let buffer = table.buffers.remove(&handle).ok_or(Errno::INVALID)?;
            if buffer.flags & flags::VRAM != 0 {
                table.vram_used -= buffer.region.bytes;
            }
            buffer
        };
        self.hide(&buffer);
        if let Some(offset) = buffer.offset {
            lock(&self.doomed).push(Doomed {
                address: buffer.region.token,
                bytes: buffer.region.bytes,
                offset,
            });
        }
        if self.users.load(Ordering::Acquire) == 0 {
            self.bury();
        }
        Ok(())
    }

    /// Lets the card see it; whether it holds the doorbells, and where the program mapped them then.
    pub fn map_for_card(&self, handle: u64) -> Result<Option<u64>> {
        let mut table = lock(&self.table);
        let buffer = table.buffers.get_mut(&handle).ok_or(Errno::INVALID)?;
        buffer.mapped = true;
        let region = buffer.region;
        self.regions.write().unwrap_or_else(PoisonError::into_inner).insert(region.base, region);
        self.generation.fetch_add(1, Ordering::Release);
        Ok((buffer.flags & flags::DOORBELL != 0).then_some(region.base))
    }

    /// Hides it from the card.
    pub fn unmap_from_card(&self, handle: u64) -> Result<()> {
        let mut table = lock(&self.table);
        let buffer = table.buffers.get_mut(&handle).ok_or(Errno::INVALID)?;
        buffer.mapped = false;
        let buffer = *buffer;
        drop(table);
        self.hide(&buffer);
        Ok(())
    }

    fn hide(&self, buffer: &Buffer) {
        self.regions.write().unwrap_or_else(PoisonError::into_inner).remove(&buffer.region.base);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Keeps mappings in place.
    pub fn in_use(&self) -> InUse<'_> {
        self.users.fetch_add(1, Ordering::AcqRel);
        InUse(self)
    }

    /// Returns the bytes of what was freed to the system.
    fn bury(&self) {
        let doomed: Vec<Doomed> = {
            let mut list = lock(&self.doomed);
            if self.users.load(Ordering::Acquire) != 0 {
                return;
            }
            list.drain(..).collect()
        };
        for mapping in doomed {
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
        // SAFETY: inside a buffer's mapping, aligned; the mapping stays while the caller holds `InUse`.
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

    /// Copies out; none where not all of it is the card's to see.
    pub fn get(&self, address: u64, out: &mut [u8]) -> Option<()> {
        let region = self.region(address).filter(|region| region.holds(address, out.len() as u64))?;
        self.read(&region, address, out);
        Some(())
    }

    /// Copies within the card's memory, through buffers' ends; the first address that is not there.
    pub fn copy(&self, to: u64, from: u64, bytes: u64) -> std::result::Result<(), u64> {
        let mut done = 0;
        while done < bytes {
            let (source, target) = (from + done, to + done);
            let left = |address: u64| -> std::result::Result<(u64, u64), u64> {
                let region = self.region(address).ok_or(address)?;
                Ok((region.token + (address - region.base), region.base + region.bytes - address))
            };
            let ((read, readable), (write, writable)) = (left(source)?, left(target)?);
            let count = readable.min(writable).min(bytes - done);
            // SAFETY: both ranges lie in buffers' mappings; they may overlap, hence `copy`.
            unsafe { std::ptr::copy(read as *const u8, write as *mut u8, count as usize) };
            done += count;
        }
        Ok(())
    }

    /// Fills with dwords; the first address that is not there.
    pub fn fill(&self, to: u64, value: u32, bytes: u64) -> std::result::Result<(), u64> {
        for address in (to..to + bytes).step_by(4) {
            self.word32(address).ok_or(address)?.store(value, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Maps `bytes` at `offset` of the file for the card; not in children of the process.
fn map(file: RawFd, offset: u64, bytes: u64) -> Result<u64> {
    let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes as usize, protection, kind, file, offset as libc::off_t)
    };
    if at == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    // SAFETY: our own mapping; a child that inherited it would keep the file's pages alive.
    unsafe { libc::madvise(at, bytes as usize, libc::MADV_DONTFORK) };
    Ok(at as u64)
}

impl Memory for Vm {
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn region(&self, addr: u64) -> Option<Region> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let (_, region) = regions.range(..=addr).next_back()?;
        region.holds(addr, 1).then_some(*region)
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
