//! Copies between host and device that go on beside the queue's own work, from any thread.
//!
//! The queue of [`crate::VulkanQueue`] runs everything in the order of the calls, and its copies wait under its lock. These
//! go through queues of their own where the device has them (the copy engines), a direction each, and no call here takes the
//! lock of the other. What orders both are timelines. A copy starts when the kernels launched before [`VulkanQueue::locate`]
//! are done. [`Copies::mark`] numbers what was copied so far, and kernels launched after [`VulkanQueue::wait_for_mark`]
//! start when both directions have come to that mark, which may be set later than the launch.
//!
//! [`VulkanQueue::locate`]: crate::VulkanQueue::locate
//! [`VulkanQueue::wait_for_mark`]: crate::VulkanQueue::wait_for_mark

use crate::error::at;
use crate::gpu::Gpu;
use crate::memory::{Buffer, Memory};
use crate::queue::not_mapped;
use crate::submits::{Copying, Submits};
use ash::vk;
use gpu_allocator::MemoryLocation;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use wave32_device::{Deadline, DeviceError};

/// Bytes of one copy; longer regions are copied piece by piece.
pub const PIECE: usize = 1 << 20;
/// Pieces of a direction that are on their way at once.
const PIECES: usize = 8;
/// How long the end of a device waits for a copy that is going on.
const CLOSE: Duration = Duration::from_secs(5);

/// Memory of the device, and when its content is there.
///
/// Whoever copies keeps the memory until the copy is done.
#[derive(Debug, Clone, Copy)]
pub struct Region {
    pub(crate) buffer: vk::Buffer,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// The value of the kernels' timeline.
    pub(crate) after: u64,
    /// The number of the [`Copies`] that may use it.
    pub(crate) owner: u64,
}

/// A direction of copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the device.
    Down,
    /// To the device.
    Up,
}

/// Copies in both directions.
///
/// Of one user: a copy that waits for its bytes holds its direction.
pub struct Copies {
    /// No other has this number: regions and copies of a device that is gone mean nothing to the next.
    pub(crate) number: u64,
    raw: ash::Device,
    /// The kernels' timeline.
    kernels: vk::Semaphore,
    submits: Arc<Submits>,
    /// The timelines of marks, down and up.
    pub(crate) marks: [vk::Semaphore; 2],
    down: Mutex<Option<Lane>>,
    up: Mutex<Option<Lane>>,
}

/// One direction.
struct Lane {
    queue: vk::Queue,
    pool: vk::CommandPool,
    timeline: vk::Semaphore,
    submitted: u64,
    marks: vk::Semaphore,
    marked: u64,
    commands: [vk::CommandBuffer; PIECES],
    /// The timeline's value at which a piece's command buffer and staging memory may be used again.
    busy_until: [u64; PIECES],
    staging: Buffer,
}

impl std::fmt::Debug for Copies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copies").finish_non_exhaustive()
    }
}

