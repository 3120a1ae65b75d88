//! [`HipQueue`]: an asynchronous in-order queue on a HIP stream, with a caching allocator of its own.
//!
//! Calls return before the work has run, and whatever reads results waits, with a deadline. The stream keeps all work
//! in order. Work goes onto the stream in batches of about the time budget, two at most at a time, so that neither
//! the desktop nor a deadline waits behind seconds of work; a launch that is longer is cut ([`wave32_device::Budget`]).

use crate::caller::Lent;
use crate::ffi::{DEVICE_TO_DEVICE, Pointer};
use crate::gpu::{Event, Gpu};
use crate::kernels::{Function, Modules};
use crate::memory::Memory;
use crate::staging::Staging;
use crate::{Options, RawStream};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem::ManuallyDrop;
use std::time::Duration;
use wave32_device::check::{self, LaunchShape};
use wave32_device::heap::{self, Heap, HeapStats};
use wave32_device::{
    Arg, Budget, Deadline, DeviceError, DeviceInfo, MAX_ARGS, MAX_PARAMS, Queue, Stamp, Work,
};
use wave32_solve::{DeviceCaps, Launch};

/// Batches on the stream at once.
const AHEAD: usize = 2;

/// Launches of a batch at most.
const MAX_LAUNCHES: u32 = 1024;

/// Launches between two events.
struct Batch {
    start: Event,
    end: Event,
    work: f64,
    /// The batch is one part of a split launch, so its time measures the card and not the host: the budget may use it.
    measures_budget: bool,
}

/// An asynchronous queue of one card; see the module's page.
///
/// It belongs to the process that opened it: after a fork, the child's calls answer [`DeviceError::Misuse`]. Dropping
/// it waits at most five seconds for work in flight; if that does not end, what it holds is leaked.
pub struct HipQueue {
    gpu: Gpu,
    modules: ManuallyDrop<Modules>,
    memory: Memory,
    staging: Staging,
    heap: Heap<Segment>,
    budget: Budget,
    batches: VecDeque<Batch>,
    /// The batch that launches go to now: its start, work and launches.
    open: Option<(Event, f64, u32)>,
    deadline: Duration,
    until: Option<Deadline>,
    /// Batches so far.
    submits: u64,
    /// Stamps that nobody has asked the times of.
    stamps: HashMap<Stamp, Event>,
    next_stamp: u64,
    /// Memory of the caller's, where that is allowed.
    lent: Option<Lent>,
    /// The stream that work was put on last, captured work aside.
    last: Option<RawStream>,
    /// Memory of launches that were captured into graphs.
    captured: Vec<Segment>,
    /// Bytes of each block, where blocks are allocations of their own.
    separate: Option<BTreeMap<u64, u64>>,
    /// Such blocks that work in flight may still use.
    freed: Vec<Segment>,
}

/// A segment's memory.
#[derive(Debug, Clone, Copy)]
struct Segment {
    address: u64,
    bytes: u64,
}

impl std::fmt::Debug for HipQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HipQueue").field("info", self.info()).finish_non_exhaustive()
    }
}

impl HipQueue {
    pub(crate) fn new(gpu: Gpu, budget: Budget, options: Options) -> Self {
        Self {
            lent: options.foreign_memory.then(Lent::default),
            last: None,
            captured: Vec::new(),
            separate: options.separate_blocks.then(BTreeMap::new),
            freed: Vec::new(),
            gpu,
            modules: ManuallyDrop::new(Modules::new(options.kernels)),
            memory: Memory::new(options.memory_cap),
            staging: Staging::default(),
            heap: Heap::default(),
            budget,
            batches: VecDeque::new(),
            open: None,
            deadline: Duration::from_secs(60),
            until: None,
            submits: 0,
            stamps: HashMap::new(),
            next_stamp: 0,
        }
    }

