//! Arguments and results of boxed calls: which Rust types stand for which types of a schema.
//!
//! | schema | argument | result |
//! |---|---|---|
//! | `Tensor`, `Tensor(a!)` | `&Tensor` | `Tensor` |
//! | `Tensor?` | `Option<&Tensor>` | |
//! | `Tensor[]`, `Tensor?[]` | `&[Tensor]`, `&[Option<Tensor>]` | `Vec<Tensor>` |
//! | `int`, `SymInt`, `float`, `bool` | `i64`, `f64`, `bool` | the same |
//! | `int[]`, `SymInt[]`, `bool[]` | `&[i64]`, `&[bool]` | |
//! | `ScalarType`, `MemoryFormat` | `DType`, `MemoryFormat` | |
//! | `str` | `&str` | |
//! | `Layout`, `Device`, `Generator?` | `Layout`, `Device`, `Option<Generator>` | |
//! | `X?` | `Option<X>` | |
//!
//! The callee owns every argument: each is decoded into an owned form first, all of them even where one
//! fails, and the kernel gets a loan.

use crate::abi::{Handle, Word, api, check};
use crate::dtype::{DType, MemoryFormat};
use crate::error::Error;
use crate::tensor::{Dims, Tensor};
use smallvec::SmallVec;

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

    /// The same argument for a call on the CPU, owned by that call. Tensors of the device are copied
    /// there, and `seen` gets each pair in order.
    ///
    /// # Errors
    /// `Torch`, the stream's.
    fn give(&self, seen: &mut Vec<(Tensor, Tensor)>) -> Result<Word, Error>;
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
    /// `Torch`.
    fn put(self, stack: &mut [Word]) -> Result<(), Error>;

    /// Takes the results of a call on the CPU, as tensors of the device. Results that are one of the
    /// arguments (`seen`) become that argument.
    ///
    /// # Errors
    /// `Torch`, the stream's.
    ///
    /// # Safety
    /// `stack` starts with the results of a call with the same schema.
    unsafe fn from_cpu(stack: &[Word], seen: &[(Tensor, Tensor)]) -> Result<Self, Error>;
}