impl Copies {
    pub(crate) fn new(gpu: &mut Gpu, memory: &mut Memory) -> Result<Self, DeviceError> {
        let (queues, family) = gpu.copy_queues();
        let down = (vk::BufferUsageFlags::TRANSFER_DST, MemoryLocation::GpuToCpu);
        let up = (vk::BufferUsageFlags::TRANSFER_SRC, MemoryLocation::CpuToGpu);
        let down = Lane::new(gpu, memory, queues[0], family, down)?;
        let up = match Lane::new(gpu, memory, queues[1], family, up) {
            Ok(up) => up,
            Err(error) => {
                memory.destroy_buffer(gpu, down.destroy(&gpu.raw));
                return Err(error);
            }
        };
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Ok(Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            raw: gpu.raw.clone(),
            kernels: gpu.timeline(),
            submits: gpu.submits.clone(),
            marks: [down.marks, up.marks],
            down: Mutex::new(Some(down)),
            up: Mutex::new(Some(up)),
        })
    }

    /// Reads a region: `take` gets its bytes, [`PIECE`] by `PIECE`, while the next ones are on their way.
    ///
    /// # Errors
    /// What `take` says; `Timeout` where kernels or copies do not end in time; `Lost`; `Misuse` once the device is closed.
    pub fn read<E: From<DeviceError>>(
        &self,
        region: &Region,
        deadline: Deadline,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut lane = lock(&self.down);
        let lane = lane.as_mut().filter(|_| region.owner == self.number).ok_or_else(closed)?;
        self.wait_for_kernels(region, deadline)?;
        let pieces = (region.bytes as usize).div_ceil(PIECE);
        let mut values = [0u64; PIECES];
        let mut asked = 0;
        let copied = (0..pieces).try_for_each(|piece| {
            while asked < pieces && asked < piece + PIECES {
                values[asked % PIECES] = self.submit(lane, region, asked, Direction::Down)?;
                asked += 1;
            }
            self.wait(lane.timeline, values[piece % PIECES], "a copy from the device", deadline)?;
            let (at, bytes) = ((piece % PIECES) * PIECE, length(region, piece));
            let mapped = lane.staging.allocation.mapped_slice().and_then(|all| all.get(at..at + bytes));
            take(mapped.ok_or_else(not_mapped)?)
        });
        if copied.is_err() {
            // The region may go when this returns.
            self.wait(lane.timeline, lane.submitted, "a copy from the device", deadline)?;
        }
        copied
    }

    /// Writes a region: `give` fills its bytes, [`PIECE`] by `PIECE`. Returns when the last piece is submitted; a mark after
    /// it says when it is there.
    ///
    /// # Errors
    /// As [`Copies::read`].
    pub fn write<E: From<DeviceError>>(
        &self,
        region: &Region,
        deadline: Deadline,
        mut give: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut lane = lock(&self.up);
        let lane = lane.as_mut().filter(|_| region.owner == self.number).ok_or_else(closed)?;
        self.wait_for_kernels(region, deadline)?;
        let pieces = (region.bytes as usize).div_ceil(PIECE);
        let copied = (0..pieces).try_for_each(|piece| {
            let slot = piece % PIECES;
            self.wait(lane.timeline, lane.busy_until[slot], "a copy to the device", deadline)?;
            let (at, bytes) = (slot * PIECE, length(region, piece));
            let mapped = lane.staging.mapped_mut().and_then(|all| all.get_mut(at..at + bytes));
            give(mapped.ok_or_else(not_mapped)?)?;
            self.submit(lane, region, piece, Direction::Up)?;
            Ok(())
        });
        if copied.is_err() {
            self.wait(lane.timeline, lane.submitted, "a copy to the device", deadline)?;
        }
        copied
    }

    /// What was copied in that direction so far ends with this mark; marks rise.
    ///
    /// # Errors
    /// `Misuse` for a mark below the last, and once the device is closed; `Lost`, `Driver`.
    pub fn mark(&self, direction: Direction, mark: u64) -> Result<(), DeviceError> {
        let mut lane = lock(self.lane(direction));
        let lane = lane.as_mut().ok_or_else(closed)?;
        if mark <= lane.marked {
            return Err(DeviceError::Misuse(format!("mark {mark} after mark {}", lane.marked)));
        }
        let (queue, done, after) = (lane.queue, (lane.marks, mark), (self.kernels, 0));
        let mark_of = Copying { queue, commands: None, done, after };
        self.submits.mark(mark_of).map_err(at("vkQueueSubmit"))?;
        lane.marked = mark;
        Ok(())
    }

    /// Sets a mark of both directions although the copies that it stands for failed, so that nothing waits for them any more.
    ///
    /// # Errors
    /// As [`Copies::mark`], `Timeout`.
    pub fn give_up(&self, mark: u64, deadline: Deadline) -> Result<(), DeviceError> {
        for direction in [Direction::Down, Direction::Up] {
            let mut lane = lock(self.lane(direction));
            let lane = lane.as_mut().ok_or_else(closed)?;
            if mark <= lane.marked {
                continue;
            }
            // What is on its way signals lower values.
            self.wait(lane.timeline, lane.submitted, "copies", deadline)?;
            self.wait(lane.marks, lane.marked, "copies", deadline)?;
            let info = vk::SemaphoreSignalInfo::default().semaphore(lane.marks).value(mark);
            // SAFETY: a timeline of this device below that value, with no signal on its way.
            unsafe { self.raw.signal_semaphore(&info) }.map_err(at("vkSignalSemaphore"))?;
            lane.marked = mark;
            self.submits.is_set((lane.marks, mark));
        }
        Ok(())
    }

    fn lane(&self, direction: Direction) -> &Mutex<Option<Lane>> {
        match direction {
            Direction::Down => &self.down,
            Direction::Up => &self.up,
        }
    }

    /// Submits the copy of one piece between the region and the lane's staging memory.
    fn submit(
        &self,
        lane: &mut Lane,
        region: &Region,
        piece: usize,
        direction: Direction,
    ) -> Result<u64, DeviceError> {
        let slot = piece % PIECES;
        let commands = lane.commands[slot];
        let (device, host) = (region.offset + (piece * PIECE) as u64, (slot * PIECE) as u64);
        let bytes = length(region, piece) as u64;
        let begin = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        let (from, to, source, target) = match direction {
            Direction::Down => (region.buffer, lane.staging.raw, device, host),
            Direction::Up => (lane.staging.raw, region.buffer, host, device),
        };
        let copy = [vk::BufferCopy::default().src_offset(source).dst_offset(target).size(bytes)];
        let seen = [vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
            .dst_access_mask(vk::AccessFlags::HOST_READ)];
        let (transfer, host) = (vk::PipelineStageFlags::TRANSFER, vk::PipelineStageFlags::HOST);
        let none = vk::DependencyFlags::empty();
        // SAFETY: the command buffer is not in flight, as the callers waited for the slot, and its pool resets it; both
        // ranges are of their buffers: the region was resolved, the staging memory has PIECES pieces.
        unsafe {
            self.raw.begin_command_buffer(commands, &begin).map_err(at("vkBeginCommandBuffer"))?;
            self.raw.cmd_copy_buffer(commands, from, to, &copy);
            if direction == Direction::Down {
                self.raw.cmd_pipeline_barrier(commands, transfer, host, none, &seen, &[], &[]);
            }
            self.raw.end_command_buffer(commands).map_err(at("vkEndCommandBuffer"))?;
        }
        let value = lane.submitted + 1;
        let (queue, done, after) = (lane.queue, (lane.timeline, value), (self.kernels, region.after));
        let copies = Copying { queue, commands: Some(commands), done, after };
        self.submits.copies(copies).map_err(at("vkQueueSubmit"))?;
        lane.submitted = value;
        lane.busy_until[slot] = value;
        Ok(value)
    }

    /// Waits until the kernels before a region are submitted. Copies then wait for them on the device, and nothing that
    /// others copy through the same queue can be what these kernels wait for.
    fn wait_for_kernels(&self, region: &Region, deadline: Deadline) -> Result<(), DeviceError> {
        if self.submits.are_submitted(region.after, deadline) {
            return Ok(());
        }
        let what = "kernels before a copy, which wait for other copies".into();
        Err(DeviceError::Timeout { what, deadline: deadline.length() })
    }

    fn wait(
        &self,
        timeline: vk::Semaphore,
        value: u64,
        what: &str,
        deadline: Deadline,
    ) -> Result<(), DeviceError> {
        let (semaphores, values) = ([timeline], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: a timeline of this device, which lives while a lane is locked.
        match unsafe { self.raw.wait_semaphores(&info, deadline.left().as_nanos() as u64) } {
            Ok(()) => Ok(()),
            Err(vk::Result::TIMEOUT) => {
                Err(DeviceError::Timeout { what: what.into(), deadline: deadline.length() })
            }
            Err(code) => Err(at("vkWaitSemaphores")(code)),
        }
    }

    /// Ends all copying; the staging memory, or none where a copy does not end and nothing may be destroyed.
    pub(crate) fn close(&self) -> Option<[Buffer; 2]> {
        let until = Instant::now() + CLOSE;
        let (mut down, mut up) = (lock_until(&self.down, until)?, lock_until(&self.up, until)?);
        for lane in [&*down, &*up].into_iter().flatten() {
            for (timeline, value) in [(lane.timeline, lane.submitted), (lane.marks, lane.marked)] {
                let left = Deadline::after(until.saturating_duration_since(Instant::now()));
                match self.wait(timeline, value, "copies", left) {
                    Ok(()) | Err(DeviceError::Lost(_)) => {}
                    Err(_) => return None,
                }
            }
        }
        Some([down.take()?.destroy(&self.raw), up.take()?.destroy(&self.raw)])
    }
}