    /// How long any wait lasts at most before the device is given up; a minute unless set.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    /// Puts work on this stream from now on, in order with what went onto others before; see the module `caller`. What
    /// was found out of the caller's memory is forgotten: it may have been freed.
    ///
    /// # Errors
    /// `Lost` where the card is lost; `Driver` where a HIP call fails.
    pub fn set_stream(&mut self, stream: RawStream) -> Result<(), DeviceError> {
        let _current = self.gpu.enter()?;
        if let Some(lent) = &mut self.lent {
            lent.clear();
        }
        if stream.0 != self.gpu.stream {
            // Any other failure is of a stream that the caller destroyed since: nothing is left to wait for.
            if let Err(error @ DeviceError::Lost(_)) = self.close_batch(false) {
                return Err(error);
            }
        }
        self.gpu.turn_to(stream, self.last)
    }

    /// Until when the next wait may last.
    fn deadline(&self) -> Deadline {
        self.until.unwrap_or_else(|| Deadline::after(self.deadline))
    }

    /// Refuses what must wait while the stream is captured.
    fn not_captured(&self, what: &str) -> Result<(), DeviceError> {
        match self.gpu.capturing {
            true => {
                Err(DeviceError::Misuse(format!("{what} while the stream is being captured into a graph")))
            }
            false => Ok(()),
        }
    }

    /// What the heap holds.
    pub fn heap_stats(&self) -> HeapStats {
        self.heap.stats()
    }

    /// Gives every segment that is not in use back to the driver. Waits for work in flight.
    ///
    /// # Errors
    /// `Timeout` where earlier work does not end in time; `Lost` where the card is lost.
    pub fn empty_cache(&mut self) -> Result<(), DeviceError> {
        let _current = self.gpu.enter()?;
        self.release_unused()
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        self.not_captured("waiting")?;
        let deadline = self.deadline();
        self.close_batch(false)?;
        while !self.batches.is_empty() {
            self.collect(deadline)?;
        }
        self.gpu.finish("all work", deadline)?;
        for segment in std::mem::take(&mut self.freed) {
            self.memory.free(&mut self.gpu, segment.address, segment.bytes);
        }
        Ok(())
    }

    fn release_unused(&mut self) -> Result<(), DeviceError> {
        self.finish()?;
        for segment in self.heap.remove_unused() {
            self.memory.free(&mut self.gpu, segment.address, segment.bytes);
        }
        Ok(())
    }

