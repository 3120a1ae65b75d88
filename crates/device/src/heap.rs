//! The caching allocator: blocks of large segments, reused in the order of the queue.
//!
//! Work runs in the order in which it was launched, so a block that was given back may be handed out again
//! at once: whoever gets it runs after whoever had it. Blocks are split to size and merged with their
//! neighbours when they come back. Small and large blocks live in different segments, so that a few
//! long-lived small ones do not pin large segments (the scheme of PyTorch's CUDA allocator).
//!
//! A segment's addresses are the device's own where it has such ([`Heap::add_at`]). Those that the heap makes up
//! ([`Heap::add`]) name bytes of segments and nothing else: they are not canonical on any processor we run on,
//! so a host that dereferences one faults instead of corrupting memory. They are never reused.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

/// Sizes and addresses are multiples of this: more than any device's offset alignment.
pub const ALIGN: u64 = 512;
const SMALL: u64 = 1 << 20;
const SMALL_SEGMENT: u64 = 2 << 20;
const LARGE: u64 = 10 << 20;
const LARGE_SEGMENT: u64 = 20 << 20;
const FIRST_ADDRESS: u64 = 0x0050_0000_0000_0000;

/// What the heap holds and has held, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeapStats {
    /// In blocks that are in use.
    pub allocated: u64,
    /// Most that ever was.
    pub max_allocated: u64,
    /// In segments, used or cached.
    pub reserved: u64,
    /// Most that ever was.
    pub max_reserved: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Requests that found no room before what was cached had gone back to the driver.
    pub retries: u64,
    /// Requests of those that found no room then either.
    pub refusals: u64,
}

/// A device buffer that blocks are cut from.
#[derive(Debug, Clone, Copy)]
pub struct Segment<T> {
    base: u64,
    size: u64,
    /// What the device knows it by.
    pub buffer: T,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    size: u64,
    used: bool,
    small: bool,
    /// The block before this one in its segment, by address.
    before: Option<u64>,
}

/// The segments and their blocks.
#[derive(Debug)]
pub struct Heap<T> {
    /// By base address, ascending.
    segments: Vec<Segment<T>>,
    /// By address.
    blocks: HashMap<u64, Block>,
    /// Free blocks as (size, address), small ones first.
    free: [BTreeSet<(u64, u64)>; 2],
    next: u64,
    stats: HeapStats,
}

/// Each heap of a process has addresses of its own, so that one of a stream that is gone means nothing to the next.
static HEAPS: AtomicU64 = AtomicU64::new(0);
const HEAP_BITS: u32 = 47;

impl<T> Default for Heap<T> {
    fn default() -> Self {
        Self {
            segments: Vec::new(),
            blocks: HashMap::new(),
            free: [BTreeSet::new(), BTreeSet::new()],
            next: FIRST_ADDRESS + (HEAPS.fetch_add(1, Ordering::Relaxed) << HEAP_BITS),
            stats: HeapStats::default(),
        }
    }
}

/// The size of the block that holds `bytes`; none where that is past 64 bits.
fn rounded(bytes: u64) -> Option<u64> {
    bytes.max(1).checked_next_multiple_of(ALIGN)
}

/// The size of a new segment for a block of `bytes`; none where no device has that much.
pub fn segment_size(bytes: u64) -> Option<u64> {
    let bytes = rounded(bytes)?;
    match bytes {
        bytes if bytes <= SMALL => Some(SMALL_SEGMENT),
        bytes if bytes < LARGE => Some(LARGE_SEGMENT),
        _ => bytes.checked_next_multiple_of(SMALL_SEGMENT),
    }
}

impl<T: Copy> Heap<T> {
    /// What it holds.
    pub fn stats(&self) -> HeapStats {
        self.stats
    }

    /// The number of segments.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Blocks, used and free.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Counts a request that found no room at first.
    pub fn count_retry(&mut self) {
        self.stats.retries += 1;
    }

    /// Counts a request that found no room.
    pub fn count_refusal(&mut self) {
        self.stats.refusals += 1;
    }

    /// Forgets past peaks.
    pub fn reset_peaks(&mut self) {
        self.stats.max_allocated = self.stats.allocated;
        self.stats.max_reserved = self.stats.reserved;
    }

