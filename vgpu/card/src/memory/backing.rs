//! Memory without an address, and addresses that come to mean it: what the render node's buffers are made of.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use wave32_exec::Region;

use super::{FreedMapping, Vm, count, lock, map};
use crate::errno::{Errno, Result};

/// Bytes of the card's own or of pinned host memory: where they lie in the file, and where the card finds them.
#[derive(Debug)]
pub struct Backing {
    /// In the file, where the program maps them.
    pub offset: u64,
    /// The card's own mapping.
    pub host: u64,
    /// How many.
    pub bytes: u64,
    /// Of the card's own memory.
    pub vram: bool,
}

impl Vm {
    /// Bytes that no address of the card's means yet.
    pub fn back(&self, bytes: u64, vram: bool) -> Result<Backing> {
        let offset = self.reserve(bytes, vram)?;
        let host = map(self.file, offset, bytes)
            .inspect_err(|_| count(&mut lock(&self.table), vram, bytes, false))?;
        Ok(Backing { offset, host, bytes, vram })
    }

    /// Gives them back, once no kernel runs.
    pub fn release(&self, backing: &Backing) {
        count(&mut lock(&self.table), backing.vram, backing.bytes, false);
        let &Backing { offset, host, bytes, .. } = backing;
        self.close_file(offset);
        lock(&self.freed).push(FreedMapping { address: host, bytes, offset });
        if self.users.load(Ordering::Acquire) == 0 {
            self.unmap_freed();
        }
    }

    /// Bytes in use: of the card's memory, of the host's.
    pub fn used(&self) -> [u64; 2] {
        let table = lock(&self.table);
        [table.vram_used, table.host_used]
    }

    /// Bytes that there are: of the card's memory, of the host's.
    pub fn sizes(&self) -> [u64; 2] {
        [self.vram_bytes, self.host_bytes]
    }

    /// Lets the card see it; refused where something is there.
    pub fn show(&self, region: Region) -> Result<()> {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        // The last address of all may be a region's last.
        let last = region.base + (region.bytes - 1);
        if regions.range(..=last).next_back().is_some_and(|(_, r)| r.base + (r.bytes - 1) >= region.base) {
            return Err(Errno::INVALID);
        }
        regions.insert(region.base, region);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Hides these addresses; what lies around them in the same region stays.
    pub fn hide_range(&self, base: u64, bytes: u64) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let last = base + (bytes - 1);
        let touched: Vec<Region> = regions
            .range(..=last)
            .rev()
            .map(|(_, region)| *region)
            .take_while(|region| region.base + (region.bytes - 1) >= base)
            .collect();
        for region in touched {
            regions.remove(&region.base);
            if region.base < base {
                regions.insert(region.base, Region { bytes: base - region.base, ..region });
            }
            let end = region.base + (region.bytes - 1);
            if end > last {
                let behind = last + 1 - region.base;
                let rest = Region {
                    base: last + 1,
                    bytes: region.bytes - behind,
                    token: region.token + behind,
                    ..region
                };
                regions.insert(rest.base, rest);
            }
        }
        self.generation.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wave32_exec::Memory;

    #[test]
    fn what_is_hidden_in_the_middle_leaves_both_ends() {
        // SAFETY: makes a descriptor, which the test leaves open.
        let file =
            unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        let vm = Vm::new(file, 1 << 20, 1 << 20).unwrap();
        let backing = vm.back(1 << 16, true).unwrap();
        assert_eq!(vm.used(), [1 << 16, 0]);
        let high = 0xffff_8001_0000_0000;
        let region = Region {
            base: high,
            bytes: 1 << 16,
            token: backing.host,
            coherent: false,
            host: false,
            readonly: false,
        };
        vm.show(region).unwrap();
        assert_eq!(
            vm.show(Region { base: high + 0xf000, ..region }),
            Err(Errno::INVALID),
            "something is there"
        );
        vm.hide_range(high + 0x4000, 0x2000);
        assert_eq!(vm.region(high).map(|r| (r.base, r.bytes)), Some((high, 0x4000)));
        assert_eq!(vm.region(high + 0x4000), None);
        let rest = vm.region(high + 0x6000).unwrap();
        assert_eq!((rest.base, rest.bytes, rest.token), (high + 0x6000, 0xa000, backing.host + 0x6000));
        // For an address of 48 bits the region has such a base.
        let short = high & 0xffff_ffff_ffff;
        assert_eq!(vm.region(short + 0x6010).map(|r| r.base), Some(short + 0x6000));
        vm.hide_range(high, 1 << 16);
        assert!(vm.region(high + 0x6000).is_none());
        vm.release(&backing);
        assert_eq!(vm.used(), [0, 0]);
    }
}
