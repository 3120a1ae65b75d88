//! What is wrong with tensors' contents, such as an index out of range: kernels raise a word of device memory, and the next
//! wait for the device tells.

use crate::abi::error::Error;
use crate::dispatch::register::Registration;
use crate::runtime::bridge::view;
use crate::runtime::state;
use crate::tensors::tensor::Tensor;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use wave32_ops::index::Errors;
use wave32_ops::{ElementType, Elementwise, Op, Queue, View};

/// What is looked for; each has a word, and the later is told where several are raised: it may be the earlier's cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// An index out of range.
    Index,
    /// An input of `binary_cross_entropy` outside of 0 to 1, or NaN.
    Probability,
    /// An `output_size=` of `repeat_interleave` that is not the sum of the repeats.
    OutputSize,
}

impl Check {
    const ALL: [Self; 3] = [Self::Index, Self::Probability, Self::OutputSize];

    fn error(self) -> Error {
        let since = "in an operation on the wave device since the last wait for it";
        let hint = "Run the code with WAVE_LAUNCH_BLOCKING=1 to see which operation it was";
        match self {
            Self::Index => Error::Index(format!(
                "index out of range {since}; what it should have read is 0, what it should have written is not. {hint}"
            )),
            Self::Probability => Error::Invalid(format!(
                "all elements of input should be between 0 and 1: a binary_cross_entropy got others, {since}. {hint}"
            )),
            Self::OutputSize => Error::Invalid(format!(
                "allocated size does not match required size: a repeat_interleave got an output_size that is not the sum \
                 of its repeats, {since}. {hint}"
            )),
        }
    }
}

const BYTES: usize = 4 * Check::ALL.len();

/// The words, for the life of the stream.
static WORDS: Mutex<Option<u64>> = Mutex::new(None);
/// A kernel that may raise one was launched since they were last looked at.
static PENDING: AtomicBool = AtomicBool::new(false);

/// Schemas of what `python/wave32/_composites.py` calls: `check` is a place in [`Check::ALL`].
pub const SCHEMAS: &[&str] = &["raise_where(Tensor wrong, int check) -> ()"];

/// Kernels of those.
pub const OWN: &[Registration] = crate::ops! {
    "raise_where" => |wrong: &Tensor, check: i64| {
        let check = usize::try_from(check).ok().and_then(|check| Check::ALL.get(check));
        raise_where(wrong, *check.ok_or_else(|| Error::Invalid("no such check".into()))?)
    },
};

fn words() -> Result<u64, Error> {
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    PENDING.store(true, Ordering::Relaxed);
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
    let word = View::new(words()? + 4 * check as u64, ElementType::I32, &[], &[])?;
    let wrong = view(wrong)?;
    crate::runtime::bridge::run(|queue| {
        Elementwise::new(Op::Maximum, ElementType::I32).run(queue, &[(&word).into(), (&wrong).into()], &word)
    })
}

/// Another stream knows nothing of the words.
pub fn forget() {
    *WORDS.lock().unwrap_or_else(PoisonError::into_inner) = None;
    PENDING.store(false, Ordering::Relaxed);
}

/// `WAVE_LAUNCH_BLOCKING`, read once.
static BLOCKING: LazyLock<AtomicBool> = LazyLock::new(|| {
    AtomicBool::new(std::env::var("WAVE_LAUNCH_BLOCKING").is_ok_and(|text| text.trim() == "1"))
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
    let raised = |check: &&Check| words[4 * **check as usize..][..4] != [0; 4];
    match Check::ALL.iter().rev().find(raised) {
        Some(check) => Err(check.error()),
        None => Ok(()),
    }
}