    /// The address of a block of at least `bytes`, if a segment has room.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = rounded(bytes)?;
        let small = bytes <= SMALL;
        let free = &mut self.free[usize::from(!small)];
        let &(size, address) = free.range((bytes, 0)..).next()?;
        free.remove(&(size, address));
        let rest = size - bytes;
        let splits = if small { rest >= ALIGN } else { rest > SMALL };
        let got = if splits { bytes } else { size };
        if splits {
            let behind = address + bytes;
            self.set_before(address + size, behind);
            self.blocks.insert(behind, Block { size: rest, used: false, small, before: Some(address) });
            self.free[usize::from(!small)].insert((rest, behind));
        }
        let block = self.blocks.get_mut(&address)?;
        (block.size, block.used) = (got, true);
        self.stats.allocated += got;
        self.stats.max_allocated = self.stats.max_allocated.max(self.stats.allocated);
        self.stats.blocks += 1;
        Some(address)
    }

    /// The block at `address`, if one starts there in the same segment, has `before` before it. (A segment's first
    /// block has none before it, also where the device put another segment right in front.)
    fn set_before(&mut self, address: u64, before: u64) {
        if let Some(block) = self.blocks.get_mut(&address).filter(|block| block.before.is_some()) {
            block.before = Some(before);
        }
    }

    /// Bytes of the block in use at `address`; 0 where none is.
    pub fn size(&self, address: u64) -> u64 {
        self.blocks.get(&address).filter(|block| block.used).map_or(0, |block| block.size)
    }

    /// Gives a block back; false where `address` is no block in use.
    pub fn give(&mut self, address: u64) -> bool {
        let Some(&Block { mut size, used: true, small, before }) = self.blocks.get(&address) else {
            return false;
        };
        self.stats.allocated -= size;
        self.stats.blocks -= 1;
        let free = &mut self.free[usize::from(!small)];
        let mut start = address;
        let behind = address + size;
        if let Some(next) = self.blocks.get(&behind).filter(|next| !next.used && next.before == Some(address))
        {
            size += next.size;
            free.remove(&(next.size, behind));
            self.blocks.remove(&behind);
        }
        let mut first = before;
        if let Some((at, previous)) =
            before.and_then(|at| Some((at, *self.blocks.get(&at)?))).filter(|(_, b)| !b.used)
        {
            free.remove(&(previous.size, at));
            self.blocks.remove(&address);
            (start, size, first) = (at, size + previous.size, previous.before);
        }
        free.insert((size, start));
        self.blocks.insert(start, Block { size, used: false, small, before: first });
        self.set_before(start + size, start);
        true
    }

    /// Adds a segment of `size` bytes, made for a block of `bytes`, as one free block, at an address of the heap's own.
    pub fn add(&mut self, bytes: u64, size: u64, buffer: T) {
        let base = self.next;
        self.next += size.next_multiple_of(SMALL_SEGMENT) + SMALL_SEGMENT;
        self.add_at(base, bytes, size, buffer);
    }

    /// As [`Heap::add`], at the device's address, a multiple of [`ALIGN`], where no other segment is.
    pub fn add_at(&mut self, base: u64, bytes: u64, size: u64, buffer: T) {
        let index = self.segments.partition_point(|segment| segment.base < base);
        self.segments.insert(index, Segment { base, size, buffer });
        let small = rounded(bytes).is_some_and(|bytes| bytes <= SMALL);
        self.blocks.insert(base, Block { size, used: false, small, before: None });
        self.free[usize::from(!small)].insert((size, base));
        self.stats.reserved += size;
        self.stats.max_reserved = self.stats.max_reserved.max(self.stats.reserved);
    }

    /// Removes every segment that has no block in use; the caller destroys their buffers.
    pub fn remove_unused(&mut self) -> Vec<T> {
        let mut removed = Vec::new();
        let Self { segments, blocks, free, stats, .. } = self;
        segments.retain(|segment| {
            let Some(&Block { size, used: false, small, .. }) = blocks.get(&segment.base) else {
                return true;
            };
            if size != segment.size {
                return true;
            }
            blocks.remove(&segment.base);
            free[usize::from(!small)].remove(&(size, segment.base));
            stats.reserved -= size;
            removed.push(segment.buffer);
            false
        });
        removed
    }

    /// Removes every segment, whatever is in use.
    pub fn remove_all(&mut self) -> Vec<T> {
        let segments = std::mem::take(&mut self.segments);
        *self = Self { next: self.next, ..Self::default() };
        segments.into_iter().map(|segment| segment.buffer).collect()
    }

    /// The segment around an address: its first byte and how many.
    pub fn span(&self, address: u64) -> Option<(u64, u64)> {
        self.find(address, 1).map(|(segment, _)| (segment.base, segment.size))
    }

    /// The blocks in use that hold a byte of these ranges.
    pub fn holders(&self, ranges: impl Iterator<Item = (u64, u64)>) -> Vec<u64> {
        let mut used: Vec<u64> = self.blocks.iter().filter(|(_, b)| b.used).map(|(&at, _)| at).collect();
        used.sort_unstable();
        let mut holders = BTreeSet::new();
        for (start, end) in ranges {
            let first = used.partition_point(|&at| at <= start).saturating_sub(1);
            let held = used[first..].iter().take_while(|&&at| at < end);
            holders.extend(held.filter(|&&at| at + self.size(at) > start));
        }
        holders.into_iter().collect()
    }

    /// The segment that holds `bytes` from `address` on, and the offset there.
    pub fn find(&self, address: u64, bytes: u64) -> Option<(&Segment<T>, u64)> {
        let index = self.segments.partition_point(|segment| segment.base <= address).checked_sub(1)?;
        let segment = &self.segments[index];
        let offset = address - segment.base;
        let end = offset.checked_add(bytes)?;
        (end <= segment.size).then_some((segment, offset))
    }
}

