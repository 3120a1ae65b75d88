//! Memory on the heap: for tests, and for models that need no driver.

use crate::{Memory, Region};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Allocations at addresses of their own, with gaps between them that fault.
#[derive(Debug, Default)]
pub struct HeapMemory {
    blocks: Vec<Block>,
    generation: u64,
}

#[derive(Debug)]
struct Block {
    region: Region,
    words: Box<[AtomicU64]>,
    live: bool,
}

/// First address handed out; the next follow with a gap of this size at least.
const GAP: u64 = 0x10_0000;

impl HeapMemory {
    /// No memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Zeroed device memory of `bytes`; returns its address (a multiple of 4096).
    pub fn alloc(&mut self, bytes: u64) -> u64 {
        self.alloc_as(bytes, |_| {})
    }

    /// Memory whose attributes `f` sets; see [`HeapMemory::alloc`].
    pub fn alloc_as(&mut self, bytes: u64, f: impl FnOnce(&mut Region)) -> u64 {
        let end = self.blocks.last().map_or(0, |b| b.region.base + b.region.bytes);
        let base = end.next_multiple_of(GAP) + GAP;
        let token = self.blocks.len() as u64;
        let mut region = Region { base, bytes, token, coherent: false, host: false, readonly: false };
        f(&mut region);
        let words = (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        self.blocks.push(Block { region, words, live: true });
        self.generation += 1;
        base
    }

    /// Device memory that holds `bytes`; returns its address.
    pub fn alloc_from(&mut self, bytes: &[u8]) -> u64 {
        let base = self.alloc(bytes.len() as u64);
        self.store(base, bytes);
        base
    }

    /// Device memory that holds `words`; returns its address.
    pub fn alloc_words(&mut self, words: &[u32]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.alloc_from(&bytes)
    }

    /// Ends the allocation at `base`: accesses fault from now on.
    pub fn free(&mut self, base: u64) {
        if let Some(block) = self.blocks.iter_mut().find(|b| b.region.base == base) {
            block.live = false;
            self.generation += 1;
        }
    }

    /// Writes from the host.
    ///
    /// # Panics
    /// Where no allocation holds the range.
    pub fn store(&self, addr: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let region =
            self.region(addr).filter(|r| r.holds(addr, bytes.len() as u64)).expect("a live allocation");
        self.write(&region, addr, bytes);
    }

    /// Reads from the host.
    ///
    /// # Panics
    /// Where no allocation holds the range.
    pub fn load(&self, addr: u64, bytes: usize) -> Vec<u8> {
        let region = self.region(addr).filter(|r| r.holds(addr, bytes as u64)).expect("a live allocation");
        let mut out = vec![0; bytes];
        self.read(&region, addr, &mut out);
        out
    }

    /// Reads dwords from the host; see [`HeapMemory::load`].
    pub fn load_words(&self, addr: u64, words: usize) -> Vec<u32> {
        let bytes = self.load(addr, words * 4);
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().expect("4 bytes"))).collect()
    }

    fn word(&self, region: &Region, addr: u64) -> &AtomicU64 {
        &self.blocks[region.token as usize].words[((addr - region.base) / 8) as usize]
    }
}

impl Memory for HeapMemory {
    fn generation(&self) -> u64 {
        self.generation
    }

    fn region(&self, addr: u64) -> Option<Region> {
        let after = self.blocks.partition_point(|b| b.region.base <= addr);
        let block = &self.blocks[after.checked_sub(1)?];
        (block.live && block.region.holds(addr, 1)).then_some(block.region)
    }

    #[inline]
    fn read(&self, region: &Region, addr: u64, out: &mut [u8]) {
        let offset = (addr - region.base) as usize;
        let words = &self.blocks[region.token as usize].words[offset / 8..];
        if offset.is_multiple_of(8) && out.len().is_multiple_of(8) {
            for (bytes, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                *bytes = word.load(Relaxed).to_le_bytes();
            }
            return;
        }
        let (mut at, mut rest) = (offset % 8, out);
        for word in words {
            let (now, later) = rest.split_at_mut((8 - at).min(rest.len()));
            now.copy_from_slice(&word.load(Relaxed).to_le_bytes()[at..at + now.len()]);
            if later.is_empty() {
                return;
            }
            (at, rest) = (0, later);
        }
    }

    #[inline]
    fn write(&self, region: &Region, addr: u64, bytes: &[u8]) {
        let offset = (addr - region.base) as usize;
        let words = &self.blocks[region.token as usize].words[offset / 8..];
        if offset.is_multiple_of(8) && bytes.len().is_multiple_of(8) {
            for (bytes, word) in bytes.as_chunks::<8>().0.iter().zip(words) {
                word.store(u64::from_le_bytes(*bytes), Relaxed);
            }
            return;
        }
        let (mut at, mut rest) = (offset % 8, bytes);
        for word in words {
            let (now, later) = rest.split_at((8 - at).min(rest.len()));
            let set = |old: u64| {
                let mut bytes = old.to_le_bytes();
                bytes[at..at + now.len()].copy_from_slice(now);
                Some(u64::from_le_bytes(bytes))
            };
            // Others may write the word's other bytes.
            let _ = word.fetch_update(Relaxed, Relaxed, set);
            if later.is_empty() {
                return;
            }
            (at, rest) = (0, later);
        }
    }

    fn update32(&self, region: &Region, addr: u64, f: impl Fn(u32) -> u32) -> u32 {
        let shift = addr % 8 * 8;
        let set =
            |old: u64| Some(old & !(0xffff_ffff << shift) | u64::from(f((old >> shift) as u32)) << shift);
        let old = self.word(region, addr).fetch_update(Relaxed, Relaxed, set).expect("always some");
        (old >> shift) as u32
    }

    fn update64(&self, region: &Region, addr: u64, f: impl Fn(u64) -> u64) -> u64 {
        self.word(region, addr).fetch_update(Relaxed, Relaxed, |old| Some(f(old))).expect("always some")
    }
}
