//! New tensors of the device.

use crate::abi::error::Error;
use crate::runtime::state;
use crate::tensors::dlpack;
use crate::tensors::tensor::Tensor;
use wave32_torch_logic::{ScalarType, strides};

impl Tensor {
    /// A new tensor of the device, contiguous, content undefined.
    ///
    /// # Errors
    /// `Device`, `Gone` or `OutOfMemory` from the queue.
    pub fn empty(sizes: &[i64], dtype: ScalarType) -> Result<Self, Error> {
        Self::empty_strided(sizes, &strides::contiguous(sizes), dtype)
    }

    /// A new tensor as `self` in sizes and, where `self` is dense, strides.
    ///
    /// # Errors
    /// As [`Tensor::empty`].
    pub fn empty_like(&self, dtype: ScalarType) -> Result<Self, Error> {
        match self.is_dense() {
            true => Self::empty_strided(&self.sizes(), &self.strides(), dtype),
            false => {
                Self::empty_strided(&self.sizes(), &strides::preserved(&self.sizes(), &self.strides()), dtype)
            }
        }
    }

    /// A new tensor of the device with these strides.
    ///
    /// # Errors
    /// As [`Tensor::empty`]; `Invalid` for negative sizes or strides.
    pub fn empty_strided(sizes: &[i64], steps: &[i64], dtype: ScalarType) -> Result<Self, Error> {
        if sizes.len() != steps.len() || sizes.iter().chain(steps).any(|n| *n < 0) {
            return Err(Error::Invalid(format!("a tensor of sizes {sizes:?} and strides {steps:?}")));
        }
        let elements = strides::checked_span(sizes, steps).and_then(|n| n.checked_mul(dtype.bytes()));
        let bytes = elements.filter(|bytes| *bytes < 1 << 62).ok_or_else(|| {
            Error::OutOfMemory(format!("a tensor of sizes {sizes:?} has more bytes than 64 bits count"))
        })?;
        let address = if bytes == 0 { 0 } else { state::alloc(bytes)? };
        let tensor = dlpack::tensor(address, sizes, steps, dtype);
        if tensor.is_err() {
            state::free(address);
        }
        if dtype.is_exotic() { tensor?.alias_as(dtype, sizes, steps, 0) } else { tensor }
    }
}