/// Blocks that were scratch memory of the last few operations: they rest before they are used again, so that an operation
/// which does not depend on those need not wait for its scratch memory.
#[derive(Debug, Default)]
pub struct Retired {
    /// Address and bytes, the oldest first.
    blocks: VecDeque<(u64, u64)>,
    bytes: u64,
}

impl Retired {
    /// Blocks that rest at most.
    pub const MAX_BLOCKS: usize = 3;
    /// Their bytes at most. Operations with more scratch memory take so long that waiting does not matter.
    pub const MAX_BYTES: u64 = 4 << 20;

    /// Lets a block rest; answers those that have rested.
    pub fn push(&mut self, address: u64, bytes: u64) -> impl Iterator<Item = u64> {
        let mut rested = 0;
        if bytes > Self::MAX_BYTES {
            self.blocks.push_front((address, 0));
            rested = 1;
        } else {
            self.blocks.push_back((address, bytes));
            self.bytes += bytes;
        }
        let mut left = self.bytes;
        while self.blocks.len() - rested > Self::MAX_BLOCKS || left > Self::MAX_BYTES {
            left -= self.blocks[rested].1;
            rested += 1;
        }
        self.bytes = left;
        self.blocks.drain(..rested).map(|(address, _)| address)
    }

    /// What a heap holds without them: nobody uses them.
    pub fn without(&self, stats: HeapStats) -> HeapStats {
        HeapStats {
            allocated: stats.allocated.saturating_sub(self.bytes),
            blocks: stats.blocks.saturating_sub(self.blocks.len() as u64),
            ..stats
        }
    }

