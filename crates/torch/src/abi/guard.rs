//! Torch's device guard, answered without Python.
//!
//! A guard that is registered from Python is asked for its device type, through the interpreter, in almost every
//! operator. pybind11 looks at pending signals on that way, so Ctrl-C may be raised there, in functions that must not
//! throw: the process aborts. Here the answers, which never change, are taken once and given from then on by functions
//! of ours, put into a copy of the guard's virtual table.

use crate::abi::calls::{Device, Handle, PRIVATE_USE_1, api};
use crate::abi::error::Error;
use crate::abi::vtable::{self, Table};
use std::sync::OnceLock;

/// `c10::Stream`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Stream {
    device: Device,
    id: i64,
}

type Exchange = unsafe extern "C-unwind" fn(Handle, Device) -> Device;
type Get = unsafe extern "C-unwind" fn(Handle) -> Device;
type StreamOf = unsafe extern "C-unwind" fn(Handle, Device) -> Stream;

/// Entries of the table, in the order of `c10/core/impl/DeviceGuardImplInterface.h`.
const TYPE: usize = 0;
const EXCHANGE_DEVICE: usize = 1;
const GET_DEVICE: usize = 2;
const SET_DEVICE: usize = 3;
const UNCHECKED_SET_DEVICE: usize = 4;
const GET_STREAM: usize = 5;
const EXCHANGE_STREAM: usize = 9;
struct Answers {
    device: Device,
    stream: Stream,
}

static ANSWERS: OnceLock<Answers> = OnceLock::new();

fn answers() -> &'static Answers {
    ANSWERS.get().expect("taken before the table is in place")
}

extern "C" fn kind(_: Handle) -> i8 {
    PRIVATE_USE_1
}

extern "C" fn exchange_device(_: Handle, _: Device) -> Device {
    answers().device
}

extern "C" fn get_device(_: Handle) -> Device {
    answers().device
}

extern "C" fn set_device(_: Handle, _: Device) {}

extern "C" fn get_stream(_: Handle, _: Device) -> Stream {
    answers().stream
}

extern "C" fn exchange_stream(_: Handle, _: Stream) -> Stream {
    answers().stream
}

/// Puts the functions above in the place of the Python guard's. Once, right after it was registered, and only in a
/// torch whose `DeviceGuardImplInterface` begins as the constants above say ([`wave32_host::torch`]).
///
/// # Errors
/// `Torch` where no guard is registered, it answers nonsense or its table has too few functions.
pub fn settle() -> Result<(), Error> {
    let Some(registry) = api().guard_registry else { return Ok(()) };
    // SAFETY: the registry is an array of pointers by device type, and has over 20 of them.
    let guard = unsafe { registry.add(PRIVATE_USE_1 as usize).read() };
    if guard.is_null() {
        return Err(Error::Torch("no device guard is registered".into()));
    }
    // SAFETY: torch keeps its guards for good.
    let table = unsafe { Table::of(guard) }?;
    let (get, exchange, stream) =
        (table.entry(GET_DEVICE)?, table.entry(EXCHANGE_DEVICE)?, table.entry(GET_STREAM)?);
    // SAFETY: the entries have these signatures and are called as C++ calls them: both ABIs pass and return such
    // structures alike.
    let (device, stream) = unsafe {
        let get: Get = std::mem::transmute(get);
        let exchange: Exchange = std::mem::transmute(exchange);
        let stream: StreamOf = std::mem::transmute(stream);
        let device = get(guard);
        (exchange(guard, device), stream(guard, device))
    };
    if device.kind != PRIVATE_USE_1 || stream.device.kind != PRIVATE_USE_1 {
        return Err(Error::Torch(format!("the device guard answers {device:?}, {stream:?}")));
    }
    let copy = table.copy(&[
        (TYPE, kind as *const () as usize),
        (EXCHANGE_DEVICE, exchange_device as *const () as usize),
        (GET_DEVICE, get_device as *const () as usize),
        (SET_DEVICE, set_device as *const () as usize),
        (UNCHECKED_SET_DEVICE, set_device as *const () as usize),
        (GET_STREAM, get_stream as *const () as usize),
        (EXCHANGE_STREAM, exchange_stream as *const () as usize),
    ])?;
    if ANSWERS.set(Answers { device, stream }).is_ok() {
        // SAFETY: the functions have the signatures of their places; no other thread uses the device yet.
        unsafe { vtable::put(guard, copy) };
    }
    Ok(())
}
