//! Virtual tables of torch's C++ objects: read, and copied with entries of ours in place of some.
//!
//! The Itanium C++ ABI, which every compiler on Linux follows, fixes that an object's first word is its table's address,
//! that offset and type information lie before it, and that entries are plain functions with the object as their first
//! argument. Which entry is which is up to torch, so callers find that out at run time before they replace one.

use std::ffi::c_void;

/// Words that a table's address lies behind its start: offset to the object's top, type information.
const HEAD: usize = 2;

/// A C++ object with virtual functions.
pub type Object = *mut c_void;

/// The table of an object.
///
/// # Safety
/// `object` is a live C++ object with virtual functions.
pub unsafe fn of(object: Object) -> *const usize {
    // SAFETY: by the caller.
    unsafe { object.cast::<*const usize>().read() }
}

/// An entry of a table.
///
/// # Safety
/// `table` has an entry `index`, or lies where as many words may be read.
pub unsafe fn entry(table: *const usize, index: usize) -> usize {
    // SAFETY: by the caller.
    unsafe { table.add(index).read() }
}

/// Where a table's first `entries` name a function.
///
/// # Safety
/// As for [`entry`].
pub unsafe fn find(table: *const usize, entries: usize, function: usize) -> Option<usize> {
    // SAFETY: by the caller.
    (0..entries).find(|&index| unsafe { entry(table, index) } == function)
}

/// A copy that is never freed, of the first `entries`, some of them replaced.
///
/// # Safety
/// As for [`entry`]; the functions are what their places are called as.
pub unsafe fn copy(table: *const usize, entries: usize, replaced: &[(usize, usize)]) -> *const usize {
    let mut words = vec![0usize; HEAD + entries].into_boxed_slice();
    // SAFETY: by the caller; a table's head lies before it.
    unsafe { std::ptr::copy_nonoverlapping(table.sub(HEAD), words.as_mut_ptr(), HEAD + entries) };
    for &(index, function) in replaced {
        words[HEAD + index] = function;
    }
    // SAFETY: within the allocation, which lives for good.
    unsafe { Box::leak(words).as_ptr().add(HEAD) }
}

/// Gives an object another table.
///
/// # Safety
/// `object` is live, no other thread calls it, and `table` is one for its class.
pub unsafe fn put(object: Object, table: *const usize) {
    // SAFETY: by the caller.
    unsafe { object.cast::<*const usize>().write(table) };
}
