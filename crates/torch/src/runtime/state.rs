//! The process' one stream: opened on first use, closed by the module's exit hook.

use crate::abi::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wave32_device::{DeviceError, Queue};
use wave32_torch_logic::settings::{self, readable};
use wave32_vulkan::{HeapStats, Options, VulkanQueue};

enum State {
    Unopened,
    Open(Box<VulkanQueue>),
    /// The first opening failed; later calls tell the same instead of trying for ever.
    Failed(String),
    Closed,
}

static STATE: Mutex<State> = Mutex::new(State::Unopened);
/// Blocks whose tensors died. A tensor may die in any thread, even while this one holds the stream.
static FREED: Mutex<Vec<u64>> = Mutex::new(Vec::new());
/// A stream is open or being opened in this process.
static OPENED: AtomicBool = AtomicBool::new(false);
/// This process is a fork of one with a stream: nothing here may touch it, locks included.
static FORKED: AtomicBool = AtomicBool::new(false);
/// The cap set before opening, in bytes; none is the maximum.
static CAP: AtomicU64 = AtomicU64::new(u64::MAX);

/// Installs the fork hook. Once, at load.
pub fn watch_forks() {
    extern "C" fn child() {
        if OPENED.load(Ordering::Relaxed) {
            FORKED.store(true, Ordering::Relaxed);
        }
    }
    // SAFETY: the hook only touches atomics, which is allowed between fork and exec.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// True in a child of a process that had opened the device.
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// True once the device is open here.
pub fn is_open() -> bool {
    !is_forked() && matches!(*lock(), State::Open(_))
}

fn lock() -> MutexGuard<'static, State> {
    // A panic under the lock leaves the stream itself consistent: its calls check before they act.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn freed() -> MutexGuard<'static, Vec<u64>> {
    FREED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` on the stream. `work` must not drop tensors: that may wait for Python, which may wait for us.
///
/// # Errors
/// The stream's; `Unavailable` where it cannot be opened, `Misuse` after a fork or after exit.
pub fn with<T>(work: impl FnOnce(&mut VulkanQueue) -> Result<T, DeviceError>) -> Result<T, Error> {
    perform(work)
}

/// As [`with`], for work with errors of its own.
///
/// # Errors
/// As [`with`].
pub fn perform<T, E>(work: impl FnOnce(&mut VulkanQueue) -> Result<T, E>) -> Result<T, Error>
where
    Error: From<E>,
{
    if is_forked() {
        return Err(Error::Invalid(
            "Cannot re-initialize wave in forked subprocess. To use wave with multiprocessing, you must use \
             the 'spawn' start method"
                .into(),
        ));
    }
    let mut state = lock();
    if matches!(*state, State::Unopened) {
        OPENED.store(true, Ordering::Relaxed);
        match open() {
            Ok(queue) => *state = State::Open(Box::new(queue)),
            Err(error) => *state = State::Failed(error.to_string()),
        }
    }
    match &mut *state {
        State::Open(queue) => {
            // First, so that scratch memory of operations can have what dead tensors had.
            free_dead(queue);
            Ok(work(queue)?)
        }
        State::Failed(why) => Err(DeviceError::Unavailable(why.clone()).into()),
        _ => Err(DeviceError::Misuse("the interpreter is exiting; the device is closed".into()).into()),
    }
}

fn open() -> Result<VulkanQueue, DeviceError> {
    let wrong = |name: &str, text: &str, what: &str| {
        DeviceError::Unavailable(format!("{name}={text}: expected {what}"))
    };
    let index = match settings::variable("WAVE32_VISIBLE_DEVICES") {
        None => None,
        Some((name, text)) => Some(
            settings::first_index(&text)
                .ok_or_else(|| wrong(&name, &text, "the index of a device (`wave32 devices` lists them)"))?,
        ),
    };
    let set = CAP.load(Ordering::Relaxed);
    let memory_cap = match settings::variable("WAVE32_MEMORY_CAP") {
        _ if set != u64::MAX => Some(set),
        None => None,
        Some((name, text)) => Some(
            settings::parse_bytes(&text)
                .ok_or_else(|| wrong(&name, &text, "bytes, or a number with K, M or G"))?,
        ),
    };
    let mut queue = wave32_vulkan::open(index, Options { memory_cap, ..Options::default() })?;
    if let Some((name, text)) = settings::variable("WAVE32_TIMEOUT") {
        let seconds = settings::seconds(&text).ok_or_else(|| wrong(&name, &text, "seconds"))?;
        queue.set_deadline(Duration::from_secs_f64(seconds));
    }
    Ok(queue)
}

/// Gives blocks of dead tensors back to the heap.
fn free_dead(queue: &mut VulkanQueue) {
    for address in freed().drain(..) {
        queue.free(address);
    }
}

/// A block of at least `bytes`.
///
/// # Errors
/// `OutOfMemory` with the sizes and what may help; the stream's.
pub fn alloc(bytes: u64) -> Result<u64, Error> {
    let mut left = HeapStats::default();
    let block = with(|queue| {
        let block = queue.alloc(bytes);
        left = queue.heap_stats();
        block
    });
    match block {
        Err(Error::OutOfMemory(_)) => Err(Error::OutOfMemory(format!(
            "wave out of memory. Tried to allocate {}. {} is allocated by tensors, {} reserved by the device's heap \
             (caches were given back before this was raised). Use a smaller batch or smaller images, autocast, or \
             gradient checkpointing; WAVE32_MEMORY_CAP or torch.wave.set_memory_cap may be in force.",
            readable(bytes),
            readable(left.allocated),
            readable(left.reserved),
        ))),
        other => other,
    }
}

/// Gives a block back. From any thread, in any state of the process.
pub fn free(address: u64) {
    if address != 0 && !is_forked() {
        freed().push(address);
    }
}

/// What the heap holds; zeros before the device is open.
///
/// # Errors
/// As [`with`].
pub fn heap() -> Result<HeapStats, Error> {
    if !is_open() {
        return Ok(HeapStats::default());
    }
    with(|queue| Ok(queue.heap_stats()))
}

/// Bytes that the heap can still take from the driver, within the cap; opens the device.
///
/// # Errors
/// As [`with`].
pub fn memory_left() -> Result<u64, Error> {
    with(|queue| Ok(queue.memory_left()))
}

/// Gives everything cached back to the driver.
///
/// # Errors
/// As [`with`].
pub fn empty_cache() -> Result<(), Error> {
    if !is_open() {
        return Ok(());
    }
    with(|queue| queue.empty_cache())
}

/// Most bytes of the heap from now on.
///
/// # Errors
/// As [`with`].
pub fn set_memory_cap(cap: Option<u64>) -> Result<(), Error> {
    CAP.store(cap.unwrap_or(u64::MAX), Ordering::Relaxed);
    if !is_open() {
        return Ok(());
    }
    with(|queue| {
        queue.set_memory_cap(cap);
        Ok(())
    })
}

/// Gives the device up with all tensors on it; the next use opens it anew. For after a device loss or a timeout.
///
/// Tensors of before fail in every use: no address of a stream means anything to another.
pub fn reopen() {
    if is_forked() {
        return;
    }
    let mut state = lock();
    let before = std::mem::replace(&mut *state, State::Unopened);
    drop(state);
    drop(before);
}

/// Waits for work in flight and closes the device for good. Tensors that are still alive stay readable
/// objects without content.
pub fn close() {
    if is_forked() {
        return;
    }
    let mut state = lock();
    let open = std::mem::replace(&mut *state, State::Closed);
    drop(state);
    drop(open);
}
