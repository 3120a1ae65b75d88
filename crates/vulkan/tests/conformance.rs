//! The suite that every device passes, on the best Vulkan device here.

mod common;

use common::{FIXTURE, assert_clean, open, options, seed};
use std::time::Duration;
use wave32_device::{Device, conformance};

#[test]
fn conforms() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut device) = open(options(dir.path())) else { return };
    let passed = conformance::run(&mut device, &FIXTURE, &[], seed()).unwrap_or_else(|what| panic!("{what}"));
    assert_eq!(passed.len(), 11);
    assert_eq!(device.memory_in_use(), 0, "every buffer was freed");
    assert_clean(&device);
}

#[test]
fn conforms_when_every_launch_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let tiny = wave32_vulkan::Options { submit_target: Some(Duration::from_micros(20)), ..options(dir.path()) };
    let Some(mut device) = open(tiny) else { return };
    conformance::run(&mut device, &FIXTURE, &[], seed()).unwrap_or_else(|what| panic!("{what}"));
    assert_clean(&device);
}

#[test]
fn deadlines_hold() {
    let dir = tempfile::tempdir().unwrap();
    let Some(device) = open(options(dir.path())) else { return };
    // Enough for a second or more of one workgroup: 64 threads, 8 at a time on a CPU, about 6 operations.
    let rounds = if device.info().kind == "cpu" { 60_000_000 } else { 200_000_000 };
    let (late, dropped) =
        conformance::deadline(Box::new(device), &FIXTURE, rounds).unwrap_or_else(|what| panic!("{what}"));
    eprintln!("answered after {late:?}, dropped in {dropped:?}");
}
