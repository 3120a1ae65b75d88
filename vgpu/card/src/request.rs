//! Requests of ioctls: structures of the kernel's headers, copied in and out as the kernel does.

use crate::errno::Result;
use crate::user::{self, Plain};

macro_rules! args {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Debug, Clone, Copy)]
            pub(crate) struct $name { $(pub(crate) $field: $ty),* }
            // SAFETY: the fields below are integers, their sizes add up to the structure's (asserted).
            unsafe impl $crate::user::Plain for $name {}
            const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$ty>())*);
        )*
    };
}

pub(crate) use args;

/// Where a request's arguments are, and whether they are answered there.
#[derive(Clone, Copy)]
pub(crate) struct Argument {
    pub(crate) at: u64,
    pub(crate) bytes: usize,
    pub(crate) answered: bool,
}

/// Copies arguments in, as far as the caller has them, and out again, as the kernel does.
///
/// # Safety
/// What the request answers is written where the program said: nothing of ours lies there.
pub(crate) unsafe fn call<A: Plain>(
    argument: Argument,
    handle: impl FnOnce(&mut A) -> Result<()>,
) -> Result<()> {
    let bytes = argument.bytes.min(size_of::<A>());
    // SAFETY: any bytes make an `A`, zeros too.
    let mut args = unsafe { std::mem::zeroed::<A>() };
    // SAFETY: no more than an `A` has, and it stays valid whatever is written.
    let fields = unsafe { std::slice::from_raw_parts_mut((&raw mut args).cast(), bytes) };
    user::read_bytes(argument.at, fields)?;
    handle(&mut args)?;
    if argument.answered {
        // SAFETY: the caller's promise.
        unsafe { user::write_bytes(argument.at, &user::bytes_of(&[args])[..bytes]) }?;
    }
    Ok(())
}
