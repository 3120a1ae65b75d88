//! Descriptors that are created empty, set, read and destroyed.

use crate::abi::entry::{Failure, Outcome};
use crate::abi::ffi::{Id, Out};
use crate::abi::objects::{self, Object};
use std::sync::{Mutex, PoisonError};

/// The value of a kind of descriptor.
pub trait DescriptorValue: Clone + Send + 'static {
    /// What messages call the descriptor.
    const KIND: &'static str;
}

/// A descriptor; empty until it is set.
#[derive(Debug)]
pub struct Slot<T>(Mutex<Option<T>>);

impl<T: DescriptorValue> Object for Slot<T> {
    const KIND: &'static str = T::KIND;
}

/// Creates one that is empty, or, of some kinds, starts as `value`.
///
/// # Errors
/// Bad parameter: `out` is null.
pub fn create<T: DescriptorValue>(out: &Out<Id>, value: Option<T>) -> Outcome {
    out.check(T::KIND)?;
    out.set(T::KIND, insert(value))
}

/// Registers a descriptor.
pub fn insert<T: DescriptorValue>(value: Option<T>) -> Id {
    objects::insert(Slot(Mutex::new(value)))
}

/// Sets the descriptor's value.
///
/// # Errors
/// Bad parameter where `id` is unknown, destroyed, or of another kind.
pub fn set<T: DescriptorValue>(id: Id, value: T) -> Outcome {
    let slot = objects::get::<Slot<T>>(id, T::KIND)?;
    *slot.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    Ok(())
}

/// The descriptor's value.
///
/// # Errors
/// As [`set`]; it was never set.
pub fn get<T: DescriptorValue>(id: Id) -> Outcome<T> {
    let slot = objects::get::<Slot<T>>(id, T::KIND)?;
    let value = slot.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    value.ok_or_else(|| Failure::bad(format!("the {} was never set", T::KIND)))
}

/// Changes the descriptor's value.
///
/// # Errors
/// As [`get`]; what `change` returns.
pub fn change<T: DescriptorValue, R>(id: Id, change: impl FnOnce(&mut T) -> Outcome<R>) -> Outcome<R> {
    let slot = objects::get::<Slot<T>>(id, T::KIND)?;
    let mut value = slot.0.lock().unwrap_or_else(PoisonError::into_inner);
    change(value.as_mut().ok_or_else(|| Failure::bad(format!("the {} was never set", T::KIND)))?)
}

/// Destroys it.
///
/// # Errors
/// As [`set`].
pub fn destroy<T: DescriptorValue>(id: Id) -> Outcome {
    objects::remove::<Slot<T>>(id, T::KIND).map(drop)
}