    /// Makes a segment with room for a block of `bytes`.
    fn grow(&mut self, bytes: u64) -> Result<(), DeviceError> {
        let out_of_memory =
            DeviceError::OutOfMemory { requested: bytes, in_use: self.heap.stats().allocated };
        let Some(wanted) = heap::segment_size(bytes) else { return Err(out_of_memory) };
        // A tight cap or a full card may still have room for just this block.
        for size in [wanted, bytes.max(1).next_multiple_of(heap::ALIGN)] {
            match self.memory.alloc(&mut self.gpu, size) {
                Ok(address) => {
                    self.heap.add_at(address, bytes, size, Segment { address, bytes: size });
                    return Ok(());
                }
                Err(DeviceError::OutOfMemory { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Err(out_of_memory)
    }

    /// That the range is memory of this queue, or of the caller's where that may be.
    fn owned(&mut self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let captured = |held: &Segment| {
            address >= held.address && address.saturating_add(bytes) <= held.address + held.bytes
        };
        let before = self.separate.as_ref().and_then(|blocks| blocks.range(..=address).next_back());
        let separate = before.is_some_and(|(&at, &long)| address.saturating_add(bytes) <= at + long);
        if self.heap.find(address, bytes).is_some() || separate || self.captured.iter().any(captured) {
            return Ok(());
        }
        match &mut self.lent {
            Some(lent) => lent.check(&self.gpu, address, bytes),
            None => Err(DeviceError::Misuse(format!(
                "{bytes} bytes at {address:#x} are no memory of this device"
            ))),
        }
    }

    /// Memory for a launch that is being captured: the graph's for good.
    fn alloc_captured(&mut self, bytes: u64) -> Result<u64, DeviceError> {
        let _current = self.gpu.enter()?;
        let bytes = bytes.max(1).next_multiple_of(heap::ALIGN);
        let before = self.gpu.capture_relaxed();
        let made = self.memory.alloc(&mut self.gpu, bytes);
        self.gpu.capture_as_before(before);
        made.inspect(|&address| self.captured.push(Segment { address, bytes }))
    }

    /// Opens a batch where none is, and waits where too many are on the stream.
    fn open_batch(&mut self) -> Result<(), DeviceError> {
        if self.gpu.capturing {
            return Ok(());
        }
        self.last = Some(self.gpu.stream());
        if self.open.is_none() {
            while self.batches.len() >= AHEAD {
                self.collect(self.deadline())?;
            }
            self.open = Some((self.gpu.record()?, 0.0, 0));
        }
        Ok(())
    }

    /// Counts work that was put on the stream; ends the batch where it is large enough.
    fn launched(&mut self, work: f64) -> Result<(), DeviceError> {
        let Some((_, sum, launches)) = self.open.as_mut() else { return Ok(()) };
        (*sum, *launches) = (*sum + work, *launches + 1);
        if *sum >= self.budget.capacity() || *launches >= MAX_LAUNCHES {
            self.close_batch(false)?;
        }
        Ok(())
    }

    fn close_batch(&mut self, measures_budget: bool) -> Result<(), DeviceError> {
        let Some((start, work, _)) = self.open.take() else { return Ok(()) };
        let end = self.gpu.record()?;
        self.submits += 1;
        self.batches.push_back(Batch { start, end, work, measures_budget });
        Ok(())
    }

    /// Waits for the oldest batch. Its time adjusts the budget.
    fn collect(&mut self, deadline: Deadline) -> Result<(), DeviceError> {
        let Some(batch) = self.batches.pop_front() else { return Ok(()) };
        self.gpu.wait(batch.end, "earlier work", deadline)?;
        if batch.measures_budget {
            let elapsed = self.gpu.elapsed(batch.start, batch.end)?;
            self.budget.learn(batch.work, elapsed);
        }
        self.gpu.recycle(batch.start);
        self.gpu.recycle(batch.end);
        Ok(())
    }

    /// A launch that is too long or too wide for one: each part in a batch of its own.
    fn launch_parts(
        &mut self,
        function: &Function,
        [columns, y, z]: [u32; 3],
        params: &[u32],
        addresses: &[u64],
        work: f64,
    ) -> Result<(), DeviceError> {
        let per_column = work / f64::from(columns);
        let mut part_params = [0; MAX_PARAMS];
        part_params[..params.len()].copy_from_slice(params);
        let mut column = 0;
        while column < columns {
            self.close_batch(false)?;
            self.open_batch()?;
            let count = self.budget.columns(columns - column, per_column, 0.0);
            part_params[0] = params[0] + column;
            self.gpu.launch(function, [count, y, z], &part_params[..params.len()], addresses)?;
            if let Some((_, sum, _)) = self.open.as_mut() {
                *sum = per_column * f64::from(count);
            }
            self.close_batch(true)?;
            column += count;
        }
        Ok(())
    }
}

// SAFETY: streams, events, modules and addresses may be used from any thread; which device is the thread's current one is
// set within each call.
unsafe impl Send for HipQueue {}

impl Queue for HipQueue {
    fn info(&self) -> &DeviceInfo {
        &self.gpu.adapter.info
    }

    fn caps(&self) -> &DeviceCaps {
        &self.gpu.adapter.caps
    }

    fn check(&mut self) -> Result<(), DeviceError> {
        self.gpu.enter().map(drop)
    }

    fn alloc(&mut self, bytes: u64) -> Result<u64, DeviceError> {
        if self.gpu.capturing {
            return self.alloc_captured(bytes);
        }
        if let Some(blocks) = &mut self.separate {
            let _current = self.gpu.enter()?;
            let address = self.memory.alloc(&mut self.gpu, bytes)?;
            blocks.insert(address, bytes);
            return Ok(address);
        }
        if let Some(address) = self.heap.take(bytes) {
            return Ok(address);
        }
        let _current = self.gpu.enter()?;
        match self.grow(bytes) {
            Err(DeviceError::OutOfMemory { .. }) => {
                self.heap.count_retry();
                self.release_unused()?;
                self.grow(bytes).inspect_err(|_| self.heap.count_refusal())?;
            }
            other => other?,
        }
        let in_use = self.heap.stats().allocated;
        self.heap.take(bytes).ok_or(DeviceError::OutOfMemory { requested: bytes, in_use })
    }

    fn free(&mut self, address: u64) {
        match self.separate.as_mut().and_then(|blocks| blocks.remove(&address)) {
            Some(bytes) => self.freed.push(Segment { address, bytes }),
            None => {
                self.heap.give(address);
            }
        }
    }

    fn prepare(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        let _current = self.gpu.enter()?;
        let kernel = self.modules.get(&mut self.gpu, &launch.kernel)?.kernel;
        check::launch(launch, kernel.params, kernel.buffers, &self.gpu.adapter.caps)
    }

    fn launch(
        &mut self,
        kernel: &str,
        grid: [u32; 3],
        params: &[u32],
        args: &[Arg],
        work: Work,
    ) -> Result<(), DeviceError> {
        let _current = self.gpu.enter()?;
        let function = self.modules.get(&mut self.gpu, kernel)?;
        let first = params.first().copied();
        let shape = LaunchShape { kernel, grid, first, params: params.len(), buffers: args.len() };
        shape.check(function.kernel.params, function.kernel.buffers, &self.gpu.adapter.caps)?;
        let mut addresses = [0; MAX_ARGS];
        for (address, arg) in addresses.iter_mut().zip(args) {
            self.owned(arg.address, arg.bytes)?;
            check::arg(kernel, arg.address, arg.bytes, &self.gpu.adapter.caps)?;
            *address = arg.address;
        }
        let addresses = &addresses[..args.len()];
        let work = Budget::work(work.flops, work.bytes);
        if grid[0] > self.gpu.adapter.caps.max_groups[0] || work > self.budget.capacity() {
            return self.launch_parts(&function, grid, params, addresses, work);
        }
        self.open_batch()?;
        self.gpu.launch(&function, grid, params, addresses)?;
        self.launched(work)
    }

    fn fill(&mut self, address: u64, bytes: u64, word: u32) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        if !address.is_multiple_of(4) || !bytes.is_multiple_of(4) {
            let text = format!("a fill of {bytes} bytes at {address:#x}: not whole words");
            return Err(DeviceError::Misuse(text));
        }
        let _current = self.gpu.enter()?;
        self.owned(address, bytes)?;
        self.open_batch()?;
        let words = bytes as usize / 4;
        // SAFETY: the range is memory of this card, in whole words.
        let answer = unsafe {
            (self.gpu.api.memset_words_async)(address as Pointer, word.cast_signed(), words, self.gpu.stream)
        };
        self.gpu.check("hipMemsetD32Async", answer)?;
        self.launched(Budget::work(0, bytes))
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        if from < to.saturating_add(bytes) && to < from.saturating_add(bytes) {
            return Err(DeviceError::Misuse(format!("a copy of {bytes} bytes from {from:#x} onto itself")));
        }
        let _current = self.gpu.enter()?;
        self.owned(from, bytes)?;
        self.owned(to, bytes)?;
        self.open_batch()?;
        // SAFETY: both ranges are memory of this card and do not overlap.
        let answer = unsafe {
            let (to, from) = (to as Pointer, from as Pointer);
            (self.gpu.api.memcpy_async)(to, from, bytes as usize, DEVICE_TO_DEVICE, self.gpu.stream)
        };
        self.gpu.check("hipMemcpyAsync", answer)?;
        self.launched(Budget::work(0, 2 * bytes))
    }

    fn upload(&mut self, address: u64, data: &[u8]) -> Result<(), DeviceError> {
        let _current = self.gpu.enter()?;
        self.not_captured("a copy from the host")?;
        self.owned(address, data.len() as u64)?;
        self.open_batch()?;
        let deadline = self.deadline();
        self.staging.write(&mut self.gpu, address, data, deadline)?;
        self.launched(Budget::work(0, data.len() as u64))
    }

    fn download(&mut self, address: u64, data: &mut [u8]) -> Result<(), DeviceError> {
        let _current = self.gpu.enter()?;
        self.not_captured("a copy to the host")?;
        self.owned(address, data.len() as u64)?;
        let deadline = self.deadline();
        self.staging.read(&mut self.gpu, address, data, deadline)
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        let _current = self.gpu.enter()?;
        self.finish()
    }

    fn wait_until(&mut self, deadline: Option<Deadline>) {
        self.until = deadline;
    }

    /// Nothing to do: the stream keeps all work in order.
    fn barrier(&mut self) -> Result<(), DeviceError> {
        self.gpu.enter().map(drop)
    }

    fn stamp(&mut self) -> Result<Stamp, DeviceError> {
        let _current = self.gpu.enter()?;
        self.not_captured("a time")?;
        let (event, stamp) = (self.gpu.record()?, Stamp(self.next_stamp));
        self.next_stamp += 1;
        self.stamps.insert(stamp, event);
        Ok(stamp)
    }

    fn times(&mut self, stamps: &[Stamp]) -> Result<Vec<Duration>, DeviceError> {
        let _current = self.gpu.enter()?;
        self.finish()?;
        let events = stamps.iter().map(|stamp| {
            let text =
                || DeviceError::Misuse(format!("{stamp:?} is none of this queue's, or was asked for before"));
            self.stamps.remove(stamp).ok_or_else(text)
        });
        let events = events.collect::<Result<Vec<_>, _>>()?;
        let times = events.iter().map(|&event| self.gpu.elapsed(events[0], event)).collect();
        events.into_iter().for_each(|event| self.gpu.recycle(event));
        times
    }

    fn submits(&self) -> u64 {
        self.submits
    }
}

impl Drop for HipQueue {
    fn drop(&mut self) {
        if !self.gpu.quiet() {
            log::warn!(
                "a HIP queue is leaked: it is busy or lost, or this process is a fork of the one that opened it"
            );
            return;
        }
        for Batch { start, end, .. } in std::mem::take(&mut self.batches) {
            self.gpu.recycle(start);
            self.gpu.recycle(end);
        }
        if let Some((start, ..)) = self.open.take() {
            self.gpu.recycle(start);
        }
        std::mem::take(&mut self.stamps).into_values().for_each(|event| self.gpu.recycle(event));
        if let Ok(_current) = self.gpu.enter() {
            let separate = self.separate.take().unwrap_or_default().into_iter();
            let separate = separate.map(|(address, bytes)| Segment { address, bytes });
            let other = self.captured.drain(..).chain(self.freed.drain(..)).chain(separate);
            for segment in self.heap.remove_all().into_iter().chain(other) {
                self.memory.free(&mut self.gpu, segment.address, segment.bytes);
            }
            self.staging.free(&mut self.gpu);
            self.modules.unload(&mut self.gpu);
        }
        self.gpu.close();
        // SAFETY: this is the end of `self`; the module is not touched again. (A leaked one keeps its code: the runtime
        // may still read it.)
        unsafe { ManuallyDrop::drop(&mut self.modules) };
    }
}
