//! Graphs: work that is recorded once and submitted as often as one likes.
//!
//! While a graph is captured, nothing runs: launches, copies and fills go into command buffers of the graph's own. Blocks
//! that are taken meanwhile come from a pool of the graph's own, and nobody else ever gets them. Blocks of before that the
//! graph uses are held: one that is freed goes back to the heap only with the graph. So a replay touches no memory that has
//! become somebody else's.

use super::record::{Command, Since};
use super::slots::Slot;
use super::{Parts, Segment, VulkanQueue};
use crate::memory::Buffer;
use ash::vk;
use gpu_allocator::MemoryLocation;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use wave32_device::heap::{Heap, HeapStats};
use wave32_device::{Arg, Deadline, DeviceError, Work};
use wave32_solve::{Access, hazards::Range};

/// A graph of one queue. No other queue of the process has one of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GraphId(pub u64);

static GRAPHS: AtomicU64 = AtomicU64::new(1);

/// Replays of a graph in flight at most; the next one waits for the first of them.
const IN_FLIGHT: usize = 2;
/// Bytes of host memory for what a graph copies from the host, made when they are needed; more where one copy is longer.
const CONSTANTS: u64 = 64 << 10;

/// What a graph copies from the host: the same bytes at each replay.
#[derive(Default)]
struct Constants {
    memory: Vec<Buffer>,
    /// Bytes of the last of them.
    used: u64,
}

/// A launch that is recorded anew at each replay, with other parameters.
pub(super) struct Live {
    /// Parts of the graph that run before it.
    pub(super) behind: usize,
    pub(super) kernel: Box<str>,
    pub(super) grid: [u32; 3],
    pub(super) params: Vec<u32>,
    pub(super) args: Vec<Arg>,
    pub(super) work: Work,
}

/// The graph that is being captured.
pub(super) struct Capture {
    id: GraphId,
    /// What commands touch, and whether they write there.
    touched: Vec<(Range, bool)>,
    /// Blocks of the heap that were freed meanwhile.
    freed: Vec<u64>,
    live: Vec<Live>,
    /// Launches are live from now on.
    is_live: bool,
    constants: Constants,
    /// The slot that was open before, with nothing in it.
    before: Option<usize>,
}

struct Graph {
    parts: Vec<Slot>,
    live: Vec<Live>,
    constants: Constants,
    /// Blocks of the heap that it uses.
    held: Vec<u64>,
    /// Graphs whose pools it uses: its own, and those that made what it reads.
    pools: Vec<GraphId>,
    /// What it writes, in order and without overlaps.
    written: Vec<Range>,
    /// Timeline values of replays, the oldest first.
    replays: VecDeque<u64>,
}

/// Memory of a graph. It may outlive the graph: until its tensors are gone.
struct Pool {
    id: GraphId,
    heap: Heap<Segment>,
}

/// A block that graphs use.
#[derive(Debug, Clone, Copy, Default)]
struct Hold {
    graphs: usize,
    is_freed: bool,
}

/// All graphs of a queue and their memory.
#[derive(Default)]
pub(super) struct Graphs {
    all: HashMap<GraphId, Graph>,
    pools: Vec<Pool>,
    holds: HashMap<u64, Hold>,
    pub(super) capture: Option<Capture>,
}

impl Graphs {
    /// The heap that blocks come from: of the graph that is being captured.
    pub(super) fn heap(&mut self) -> Option<&mut Heap<Segment>> {
        self.capture.as_ref()?;
        self.pools.last_mut().map(|pool| &mut pool.heap)
    }

    pub(super) fn find(&self, address: u64, bytes: u64) -> Option<(vk::Buffer, u64)> {
        let found = self.pools.iter().find_map(|pool| pool.heap.find(address, bytes));
        found.map(|(segment, offset)| (segment.buffer.raw, offset))
    }

    /// The segment of a pool around an address.
    pub(super) fn span(&self, address: u64) -> Option<(u64, u64)> {
        self.pools.iter().find_map(|pool| pool.heap.span(address))
    }

    /// Bytes of the block in use at `address`; 0 where none is.
    pub(super) fn size(&self, address: u64) -> u64 {
        self.pools.iter().map(|pool| pool.heap.size(address)).find(|&size| size > 0).unwrap_or(0)
    }

    /// Gives a freed block to whom it belongs: a pool, or the heap, which gets what a graph uses only with the graph.
    pub(super) fn give_or(&mut self, heap: &mut Heap<Segment>, address: u64) {
        if !self.give(address) {
            heap.give(address);
        }
    }

