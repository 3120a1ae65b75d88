//! `torch.Generator("wave")`: a generator of the CPU's class that says it is this device's.
//!
//! Its state is the CPU's (Mersenne Twister), of which a kernel draws the seed of a sequence of its own; so state, seed
//! and copies are torch's code. It gets a copy of its class' table in which the copy is dressed likewise, and an offset,
//! which pickling asks of devices, is 0. Entries are found by the addresses of torch's exported functions, the place of
//! the device by building two generators that differ in it.

use crate::abi::calls::{Device, Handle, PRIVATE_USE_1, api};
use crate::abi::error::Error;
use crate::abi::raise::raise;
use crate::abi::vtable::{self, Object, Table};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// More bytes than a generator's base class has.
const BYTES: usize = 512;
/// As PyTorch's default seed.
const SEED: u64 = 67_280_421_310_721;

struct Class {
    /// The table of ours.
    table: usize,
    /// Where a generator says which device it is of.
    device: usize,
    /// Torch's own way to copy a generator.
    clone: unsafe extern "C-unwind" fn(Object) -> Object,
}

static CLASS: OnceLock<Class> = OnceLock::new();

/// Draws of kernels exclude each other: they may come from threads without Python's lock.
static DRAWING: Mutex<()> = Mutex::new(());

fn lock() -> MutexGuard<'static, ()> {
    DRAWING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn missing(what: &str) -> Error {
    Error::Torch(format!("generators are not as expected: {what}"))
}

/// The place of the two bytes in which generators of different devices differ.
fn device_place(construct: unsafe extern "C-unwind" fn(Object, Device, u64)) -> Option<usize> {
    let built = |device: Device| {
        let mut memory = Box::new([0u64; BYTES / 8]);
        // SAFETY: room for any generator; the base class' constructor sets plain members, so nothing is to destroy.
        unsafe { construct(memory.as_mut_ptr().cast(), device, 0) };
        memory.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()
    };
    let (one, other) = (built(Device { kind: 0, index: 3 }), built(Device { kind: PRIVATE_USE_1, index: 5 }));
    let differs: Vec<usize> = (0..BYTES).filter(|&at| one[at] != other[at]).collect();
    match differs[..] {
        [first, second] if second == first + 1 => {
            (one[first..][..2] == [0, 3] && other[first..][..2] == [PRIVATE_USE_1 as u8, 5]).then_some(first)
        }
        _ => None,
    }
}

/// Finds out how generators are made. Before [`new`] is in place.
///
/// # Errors
/// `Torch` where they are made otherwise than this module knows.
pub fn prepare() -> Result<(), Error> {
    let api = api();
    let (Some(construct), Some(make), Some(table), Some(clone), Some(get_offset), Some(set_offset)) = (
        api.generator_construct,
        api.cpu_generator_new,
        api.cpu_generator_vtable,
        api.cpu_generator_clone,
        api.cpu_generator_get_offset,
        api.cpu_generator_set_offset,
    ) else {
        return Err(missing("libtorch does not export them"));
    };
    if api.cpu_generator_random64.is_none() {
        return Err(missing("no random64"));
    }
    let device = device_place(construct).ok_or_else(|| missing("the place of their device"))?;
    let mut made: Object = std::ptr::null_mut();
    // SAFETY: a generator is a pointer, answered through the place given.
    unsafe { make((&raw mut made).cast(), SEED) };
    // SAFETY: a fresh generator, kept for good, and the place of its device.
    let (own, kind) = unsafe { (Table::of(made)?, made.cast::<u8>().add(device).read()) };
    // Offset and type information come first.
    if own.address() != table.wrapping_add(2) as usize {
        return Err(missing("their table"));
    }
    if kind != 0 {
        return Err(missing("the CPU's device"));
    }
    let found = (own.find(clone as usize), own.find(get_offset as usize), own.find(set_offset as usize));
    let (Some(at_clone), Some(at_get), Some(at_set)) = found else {
        return Err(missing("their entries"));
    };
    let table = own.copy(&[
        (at_clone, clone_dressed as *const () as usize),
        (at_get, offset as *const () as usize),
        (at_set, set_offset_to as *const () as usize),
    ])?;
    let _ = CLASS.set(Class { table, device, clone });
    Ok(())
}

fn class() -> &'static Class {
    CLASS.get().expect("prepared before the functions are in place")
}

/// Makes a fresh generator of the CPU's this device's.
///
/// # Safety
/// `generator` is of the CPU's class, and no other thread knows it.
unsafe fn dress(generator: Object) {
    // SAFETY: by the caller; the place was found by `prepare`.
    unsafe {
        let device = Device { kind: PRIVATE_USE_1, index: 0 };
        generator.cast::<u8>().add(class().device).cast::<Device>().write_unaligned(device);
        vtable::put(generator, class().table);
    }
}

/// `getNewGenerator`: the generator, a pointer, is answered through `place`.
pub unsafe extern "C-unwind" fn new(place: *mut Object, _hooks: Object, _index: i8) -> *mut Object {
    let make = api().cpu_generator_new.expect("checked by prepare");
    // SAFETY: as in `prepare`; the fresh generator is known to nobody.
    unsafe {
        make(place.cast(), SEED);
        dress(*place);
    }
    place
}

unsafe extern "C-unwind" fn clone_dressed(generator: Object) -> Object {
    let _drawing = lock();
    // SAFETY: torch's own function for the same object; the copy is known to nobody.
    unsafe {
        let made = (class().clone)(generator);
        dress(made);
        made
    }
}

extern "C-unwind" fn offset(_generator: Object) -> u64 {
    0
}

extern "C-unwind" fn set_offset_to(_generator: Object, offset: u64) {
    if offset != 0 {
        raise(Error::Invalid(format!("a generator of wave has no offset but 0, so not {offset}")));
    }
}

/// A whole number below 2^53 from a generator of this device's; none where it is another's.
///
/// # Safety
/// `generator` is a live handle, `at::Generator*`.
pub unsafe fn draw(generator: Handle) -> Option<u64> {
    let (class, random64) = (CLASS.get()?, api().cpu_generator_random64?);
    // SAFETY: a handle points to a pointer to the generator.
    unsafe {
        let object = generator.cast::<Object>().read();
        if object.is_null() || vtable::address(object) != class.table {
            return None;
        }
        let _drawing = lock();
        Some(random64(object) >> 11)
    }
}
