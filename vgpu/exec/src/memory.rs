//! What waves load from and store to.

/// An allocation, as a wave sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// First address on the GPU.
    pub base: u64,
    /// Its size.
    pub bytes: u64,
    /// The implementation's own, to find the bytes again.
    pub token: u64,
    /// Fine-grained: coherent with the host while a kernel runs. RDNA1 boards have no aperture for device access to it
    /// without PCIe atomics.
    pub coherent: bool,
    /// In host memory.
    pub host: bool,
    /// Not to be written.
    pub readonly: bool,
}

impl Region {
    /// Whether all of `bytes` at `addr` lie in it.
    pub fn holds(&self, addr: u64, bytes: u64) -> bool {
        addr >= self.base && addr - self.base <= self.bytes && self.bytes - (addr - self.base) >= bytes
    }
}

/// The GPU's view of memory. Waves of several threads use it at once; accesses that race are the program's, and single
/// naturally aligned accesses of up to 8 bytes are never torn.
pub trait Memory: Sync {
    /// Changes whenever an allocation comes or goes: what was remembered of regions is then void.
    fn generation(&self) -> u64;

    /// The allocation that holds `addr`.
    fn region(&self, addr: u64) -> Option<Region>;

    /// Reads; the caller has checked the range against the region.
    fn read(&self, region: &Region, addr: u64, out: &mut [u8]);

    /// Writes; the caller has checked the range against the region.
    fn write(&self, region: &Region, addr: u64, bytes: &[u8]);

    /// Replaces the dword at `addr` (4-aligned) atomically by `f` of it; returns what it was.
    fn update32(&self, region: &Region, addr: u64, f: impl Fn(u32) -> u32) -> u32;

    /// Replaces the 64 bits at `addr` (8-aligned) atomically by `f` of them; returns what they were.
    fn update64(&self, region: &Region, addr: u64, f: impl Fn(u64) -> u64) -> u64;
}
