//! [`Queue`]: how a device runs work, and [`execute`], how a plan runs on one.

use crate::{Deadline, DeviceError, DeviceInfo, Kept};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use wave32_solve::{Access, DeviceCaps, Launch, Plan, Role};

/// Most buffers of a launch.
pub const MAX_ARGS: usize = 8;
pub use wave32_params::MAX_PARAMS;

/// A range of a queue's memory that a launch binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Arg {
    /// First byte, within a block from [`Queue::alloc`]; a multiple of the device's offset alignment.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// What the launch does there.
    pub access: Access,
}

/// What a launch costs, for the time budget.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes through memory.
    pub bytes: u64,
}

/// A point of a queue's work at which the device took its time, see [`Queue::stamp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp(pub u64);

/// An in-order queue with memory of its own: calls return before the work has run. Launches that touch the same memory
/// run in the order of the calls, as far as their [`Access`] asks for it; others may run side by side.
pub trait Queue {
    /// Identity.
    fn info(&self) -> &DeviceInfo;

    /// What plans may know of the device.
    fn caps(&self) -> &DeviceCaps;

    /// That the queue can be used: this process opened it, and it was not given up.
    ///
    /// # Errors
    /// `Misuse` in a forked child; `Lost` where the device is lost.
    fn check(&mut self) -> Result<(), DeviceError>;

    /// A block of at least `bytes`, content undefined; its address is a multiple of 512.
    ///
    /// # Errors
    /// `OutOfMemory` beyond the device's memory or the cap; `Lost`; `Driver` where a driver call fails.
    fn alloc(&mut self, bytes: u64) -> Result<u64, DeviceError>;

    /// Gives a block back; work already launched may still use it. Unknown addresses are ignored.
    fn free(&mut self, address: u64);

    /// Gives a block back that only a few launches used. It is handed out again a little later than a freed one, so that
    /// work that does not depend on those launches gets other memory, and need not wait for them.
    fn retire(&mut self, address: u64) {
        self.free(address);
    }

    /// The memory around an address that one launch may bind as a whole: its first byte and how many. None where a block is
    /// all that is known.
    fn span(&self, address: u64) -> Option<(u64, u64)> {
        let _ = address;
        None
    }

    /// Prepared filters and casts that the queue keeps; none where others than the queue may write to its memory.
    fn kept(&mut self) -> Option<&mut Kept> {
        None
    }

    /// Makes a launch's kernel ready (pipeline, module) and checks what the launch asks of the device. Idempotent;
    /// launching does it too.
    ///
    /// # Errors
    /// `Unsupported` where a kernel or a limit is missing here; `Misuse` where kernel and launch do not fit; `Lost`,
    /// `Driver`.
    fn prepare(&mut self, launch: &Launch) -> Result<(), DeviceError>;

    /// Launches `grid` workgroups of the kernel of that name. `params[0]` is the first workgroup's x index. A launch
    /// that is too wide or too long for one submit is cut along x.
    ///
    /// # Errors
    /// `Unsupported` past the device's limits; `Misuse` for a range outside of the queue's memory or a launch that does
    /// not fit its kernel; `Timeout` where earlier work does not end; `Lost`, `Driver`.
    fn launch(
        &mut self,
        kernel: &str,
        grid: [u32; 3],
        params: &[u32],
        args: &[Arg],
        work: Work,
    ) -> Result<(), DeviceError>;

    /// Fills `bytes` from `address` with copies of a 32-bit word; both are multiples of 4.
    ///
    /// # Errors
    /// As [`Queue::launch`].
    fn fill(&mut self, address: u64, bytes: u64, word: u32) -> Result<(), DeviceError>;

    /// Copies `bytes` between ranges that do not overlap.
    ///
    /// # Errors
    /// As [`Queue::launch`].
    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Copies `data` to `address`. Returns once `data` may be changed; the copy runs in order.
    ///
    /// # Errors
    /// As [`Queue::launch`], `OutOfMemory`.
    fn upload(&mut self, address: u64, data: &[u8]) -> Result<(), DeviceError>;

    /// Copies from `address` into `data`, after all work launched before. Waits.
    ///
    /// # Errors
    /// As [`Queue::upload`].
    fn download(&mut self, address: u64, data: &mut [u8]) -> Result<(), DeviceError>;

