//! Memory for modelled launches: code and arguments are real, tensors are addresses only.

use wave32_exec::{HeapMemory, Memory, Region};

/// Where tensors lie: far from what the heap hands out, below what 30 bits of 128-byte lines reach.
const TENSORS: u64 = 1 << 36;
/// Between tensors, so that an access outside faults.
const GAP: u64 = 1 << 20;

/// Loads from tensors give the same 16 bits everywhere, stores to them are dropped: a convolution kernel goes the same
/// way whatever its numbers are, so that a 10 GB problem needs no 10 GB.
#[derive(Debug)]
pub struct Tensors {
    /// Code and arguments.
    pub heap: HeapMemory,
    tensors: Vec<Region>,
    bits: [u8; 2],
}

impl Tensors {
    /// Tensors of which every 16 bits are `bits`.
    pub fn new(bits: u16) -> Self {
        Self { heap: HeapMemory::new(), tensors: Vec::new(), bits: bits.to_le_bytes() }
    }

    /// A tensor; returns its address.
    pub fn add(&mut self, bytes: u64) -> u64 {
        let end = self.tensors.last().map_or(TENSORS, |r| r.base + r.bytes);
        let base = end.next_multiple_of(GAP) + GAP;
        let token = u64::MAX;
        self.tensors.push(Region { base, bytes, token, coherent: false, host: false, readonly: false });
        base
    }
}

impl Memory for Tensors {
    fn generation(&self) -> u64 {
        self.heap.generation() + self.tensors.len() as u64
    }

    fn region(&self, addr: u64) -> Option<Region> {
        if addr < TENSORS {
            return self.heap.region(addr);
        }
        self.tensors.iter().find(|r| r.holds(addr, 1)).copied()
    }

    fn read(&self, region: &Region, addr: u64, out: &mut [u8]) {
        if region.base < TENSORS {
            return self.heap.read(region, addr, out);
        }
        for (i, byte) in out.iter_mut().enumerate() {
            *byte = self.bits[(addr as usize + i) % 2];
        }
    }

    fn write(&self, region: &Region, addr: u64, bytes: &[u8]) {
        if region.base < TENSORS {
            self.heap.write(region, addr, bytes);
        }
    }

    fn update32(&self, region: &Region, addr: u64, f: impl Fn(u32) -> u32) -> u32 {
        if region.base < TENSORS {
            return self.heap.update32(region, addr, f);
        }
        let [low, high] = self.bits;
        u32::from_le_bytes([low, high, low, high])
    }

    fn update64(&self, region: &Region, addr: u64, f: impl Fn(u64) -> u64) -> u64 {
        if region.base < TENSORS {
            return self.heap.update64(region, addr, f);
        }
        let [low, high] = self.bits;
        u64::from_le_bytes([low, high, low, high, low, high, low, high])
    }
}
