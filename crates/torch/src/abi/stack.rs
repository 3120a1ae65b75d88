//! Arguments and results of boxed calls: which Rust types stand for which types of a schema.
//!
//! | schema | argument | result |
//! |---|---|---|
//! | `Tensor`, `Tensor(a!)` | `&Tensor` | `Tensor` |
//! | `Tensor?` | `Option<&Tensor>` | |
//! | `Tensor[]`, `Tensor?[]` | `&[Tensor]`, `&[Option<Tensor>]` | `Vec<Tensor>` |
//! | `int`, `SymInt`, `float`, `bool` | `i64`, `f64`, `bool` | the same |
//! | `int[]`, `SymInt[]`, `bool[]` | `&[i64]`, `&[bool]` | |
//! | `ScalarType`, `MemoryFormat` | `ScalarType`, `MemoryFormat` | |
//! | `str` | `&str` | |
//! | `Layout`, `Device`, `Generator?` | `Layout`, `Device`, `Option<Generator>` | |
//! | `X?` | `Option<X>` | |
//!
//! The callee owns every argument: each is decoded into an owned form first, all of them even where one
//! fails, and the kernel gets a loan.

use crate::abi::calls::{BUILD_VERSION, Device as CxxDevice, Handle, Word, api, check};
use crate::abi::conversions::{FromPython, ToPython};
use crate::abi::error::Error;
use crate::tensors::dtype;
use crate::tensors::tensor::Tensor;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyString};
use smallvec::SmallVec;
use wave32_torch_logic::{Dims, MemoryFormat, Scalar, ScalarType};

/// The owned form of an argument.
pub trait Owned: Sized {
    /// Takes the argument off the stack.
    ///
    /// # Errors
    /// `Invalid` for what the device does not know; `Torch`.
    ///
    /// # Safety
    /// `word` is of this type and not yet taken.
    unsafe fn take(word: Word) -> Result<Self, Error>;

    /// The same argument for Python, for a call on the CPU.
    ///
    /// # Errors
    /// `Torch` where a call into libtorch fails; `Invalid` for what cannot follow there.
    fn to_python(&self, py: Python<'_>) -> Result<Py<PyAny>, Error>;
}

/// A parameter of a kernel.
pub trait Argument {
    /// What holds it during the call.
    type Owned: Owned;
    /// The parameter with the call's lifetime.
    type Item<'x>;
    /// Lends it.
    fn lend(owned: &Self::Owned) -> Self::Item<'_>;
}

/// A result of a kernel.
pub trait Return: Sized {
    /// Gives it to the stack.
    ///
    /// # Errors
    /// `Torch` where a call into libtorch fails.
    fn put(self, stack: &mut [Word]) -> Result<(), Error>;