macro_rules! plain {
    ($($type:ty, $word:ident => $take:expr, $value:ident => $give:expr;)*) => {$(
        impl Owned for $type {
            unsafe fn take($word: Word) -> Result<Self, Error> {
                $take
            }
            fn give(&self, _: &mut Vec<(Tensor, Tensor)>) -> Result<Word, Error> {
                let $value = *self;
                Ok($give)
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
    i64, word => Ok(word as i64), value => value as Word;
    f64, word => Ok(f64::from_bits(word)), value => value.to_bits();
    bool, word => Ok(word & 1 != 0), value => Word::from(value);
    DType, word => Self::from_code(word as i32), value => Word::from(value.code() as u32);
    MemoryFormat, word => Self::from_code(word as i32), value => Word::from(value.code() as u32);
    Layout, word => Ok(Self(word as i32)), value => Word::from(value.0 as u32);
    Device, word => Ok(Self(word)), value => value.0;
}

/// A layout's code; the device has strided tensors only.
#[derive(Debug, Clone, Copy)]
pub struct Layout(pub i32);

/// A device, as libtorch packs it.
#[derive(Debug, Clone, Copy)]
pub struct Device(pub Word);

/// A random generator's handle, as of 2.13; before, only none arrives.
#[derive(Debug)]
pub struct Generator(Handle);

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
    fn give(&self, _: &mut Vec<(Tensor, Tensor)>) -> Result<Word, Error> {
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
    fn give(&self, seen: &mut Vec<(Tensor, Tensor)>) -> Result<Word, Error> {
        if !self.is_defined() || !self.is_wave() {
            return Ok(self.share()?.into_word());
        }
        let host = crate::copies::to_host(self)?;
        let word = host.share()?.into_word();
        seen.push((self.share()?, host));
        Ok(word)
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
    fn give(&self, seen: &mut Vec<(Tensor, Tensor)>) -> Result<Word, Error> {
        let Some(inner) = self else { return Ok(0) };
        let inner = inner.give(seen)?;
        let mut boxed: *mut Word = std::ptr::null_mut();
        // SAFETY: the callee frees the box the way it was made.
        unsafe {
            match api().new_stable_ivalue {
                Some(new) => check(new(&raw mut boxed), "new_stable_ivalue")?,
                None => boxed = (api()._Znwm)(size_of::<Word>()).cast(),
            }
            *boxed = inner;
        }
        Ok(boxed as Word)
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
optional!(i64, f64, bool, DType, MemoryFormat, Layout, Device);

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

fn give_list<'a, T: Owned + 'a>(
    items: impl ExactSizeIterator<Item = &'a T>,
    seen: &mut Vec<(Tensor, Tensor)>,
) -> Result<Word, Error> {
    let mut handle = std::ptr::null_mut();
    // SAFETY: a place for the answer.
    check(unsafe { (api().torch_new_list_reserve_size)(items.len(), &raw mut handle) }, "new_list")?;
    let list = List(handle);
    for item in items {
        let word = item.give(seen)?;
        // SAFETY: a live list; it takes the word's ownership.
        check(unsafe { (api().torch_list_push_back)(list.0, word) }, "list_push_back")?;
    }
    let word = list.0 as Word;
    std::mem::forget(list);
    Ok(word)
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
            fn give(&self, seen: &mut Vec<(Tensor, Tensor)>) -> Result<Word, Error> {
                give_list(self.iter(), seen)
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
    fn give(&self, _: &mut Vec<(Tensor, Tensor)>) -> Result<Word, Error> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a text of that length.
        let status =
            unsafe { (api().torch_new_string_handle)(self.as_ptr().cast(), self.len(), &raw mut handle) };
        check(status, "new_string")?;
        Ok(handle as Word)
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

/// A result of a call on the CPU as a tensor of the device.
unsafe fn tensor_from_cpu(word: Word, seen: &[(Tensor, Tensor)]) -> Result<Tensor, Error> {
    // SAFETY: by the caller.
    let host = unsafe { Tensor::from_handle(word as Handle) };
    if !host.is_defined() {
        return Ok(host);
    }
    match seen.iter().find(|(_, copy)| copy.is_same(&host)) {
        Some((original, _)) => original.share(),
        None => crate::copies::to_device(&host),
    }
}

impl Return for () {
    fn put(self, _: &mut [Word]) -> Result<(), Error> {
        Ok(())
    }
    unsafe fn from_cpu(_: &[Word], _: &[(Tensor, Tensor)]) -> Result<Self, Error> {
        Ok(())
    }
}

impl Return for Tensor {
    fn put(self, stack: &mut [Word]) -> Result<(), Error> {
        stack[0] = self.into_word();
        Ok(())
    }
    unsafe fn from_cpu(stack: &[Word], seen: &[(Tensor, Tensor)]) -> Result<Self, Error> {
        // SAFETY: by the caller.
        unsafe { tensor_from_cpu(stack[0], seen) }
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
    unsafe fn from_cpu(stack: &[Word], seen: &[(Tensor, Tensor)]) -> Result<Self, Error> {
        let mut hosts: Self = Vec::new();
        // SAFETY: by the caller.
        unsafe { take_list(stack[0], |host| hosts.push(host)) }?;
        // SAFETY: each handle is given on once.
        hosts.into_iter().map(|host| unsafe { tensor_from_cpu(host.into_word(), seen) }).collect()
    }
}

macro_rules! plain_results {
    ($($type:ty),*) => {$(
        impl Return for $type {
            fn put(self, stack: &mut [Word]) -> Result<(), Error> {
                stack[0] = self.give(&mut Vec::new())?;
                Ok(())
            }
            unsafe fn from_cpu(stack: &[Word], _: &[(Tensor, Tensor)]) -> Result<Self, Error> {
                // SAFETY: by the caller.
                unsafe { <$type as Owned>::take(stack[0]) }
            }
        }
    )*};
}
plain_results!(i64, f64, bool);

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
            unsafe fn from_cpu(stack: &[Word], seen: &[(Tensor, Tensor)]) -> Result<Self, Error> {
                let mut words = stack.iter();
                $(let $name = words.next().copied().unwrap_or_default();)*
                // SAFETY: by the caller. All are taken before any error returns, so that none leaks.
                $(let $name = unsafe { tensor_from_cpu($name, seen) };)*
                Ok(($($name?,)*))
            }
        }
    };
}
tuples!(a: Tensor, b: Tensor);
tuples!(a: Tensor, b: Tensor, c: Tensor);
tuples!(a: Tensor, b: Tensor, c: Tensor, d: Tensor);
tuples!(a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor);
