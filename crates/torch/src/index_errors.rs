//! Indices out of range: kernels raise a word of device memory, and the next wait for the device tells.

use crate::error::Error;
use crate::state;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use wave32_ops::Queue;
use wave32_ops::index::Errors;

/// The word, for the life of the stream.
static WORD: Mutex<Option<u64>> = Mutex::new(None);
/// A kernel that may raise it was launched since it was last looked at.
static PENDING: AtomicBool = AtomicBool::new(false);

/// Where kernels raise it.
///
/// # Errors
/// The stream's.
pub fn word() -> Result<Errors, Error> {
    let mut word = WORD.lock().unwrap_or_else(PoisonError::into_inner);
    PENDING.store(true, Ordering::Relaxed);
    if let Some(address) = *word {
        return Ok(Errors(address));
    }
    let address = state::perform(|stream| {
        let address = stream.alloc(4)?;
        Queue::fill(stream, address, 4, 0)?;
        Ok::<_, wave32_device::DeviceError>(address)
    })?;
    *word = Some(address);
    Ok(Errors(address))
}

/// Another stream knows nothing of the word.
pub fn forget() {
    *WORD.lock().unwrap_or_else(PoisonError::into_inner) = None;
    PENDING.store(false, Ordering::Relaxed);
}

/// Called where the device is waited for anyway. Costs nothing where no index was used since.
///
/// # Errors
/// `Index` where one was out of range; the stream's.
pub fn check() -> Result<(), Error> {
    if !PENDING.load(Ordering::Relaxed) {
        return Ok(());
    }
    let Some(address) = *WORD.lock().unwrap_or_else(PoisonError::into_inner) else { return Ok(()) };
    let raised = state::perform(|stream| {
        let mut word = [0; 4];
        Queue::download(stream, address, &mut word)?;
        PENDING.store(false, Ordering::Relaxed);
        if word != [0; 4] {
            Queue::fill(stream, address, 4, 0)?;
        }
        Ok::<_, wave32_device::DeviceError>(word != [0; 4])
    })?;
    if raised {
        return Err(Error::Index(
            "index out of range in an operation on the wave device since the last wait for it; what it should have \
             read is 0, what it should have written is not. Run the code on the CPU to see which operation it was"
                .into(),
        ));
    }
    Ok(())
}
