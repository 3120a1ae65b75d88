//! What is wrong with tensors' contents, such as an index out of range: kernels raise a word of device memory, and the next
//! wait for the device tells.

use crate::abi::error::Error;
use crate::runtime::bridge::view;
use crate::runtime::state;
use crate::tensors::tensor::Tensor;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use wave32_ops::index::Errors;
use wave32_ops::{ElementType, Elementwise, Op, Queue, View};
use wave32_torch_logic::checks::{BYTES, Check};
use wave32_torch_logic::settings;

/// The words, for the life of the stream.
static WORDS: Mutex<Option<u64>> = Mutex::new(None);
/// A kernel that may raise one was launched since they were last looked at.
static PENDING: AtomicBool = AtomicBool::new(false);

/// Why what was launched computes from what never came.
static BROKEN: Mutex<Option<String>> = Mutex::new(None);

/// Has the next wait for the device tell that an operation between processes failed under kernels that use its result.
pub fn set_broken(why: String) {
    BROKEN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    expect();
}

fn words() -> Result<u64, Error> {
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    expect();
    if let Some(address) = *words {
        return Ok(address);
    }
    let address = state::perform(|queue| {
        let address = queue.alloc(BYTES as u64)?;
        Queue::fill(queue, address, BYTES as u64, 0)?;
        Ok::<_, wave32_device::DeviceError>(address)
    })?;
    *words = Some(address);
    Ok(address)
}

/// A kernel that may raise a word is launched.
pub fn expect() {
    PENDING.store(true, Ordering::Relaxed);
}

/// Whether such a kernel was launched since the words were last looked at.
pub fn are_expected() -> bool {
    PENDING.load(Ordering::Relaxed)
}

/// Tells what is wrong so far, and makes the words: a graph may use them, and they outlive it.
///
/// # Errors
/// As [`check`].
pub fn start() -> Result<(), Error> {
    words()?;
    check()
}

/// Where kernels raise an index out of range.
///
/// # Errors
/// `Device`, `Gone` or `OutOfMemory` from the queue.
pub fn word() -> Result<Errors, Error> {
    words().map(Errors)
}

/// Raises `check` where the one element of `wrong` is true.
///
/// # Errors
/// `Device`, `Gone` or `OutOfMemory` from the queue.
pub fn raise_where(wrong: &Tensor, check: Check) -> Result<(), Error> {
    let word = View::new(words()? + check.offset(), ElementType::I32, &[], &[])?;
    let wrong = view(wrong)?;
    crate::runtime::bridge::run(|queue| {
        Elementwise::new(Op::Maximum, ElementType::I32).run(queue, &[(&word).into(), (&wrong).into()], &word)
    })
}

/// Another stream knows nothing of the words.
pub fn forget() {
    *WORDS.lock().unwrap_or_else(PoisonError::into_inner) = None;
    *BROKEN.lock().unwrap_or_else(PoisonError::into_inner) = None;
    PENDING.store(false, Ordering::Relaxed);
}

/// `WAVE32_LAUNCH_BLOCKING`, read once.
static BLOCKING: LazyLock<AtomicBool> = LazyLock::new(|| {
    AtomicBool::new(settings::variable("WAVE32_LAUNCH_BLOCKING").is_some_and(|(_, text)| text.trim() == "1"))
});

/// Whether operators wait for the device from now on, whatever the environment says; whether they did.
pub fn block(is_blocking: bool) -> bool {
    BLOCKING.swap(is_blocking, Ordering::Relaxed)
}

/// Called after each operator: waits for the device and tells what went wrong, where that is asked for.
///
/// # Errors
/// As [`check`].
pub fn after_operator() -> Result<(), Error> {
    if !BLOCKING.load(Ordering::Relaxed) || !state::is_open() {
        return Ok(());
    }
    state::with(|queue| queue.synchronize())?;
    check()
}

/// Called where the device is waited for anyway. Costs nothing where nothing is looked for since.
///
/// # Errors
/// `Index` where an index was out of range, `Invalid` for the other checks; the stream's.
pub fn check() -> Result<(), Error> {
    if !PENDING.load(Ordering::Relaxed) {
        return Ok(());
    }
    if let Some(why) = BROKEN.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(Error::Invalid(format!(
            "a collective operation failed after kernels that use its result were launched: what they computed is wrong. {why}"
        )));
    }
    let Some(address) = *WORDS.lock().unwrap_or_else(PoisonError::into_inner) else { return Ok(()) };
    let words = state::perform(|queue| {
        let mut words = [0; BYTES];
        Queue::download(queue, address, &mut words)?;
        PENDING.store(false, Ordering::Relaxed);
        if words != [0; BYTES] {
            Queue::fill(queue, address, BYTES as u64, 0)?;
        }
        Ok::<_, wave32_device::DeviceError>(words)
    })?;
    Ok(Check::read(&words)?)
}
