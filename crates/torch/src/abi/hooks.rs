//! Torch's hooks of a device: what the object that Python registers leaves to C++.
//!
//! It answers for generators, pinned memory and the growing of storages, which Python cannot override. The object gets a
//! copy of its own table with functions of ours in those places. No place is taken from a header: Python calls what
//! ends in each ([`trace`], `python/wave32/_hooks.py`) while every entry tells its number and goes on to torch's own, and
//! torch's refusal names the function that was reached.

use crate::abi::calls::api;
use crate::abi::error::Error;
use crate::abi::vtable::{self, Object, Table};
use crate::runtime::generator;
use crate::tensors::pinned;
use crate::tensors::storage;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Entries that can be traced; a table of this class has 17 in torch 2.15.
const ENTRIES: usize = 24;
/// The destructors, which are not traced.
const FIRST: usize = 2;
/// No entry was called.
const NONE: usize = usize::MAX;

static LAST: AtomicUsize = AtomicUsize::new(NONE);

/// The table that torch gave the object.
static ORIGINAL: OnceLock<Table> = OnceLock::new();

type Entry = unsafe extern "C-unwind" fn(usize, usize, usize, usize) -> usize;

/// Tells its number, then does what torch's own entry does. All of them take words and answer a word or none; what is
/// larger is returned through a place whose address is the first of these words.
unsafe extern "C-unwind" fn traced<const N: usize>(a: usize, b: usize, c: usize, d: usize) -> usize {
    LAST.store(N, Ordering::Relaxed);
    let table = ORIGINAL.get().expect("kept before the table is in place");
    let entry = table.entry(N).expect("torch called this entry of a copy of it");
    // SAFETY: the entry that torch called, with its arguments; more words than it takes do no harm.
    unsafe { std::mem::transmute::<usize, Entry>(entry)(a, b, c, d) }
}

macro_rules! traced {
    ($($n:literal)*) => { [$(traced::<$n> as Entry),*] };
}

const TRACED: [Entry; ENTRIES] = traced!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23);

fn object() -> Result<Object, Error> {
    // SAFETY: torch answers with the object that Python registered before.
    let hooks = api().hooks.map(|hooks| unsafe { hooks() }).filter(|hooks| !hooks.is_null());
    hooks.ok_or_else(|| Error::Torch("libtorch does not give its hooks".into()))
}

/// Has every entry tell its number, until [`settle`].
///
/// # Errors
/// `Torch` where torch does not give the object, `Refused` on processors that return structures otherwise.
pub fn trace() -> Result<(), Error> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Error::Refused("traced on x86-64 only".into()));
    }
    let object = object()?;
    // SAFETY: a live object of torch's.
    let original = unsafe { Table::of(object) }?;
    let replaced = TRACED.iter().enumerate().skip(FIRST).map(|(index, &entry)| (index, entry as usize));
    let replaced: Vec<_> = replaced.take_while(|&(index, _)| original.entry(index).is_ok()).collect();
    let table = original.copy(&replaced)?;
    if ORIGINAL.set(original).is_err() {
        return Err(Error::Refused("traced before".into()));
    }
    // SAFETY: as above; torch is being imported, so no other thread calls the object.
    unsafe { vtable::put(object, table) };
    Ok(())
}

/// The number of the entry that was called last, and forgets it.
pub fn last() -> Option<usize> {
    Some(LAST.swap(NONE, Ordering::Relaxed)).filter(|&index| index != NONE)
}

/// Where torch calls the functions of ours.
#[derive(Debug, Default)]
pub struct Places {
    /// `getNewGenerator`.
    pub generator: Option<usize>,
    /// `getPinnedMemoryAllocator` and `isPinnedPtr`.
    pub pinned: Option<(usize, usize)>,
    /// `resizePrivateUse1Bytes`.
    pub resize: Option<usize>,
}

/// Ends tracing; torch's own entries are back but for those that are known and can be taken. Names those.
///
/// # Errors
/// `Torch` where no call was traced.
pub fn settle(places: &Places) -> Result<Vec<&'static str>, Error> {
    let object = object()?;
    let original = ORIGINAL.get().ok_or_else(|| Error::Torch("not traced".into()))?;
    // SAFETY: the object's own table.
    unsafe { vtable::put(object, original.address()) };
    let (mut replaced, mut taken) = (Vec::new(), Vec::new());
    if let Some(index) = places.generator.filter(|_| generator::prepare().is_ok()) {
        replaced.push((index, generator::new as *const () as usize));
        taken.push("generator");
    }
    if let Some((allocator, is_pinned)) = places.pinned.filter(|_| pinned::prepare().is_ok()) {
        replaced.push((allocator, pinned::allocator as *const () as usize));
        replaced.push((is_pinned, pinned::is_pinned as *const () as usize));
        taken.push("pinned");
    }
    if let Some(index) = places.resize {
        replaced.push((index, storage::resize as *const () as usize));
        taken.push("resize");
    }
    let distinct =
        replaced.iter().enumerate().all(|(n, (index, _))| replaced[..n].iter().all(|(i, _)| i != index));
    if !distinct || replaced.iter().any(|(index, _)| !(FIRST..ENTRIES).contains(index)) {
        return Ok(Vec::new());
    }
    let table = original.copy(&replaced)?;
    // SAFETY: as in `trace`; the functions have the signatures of those places.
    unsafe { vtable::put(object, table) };
    Ok(taken)
}
