//! The asynchronous stream: order, cuts, copies, memory, errors.

mod common;

use common::{FIXTURE, options, seed};
use std::time::{Duration, Instant};
use wave32_device::{Arg, DeviceError, Queue, Work, conformance};
use wave32_vulkan::{Options, Stream};

fn open(options: Options) -> Option<Stream> {
    match wave32_vulkan::open_stream(None, options) {
        Ok(stream) => Some(stream),
        Err(DeviceError::Unavailable(why)) if std::env::var_os("WAVE32_REQUIRE_VULKAN").is_none() => {
            eprintln!("skipped: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn assert_clean(stream: &Stream) {
    let messages = stream.validation_messages();
    assert!(messages.is_empty(), "{} validation messages: {messages:#?}", messages.len());
}

fn arg(address: u64, words: u64, writes: bool) -> Arg {
    Arg { address, bytes: 4 * words, writes }
}

/// The suite that every queue passes, which leaves nothing behind.
fn assert_conforms(mut stream: Stream, steps: usize, large: usize) {
    conformance::queue(&mut stream, &FIXTURE, seed(), steps, large).unwrap_or_else(|what| panic!("{what}"));
    assert_eq!(stream.heap_stats().allocated, 0);
    stream.empty_cache().unwrap();
    assert_eq!(stream.heap_stats().reserved, 0);
    assert_clean(&stream);
}

fn step(stream: &mut Stream, from: u64, to: u64, words: u32, mul: u32, add: u32) {
    conformance::step(stream, &FIXTURE, (from, to), words, mul, add).unwrap();
}

#[test]
fn work_runs_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let Some(stream) = open(options(dir.path())) else { return };
    assert_conforms(stream, 1500, (90 << 20) + 13);
}

#[test]
fn work_runs_in_order_in_tiny_submits() {
    let dir = tempfile::tempdir().unwrap();
    let tiny = Options { submit_target: Some(Duration::from_micros(1)), ..options(dir.path()) };
    let Some(stream) = open(tiny) else { return };
    assert_conforms(stream, 300, 1 << 20);
}

#[test]
fn memory_runs_out_with_an_error_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut stream) = open(Options { memory_cap: Some(64 << 20), ..options(dir.path()) }) else {
        return;
    };
    let first = stream.alloc(30 << 20).unwrap();
    stream.free(first);
    // Only fits once the cached segment has been given back.
    let second = stream.alloc(50 << 20).unwrap();
    match stream.alloc(30 << 20) {
        Err(DeviceError::OutOfMemory { requested, in_use }) => {
            assert_eq!((requested, in_use), (30 << 20, 50 << 20));
        }
        other => panic!("{other:?}"),
    }
    let small = stream.alloc(1000).unwrap();
    stream.fill(small, 1000, 1).unwrap();
    stream.free(second);
    stream.free(small);
    stream.alloc(60 << 20).unwrap();
    assert!(matches!(stream.alloc(u64::MAX), Err(DeviceError::OutOfMemory { .. })));
}

#[test]
fn wrong_use_is_an_error_and_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut stream) = open(options(dir.path())) else { return };
    let block = stream.alloc(1024).unwrap();
    let kernel = stream.kernel("step").unwrap();
    let args = [arg(block, 64, false), arg(block, 64, true)];
    let work = Work::default();
    for (grid, params, args) in [
        ([1, 1, 1], &[0, 64, 1][..], &args[..]),
        ([1, 1, 1], &[1, 64, 1, 1], &args),
        ([1, 1, 1], &[0, 64, 1, 1], &args[..1]),
        ([0, 1, 1], &[0, 64, 1, 1], &args),
        ([1, 1, 1], &[0, 64, 1, 1], &[arg(block, 64, false), arg(12, 64, true)]),
        ([1, 1, 1], &[0, 64, 1, 1], &[arg(block, 64, false), arg(block + 2, 64, true)]),
        ([1, 1, 1], &[0, 64, 1, 1], &[arg(block, 64, false), arg(block, 1 << 29, true)]),
    ] {
        let result = stream.launch(kernel, grid, params, args, work);
        assert!(matches!(result, Err(DeviceError::Misuse(_) | DeviceError::Unsupported(_))), "{result:?}");
    }
    assert!(stream.upload(block + (1 << 40), &[1]).is_err());
    assert!(stream.copy(block, block + 4, 8).is_err(), "overlaps");
    assert!(stream.fill(block + 1, 4, 0).is_err());
    assert!(matches!(stream.kernel("nonesuch"), Err(DeviceError::Unsupported(_))));
    stream.fill(block, 1024, 9).unwrap();
    let mut found = [0; 4];
    stream.download(block, &mut found).unwrap();
    assert_eq!(found, [9, 0, 0, 0]);
    assert_clean(&stream);
}