    /// Takes the result of a call that Python made.
    ///
    /// # Errors
    /// `Torch` where a call into libtorch fails; `Invalid` for an object of another type.
    fn from_python(object: &Bound<'_, PyAny>) -> Result<Self, Error>;
}

macro_rules! plain {
    ($($type:ty, $word:ident => $take:expr, $py:ident, $value:ident => $give:expr;)*) => {$(
        impl Owned for $type {
            unsafe fn take($word: Word) -> Result<Self, Error> {
                $take
            }
            fn to_python(&self, $py: Python<'_>) -> Result<Py<PyAny>, Error> {
                let $value = *self;
                $give
            }
        }
        impl Argument for $type {
            type Owned = Self;
            type Item<'x> = Self;
            fn lend(owned: &Self) -> Self {
                *owned
            }
        }
    )*};
}

plain! {
    i64, word => Ok(word as i64), py, value => Ok(PyInt::new(py, value).into_any().unbind());
    f64, word => Ok(f64::from_bits(word)), py, value => Ok(PyFloat::new(py, value).into_any().unbind());
    bool, word => Ok(word & 1 != 0), py, value => Ok(PyBool::new(py, value).to_owned().into_any().unbind());
    ScalarType, word => dtype::of_code(word as i32), py, value => of_torch(py, value.name());
    MemoryFormat, word => dtype::format_of_code(word as i32), py, value => of_torch(py, value.name());
    Layout, word => Ok(Self(word as i32)), py, _value => of_torch(py, "strided");
    Device, word => Ok(Self(word)), py, _value => Ok(PyString::new(py, "wave").into_any().unbind());
}

/// An attribute of the module `torch`.
fn of_torch(py: Python<'_>, name: &str) -> Result<Py<PyAny>, Error> {
    Ok(py.import("torch").and_then(|torch| torch.getattr(name))?.unbind())
}

/// A layout's code; the device has strided tensors only.
#[derive(Debug, Clone, Copy)]
pub struct Layout(pub i32);

/// A device, as libtorch packs it: its type in the upper half, its index in the lower.
#[derive(Debug, Clone, Copy)]
pub struct Device(pub Word);

impl From<CxxDevice> for Device {
    fn from(device: CxxDevice) -> Self {
        Self((Word::from(device.kind as u32) << 32) | Word::from(i32::from(device.index) as u32))
    }
}

impl From<Device> for CxxDevice {
    fn from(device: Device) -> Self {
        Self { kind: (device.0 >> 32) as i8, index: device.0 as i8 }
    }
}

/// A random generator's handle, as of 2.13; before, only none arrives.
#[derive(Debug)]
pub struct Generator(Handle);

impl Generator {
    /// A whole number below 2^53 from it, the CPU's or this device's.
    ///
    /// # Errors
    /// `Invalid` before torch 2.13; `Torch` where a call into libtorch fails.
    pub fn draw(&self) -> Result<u64, Error> {
        let Some(copy) = api().new_generator else {
            return Err(Error::Invalid("generator= needs torch 2.13 or newer here".into()));
        };
        // SAFETY: a live handle.
        if let Some(number) = unsafe { crate::runtime::generator::draw(self.0) } {
            return Ok(number);
        }
        let number = Tensor::empty_cpu(&[], &[], ScalarType::I64)?;
        let mut copied = std::ptr::null_mut();
        // SAFETY: a live handle; the copy is ours.
        check(unsafe { copy(self.0, &raw mut copied) }, "generator")?;
        // SAFETY: eight bytes of C++'s allocator, which is what the callee frees an optional with.
        let boxed = unsafe {
            let boxed: *mut Word = (api()._Znwm)(size_of::<Word>()).cast();
            boxed.write(copied as Word);
            boxed
        };
        let mut stack = [number.share()?.into_word(), 1 << 53, boxed as Word];
        // SAFETY: the operator takes a tensor, a number and an optional generator, which it owns, and answers the tensor.
        unsafe {
            let status = (api().torch_call_dispatcher)(
                c"aten::random_".as_ptr(),
                c"to".as_ptr(),
                stack.as_mut_ptr(),
                BUILD_VERSION,
            );
            check(status, "random_")?;
            drop(Tensor::from_handle(stack[0] as Handle));
        }
        let wrong = |_| Error::Invalid("a number of eight bytes".into());
        number.read_host(|bytes| bytes.try_into().map(u64::from_le_bytes).map_err(wrong))
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        if let Some(delete) = api().delete_generator {
            // SAFETY: an owned handle.
            unsafe { delete(self.0) };
        }
    }
}

impl Owned for Generator {
    unsafe fn take(word: Word) -> Result<Self, Error> {
        Ok(Self(word as Handle))
    }
    fn to_python(&self, _: Python<'_>) -> Result<Py<PyAny>, Error> {
        Err(Error::Invalid("a generator= cannot follow a call to the CPU".into()))
    }
}

impl Argument for &Generator {
    type Owned = Generator;
    type Item<'x> = &'x Generator;
    fn lend(owned: &Generator) -> &Generator {
        owned
    }
}

impl Owned for Tensor {
    unsafe fn take(word: Word) -> Result<Self, Error> {
        // SAFETY: by the caller.
        Ok(unsafe { Self::from_handle(word as Handle) })
    }
    fn to_python(&self, py: Python<'_>) -> Result<Py<PyAny>, Error> {
        ToPython::to_python(self.share()?, py)
    }
}

impl Argument for &Tensor {
    type Owned = Tensor;
    type Item<'x> = &'x Tensor;
    fn lend(owned: &Tensor) -> &Tensor {
        owned
    }
}

/// Optionals are a null word or a box on the heap.
impl<T: Owned> Owned for Option<T> {
    unsafe fn take(word: Word) -> Result<Self, Error> {
        let boxed = word as *mut Word;
        if boxed.is_null() {
            return Ok(None);
        }
        // SAFETY: a box that libtorch made for us to free.
        let inner = unsafe {
            let inner = *boxed;
            match api().delete_stable_ivalue {
                Some(delete) => drop(delete(boxed)),
                None => (api()._ZdlPv)(boxed.cast()),
            }
            T::take(inner)
        };
        inner.map(Some)
    }
    fn to_python(&self, py: Python<'_>) -> Result<Py<PyAny>, Error> {
        self.as_ref().map_or_else(|| Ok(py.None()), |inner| inner.to_python(py))
    }
}

macro_rules! optional {
    ($($type:ty),*) => {$(
        impl Argument for Option<$type> {
            type Owned = Self;
            type Item<'x> = Self;
            fn lend(owned: &Self) -> Self {
                *owned
            }
        }
    )*};
}
optional!(i64, f64, bool, ScalarType, MemoryFormat, Layout, Device);

impl Argument for Option<&Tensor> {
    type Owned = Option<Tensor>;
    type Item<'x> = Option<&'x Tensor>;
    fn lend(owned: &Option<Tensor>) -> Option<&Tensor> {
        // None may also arrive as the undefined tensor.
        owned.as_ref().filter(|tensor| tensor.is_defined())
    }
}

impl Argument for Option<&Generator> {
    type Owned = Option<Generator>;
    type Item<'x> = Option<&'x Generator>;
    fn lend(owned: &Option<Generator>) -> Option<&Generator> {
        owned.as_ref()
    }
}

impl Argument for Option<&[i64]> {
    type Owned = Option<Dims>;
    type Item<'x> = Option<&'x [i64]>;
    fn lend(owned: &Option<Dims>) -> Option<&[i64]> {
        owned.as_deref()
    }
}

impl Argument for Option<&[f64]> {
    type Owned = Option<SmallVec<[f64; 4]>>;
    type Item<'x> = Option<&'x [f64]>;
    fn lend(owned: &Option<SmallVec<[f64; 4]>>) -> Option<&[f64]> {
        owned.as_deref()
    }
}

/// Deletes a list when it goes out of scope; its elements are handed out one by one.
struct List(Handle);

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: an owned list handle.
        unsafe { (api().torch_delete_list)(self.0) };
    }
}

