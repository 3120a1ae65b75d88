//! HSA signals as the card sees them (`amd_hsa_signal.h`).

use std::sync::atomic::Ordering;

use crate::device::Device;
use crate::queue::Failure;

const VALUE: u64 = 8;
const MAILBOX: u64 = 16;
const EVENT: u64 = 24;
const START: u64 = 32;
const END: u64 = 40;

/// A signal's value.
pub fn value(device: &Device, signal: u64) -> Result<i64, Failure> {
    let word = device.vm.word64(signal.wrapping_add(VALUE)).ok_or(Failure::absent(signal))?;
    Ok(word.load(Ordering::Acquire) as i64)
}

/// What a finished packet does to its completion signal: times, one less, and the event.
pub fn complete(device: &Device, signal: u64, start: u64, end: u64) -> Result<(), Failure> {
    let word = |offset| device.vm.word64(signal.wrapping_add(offset)).ok_or(Failure::absent(signal));
    word(START)?.store(start, Ordering::Relaxed);
    word(END)?.store(end, Ordering::Relaxed);
    // Whoever sees the new value may free the signal: the rest is read before.
    let (mailbox, event) = notice(device, signal)?;
    word(VALUE)?.fetch_sub(1, Ordering::AcqRel);
    notify(device, mailbox, event);
    Ok(())
}

/// Sets a signal's value, and raises its event.
pub fn store(device: &Device, signal: u64, value: u64) -> Result<(), Failure> {
    let word = device.vm.word64(signal.wrapping_add(VALUE)).ok_or(Failure::absent(signal))?;
    let (mailbox, event) = notice(device, signal)?;
    word.store(value, Ordering::Release);
    notify(device, mailbox, event);
    Ok(())
}

fn notice(device: &Device, signal: u64) -> Result<(u64, u32), Failure> {
    let absent = || Failure::absent(signal);
    let mailbox = device.vm.word64(signal.wrapping_add(MAILBOX)).ok_or_else(absent)?.load(Ordering::Relaxed);
    let event = device.vm.word32(signal.wrapping_add(EVENT)).ok_or_else(absent)?.load(Ordering::Relaxed);
    Ok((mailbox, event))
}

fn notify(device: &Device, mailbox: u64, event: u32) {
    if mailbox != 0 {
        if let Some(word) = device.vm.word64(mailbox) {
            word.store(event.into(), Ordering::Release);
        }
        // An event that is gone has no waiters.
        let _ = device.events.set(event);
    }
}
