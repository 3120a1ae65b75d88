//! Tensors around the device's memory. DLPack is the one way of libtorch that takes a pointer, a foreign
//! device and a deleter without C++.

use crate::abi::calls::api;
use crate::abi::error::Error;
use crate::runtime::state;
use crate::tensors::tensor::Tensor;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::c_void;
use wave32_torch_logic::{Dims, ScalarType};

/// `DLDeviceType::kDLExtDev`, which PyTorch takes for PrivateUse1.
const EXTENSION_DEVICE: i32 = 12;

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`, and what it points to.
#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: extern "C" fn(*mut Managed),
    sizes: Dims,
    strides: Dims,
}

extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: made by `Box::into_raw` below; libtorch deletes it once, when the storage dies.
    let managed = unsafe { Box::from_raw(managed) };
    state::free(managed.tensor.data as u64);
}

/// A tensor that owns the block at `address`.
pub(crate) fn tensor(
    address: u64,
    sizes: &[i64],
    strides: &[i64],
    dtype: ScalarType,
) -> Result<Tensor, Error> {
    let (code, bits) = dtype.dlpack();
    let mut managed = Box::new(Managed {
        tensor: DlTensor {
            data: address as *mut c_void,
            device_type: EXTENSION_DEVICE,
            device_id: 0,
            ndim: sizes.len() as i32,
            code,
            bits,
            lanes: 1,
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        },
        context: std::ptr::null_mut(),
        deleter: delete,
        sizes: Dims::from_slice(sizes),
        strides: Dims::from_slice(strides),
    });
    managed.tensor.shape = managed.sizes.as_mut_ptr();
    managed.tensor.strides = managed.strides.as_mut_ptr();
    match api().from_dlpack {
        Some(from) => {
            let made = Tensor::undefined()?;
            let mut no_function = [0usize; 4];
            // SAFETY: a handle is an `at::Tensor*`, here to one that owns nothing yet, so the callee may
            // construct its result there; an all-zero std::function is an empty one; sizes, strides and
            // types are valid, so it does not throw; from here on libtorch owns `managed`.
            unsafe { from(made.handle(), Box::into_raw(managed).cast(), &raw mut no_function) };
            Ok(made)
        }
        None => through_python(managed),
    }
}

/// Slower, with the GIL, but through public interfaces only.
fn through_python(managed: Box<Managed>) -> Result<Tensor, Error> {
    crate::abi::gil::attach(|py| {
        let managed = Box::into_raw(managed);
        // SAFETY: the capsule carries the pointer under DLPack's name; `from_dlpack` renames it when it has
        // taken ownership.
        let capsule: Bound<'_, PyCapsule> = unsafe {
            let raw = pyo3::ffi::PyCapsule_New(managed.cast(), c"dltensor".as_ptr(), None);
            Bound::from_owned_ptr_or_err(py, raw)?.cast_into_unchecked()
        };
        let torch = py.import("torch._C")?;
        let tensor = torch.call_method1("_from_dlpack", (capsule,))?;
        Tensor::of_object(&tensor)
    })
}