/// Takes every element, even where one fails, so that none leaks.
unsafe fn take_list<T: Owned>(word: Word, mut each: impl FnMut(T)) -> Result<(), Error> {
    let list = List(word as Handle);
    let mut length = 0;
    // SAFETY: a live list handle.
    check(unsafe { (api().torch_list_size)(list.0, &raw mut length) }, "list_size")?;
    let mut result = Ok(());
    for index in 0..length {
        let mut word = 0;
        // SAFETY: the index is in range; each get gives a new reference that `take` owns.
        let taken = unsafe {
            check((api().torch_list_get_item)(list.0, index, &raw mut word), "list_get_item")
                .and_then(|()| T::take(word))
        };
        match taken {
            Ok(value) => each(value),
            Err(error) => result = Err(error),
        }
    }
    result
}

macro_rules! list {
    ($($element:ty, $owned:ty;)*) => {$(
        impl Owned for $owned {
            unsafe fn take(word: Word) -> Result<Self, Error> {
                let mut all = Self::new();
                // SAFETY: by the caller.
                unsafe { take_list(word, |value: $element| all.push(value)) }?;
                Ok(all)
            }
            fn to_python(&self, py: Python<'_>) -> Result<Py<PyAny>, Error> {
                let items: Result<Vec<_>, _> = self.iter().map(|item| item.to_python(py)).collect();
                Ok(PyList::new(py, items?)?.into_any().unbind())
            }
        }
        impl Argument for &[$element] {
            type Owned = $owned;
            type Item<'x> = &'x [$element];
            fn lend(owned: &$owned) -> &[$element] {
                owned
            }
        }
    )*};
}
list! {
    i64, Dims;
    f64, SmallVec<[f64; 4]>;
    bool, SmallVec<[bool; 4]>;
    Tensor, Vec<Tensor>;
    Option<Tensor>, Vec<Option<Tensor>>;
}

