//! The suite that every device passes: on a stand-in runtime everywhere, on a card where there is one.

mod common;

use common::{FIXTURE, StandIn, card, card_options, seed};
use std::time::Duration;
use wave32_device::{DeviceKind, PlanDevice, Runner, conformance};
use wave32_hip::Options;

/// What has to be given back, and by which call.
const PAIRS: [(&str, &str); 5] = [
    ("hipMalloc", "hipFree"),
    ("hipHostMalloc", "hipHostFree"),
    ("hipEventCreate", "hipEventDestroy"),
    ("hipStreamCreateWithFlags", "hipStreamDestroy"),
    ("hipModuleLoadData", "hipModuleUnload"),
];

#[test]
fn the_suite_passes_on_a_stand_in_that_gets_everything_back() {
    let runtime = StandIn::new();
    for (submit_target, separate_blocks) in
        [(None, false), (Some(Duration::from_micros(50)), false), (None, true)]
    {
        let options = Options { submit_target, separate_blocks, ..runtime.options() };
        let mut device = Runner::new(wave32_hip::open(None, options).unwrap());
        let passed =
            conformance::run(&mut device, &FIXTURE, &[], seed()).unwrap_or_else(|what| panic!("{what}"));
        assert_eq!(passed.len(), 11);
        assert_eq!(device.queue().heap_stats().allocated, 0, "every buffer was freed");
    }
    for (make, give) in PAIRS {
        assert!(runtime.calls(make) > 0, "{make}");
        assert_eq!(runtime.calls(make), runtime.calls(give), "{make} and {give}");
    }
    assert!(runtime.calls("hipEventCreate") < 2000, "events are used again");
}

#[test]
fn deadlines_hold_on_a_stand_in() {
    let runtime = StandIn::new();
    let device = Runner::new(wave32_hip::open(None, runtime.options()).unwrap());
    // 1e-8 s a round there.
    let (late, dropped) =
        conformance::deadline(device, &FIXTURE, (1, 100_000_000)).unwrap_or_else(|what| panic!("{what}"));
    eprintln!("answered after {late:?}, dropped in {dropped:?}");
    assert_eq!(runtime.calls("hipFree"), 0, "it would wait for the card");
}

#[test]
fn the_suite_passes_on_the_card() {
    let Some(mut device) = card(card_options()) else { return };
    conformance::run(&mut device, &FIXTURE, &[], seed()).unwrap_or_else(|what| panic!("{what}"));
    assert_eq!(device.queue().heap_stats().allocated, 0, "every buffer was freed");
}

#[test]
fn deadlines_hold_on_the_card() {
    let Some(device) = card(card_options()) else { return };
    let virtual_card = device.info().kind == DeviceKind::Cpu;
    // About a second: modelled 30 clocks a round on a card, some 10 ns on one that the CPU executes.
    let work = if virtual_card { (1, 50_000_000) } else { (1, 60_000_000) };
    let (late, dropped) =
        conformance::deadline(device, &FIXTURE, work).unwrap_or_else(|what| panic!("{what}"));
    eprintln!("answered after {late:?}, dropped in {dropped:?}");
}

#[test]
fn queues_conform_on_a_stand_in_that_gets_everything_back() {
    let runtime = StandIn::new();
    for (submit_target, separate_blocks) in
        [(None, false), (Some(Duration::from_micros(1)), false), (None, true)]
    {
        let options = Options { submit_target, separate_blocks, ..runtime.options() };
        let mut queue = wave32_hip::open(None, options).unwrap();
        conformance::queue(&mut queue, &FIXTURE, seed(), 1500, (30 << 20) + 13)
            .unwrap_or_else(|what| panic!("{what}"));
        assert_eq!(queue.heap_stats().allocated, 0);
        queue.empty_cache().unwrap();
        assert_eq!(queue.heap_stats().reserved, 0);
    }
    for (make, give) in PAIRS {
        assert_eq!(runtime.calls(make), runtime.calls(give), "{make} and {give}");
    }
    assert!(runtime.calls("hipEventCreate") < 2000, "events are used again");
}

#[test]
fn queues_conform_on_the_card() {
    let mut queue = match wave32_hip::open(None, card_options()) {
        Ok(queue) => queue,
        Err(error) if std::env::var_os("WAVE32_REQUIRE_HIP").is_some() => panic!("{error}"),
        Err(error) => return eprintln!("skipped: {error}"),
    };
    conformance::queue(&mut queue, &FIXTURE, seed(), 300, (9 << 20) + 13)
        .unwrap_or_else(|what| panic!("{what}"));
}
