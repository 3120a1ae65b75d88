//! The calls and objects of the other side.

pub mod calls;
pub(crate) mod conversions;
pub mod error;
pub(crate) mod gil;
pub(crate) mod guard;
pub(crate) mod hooks;
pub(crate) mod python;
pub(crate) mod raise;
pub mod stack;
pub mod unboxed;
pub(crate) mod vtable;
