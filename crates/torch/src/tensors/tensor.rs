//! [`Tensor`]: an owned handle.

use crate::abi::calls::{Handle, Maybe, Numbers, Word, api, check};
use crate::abi::error::Error;
use crate::tensors::dtype;
use std::cell::Cell;
use wave32_torch_logic::{Dims, ScalarType, strides};

/// An owned handle to a tensor.
#[derive(Debug)]
pub struct Tensor(Handle);

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and dropped once.
        unsafe { (api().aoti_torch_delete_tensor_object)(self.0) };
    }
}

macro_rules! getter {
    ($(#[$doc:meta])* $name:ident, $symbol:ident, $type:ty, $zero:expr) => {
        $(#[$doc])*
        pub fn $name(&self) -> $type {
            let mut value = $zero;
            // SAFETY: a live handle, a place for the answer. These fail for undefined tensors only, which
            // arguments are checked for; the zero is right for those.
            unsafe { (api().$symbol)(self.0, &raw mut value) };
            value
        }
    };
}

impl Tensor {
    /// Takes ownership of a handle.
    ///
    /// # Safety
    /// `handle` is one that libtorch gave and nothing else will delete.
    pub unsafe fn from_handle(handle: Handle) -> Self {
        Self(handle)
    }

    /// Gives ownership away.
    pub fn into_word(self) -> Word {
        let word = self.0 as Word;
        std::mem::forget(self);
        word
    }

    /// The handle, still owned by `self`.
    pub(crate) fn handle(&self) -> Handle {
        self.0
    }

    getter! {
        /// False for the undefined tensor, which stands for none.
        is_defined, aoti_torch_is_defined, bool, false
    }
    getter! {
        /// Dimensions.
        dim, aoti_torch_get_dim, i64, 0
    }
    getter! {
        /// Elements.
        numel, aoti_torch_get_numel, i64, 0
    }
    getter! {
        /// First element, in elements from the storage's start.
        offset, aoti_torch_get_storage_offset, i64, 0
    }
    getter! {
        /// Bytes of the storage.
        storage_bytes, aoti_torch_get_storage_size, i64, 0
    }
    getter! {
        /// Row-major without gaps.
        is_contiguous, aoti_torch_is_contiguous, bool, true
    }

    /// Sizes by dimension: a copy, which no resize changes.
    pub fn sizes(&self) -> Dims {
        self.dims(api().aoti_torch_get_sizes)
    }

    /// Strides by dimension, in elements; a copy as well.
    pub fn strides(&self) -> Dims {
        self.dims(api().aoti_torch_get_strides)
    }

    fn dims(&self, get: unsafe extern "C" fn(Handle, *mut *const i64) -> i32) -> Dims {
        let rank = self.dim() as usize;
        let mut first = std::ptr::null();
        // SAFETY: a live handle; libtorch answers with `rank` numbers of the tensor's, copied at once.
        unsafe {
            if rank == 0 || get(self.0, &raw mut first) != 0 || first.is_null() {
                return Dims::new();
            }
            Dims::from_slice(std::slice::from_raw_parts(first, rank))
        }
    }

    /// Element type.
    ///
    /// # Errors
    /// `Invalid` for types that the device has no memory for.
    pub fn dtype(&self) -> Result<ScalarType, Error> {
        let mut code = -1;
        // SAFETY: as the getters above.
        unsafe { (api().aoti_torch_get_dtype)(self.0, &raw mut code) };
        dtype::of_code(code)
    }

    /// True for tensors of this device.
    pub fn is_wave(&self) -> bool {
        // SAFETY: a constant of libtorch's.
        self.device_type() == unsafe { (api().aoti_torch_device_type_privateuse1)() }
    }

    /// True for tensors in the host's memory. Those of other devices, such as `cuda`, are neither here nor there.
    pub fn is_cpu(&self) -> bool {
        // SAFETY: a constant of libtorch's.
        self.device_type() == unsafe { (api().aoti_torch_device_type_cpu)() }
    }

    fn device_type(&self) -> i32 {
        let mut kind = -1;
        // SAFETY: as the getters above.
        unsafe { (api().aoti_torch_get_device_type)(self.0, &raw mut kind) };
        kind
    }

    /// The address of the tensor's implementation, which is all that an `at::Tensor` has.
    pub fn implementation(&self) -> usize {
        // SAFETY: a handle is an `at::Tensor*`, and that is one pointer.
        unsafe { *self.0.cast::<usize>() }
    }

    /// Two handles to one tensor.
    pub fn is_same(&self, other: &Self) -> bool {
        self.implementation() == other.implementation()
    }

    /// Address of the first element; 0 where there are none.
    pub fn address(&self) -> u64 {
        let mut data = std::ptr::null_mut();
        // SAFETY: as the getters above.
        unsafe { (api().aoti_torch_get_data_ptr)(self.0, &raw mut data) };
        data as u64
    }

    /// Bytes from the first element's address to the end of the last: what a launch binds at least.
    pub fn span_bytes(&self) -> Result<u64, Error> {
        Ok(strides::span(&self.sizes(), &self.strides()) * self.dtype()?.bytes())
    }

    /// Elements fill a range of memory without gaps or overlaps, in whatever order.
    pub fn is_dense(&self) -> bool {
        self.is_contiguous() || strides::is_dense(&self.sizes(), &self.strides())
    }

    /// A new tensor of the CPU with these strides.
    ///
    /// # Errors
    /// `Torch` where a call into libtorch fails.
    pub fn empty_cpu(sizes: &[i64], strides: &[i64], dtype: ScalarType) -> Result<Self, Error> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: both slices have `rank` numbers; libtorch checks the rest.
        let status = unsafe {
            (api().aoti_torch_empty_strided)(
                sizes.len() as i64,
                sizes.as_ptr(),
                strides.as_ptr(),
                dtype::code(dtype),
                (api().aoti_torch_device_type_cpu)(),
                0,
                &raw mut handle,
            )
        };
        check(status, "empty_strided")?;
        Ok(Self(handle))
    }

    /// A view of the same storage; `offset` counts elements from the storage's start.
    ///
    /// # Errors
    /// `Torch`, as where the view passes the storage's end.
    pub fn alias(&self, sizes: &[i64], strides: &[i64], offset: i64) -> Result<Self, Error> {
        if let Some(view) = self.alias_in_inference(sizes, strides, offset)? {
            return Ok(view);
        }
        let mut handle = std::ptr::null_mut();
        // The shim adds to the offset that the tensor has.
        let more = offset - self.offset();
        let rank = sizes.len() as i64;
        // SAFETY: a live handle and `rank` numbers in both slices.
        let status = unsafe {
            (api().aoti_torch__reinterpret_tensor)(
                self.0,
                rank,
                sizes.as_ptr(),
                strides.as_ptr(),
                more,
                &raw mut handle,
            )
        };
        check(status, "a view")?;
        Ok(Self(handle))
    }

    /// In inference mode, where the shim would make a tensor of that mode: torch then refuses it as a view of one that
    /// was made before.
    fn alias_in_inference(&self, sizes: &[i64], strides: &[i64], offset: i64) -> Result<Option<Self>, Error> {
        let (Some(mode), Some(as_strided)) = (api().inference_mode, api().as_strided) else {
            return Ok(None);
        };
        // SAFETY: reads a thread's own state.
        if !unsafe { mode() } {
            return Ok(None);
        }
        let end = sizes.iter().zip(strides).map(|(&size, &stride)| (size - 1) * stride).sum::<i64>() + offset;
        let bytes = (end + 1) * self.dtype()?.bytes() as i64;
        if !sizes.contains(&0) && bytes > self.storage_bytes() {
            return Err(Error::Torch(format!(
                "a view of sizes {sizes:?} and strides {strides:?} from {offset} on passes the storage's end, {} bytes",
                self.storage_bytes()
            )));
        }
        let view = Self::undefined()?;
        let at = Maybe::from(Some(offset));
        // SAFETY: handles are `at::Tensor*`, the result's to one that owns nothing yet, where the callee may construct;
        // both slices outlive the call; the view is inside the storage, so it does not throw.
        unsafe { as_strided(view.0, self.0, Numbers::of(sizes), Numbers::of(strides), at) };
        Ok(Some(view))
    }

    /// A view of the same storage as another type; `offset` counts bytes from the storage's start.
    ///
    /// # Errors
    /// `Torch` where a call into libtorch fails.
    pub fn alias_as(
        &self,
        dtype: ScalarType,
        sizes: &[i64],
        strides: &[i64],
        offset: i64,
    ) -> Result<Self, Error> {
        if self.offset() != 0 {
            // libtorch wants a tensor that begins where its storage does.
            return self.alias(&[0], &[1], 0)?.alias_as(dtype, sizes, strides, offset);
        }
        let mut handle = std::ptr::null_mut();
        let rank = sizes.len() as i64;
        // SAFETY: as in `alias`.
        let status = unsafe {
            (api().aoti_torch__alloc_from_pool)(
                self.0,
                offset,
                dtype::code(dtype),
                rank,
                sizes.as_ptr(),
                strides.as_ptr(),
                &raw mut handle,
            )
        };
        check(status, "a view as another type")?;
        Ok(Self(handle))
    }

    /// Another handle to the same tensor.
    ///
    /// # Errors
    /// `Torch` where a call into libtorch fails.
    pub fn share(&self) -> Result<Self, Error> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a live handle.
        check(unsafe { (api().aoti_torch_new_tensor_handle)(self.0, &raw mut handle) }, "a new handle")?;
        Ok(Self(handle))
    }

    /// The undefined tensor, which stands for none.
    ///
    /// # Errors
    /// `Torch` where a call into libtorch fails.
    pub fn undefined() -> Result<Self, Error> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a place for the answer.
        check(unsafe { (api().aoti_torch_new_uninitialized_tensor)(&raw mut handle) }, "a new handle")?;
        Ok(Self(handle))
    }

    /// `self.copy_(src)`, through the dispatcher.
    ///
    /// # Errors
    /// `Torch` where a call into libtorch fails.
    pub fn copy_from(&self, src: &Self) -> Result<(), Error> {
        // SAFETY: two live handles.
        check(unsafe { (api().aoti_torch_copy_)(self.0, src.0, 0) }, "copy_")
    }

    /// Calls `work` with the bytes of a CPU tensor from its first element to its last.
    ///
    /// # Errors
    /// `Invalid` for a tensor of another device, and inside of another such call; `work`'s.
    pub fn read_host<T>(&self, work: impl FnOnce(&[u8]) -> Result<T, Error>) -> Result<T, Error> {
        self.on_host(|data, bytes| match bytes {
            0 => work(&[]),
            // SAFETY: CPU tensors have their elements in memory, and this thread has no other slice of a tensor
            // (`on_host`). That no other thread writes them meanwhile is up to the user, as in any call of torch.
            _ => work(unsafe { std::slice::from_raw_parts(data, bytes) }),
        })
    }

    /// As [`Tensor::read_host`], to write: to a tensor that this thread may change.
    ///
    /// # Errors
    /// As there.
    pub fn write_host<T>(&self, work: impl FnOnce(&mut [u8]) -> Result<T, Error>) -> Result<T, Error> {
        self.on_host(|data, bytes| match bytes {
            0 => work(&mut []),
            // SAFETY: as above.
            _ => work(unsafe { std::slice::from_raw_parts_mut(data, bytes) }),
        })
    }

    /// Calls `work` with the tensor's memory. One such call at a time in a thread: handles share memory, so a second
    /// slice might be of the same.
    fn on_host<T>(&self, work: impl FnOnce(*mut u8, usize) -> Result<T, Error>) -> Result<T, Error> {
        thread_local!(static BUSY: Cell<bool> = const { Cell::new(false) });
        struct Busy;
        impl Drop for Busy {
            fn drop(&mut self) {
                BUSY.set(false);
            }
        }
        if !self.is_cpu() {
            return Err(Error::Invalid("a tensor of a device has no host memory: call its `.cpu()`".into()));
        }
        let (data, bytes) = (self.address() as *mut u8, self.span_bytes()? as usize);
        if BUSY.replace(true) {
            return Err(Error::Invalid("the memory of two tensors at once".into()));
        }
        let _busy = Busy;
        work(data, bytes)
    }
}