#[test]
fn a_deadline_that_passes_gives_the_device_up() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut stream) = open(options(dir.path())) else { return };
    let block = stream.alloc(256).unwrap();
    // See the conformance test of the deadline: about a second.
    let (groups, rounds) = if stream.info().kind == "cpu" {
        (120 * stream.caps().compute_units, 60_000)
    } else {
        (1, 50_000_000)
    };
    let args = [arg(block, 64, true)];
    Queue::launch(&mut stream, "spin", [groups, 1, 1], &[0, 64, rounds], &args, Work::default()).unwrap();
    stream.set_deadline(Duration::from_millis(50));
    let start = Instant::now();
    let result = stream.synchronize();
    assert!(matches!(result, Err(DeviceError::Timeout { .. })), "{result:?}");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert!(matches!(stream.download(block, &mut [0; 4]), Err(DeviceError::Lost(_))));
}

#[test]
fn a_lost_device_refuses_everything_at_once() {
    let dir = tempfile::tempdir().unwrap();
    for submits in [0, 2] {
        let Some(mut stream) = open(options(dir.path())) else { return };
        let block = stream.alloc(1 << 20).unwrap();
        stream.lose_after(submits);
        let start = Instant::now();
        let mut launch = || {
            stream.fill(block, 1 << 20, 3)?;
            stream.download(block, &mut [0; 4])
        };
        let first = (0..=submits).find_map(|_| launch().err());
        assert!(matches!(first, Some(DeviceError::Lost(_))), "{first:?}");
        assert!(matches!(stream.fill(block, 4, 0), Err(DeviceError::Lost(_))));
        assert!(matches!(stream.upload(block, &[0; 4]), Err(DeviceError::Lost(_))));
        assert!(matches!(stream.synchronize(), Err(DeviceError::Lost(_))));
        assert!(matches!(stream.empty_cache(), Err(DeviceError::Lost(_))));
        assert!(matches!(stream.alloc(1 << 30), Err(DeviceError::Lost(_))), "a new segment");
        stream.free(block);
        assert_clean(&stream);
        drop(stream);
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
}

#[test]
fn steady_work_makes_nothing_that_stays() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut stream) = open(options(dir.path())) else { return };
    let iteration = |stream: &mut Stream, size: u64| {
        let blocks: Vec<u64> = (1..40).map(|n| stream.alloc(n * size).unwrap()).collect();
        for &block in &blocks {
            stream.upload(block, &[7; 64]).unwrap();
            step(stream, block, block, 16, 3, 1);
        }
        blocks.into_iter().for_each(|block| stream.free(block));
        stream.submits()
    };
    // No call here waits for the device but those that run out of command buffers.
    let mut counts = Vec::new();
    for round in 0..120 {
        iteration(&mut stream, 4096);
        counts.push(stream.counts());
        assert!(counts[round].uploads <= 8, "{:?}", counts[round]);
    }
    let (early, late) = (counts[40], counts[119]);
    assert_eq!(
        (early.segments, early.blocks, early.command_buffers, early.kernels),
        (late.segments, late.blocks, late.command_buffers, late.kernels)
    );
    assert_eq!(late.timed, 0);
    stream.synchronize().unwrap();
    assert_eq!(stream.heap_stats().allocated, 0);
    assert_clean(&stream);
}

#[test]
fn launches_are_timed_while_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut stream) = open(options(dir.path())) else { return };
    let block = stream.alloc(4 << 20).unwrap();
    step(&mut stream, block, block, 100, 1, 1);
    assert!(stream.profile(true).unwrap().is_empty());
    for _ in 0..600 {
        step(&mut stream, block, block, 1 << 18, 3, 1);
    }
    let timed = stream.profile(false).unwrap();
    assert!(timed.len() >= 600, "{} (a wide launch may be cut)", timed.len());
    assert!(timed.iter().all(|launch| launch.kernel == "step" && launch.length > Duration::ZERO));
    assert!(timed.is_sorted_by_key(|launch| launch.start));
    step(&mut stream, block, block, 100, 1, 1);
    assert!(stream.profile(false).unwrap().is_empty());
}
