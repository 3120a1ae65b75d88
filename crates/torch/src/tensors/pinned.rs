//! Pinned memory: plain memory of the CPU that is known as pinned.
//!
//! Uploads go through staging memory, so pinned memory is none the faster; programs ask for it, and ask whether a tensor
//! has it. The allocator is the CPU's, seen through a copy of its table in which `allocate` takes note of the memory and
//! gives it a deleter that forgets it.

use crate::abi::calls::api;
use crate::abi::error::Error;
use crate::abi::vtable::{Object, Table};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// `c10::DataPtr`: data, context and deleter in an order that is found out, then the device.
type Data = [usize; 4];
type Allocate = unsafe extern "C-unwind" fn(*mut Data, Object, usize) -> *mut Data;
type Deleter = unsafe extern "C" fn(usize);

/// Entries of an allocator's table: two destructors, then these. `is_simple_data_ptr` follows on `allocate`.
const ALLOCATE: usize = 2;
const IS_SIMPLE: usize = 3;
const RAW_DELETER: usize = 4;

struct Class {
    /// Of one word: its table.
    allocator: [usize; 1],
    /// Torch's own, and what it calls.
    plain: usize,
    allocate: Allocate,
    delete: Deleter,
    /// Where the deleter lies in the data.
    deleter: usize,
}

static CLASS: OnceLock<Class> = OnceLock::new();

/// Pinned memory: its start and its bytes.
static PINNED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn pinned() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    PINNED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn missing(what: &str) -> Error {
    Error::Torch(format!("allocators are not as expected: {what}"))
}

fn class() -> &'static Class {
    CLASS.get().expect("prepared before the functions are in place")
}

/// Finds out how allocators are made. Before [`allocator`] is in place.
///
/// # Errors
/// `Torch` where they are made otherwise than this module knows.
pub fn prepare() -> Result<(), Error> {
    let (Some(get), Some(is_simple)) = (api().cpu_allocator, api().allocator_is_simple) else {
        return Err(missing("libtorch does not export them"));
    };
    // SAFETY: torch's own allocator, which lives for good. Where its entry behind `allocate` is the exported function,
    // `allocate` and `raw_deleter` are at their places and of these types.
    unsafe {
        let plain = get();
        if plain.is_null() {
            return Err(missing("there is none"));
        }
        let table = Table::of(plain)?;
        if table.find(is_simple as usize) != Some(IS_SIMPLE) {
            return Err(missing("their entries"));
        }
        let allocate: Allocate = std::mem::transmute(table.entry(ALLOCATE)?);
        let raw_deleter: unsafe extern "C-unwind" fn(Object) -> usize =
            std::mem::transmute(table.entry(RAW_DELETER)?);
        let delete = raw_deleter(plain);
        let mut data: Data = [0; 4];
        allocate(&raw mut data, plain, 64);
        let context = match data {
            [data, deleter, context, 0..=0xffff_ffff]
                if deleter == delete && context == data && delete != 0 =>
            {
                2
            }
            [data, context, deleter, 0..=0xffff_ffff]
                if deleter == delete && context == data && delete != 0 =>
            {
                1
            }
            _ => return Err(missing("what they answer")),
        };
        let deleted: Deleter = std::mem::transmute::<usize, Deleter>(delete);
        deleted(data[context]);
        let replaced = [
            (ALLOCATE, allocate_pinned as *const () as usize),
            (RAW_DELETER, deleter_of_pinned as *const () as usize),
        ];
        let allocator = [table.copy(&replaced)?];
        let plain = plain as usize;
        let _ = CLASS.set(Class { allocator, plain, allocate, delete: deleted, deleter: 3 - context });
    }
    Ok(())
}

/// `getPinnedMemoryAllocator`.
pub extern "C-unwind" fn allocator(_hooks: Object) -> Object {
    class().allocator.as_ptr() as Object
}

/// `isPinnedPtr`.
pub extern "C-unwind" fn is_pinned(_hooks: Object, address: usize) -> bool {
    let pinned = pinned();
    pinned.range(..=address).next_back().is_some_and(|(start, bytes)| address - start < *bytes)
}

unsafe extern "C-unwind" fn allocate_pinned(place: *mut Data, _allocator: Object, bytes: usize) -> *mut Data {
    let class = class();
    // SAFETY: torch's own allocator and a place for its answer; one deleter is replaced by one that calls it.
    unsafe {
        (class.allocate)(place, class.plain as Object, bytes);
        if (*place)[0] != 0 {
            pinned().insert((*place)[0], bytes.max(1));
            (*place)[class.deleter] = delete as *const () as usize;
        }
    }
    place
}

extern "C-unwind" fn deleter_of_pinned(_allocator: Object) -> usize {
    delete as *const () as usize
}

/// Forgets memory, then frees it: no other thread may get it in between and find its own forgotten.
unsafe extern "C" fn delete(context: usize) {
    pinned().remove(&context);
    // SAFETY: what torch's allocator gave, with the deleter that it gave for it.
    unsafe { (class().delete)(context) };
}
