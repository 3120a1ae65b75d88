//! The suite that every device passes, on the best Vulkan device here.

mod common;

use common::{FIXTURE, assert_clean, open, options, seed};
use std::time::Duration;
use wave32_device::{DeviceKind, PlanDevice, conformance};

#[test]
fn conforms() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut device) = open(options(dir.path())) else { return };
    let passed = conformance::run(&mut device, &FIXTURE, &[], seed()).unwrap_or_else(|what| panic!("{what}"));
    assert_eq!(passed.len(), 11);
    assert_eq!(device.queue().heap_stats().allocated, 0, "every buffer was freed");
    assert_clean(device.queue());
}

#[test]
fn conforms_when_submits_are_short() {
    let dir = tempfile::tempdir().unwrap();
    let short =
        wave32_vulkan::Options { submit_target: Some(Duration::from_millis(1)), ..options(dir.path()) };
    let Some(mut device) = open(short) else { return };
    conformance::run(&mut device, &FIXTURE, &[], seed()).unwrap_or_else(|what| panic!("{what}"));
    assert_clean(device.queue());
}

#[test]
fn deadlines_hold() {
    let dir = tempfile::tempdir().unwrap();
    let Some(device) = open(options(dir.path())) else { return };
    // About a second: measured 8 ms a group on a CPU thread (Mesa ends a loop after 65535 rounds), modelled
    // 30 clocks a round on a GPU.
    let work = if device.info().kind == DeviceKind::Cpu {
        (120 * device.caps().compute_units, 60_000)
    } else {
        (1, 50_000_000)
    };
    let (late, dropped) =
        conformance::deadline(device, &FIXTURE, work).unwrap_or_else(|what| panic!("{what}"));
    eprintln!("answered after {late:?}, dropped in {dropped:?}");
}