    /// Submits what was recorded and waits for all work.
    ///
    /// # Errors
    /// `Timeout` after the deadline; `Lost`; `Driver` where a driver call fails.
    fn synchronize(&mut self) -> Result<(), DeviceError>;

    /// From now on every wait ends at `deadline`; without one, after a time that the queue was told at its making.
    /// A deadline that passes gives the device up.
    fn wait_until(&mut self, deadline: Option<Deadline>);

    /// Work launched after this starts when all work launched before is done.
    ///
    /// # Errors
    /// As [`Queue::launch`].
    fn barrier(&mut self) -> Result<(), DeviceError>;

    /// Has the device take its time once all work launched before is done. Later work does not wait for that.
    ///
    /// # Errors
    /// As [`Queue::launch`].
    fn stamp(&mut self) -> Result<Stamp, DeviceError>;

    /// The device's time from the first of these stamps to each. Waits for all work; forgets the stamps.
    ///
    /// # Errors
    /// `Misuse` for a stamp of another queue, or one that was asked for before; as [`Queue::synchronize`].
    fn times(&mut self, stamps: &[Stamp]) -> Result<Vec<Duration>, DeviceError>;

    /// Submits so far.
    fn submits(&self) -> u64;
}

/// Another number for each run: what two runs write in parts is the same memory ([`Access::Part`]).
pub fn run_number() -> u32 {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    RUNS.fetch_add(1, Ordering::Relaxed)
}

/// Where a plan's operands lie, by role.
pub type Addresses = [u64; Role::ALL.len()];

/// Launches a plan whose operands lie at these addresses, by role.
///
/// # Errors
/// As [`Queue::launch`].
pub fn execute(queue: &mut dyn Queue, plan: &Plan, addresses: &Addresses) -> Result<(), DeviceError> {
    execute_with(queue, plan, addresses, None, |_| Ok(()))
}

/// Filters of a plan in memory of their own, outside of the workspace ([`wave32_solve::Prepared`]).
#[derive(Debug, Clone, Copy)]
pub struct PreparedAt {
    /// Where.
    pub address: u64,
    /// They are there already: the launches that make them are left out.
    pub is_made: bool,
}

/// As [`execute`], with the filters prepared at another place. The workspace is without the bytes that they would have there.
///
/// # Errors
/// As [`Queue::launch`].
pub fn execute_prepared(
    queue: &mut dyn Queue,
    plan: &Plan,
    addresses: &Addresses,
    filters: PreparedAt,
) -> Result<(), DeviceError> {
    execute_with(queue, plan, addresses, Some(filters), |_| Ok(()))
}

/// As [`execute`]; calls `after` behind each launch.
pub(crate) fn execute_with(
    queue: &mut dyn Queue,
    plan: &Plan,
    addresses: &Addresses,
    filters: Option<PreparedAt>,
    mut after: impl FnMut(&mut dyn Queue) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let run = run_number();
    let mut args = [Arg::default(); MAX_ARGS];
    let prepared = plan.prepared.zip(filters);
    let made = prepared.map_or(0, |(prepared, at)| if at.is_made { prepared.launches } else { 0 });
    let address = |role: Role, offset: u64| match prepared {
        Some((prepared, at)) if role == Role::Workspace && offset < prepared.bytes => at.address + offset,
        Some((prepared, _)) if role == Role::Workspace => addresses[role as usize] + offset - prepared.bytes,
        _ => addresses[role as usize] + offset,
    };
    for launch in &plan.launches[made..] {
        let Some(args) = args.get_mut(..launch.bindings.len()) else {
            let text = format!("kernel `{}` with {} buffers", launch.kernel, launch.bindings.len());
            return Err(DeviceError::Misuse(text));
        };
        for (arg, binding) in args.iter_mut().zip(&launch.bindings) {
            let address = address(binding.role, binding.offset);
            *arg = Arg { address, bytes: binding.size, access: binding.access.of_run(run) };
        }
        let work = Work { flops: launch.flops, bytes: launch.bytes };
        queue.launch(&launch.kernel, launch.grid, &launch.params, args, work)?;
        after(queue)?;
    }
    Ok(())
}