impl Owned for String {
    unsafe fn take(word: Word) -> Result<Self, Error> {
        let (handle, mut length, mut text) = (word as Handle, 0, std::ptr::null());
        // SAFETY: an owned string handle; its text is copied before the handle is deleted.
        unsafe {
            (api().torch_string_length)(handle, &raw mut length);
            (api().torch_string_c_str)(handle, &raw mut text);
            let bytes =
                if text.is_null() { &[] } else { std::slice::from_raw_parts(text.cast::<u8>(), length) };
            let string = Self::from_utf8_lossy(bytes).into_owned();
            (api().torch_delete_string)(handle);
            Ok(string)
        }
    }
    fn to_python(&self, py: Python<'_>) -> Result<Py<PyAny>, Error> {
        Ok(PyString::new(py, self).into_any().unbind())
    }
}

impl Argument for &str {
    type Owned = String;
    type Item<'x> = &'x str;
    fn lend(owned: &String) -> &str {
        owned
    }
}

impl Argument for Option<&str> {
    type Owned = Option<String>;
    type Item<'x> = Option<&'x str>;
    fn lend(owned: &Option<String>) -> Option<&str> {
        owned.as_deref()
    }
}

impl Return for () {
    fn put(self, _: &mut [Word]) -> Result<(), Error> {
        Ok(())
    }
    fn from_python(_: &Bound<'_, PyAny>) -> Result<Self, Error> {
        Ok(())
    }
}

impl Return for Tensor {
    fn put(self, stack: &mut [Word]) -> Result<(), Error> {
        stack[0] = self.into_word();
        Ok(())
    }
    fn from_python(object: &Bound<'_, PyAny>) -> Result<Self, Error> {
        if object.is_none() { Self::undefined() } else { FromPython::from_python(object) }
    }
}

impl Return for Vec<Tensor> {
    fn put(self, stack: &mut [Word]) -> Result<(), Error> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a place for the answer.
        check(unsafe { (api().torch_new_list_reserve_size)(self.len(), &raw mut handle) }, "new_list")?;
        let list = List(handle);
        for tensor in self {
            // SAFETY: a live list; it takes the word's ownership.
            check(unsafe { (api().torch_list_push_back)(list.0, tensor.into_word()) }, "list_push_back")?;
        }
        stack[0] = list.0 as Word;
        std::mem::forget(list);
        Ok(())
    }
    fn from_python(object: &Bound<'_, PyAny>) -> Result<Self, Error> {
        FromPython::from_python(object)
    }
}

/// Only through Python: a kernel with such a result is in a table of `scalar_ops!`.
impl Return for Scalar {
    fn put(self, _: &mut [Word]) -> Result<(), Error> {
        Err(Error::Invalid("a Scalar cannot come through the C ABI: use scalar_ops!".into()))
    }
    fn from_python(object: &Bound<'_, PyAny>) -> Result<Self, Error> {
        FromPython::from_python(object)
    }
}

macro_rules! plain_results {
    ($($type:ty, $value:ident => $word:expr;)*) => {$(
        impl Return for $type {
            fn put(self, stack: &mut [Word]) -> Result<(), Error> {
                let $value = self;
                stack[0] = $word;
                Ok(())
            }
            fn from_python(object: &Bound<'_, PyAny>) -> Result<Self, Error> {
                FromPython::from_python(object)
            }
        }
    )*};
}
plain_results! {
    i64, value => value as Word;
    f64, value => value.to_bits();
    bool, value => Word::from(value);
}

macro_rules! tuples {
    ($($name:ident: $tensor:ty),*) => {
        impl Return for ($($tensor,)*) {
            fn put(self, stack: &mut [Word]) -> Result<(), Error> {
                let ($($name,)*) = self;
                for (slot, tensor) in stack.iter_mut().zip([$($name,)*]) {
                    *slot = tensor.into_word();
                }
                Ok(())
            }
            fn from_python(object: &Bound<'_, PyAny>) -> Result<Self, Error> {
                let mut items = object.try_iter()?;
                let few = || Error::Invalid("too few results".into());
                Ok(($({
                    let $name = items.next().ok_or_else(few)??;
                    <$tensor as Return>::from_python(&$name)?
                },)*))
            }
        }
    };
}
tuples!(a: Tensor, b: Tensor);
tuples!(a: Tensor, b: Tensor, c: Tensor);
tuples!(a: Tensor, b: Tensor, c: Tensor, d: Tensor);
tuples!(a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor);