    fn give(&mut self, address: u64) -> bool {
        if self.pools.iter_mut().any(|pool| pool.heap.give(address)) {
            return true;
        }
        if let Some(capture) = &mut self.capture {
            capture.freed.push(address);
            return true;
        }
        self.holds.get_mut(&address).map(|hold| hold.is_freed = true).is_some()
    }

    /// Notes what a command of the captured graph touches.
    pub(super) fn touch(&mut self, ranges: impl Iterator<Item = (Range, Access)>) {
        if let Some(capture) = &mut self.capture {
            capture.touched.extend(ranges.map(|(range, access)| (range, access.writes())));
        }
    }

    /// Adds the pools to what the heap holds. A pool counts as allocated as a whole: its graph uses it at each replay.
    pub(super) fn with_pools(&self, mut stats: HeapStats) -> HeapStats {
        for pool in &self.pools {
            let held = pool.heap.stats();
            stats.allocated += held.reserved;
            stats.max_allocated += held.reserved;
            stats.reserved += held.reserved;
            stats.max_reserved += held.reserved;
            stats.blocks += held.blocks;
        }
        stats
    }

    /// Command buffers of all graphs.
    pub(super) fn command_buffers(&self) -> usize {
        self.all.values().map(|graph| graph.parts.len()).sum()
    }

    /// Segments and blocks of all pools.
    pub(super) fn counts(&self) -> (usize, usize) {
        let count = |of: fn(&Heap<Segment>) -> usize| self.pools.iter().map(|pool| of(&pool.heap)).sum();
        (count(Heap::segments), count(Heap::blocks))
    }

    /// Segments that no tensor and no graph uses.
    pub(super) fn remove_unused(&mut self) -> Vec<Segment> {
        // What is being captured may use any of them.
        if self.capture.is_some() {
            return Vec::new();
        }
        let mut removed = Vec::new();
        self.pools.retain_mut(|pool| {
            let is_used = self.all.values().any(|graph| graph.pools.contains(&pool.id));
            if !is_used {
                removed.append(&mut pool.heap.remove_unused());
            }
            is_used || pool.heap.segments() > 0
        });
        removed
    }
}

