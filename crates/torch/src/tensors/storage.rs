//! Storages that grow and shrink in place, and parameters that go from device to device.

use crate::abi::calls::api;
use crate::abi::error::Error;
use crate::abi::raise::raise;
use crate::abi::vtable::Object;
use crate::dispatch::register::Registration;
use crate::runtime::state;
use crate::tensors::tensor::Tensor;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::OnceLock;
use wave32_device::Queue;

/// Kernels of `aten` for a torch that asks the device (2.15): may a tensor become another one in place (`x.data = y`)?
pub const SHALLOW: &[Registration] = crate::ops! { "_has_compatible_shallow_copy_type" => compatible };

fn compatible(x: &Tensor, from: &Tensor) -> Result<bool, Error> {
    Ok(is_strided(x)? && is_strided(from)?)
}

fn is_strided(x: &Tensor) -> Result<bool, Error> {
    let mut layout = -1;
    let Some(get) = api().layout else { return Ok(false) };
    // SAFETY: a live handle, a place for the answer.
    crate::abi::calls::check(unsafe { get(x.handle(), &raw mut layout) }, "layout")?;
    Ok(layout == 0)
}

/// Words of `c10::DataPtr`: data, context, deleter, device.
const DATA: usize = 4;
/// No storage has fewer words; its data and size lie among these.
const WORDS: usize = 9;
/// `c10::Device` of this device, as the low bytes of a word.
const DEVICE: usize = 20;

/// Where a storage's data lies, in words. Its size follows.
static PLACE: OnceLock<usize> = OnceLock::new();

/// A storage of this device's of Python's, and its address as a C++ object.
struct Storage<'py> {
    python: Bound<'py, PyAny>,
    object: *mut usize,
}

impl<'py> Storage<'py> {
    fn new(py: Python<'py>, bytes: usize) -> PyResult<Self> {
        let torch = py.import("torch")?;
        let how = PyDict::new(py);
        how.set_item("dtype", torch.getattr("uint8")?)?;
        how.set_item("device", "wave")?;
        let tensor = torch.call_method("empty", (bytes,), Some(&how))?;
        let python = tensor.call_method0("untyped_storage")?;
        let object = python.getattr("_cdata")?.extract::<usize>()? as *mut usize;
        Ok(Self { python, object })
    }

    fn place(&self, bytes: usize) -> PyResult<Option<usize>> {
        let address: usize = self.python.call_method0("data_ptr")?.extract()?;
        // SAFETY: a live storage of at least as many words.
        let words = unsafe { std::slice::from_raw_parts(self.object, WORDS) };
        let fits = |&at: &usize| {
            words[at] == address && words[at + DATA - 1] & 0xff == DEVICE && words[at + DATA] == bytes
        };
        Ok((1..WORDS - DATA).find(fits))
    }
}

/// Finds the place by two storages whose addresses and sizes are known.
fn place(py: Python<'_>) -> Result<usize, Error> {
    if let Some(&place) = PLACE.get() {
        return Ok(place);
    }
    let (one, other) = (Storage::new(py, 272)?, Storage::new(py, 1040)?);
    match (one.place(272)?, other.place(1040)?) {
        (Some(a), Some(b)) if a == b => Ok(*PLACE.get_or_init(|| a)),
        _ => Err(Error::Torch("storages are not laid out as expected, so this one cannot be resized".into())),
    }
}

/// `resizePrivateUse1Bytes`: the storage is a pointer, lent.
pub unsafe extern "C-unwind" fn resize(_hooks: Object, storage: *const *mut usize, bytes: usize) {
    // SAFETY: by the caller, torch.
    if let Err(error) = unsafe { resize_to(*storage, bytes) } {
        raise(error);
    }
}

/// Exchanges the storage's data for one of that size, with what it held.
///
/// # Safety
/// `storage` is a live storage of this device.
unsafe fn resize_to(storage: *mut usize, bytes: usize) -> Result<(), Error> {
    crate::abi::gil::attach(|py| {
        let place = place(py)?;
        let fresh = Storage::new(py, bytes)?;
        // SAFETY: both have their data at that place, and their size behind it.
        let (old, new) = unsafe { (storage.add(place), fresh.object.add(place)) };
        // SAFETY: as above.
        let (from, to, kept) = unsafe { (*old as u64, *new as u64, bytes.min(*old.add(DATA))) };
        if kept > 0 {
            state::with(|queue| queue.copy(from, to, kept as u64))?;
        }
        // SAFETY: as above; what `storage` held is freed with `fresh`, by its own deleter.
        unsafe { std::ptr::swap_nonoverlapping(old, new, DATA + 1) };
        Ok(())
    })
}