impl Lane {
    fn new(
        gpu: &mut Gpu,
        memory: &mut Memory,
        queue: vk::Queue,
        family: u32,
        (usage, location): (vk::BufferUsageFlags, MemoryLocation),
    ) -> Result<Self, DeviceError> {
        let staging = memory.create(gpu, (PIECE * PIECES) as u64, usage, location)?;
        match Self::handles(gpu, family) {
            Ok(([timeline, marks], pool, commands)) => {
                let (submitted, marked, busy_until) = (0, 0, [0; PIECES]);
                Ok(Self { queue, pool, timeline, submitted, marks, marked, commands, busy_until, staging })
            }
            Err(error) => {
                memory.destroy_buffer(gpu, staging);
                Err(error)
            }
        }
    }

    #[allow(clippy::type_complexity)]
    fn handles(
        gpu: &Gpu,
        family: u32,
    ) -> Result<([vk::Semaphore; 2], vk::CommandPool, [vk::CommandBuffer; PIECES]), DeviceError> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default()
            .semaphore_type(vk::SemaphoreType::TIMELINE)
            .initial_value(0);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        let pool_info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(family);
        // SAFETY: plain creation; timelines are enabled, the family is the device's. What was made before a failure is
        // destroyed unused.
        unsafe {
            let timeline = gpu.raw.create_semaphore(&info, None).map_err(at("vkCreateSemaphore"))?;
            let marks = gpu.raw.create_semaphore(&info, None).map_err(|code| {
                gpu.raw.destroy_semaphore(timeline, None);
                at("vkCreateSemaphore")(code)
            })?;
            let made = gpu.raw.create_command_pool(&pool_info, None).map_err(at("vkCreateCommandPool"));
            let made = made.and_then(|pool| {
                let info = vk::CommandBufferAllocateInfo::default()
                    .command_pool(pool)
                    .command_buffer_count(PIECES as u32);
                let made = gpu.raw.allocate_command_buffers(&info).map_err(at("vkAllocateCommandBuffers"));
                let made = made.and_then(|made| {
                    <[vk::CommandBuffer; PIECES]>::try_from(made).map_err(|_| DeviceError::Driver {
                        call: "vkAllocateCommandBuffers",
                        code: "not as many as were asked for".into(),
                    })
                });
                made.inspect_err(|_| gpu.raw.destroy_command_pool(pool, None))
                    .map(|commands| ([timeline, marks], pool, commands))
            });
            made.inspect_err(|_| {
                gpu.raw.destroy_semaphore(timeline, None);
                gpu.raw.destroy_semaphore(marks, None);
            })
        }
    }

    /// Destroys all but the staging memory; nothing may be in flight.
    fn destroy(self, raw: &ash::Device) -> Buffer {
        // SAFETY: the caller knows that nothing is in flight; the handles end here.
        unsafe {
            raw.destroy_command_pool(self.pool, None);
            raw.destroy_semaphore(self.timeline, None);
            raw.destroy_semaphore(self.marks, None);
        }
        self.staging
    }
}

fn length(region: &Region, piece: usize) -> usize {
    (region.bytes as usize - piece * PIECE).min(PIECE)
}

pub(crate) fn closed() -> DeviceError {
    DeviceError::Misuse("the device of these copies was closed".into())
}

fn lock(lane: &Mutex<Option<Lane>>) -> MutexGuard<'_, Option<Lane>> {
    // A panic under the lock leaves a lane that knows what it submitted.
    lane.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lock_until(lane: &Mutex<Option<Lane>>, until: Instant) -> Option<MutexGuard<'_, Option<Lane>>> {
    loop {
        match lane.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