/// Ranges in order, overlapping and touching ones as one.
fn merged(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut merged: Vec<Range> = Vec::new();
    for (start, end) in ranges {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

impl Parts {
    /// That nothing is captured: `what` needs work to run, and captured work does not.
    pub(super) fn not_capturing(&self, what: &str) -> Result<(), DeviceError> {
        if self.graphs.capture.is_none() {
            return Ok(());
        }
        Err(DeviceError::Misuse(format!(
            "{what} is not possible while a graph is captured: captured work has not run. Do it before or after the capture"
        )))
    }

    fn begin_capture(&mut self) -> Result<(), DeviceError> {
        self.not_capturing("another capture")?;
        if self.profile.is_on() {
            return Err(DeviceError::Misuse("a graph cannot be captured while launches are profiled".into()));
        }
        self.flush()?;
        self.give_idle();
        let id = GraphId(GRAPHS.fetch_add(1, Ordering::Relaxed));
        self.graphs.pools.push(Pool { id, heap: Heap::default() });
        self.graphs.capture = Some(Capture {
            id,
            touched: Vec::new(),
            freed: Vec::new(),
            live: Vec::new(),
            is_live: false,
            constants: Constants::default(),
            before: self.open.take(),
        });
        Ok(())
    }

    /// A part of the captured graph to record into.
    pub(super) fn open_part(&mut self) -> Result<usize, DeviceError> {
        let slot = self.slots.push_part(&self.gpu)?;
        self.slots.all[slot].begin_part(&self.gpu)?;
        Ok(slot)
    }

    /// Copies these bytes of the host at each replay.
    pub(super) fn upload_constant(&mut self, address: u64, data: &[u8]) -> Result<(), DeviceError> {
        let bytes = data.len() as u64;
        let slot = self.open(0.0)?;
        let (target, offset) = self.resolve(address, bytes)?;
        let Some(capture) = &mut self.graphs.capture else { return Ok(()) };
        let Constants { memory, used } = &mut capture.constants;
        if memory.last().is_none_or(|last| *used + bytes > last.bytes) {
            let (size, usage) = (CONSTANTS.max(bytes), vk::BufferUsageFlags::TRANSFER_SRC);
            memory.push(self.memory.create(&mut self.gpu, size, usage, MemoryLocation::CpuToGpu)?);
            *used = 0;
        }
        let at = *used;
        *used += bytes.next_multiple_of(16);
        let last = memory.last_mut().ok_or_else(super::transfer::not_mapped)?;
        let raw = last.raw;
        let mapped = last.mapped_mut().and_then(|all| all.get_mut(at as usize..(at + bytes) as usize));
        mapped.ok_or_else(super::transfer::not_mapped)?.copy_from_slice(data);
        let range = (address, address + bytes);
        self.order(Command::Transfer, [(range, Access::Write)].into_iter(), slot);
        let region = vk::BufferCopy::default().src_offset(at).dst_offset(offset).size(bytes);
        // SAFETY: recording; both ranges are of their buffers, which are different; the graph keeps the constants.
        unsafe { self.gpu.raw.cmd_copy_buffer(self.slots.all[slot].commands.buffer, raw, target, &[region]) };
        self.recorded(slot, 0.0)
    }

    /// Ends the capture.
    fn end_capture(&mut self) -> Result<GraphId, DeviceError> {
        let Some(capture) = self.graphs.capture.take() else {
            return Err(DeviceError::Misuse("no graph is being captured".into()));
        };
        let done = self.open.take().map_or(Ok(()), |slot| self.slots.all[slot].end_part(&self.gpu));
        self.open = capture.before;
        self.hazards.clear();
        self.since = Since::default();
        let held = self.heap.holders(capture.touched.iter().map(|&(range, _)| range));
        for &address in &held {
            self.graphs.holds.entry(address).or_default().graphs += 1;
        }
        let touches = |pool: &Pool| {
            let mut ranges = capture.touched.iter().map(|&((start, end), _)| (start, end - start));
            pool.id == capture.id || ranges.any(|(start, bytes)| pool.heap.find(start, bytes).is_some())
        };
        let pools = self.graphs.pools.iter().filter(|pool| touches(pool)).map(|pool| pool.id).collect();
        let written = capture.touched.iter().filter(|(_, writes)| *writes).map(|&(range, _)| range);
        let written = merged(written.collect());
        let parts = self.slots.take_parts();
        let (constants, replays) = (capture.constants, VecDeque::new());
        let graph = Graph { parts, live: capture.live, constants, held, pools, written, replays };
        self.graphs.all.insert(capture.id, graph);
        for address in capture.freed {
            self.give(address);
        }
        self.give_idle();
        if let Err(error) = done {
            self.drop_graph(capture.id)?;
            return Err(error);
        }
        Ok(capture.id)
    }

    /// Whether launches are recorded anew at each replay now.
    pub(super) fn is_live(&self) -> bool {
        self.graphs.capture.as_ref().is_some_and(|capture| capture.is_live)
    }

    /// Takes a launch that a replay records anew, behind what was captured so far.
    pub(super) fn capture_launch(&mut self, mut launch: Live) -> Result<(), DeviceError> {
        if let Some(slot) = self.open.take() {
            self.slots.all[slot].end_part(&self.gpu)?;
        }
        let ranges = launch.args.iter().map(|arg| ((arg.address, arg.address + arg.bytes), arg.access));
        self.graphs.touch(ranges);
        launch.behind = self.slots.parts();
        if let Some(capture) = &mut self.graphs.capture {
            capture.live.push(launch);
        }
        Ok(())
    }

    fn replay(&mut self, id: GraphId, renew: &mut dyn FnMut(&mut [u32])) -> Result<(), DeviceError> {
        self.not_capturing("a replay")?;
        self.gpu.guard()?;
        self.flush()?;
        let deadline = self.deadline();
        let Some(mut graph) = self.graphs.all.remove(&id) else {
            return Err(DeviceError::Misuse(
                "this graph is gone: it was reset, or the device was given up since. Capture it anew".into(),
            ));
        };
        let done = self.replay_parts(&mut graph, deadline, renew);
        self.graphs.all.insert(id, graph);
        self.give_dropped();
        done
    }

    fn replay_parts(
        &mut self,
        graph: &mut Graph,
        deadline: Deadline,
        renew: &mut dyn FnMut(&mut [u32]),
    ) -> Result<(), DeviceError> {
        if graph.replays.len() >= IN_FLIGHT
            && let Some(oldest) = graph.replays.pop_front()
        {
            self.gpu.wait(oldest, "an earlier replay of a graph", deadline)?;
        }
        for &range in &graph.written {
            self.kept.written(range);
        }
        let mut live = graph.live.iter().peekable();
        for at in 0..=graph.parts.len() {
            while let Some(launch) = live.next_if(|launch| launch.behind == at) {
                let mut params = launch.params.clone();
                renew(&mut params);
                self.launch(&launch.kernel, launch.grid, &params, &launch.args, launch.work)?;
            }
            if let Some(part) = graph.parts.get(at) {
                self.flush()?;
                self.gpu.submit(part.commands.buffer)?;
                self.submits += 1;
            }
        }
        self.flush()?;
        graph.replays.push_back(self.gpu.last_submitted());
        Ok(())
    }

    /// Waits for a graph's work and gives back what it holds.
    fn drop_graph(&mut self, id: GraphId) -> Result<(), DeviceError> {
        if !self.graphs.all.contains_key(&id) {
            return Ok(());
        }
        self.synchronize()?;
        if let Some(graph) = self.graphs.all.remove(&id) {
            self.destroy_graph(graph.parts, graph.constants);
            for address in graph.held {
                let Some(hold) = self.graphs.holds.get_mut(&address) else { continue };
                hold.graphs -= 1;
                if hold.graphs == 0
                    && let Some(Hold { is_freed: true, .. }) = self.graphs.holds.remove(&address)
                {
                    self.heap.give(address);
                }
            }
        }
        for segment in self.graphs.remove_unused() {
            self.memory.free(&self.gpu, segment.id);
        }
        Ok(())
    }

    fn destroy_graph(&mut self, parts: Vec<Slot>, constants: Constants) {
        self.slots.destroy_parts(&self.gpu, parts);
        for memory in constants.memory {
            self.memory.destroy_buffer(&self.gpu, memory);
        }
    }

    /// Destroys all graphs; nothing may be in flight.
    pub(super) fn destroy_graphs(&mut self) {
        if let Some(capture) = self.graphs.capture.take() {
            let parts = self.slots.take_parts();
            self.destroy_graph(parts, capture.constants);
        }
        for (_, graph) in std::mem::take(&mut self.graphs.all) {
            self.destroy_graph(graph.parts, graph.constants);
        }
    }
}

impl VulkanQueue {
    /// From now on nothing runs: work becomes part of a graph. Whatever needs results is an error until the capture's end.
    ///
    /// # Errors
    /// `Misuse` during another capture, or while launches are profiled; as [`wave32_device::Queue::launch`].
    pub fn begin_capture(&mut self) -> Result<(), DeviceError> {
        self.parts.begin_capture()
    }

    /// Ends the capture; the graph has not run yet.
    ///
    /// # Errors
    /// `Misuse` where nothing is captured; `Driver` where a driver call fails. There is no graph then.
    pub fn end_capture(&mut self) -> Result<GraphId, DeviceError> {
        self.parts.end_capture()
    }

    /// True between [`VulkanQueue::begin_capture`] and [`VulkanQueue::end_capture`].
    pub fn is_capturing(&self) -> bool {
        self.parts.graphs.capture.is_some()
    }

    /// From now on captured launches are recorded anew at each replay, with parameters that it renews; or no longer.
    pub fn capture_live(&mut self, is_live: bool) {
        if let Some(capture) = &mut self.parts.graphs.capture {
            capture.is_live = is_live;
        }
    }

    /// Runs a graph behind all work of before, on the memory that it was captured with. `renew` gets the parameters of each
    /// live launch as they were captured, and changes them.
    ///
    /// # Errors
    /// `Misuse` for a graph that is gone, or during a capture; `Timeout` where an earlier replay does not end; `Lost`,
    /// `Driver`.
    pub fn replay(&mut self, graph: GraphId, mut renew: impl FnMut(&mut [u32])) -> Result<(), DeviceError> {
        self.parts.replay(graph, &mut renew)
    }

    /// Waits for a graph's work and forgets it. Unknown graphs are ignored.
    ///
    /// # Errors
    /// As [`wave32_device::Queue::synchronize`].
    pub fn drop_graph(&mut self, graph: GraphId) -> Result<(), DeviceError> {
        self.parts.drop_graph(graph)
    }
}

#[cfg(test)]
mod tests {
    use super::merged;

    #[test]
    fn ranges_merge() {
        assert_eq!(merged(vec![(5, 6), (0, 2), (2, 4), (1, 3)]), [(0, 4), (5, 6)]);
        assert_eq!(merged(Vec::new()), []);
    }
}