    /// All of them; none rests any more.
    pub fn all(&mut self) -> impl Iterator<Item = u64> {
        self.bytes = 0;
        self.blocks.drain(..).map(|(address, _)| address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn grow(heap: &mut Heap<u64>, bytes: u64) -> u64 {
        heap.take(bytes).unwrap_or_else(|| {
            let size = segment_size(bytes).unwrap();
            heap.add(bytes, size, heap.next);
            heap.take(bytes).unwrap()
        })
    }

    /// A device that puts segments side by side, the later ones in front.
    fn grow_downwards(heap: &mut Heap<u64>, bytes: u64) -> u64 {
        heap.take(bytes).unwrap_or_else(|| {
            let size = segment_size(bytes).unwrap();
            let base = heap.segments.first().map_or(1 << 40, |first| first.base) - size;
            heap.add_at(base, bytes, size, base);
            heap.take(bytes).unwrap()
        })
    }

    #[test]
    fn blocks_are_reused_split_and_merged() {
        let mut heap = Heap::<u64>::default();
        let (a, b) = (grow(&mut heap, 1000), grow(&mut heap, 1));
        assert_eq!(b - a, 1024);
        assert_eq!(heap.stats().reserved, SMALL_SEGMENT);
        assert!(heap.give(a));
        assert_eq!(grow(&mut heap, 1024), a, "the smallest block that fits");
        assert!(heap.give(a) && heap.give(b));
        assert!(!heap.give(b), "given back twice");
        assert_eq!(heap.stats().allocated, 0);
        assert_eq!(heap.remove_unused().len(), 1, "all merged into one block again");
        assert_eq!(heap.stats().reserved, 0);
        assert!(heap.find(a, 1).is_none());
        assert!(grow(&mut heap, 1) > a, "addresses do not come back");
    }

    #[test]
    fn sizes_past_everything_are_refused() {
        assert_eq!(segment_size(u64::MAX), None);
        assert_eq!(Heap::<u64>::default().take(u64::MAX), None);
        let big = 11 << 20;
        assert_eq!(segment_size(big + 1), Some(12 << 20));
        assert_eq!(segment_size(2 << 20), Some(LARGE_SEGMENT));
    }

    #[test]
    fn blocks_rest_a_while_and_large_ones_do_not() {
        let mut retired = Retired::default();
        let mut push = |address, bytes| retired.push(address, bytes).collect::<Vec<_>>();
        assert!(push(1, 10).is_empty() && push(2, 10).is_empty() && push(3, 10).is_empty());
        assert_eq!(push(4, 10), [1]);
        assert_eq!(push(5, Retired::MAX_BYTES + 1), [5], "no room for it at all");
        assert_eq!(push(6, Retired::MAX_BYTES), [2, 3, 4], "nor for others beside this one");
        assert_eq!(push(7, 1), [6]);
        assert_eq!(retired.all().collect::<Vec<_>>(), [7]);
        assert!(retired.push(8, Retired::MAX_BYTES).next().is_none());
    }

    #[test]
    fn random_use_keeps_blocks_apart_and_leaks_nothing() {
        random_use(grow);
        random_use(grow_downwards);
    }

    fn random_use(grow: fn(&mut Heap<u64>, u64) -> u64) {
        let seed = rand::random();
        let mut random = StdRng::seed_from_u64(seed);
        let mut heap = Heap::<u64>::default();
        let mut held: Vec<(u64, u64)> = Vec::new();
        for _ in 0..4000 {
            if held.is_empty() || (held.len() < 200 && random.random_bool(0.55)) {
                let bytes = 1u64 << random.random_range(0..24);
                let bytes = random.random_range(bytes..2 * bytes);
                let address = grow(&mut heap, bytes);
                let (segment, offset) = heap.find(address, bytes).unwrap_or_else(|| panic!("seed {seed}"));
                assert!(
                    segment.base + offset == address
                        && offset + bytes <= segment.size
                        && address.is_multiple_of(ALIGN),
                    "seed {seed}"
                );
                for &(other, size) in &held {
                    assert!(address + bytes <= other || other + size <= address, "overlap, seed {seed}");
                }
                held.push((address, bytes));
            } else {
                let (address, _) = held.swap_remove(random.random_range(0..held.len()));
                assert!(heap.give(address), "seed {seed}");
            }
            if random.random_bool(0.01) {
                heap.remove_unused();
            }
        }
        assert_eq!(heap.stats().blocks, held.len() as u64);
        for (address, _) in held {
            assert!(heap.give(address), "seed {seed}");
        }
        heap.remove_unused();
        assert_eq!(
            (heap.stats().reserved, heap.stats().allocated, heap.blocks.len()),
            (0, 0, 0),
            "seed {seed}"
        );
        assert!(heap.free.iter().all(BTreeSet::is_empty), "seed {seed}");
    }
}
